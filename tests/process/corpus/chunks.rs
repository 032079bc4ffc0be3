//! `--chunk-tokens`: a row of output for each chunk.

use super::*;

fn rows(corpus: &Folder, out: &str, more: &[&str]) -> Vec<Value> {
    let more = [&["--keep", "id", "--part-rows", "7"], more].concat();
    corpus.embed("in.jsonl", out, &more).with_code(0);
    corpus.lines(out)
}

#[test]
fn each_chunk_is_a_row_with_what_is_known_of_its_text() {
    let corpus = Folder::with_rows(20);
    let plain = rows(&corpus, "plain.jsonl", &[]);
    assert_eq!(plain.len(), 20);
    for late in [&["--chunk-tokens", "12", "--chunk-overlap", "4"][..], &["--chunk-tokens", "9"]] {
        for flag in [&["--late"][..], &[]] {
            let name = format!("{}{}.jsonl", late.len(), flag.len());
            let chunks = rows(&corpus, &name, &[late, flag].concat());
            assert!(chunks.len() > 60);
            let mut seen = 0;
            for text in texts(20).iter().enumerate() {
                let own: Vec<&Value> = chunks.iter().filter(|row| row["row"] == text.0).collect();
                seen += own.len();
                let place = |row: &Value, name: &str| row[name].as_u64().expect("it is there");
                assert_eq!(place(own[0], "chunk_start"), 0);
                let end = place(own[own.len() - 1], "chunk_end") as usize;
                assert_eq!(end, text.1.trim_end().len());
                for row in own {
                    assert_eq!(row["id"], text.0);
                    assert!(place(row, "chunk_start") < place(row, "chunk_end"));
                    assert_eq!(numbers(&row["dense"]).len(), numbers(&plain[0]["dense"]).len());
                }
            }
            assert_eq!(seen, chunks.len());
        }
    }
}

#[test]
fn tokens_of_a_late_chunk_are_its_own_also_of_a_text_without_any() {
    let corpus = Folder::with_rows(0);
    let line = |text: &str| format!("{}\n", json!({"id": 1, "text": text}));
    corpus.write("in.jsonl", ["", "  ", "cat"].map(line).concat());
    for (flags, tokens) in [(&["--late"][..], [0, 0, 1]), (&[], [2, 2, 3])] {
        let out = format!("out{}.jsonl", flags.len());
        let chunks = rows(&corpus, &out, &[&["--chunk-tokens", "8"], flags].concat());
        let found: Vec<&Value> = chunks.iter().map(|row| &row["tokens"]).collect();
        assert_eq!(found, tokens, "{flags:?}");
    }
}

#[test]
fn chunks_in_parquet_are_those_in_json() {
    let corpus = Folder::with_rows(20);
    let more = ["--chunk-tokens", "10", "--late"];
    let lines = rows(&corpus, "out.jsonl", &more);
    let kept = [&["--keep", "id", "--part-rows", "7"][..], &more].concat();
    corpus.embed("in.jsonl", "out.parquet", &kept).with_code(0);
    let table = read_parquet(&corpus.path("out.parquet"));
    assert_eq!(table.num_rows(), lines.len());
    let column = |name: &str| column(&table, name);
    let (row, start, end) = (column("row"), column("chunk_start"), column("chunk_end"));
    let id = column("id");
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["row"], row.as_primitive::<UInt64Type>().value(at));
        assert_eq!(line["id"], id.as_primitive::<Int64Type>().value(at));
        assert_eq!(line["chunk_start"], start.as_primitive::<UInt64Type>().value(at));
        assert_eq!(line["chunk_end"], end.as_primitive::<UInt64Type>().value(at));
    }
}

#[test]
fn another_way_of_cutting_does_not_go_on_with_an_output() {
    let corpus = Folder::with_rows(5);
    corpus.embed("in.jsonl", "out", &["--chunk-tokens", "10", "--late"]).with_code(0);
    for (more, name) in [
        (&["--chunk-tokens", "11", "--late"][..], "chunk_tokens"),
        (&["--chunk-tokens", "10", "--chunk-overlap", "2", "--late"], "chunk_overlap"),
        (&["--chunk-tokens", "10"], "late"),
        (&[], "chunk_tokens"),
    ] {
        assert_says(&corpus.embed("in.jsonl", "out", more), 1, name);
    }
}
