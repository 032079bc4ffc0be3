//! Wrong uses and wrong inputs: what is said of each, and that nothing is made of it.

use testing::rows;

use super::*;

/// Input, output, more flags, the code, and what is said, with `…` between its parts.
const REFUSED: &str = "
in.jsonl | out | --text-column body | 1 | in.jsonl…`body`…id, text
in.parquet | out | --text-column body | 1 | in.parquet…`body`…id, text
in.csv | out | --text-column body | 1 | in.csv…`body`…id, text
in.parquet | out | --text-column id | 1 | `id`…Int64…not of text
twice.csv | out | | 1 | twice.csv…two columns…`text`
other.csv | out | --keep id | 1 | other.csv…two columns…`id`
packed.jsonl.gz | out | --input-format jsonl | 1 | packed.jsonl.gz…packed with gzip…gunzip
packed.JSONL.GZ | out | | 1 | packed.JSONL.GZ…packed with gzip…gunzip
packed.jsonl | out | | 1 | packed.jsonl…packed with gzip…gunzip
/dev/zero | out | --input-format lines | 1 | /dev/zero: line 1 has more than…a row has at most
in.jsonl | full | | 1 | full…was not made by this command
in.jsonl | mine.jsonl | | 1 | mine.jsonl…was not made by this command
in.jsonl | my.parquet | | 1 | my.parquet.rejected.jsonl…of no run that is on record…remove it
full | out | | 2 | full…it is a folder…/full/*.jsonl'
full | out | --input-format jsonl | 2 | full…it is a folder
spark*.parquet | out | | 2 | spark.parquet…it is a folder…/spark.parquet/*.parquet'
no*.jsonl | out | | 2 | no*.jsonl…no such file
in.jsonl | out | --keep id,id | 2 | --keep…`id` twice
in.jsonl | out | --part-rows 0 | 2 | --part-rows: use a whole number above zero
in.jsonl | out | --dimensions 5 | 2 | dimensions 5…4 or 8
in.jsonl | out | --dense-type int8 | 2 | no ranges for bytes and bits…8 numbers…--dense-type f16
in.jsonl | out | --sparse-top-k 0 | 2 | --sparse-top-k…above zero
in.jsonl | out | --sparse-min-weight inf | 2 | --sparse-min-weight…zero or above
in.jsonl | out | --sparse-min-weight nan | 2 | --sparse-min-weight…zero or above
in.jsonl | out | --late | 2 | add --chunk-tokens
in.jsonl | out | --chunk-overlap 2 | 2 | add --chunk-tokens
in.jsonl | out | --chunk-tokens 4 --chunk-overlap 4 | 2 | --chunk-overlap: 4…below --chunk-tokens…4
in.jsonl | out | --chunk-tokens 0 | 2 | above zero
in.jsonl | out | --chunk-tokens 4 --vectors dense --format npy | 2 | use --format parquet
in.jsonl | vn.csv | | 2 | vn.csv….parquet, .jsonl or .npy…a folder
in.jsonl | out.npy | --vectors dense --keep id | 2 | npy…--keep
in.jsonl | out.npy | --vectors both | 2 | npy…--vectors dense, or end the name in .parquet
in.jsonl | out.NPY | --vectors both | 2 | npy…--vectors dense
in.jsonl | out.npy | --format parquet | 2 | leave --format out, or end the name in .parquet
in.jsonl | out.npy | --chunk-tokens 4 --vectors dense | 2 | where chunks are…in .parquet or .jsonl
*.jsonl | out.jsonl | --format jsonl | 2 | --out…out.jsonl…also the input
*.jsonl | | --format jsonl | 2 | --out…also the input
in.jsonl | in.jsonl | --format jsonl | 2 | --out…in.jsonl…also the input
*.jsonl | new.jsonl/ | | 2 | --out…new.jsonl/…also the input
*/*.jsonl | out | --format jsonl | 2 | --out…out…also the input
**/*.jsonl | out | --format jsonl | 2 | --out…out…also the input
*/*.jsonl | out.jsonl | | 2 | --out…out.jsonl…also the input
v.parquet.rejected.jsonl | v.parquet | | 2 | v.parquet.rejected.jsonl…beside its vectors…in quotes
";

#[test]
fn wrong_uses_and_inputs_are_named_with_a_cure_and_make_no_output() {
    let corpus = Folder::with_rows(5);
    let write = |name: &str, bytes: &[u8]| corpus.write(name, bytes);
    write_parquet(&corpus.path("in.parquet"), &texts(5));
    write("in.csv", b"id,text\n1,a\n");
    write("twice.csv", b"text,id,text,id\none,1,two,2\n");
    write("other.csv", b"other,id,text,id\none,1,two,2\n");
    for name in ["packed.jsonl.gz", "packed.JSONL.GZ", "packed.jsonl"] {
        write(name, b"\x1f\x8b\x08\0packed");
    }
    fs::create_dir(corpus.path("full")).expect("created");
    write("full/notes.txt", b"mine");
    fs::create_dir(corpus.path("spark.parquet")).expect("created");
    let mine = ["mine.jsonl", "my.parquet.rejected.jsonl", "v.parquet.rejected.jsonl"];
    mine.iter().for_each(|name| write(name, b"mine"));
    fs::create_dir(corpus.path("deep")).expect("created");
    write("deep/in.jsonl", b"\"one\"\n");
    for [input, out, more, code, words] in rows(REFUSED) {
        let more: Vec<&str> = more.split_whitespace().collect();
        assert_says(&corpus.embed(input, out, &more), code.parse().expect("a code"), words);
        let is_ours = ["full", "mine.jsonl", "in.jsonl", ""].contains(&out);
        assert!(is_ours || code == "1" || !corpus.path(out).exists(), "{out} {more:?}");
        let _ = fs::remove_dir_all(corpus.path("out"));
    }
    assert!(mine.iter().all(|name| corpus.bytes(name) == b"mine"), "they are left as they are");
    let mut command = quick("embed", tiny(), &[]);
    command.arg(corpus.path("in.jsonl")).args(["--out", ""]);
    assert_says(&run(&mut command), 2, "--out…name a file or a folder");
    // The name of the current folder is no pattern.
    fs::create_dir(corpus.path("[2024]")).expect("created");
    write("[2024]/in.jsonl", b"\"one\"\n");
    let mut command = quick("embed", tiny(), &["./*.jsonl", "--out", "out.jsonl"]);
    command.current_dir(corpus.path("[2024]"));
    assert_says(&run(&mut command), 2, "--out out.jsonl is also the input");
}

/// Of what is nearly wrong.
#[test]
fn an_output_beside_its_input_and_a_byte_order_mark_are_taken() {
    let corpus = Folder::with_rows(5);
    corpus.embed("in.jsonl", "out.jsonl", &[]).with_code(0);
    corpus.embed("in*.jsonl", "vectors", &[]).with_code(0);
    // A star crosses no slash.
    corpus.embed("in*.jsonl", "in.vectors", &["--format", "jsonl"]).with_code(0);
    // A name that exists is no pattern.
    corpus.write("data[1].jsonl", "\"one\"\n");
    corpus.embed("data[1].jsonl", "data1.jsonl", &[]).with_code(0);
    // With a slash, the name is that of a folder.
    for _ in 0..2 {
        corpus.embed("in.jsonl", "folder.parquet/", &[]).with_code(0);
    }
    assert!(corpus.path("folder.parquet/part-00000.parquet").exists());
    fs::create_dir(corpus.path("inner")).expect("created");
    corpus.embed("in*.jsonl", "inner/out.jsonl", &[]).with_code(0);
    let vectors = |name: &str, text: &str| {
        corpus.write(name, text);
        let out = format!("{name}.out.jsonl");
        corpus.embed(name, &out, &[]).with_code(0);
        corpus.lines(&out)
    };
    let expected = vectors("plain.txt", "one\n");
    assert_eq!(vectors("mark.txt", "\u{feff}one\n"), expected);
    assert_eq!(vectors("mark.jsonl", "\u{feff}{\"text\": \"one\"}\n"), expected);
}

/// Also what an interrupted run left. Such a file has no texts, so a run that took it would end
/// with code 1.
#[test]
fn a_pattern_passes_over_what_the_run_wrote_beside_its_vectors() {
    for (input, pattern, out, left) in [
        ("in.jsonl", "*.jsonl", "out.parquet", None),
        ("in.json", "*.json", "out.parquet", None),
        ("in.jsonl", "**/*.jsonl", "out", Some("out/_duovec_work")),
    ] {
        let corpus = Folder::new();
        corpus.write(input, "\"one\"\n5\n");
        if let Some(folder) = left {
            fs::create_dir_all(corpus.path(folder)).expect("created");
            corpus.write(&format!("{folder}/rejected-00000.jsonl"), "{\"row\": 1}\n");
        }
        for _ in 0..2 {
            corpus.embed(pattern, out, &["--input-format", "jsonl"]).with_code(3);
        }
    }
}
