//! What is said of a wrong input or of an engine that fails, and when.

use super::*;

/// A package whose graph is broken cannot be loaded.
#[test]
fn a_whole_output_is_compared_with_its_input_before_the_model_is_loaded() {
    let corpus = Corpus::with_rows(50);
    corpus.embed("in.jsonl", "out", &["--part-rows", "20"]).with_code(0);
    let broken = Broken::new();
    fs::write(broken.file("model.onnx"), "no graph").expect("written");
    let again = || {
        let more = ["--part-rows", "20", "--log-level", "info"];
        run(&mut corpus.command_with(broken.path(), "in.jsonl", "out", &more))
    };
    has(&again().with_code(0).stderr, &["already complete"]);
    write_jsonl(&corpus.path("in.jsonl"), &texts(51));
    assert_says(&again(), 1, &["cannot continue", "part 2", "row 41 of", "name another output"]);
    write_jsonl(&corpus.path("in.jsonl"), &texts(61));
    assert_says(&again(), 1, &["cannot continue", "part 2"]);
    write_jsonl(&corpus.path("in.jsonl"), &texts(40));
    assert_says(&again(), 1, &["cannot continue", "more parts"]);
}

/// So a typing error costs nothing, and the next command is not held to it.
#[test]
fn a_column_that_is_missing_is_said_before_anything_is_loaded_or_written() {
    let corpus = Corpus::with_rows(5);
    let before = bytes(corpus.folder.path());
    let broken = Broken::new();
    fs::write(broken.file("model.onnx"), "no graph").expect("written");
    let mut command = corpus.command_with(broken.path(), "in.jsonl", "out", &["--keep", "idd"]);
    assert_says(&run(&mut command), 1, &["in.jsonl", "`idd`", "id, text"]);
    assert_eq!(bytes(corpus.folder.path()), before);
    corpus.embed("in.jsonl", "out", &["--keep", "id"]).with_code(0);
    let ended = corpus.embed("in.jsonl", "vn.csv", &[]);
    assert_says(&ended, 2, &["vn.csv", ".parquet, .jsonl or .npy", "a folder"]);
    assert!(!corpus.path("vn.csv").exists());
    let ended = corpus.embed("in.jsonl", "out3", &["--part-rows", "0"]);
    assert_says(&ended, 2, &["--part-rows", "above zero"]);
    assert_says(&corpus.embed("no*.jsonl", "out3", &[]), 2, &["no*.jsonl", "no such file"]);
}

/// An output with two columns of one name is read as one or the other.
#[test]
fn columns_of_one_name_are_refused() {
    let corpus = Corpus::with_rows(5);
    assert_says(
        &corpus.embed("in.jsonl", "out", &["--keep", "id,id"]),
        2,
        &["--keep", "`id` twice"],
    );
    let rows = "text,id,text,id\none,1,two,2\n";
    for (header, more, name) in
        [(rows, &[][..], "`text`"), (&rows.replacen("text", "other", 1), &["--keep", "id"], "`id`")]
    {
        fs::write(corpus.path("twice.csv"), header).expect("written");
        let words = ["twice.csv", "two columns", name];
        assert_says(&corpus.embed("twice.csv", "out", more), 1, &words);
    }
    assert!(!corpus.path("out").exists());
}

/// The next run would embed what this one has written.
#[test]
fn an_output_among_the_inputs_is_refused() {
    let corpus = Corpus::with_rows(5);
    let folder = corpus.path("data");
    fs::create_dir(&folder).expect("a folder");
    fs::rename(corpus.path("in.jsonl"), folder.join("in.jsonl")).expect("renamed");
    for (input, out) in [
        ("data/*.jsonl", "data/out.jsonl"),
        ("data/*.jsonl", "data"),
        ("data/in.jsonl", "data/in.jsonl"),
    ] {
        let words = ["--out", out, "also the input"];
        assert_says(&corpus.embed(input, out, &["--format", "jsonl"]), 2, &words);
    }
    corpus.embed("data/in.jsonl", "data/out.jsonl", &[]).with_code(0);
    corpus.embed("data/in*.jsonl", "data/vectors", &[]).with_code(0);
}

#[test]
fn a_byte_order_mark_is_no_text_and_gzip_is_named() {
    let corpus = Corpus::new();
    fs::write(corpus.path("mark.jsonl"), "\u{feff}{\"text\": \"one\"}\n").expect("written");
    fs::write(corpus.path("mark.txt"), "\u{feff}one\n").expect("written");
    fs::write(corpus.path("plain.txt"), "one\n").expect("written");
    let vectors = |input: &str| {
        let out = format!("{input}.out.jsonl");
        corpus.embed(input, &out, &[]).with_code(0);
        read_jsonl(&corpus.path(&out))
    };
    let expected = vectors("plain.txt");
    assert_eq!((vectors("mark.jsonl"), vectors("mark.txt")), (expected.clone(), expected));
    for name in ["in.jsonl.gz", "in.jsonl"] {
        fs::write(corpus.path(name), b"\x1f\x8b\x08\0packed").expect("written");
        let ended = corpus.embed(name, "out", &["--input-format", "jsonl"]);
        assert_says(&ended, 1, &[name, "packed with gzip", "gunzip"]);
    }
}

#[test]
fn texts_in_utf_16_are_named() {
    let corpus = Corpus::new();
    let little = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let big = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
    for text in ["one\ntwo\n", "\u{feff}zwölf\n", "\u{feff}猫\n"] {
        for bytes in [little(text), big(text)] {
            fs::write(corpus.path("in.txt"), bytes).expect("written");
            assert_says(&corpus.embed("in.txt", "out", &[]), 1, &["in.txt", "UTF-16", "iconv"]);
        }
    }
}

#[test]
fn an_output_without_a_name_is_refused() {
    let corpus = Corpus::with_rows(5);
    let mut command = quick("embed", tiny(), &[]);
    command.arg(corpus.path("in.jsonl")).args(["--out", ""]);
    assert_says(&run(&mut command), 2, &["--out", "name a file or a folder"]);
}

/// The texts are right, so that none may be left out for good.
#[test]
fn an_engine_that_hangs_ends_the_run_and_rejects_no_row() {
    let corpus = Corpus::with_rows(3);
    let mut hangs = corpus.command("in.jsonl", "out", &["--fake-run-ms", "4000"]);
    let ended = run(hangs.env("DUOVEC_WORKER_STUCK_MS", "200"));
    assert_says(&ended, 1, &["may never end", "run the same command again"]);
    corpus.embed("in.jsonl", "out", &["--fake-run-ms", "1"]).with_code(0);
}
