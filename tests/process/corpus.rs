//! `duovec embed`: every form of input and output, rows and files that are wrong, ends at any
//! moment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_select::concat::concat_batches;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::support::*;

mod chunks;
mod damage;
mod dense_types;
mod faults;
mod refused;

/// Texts of many lengths, from none to more than the model takes.
fn texts(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{at} {}", "hello world ".repeat(at * at % 23))).collect()
}

fn write_jsonl(path: &Path, texts: &[String]) {
    let row = |(id, text): (usize, &String)| format!("{}\n", json!({"id": id, "text": text}));
    fs::write(path, texts.iter().enumerate().map(row).collect::<String>()).expect("written");
}

fn write_parquet(path: &Path, texts: &[String]) {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..texts.len() as i64));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).expect("equal lengths");
    let file = File::create(path).expect("created");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("closed");
}

fn read_parquet(path: &Path) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("there"));
    let reader = reader.expect("it is Parquet");
    let schema = Arc::clone(reader.schema());
    let batches: Vec<_> = reader.build().expect("read").map(|one| one.expect("whole")).collect();
    concat_batches(&schema, &batches).expect("one schema")
}

fn column(table: &RecordBatch, name: &str) -> ArrayRef {
    Arc::clone(table.column_by_name(name).expect(name))
}

/// Floats of a list in JSON.
fn numbers(list: &Value) -> Vec<f32> {
    serde_json::from_value(list.clone()).expect("a list of numbers")
}

impl Folder {
    fn with_rows(rows: usize) -> Self {
        let corpus = Self::new();
        write_jsonl(&corpus.path("in.jsonl"), &texts(rows));
        corpus
    }

    /// Embeds `input` to `out`.
    fn embed(&self, input: &str, out: &str, more: &[&str]) -> Ended {
        run(&mut self.command(input, out, more))
    }

    fn command(&self, input: &str, out: &str, more: &[&str]) -> Command {
        self.command_with(&tiny(), input, out, more)
    }

    fn command_with(&self, package: &Path, input: &str, out: &str, more: &[&str]) -> Command {
        let mut command = quick("embed", package, more);
        command.arg(self.path(input)).arg("--out").arg(self.path(out));
        command
    }
}

/// The bytes of every file below a folder, but for the job's own record.
fn bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries =
        fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("listed").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    entries.map(|path| (name(&path), fs::read(&path).expect("a file"))).collect()
}

#[test]
fn every_form_of_input_gives_the_same_vectors() {
    let corpus = Folder::new();
    let texts = texts(70);
    write_jsonl(&corpus.path("in.jsonl"), &texts);
    write_parquet(&corpus.path("in.parquet"), &texts);
    corpus.write("in.txt", texts.join("\n"));
    let csv = texts.iter().enumerate().map(|(id, text)| format!("{id},\"{text}\"\n"));
    let csv = format!("id,text\n{}", csv.collect::<String>());
    corpus.write("in.csv", csv);
    let mut all = Vec::new();
    for form in ["jsonl", "parquet", "csv", "txt"] {
        let out = format!("{form}.out.jsonl");
        corpus.embed(&format!("in.{form}"), &out, &["--part-rows", "32"]).with_code(0);
        all.push(corpus.lines(&out));
    }
    assert_eq!(all[0].len(), 70);
    assert!(all.iter().all(|rows| *rows == all[0]), "they are equal");
    let stdin = File::open(corpus.path("in.jsonl")).expect("it is there");
    let mut piped = quick("embed", tiny(), &["--input-format", "jsonl", "--part-rows", "32"]);
    run(piped.args(["-", "--out"]).arg(corpus.path("piped.jsonl")).stdin(stdin)).with_code(0);
    assert_eq!(corpus.lines("piped.jsonl"), all[0]);
}

#[test]
fn every_form_of_output_holds_the_same_vectors() {
    let corpus = Folder::with_rows(100);
    let keep = ["--keep", "id,text", "--part-rows", "48"];
    corpus.embed("in.jsonl", "out.jsonl", &keep).with_code(0);
    corpus.embed("in.jsonl", "out.parquet", &keep).with_code(0);
    let npy = ["--part-rows", "48", "--vectors", "dense"];
    corpus.embed("in.jsonl", "out.npy", &npy).with_code(0);
    let lines = corpus.lines("out.jsonl");
    let table = read_parquet(&corpus.path("out.parquet"));
    assert_eq!((lines.len(), table.num_rows()), (100, 100));
    let column = |name: &str| column(&table, name);
    let (dense, row, id) = (column("dense"), column("row"), column("id"));
    let (indices, values) = (column("sparse_indices"), column("sparse_values"));
    let npy = corpus.bytes("out.npy");
    let head = String::from_utf8_lossy(&npy[10..128]).into_owned();
    assert!(head.contains("'descr': '<f4'") && head.contains("(100, 8)"), "{head}");
    for (at, line) in lines.iter().enumerate() {
        let floats = dense.as_fixed_size_list().value(at);
        let floats = floats.as_primitive::<Float32Type>().values().to_vec();
        assert_eq!(numbers(&line["dense"]), floats);
        let bytes: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(npy[128 + 32 * at..][..32], bytes);
        let ids = indices.as_list::<i32>().value(at);
        assert_eq!(
            line["sparse_indices"],
            json!(ids.as_primitive::<UInt32Type>().values().to_vec())
        );
        let weights = values.as_list::<i32>().value(at);
        let weights = weights.as_primitive::<Float32Type>().values().to_vec();
        assert_eq!(numbers(&line["sparse_values"]), weights);
        assert_eq!(row.as_primitive::<UInt64Type>().value(at), at as u64);
        assert_eq!(id.as_primitive::<Int64Type>().value(at), at as i64);
        assert_eq!((&line["row"], &line["id"]), (&json!(at), &json!(at)));
        let tokens = line["tokens"].as_u64().expect("a number");
        assert_eq!(line.get("truncated_from").is_some(), tokens == 64, "{line}");
    }
    assert_eq!(npy.len(), 128 + 100 * 32);
}

#[test]
fn parquet_says_what_its_vectors_are() {
    let corpus = Folder::with_rows(20);
    let more = ["--dense-type", "f16", "--dimensions", "4", "--sparse-top-k", "2"];
    corpus.embed("in.jsonl", "out", &more).with_code(0);
    let path = corpus.path("out/part-00000.parquet");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).expect("it is there"));
    let reader = reader.expect("it is Parquet");
    let metadata = reader.metadata().file_metadata().key_value_metadata().cloned();
    let pairs: BTreeMap<String, Option<String>> =
        metadata.expect("there is some").into_iter().map(|pair| (pair.key, pair.value)).collect();
    for (key, value) in
        [("model", "tiny-test"), ("prompt", ""), ("dimensions", "4"), ("engine", "fake")]
    {
        assert_eq!(pairs[&format!("duovec.{key}")].as_deref(), Some(value), "{pairs:?}");
    }
    let table = read_parquet(&path);
    let dense = column(&table, "dense");
    let first = dense.as_fixed_size_list().value(0);
    assert_eq!(first.as_primitive::<Float16Type>().len(), 4);
    let indices = column(&table, "sparse_indices");
    assert!((0..20).all(|at| indices.as_list::<i32>().value_length(at) <= 2));
}

/// Up to the last bits, which depend on the batch that a text runs in.
#[tokio::test]
async fn the_engine_gives_what_the_server_gives() {
    let corpus = Folder::with_rows(40);
    corpus.embed("in.jsonl", "out.jsonl", &["--engine", "openvino"]).with_code(0);
    let rows = corpus.lines("out.jsonl");
    let server = ready(&[]);
    let body = json!({"input": texts(40), "input_type": "passage"});
    let (_, answer) = server.ask("/v1/embeddings:both", Some(&body)).await;
    let served = answer["data"].as_array().expect("a list");
    assert_eq!((rows.len(), served.len()), (40, 40));
    let near = |a: &[f32], b: &[f32]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3)
    };
    for (row, served) in rows.iter().zip(served) {
        let sparse = &served["sparse_values"];
        assert!(near(&numbers(&row["dense"]), &numbers(&served["embedding"])), "{row}");
        assert_eq!(row["sparse_indices"], sparse["indices"]);
        assert!(near(&numbers(&row["sparse_values"]), &numbers(&sparse["values"])), "{row}");
        assert_eq!(row.get("truncated_from"), served.get("truncated_from"));
    }
}

/// How many workers there are is measured, and may come out otherwise when a run goes on.
#[test]
fn the_number_of_workers_does_not_change_the_bytes() {
    let corpus = Folder::with_rows(300);
    for (out, workers, threads) in [("few", "1", "2"), ("many", "2", "1")] {
        let more = ["--engine", "openvino", "--part-rows", "100", "--workers", workers];
        let more = [&more[..], &["--threads-per-worker", threads]].concat();
        corpus.embed("in.jsonl", out, &more).with_code(0);
    }
    assert!(bytes(&corpus.path("few")) == bytes(&corpus.path("many")), "the bytes differ");
}

#[test]
fn a_run_that_is_killed_at_any_moment_goes_on_to_the_same_bytes() {
    let corpus = Folder::with_rows(600);
    let more = ["--part-rows", "40", "--fake-run-ms", "2", "--keep", "id"];
    corpus.embed("in.jsonl", "whole", &more).with_code(0);
    corpus.embed("in.jsonl", "whole.parquet", &more).with_code(0);
    for out in ["killed", "killed.parquet"] {
        let command = || corpus.command("in.jsonl", out, &more);
        kill_and_repeat(command, Duration::from_millis(150));
    }
    assert_eq!(bytes(&corpus.path("killed")), bytes(&corpus.path("whole")));
    let read = |name: &str| corpus.bytes(name);
    assert!(read("killed.parquet") == read("whole.parquet"), "the bytes differ");
    assert!(!corpus.path("killed/_duovec_work").exists());
    assert!(!corpus.path("killed.parquet.duovec_work").exists());
}

#[test]
fn rows_that_cannot_be_embedded_are_told_with_their_reasons() {
    let corpus = Folder::new();
    let lines = ["{\"text\": \"one\"}", "{\"text\": 2}", "{\"text\": ", "{\"text\": \"four\"}"];
    corpus.write("in.jsonl", lines.join("\n"));
    let ended = corpus.embed("in.jsonl", "out", &["--part-rows", "3"]);
    assert_says(&ended, 3, "2 of 4 rows…_rejected.jsonl");
    let rejected = corpus.lines("out/_rejected.jsonl");
    let rows: Vec<_> = rejected.iter().map(|row| (&row["row"], &row["number"])).collect();
    assert_eq!(rows, [(&json!(1), &json!(2)), (&json!(2), &json!(3))]);
    assert!(rejected[0]["reason"].as_str().is_some_and(|text| text.contains("is a number")));
    let first = read_parquet(&corpus.path("out/part-00000.parquet"));
    let second = read_parquet(&corpus.path("out/part-00001.parquet"));
    let rows = |table| column(table, "row").as_primitive::<UInt64Type>().values().to_vec();
    assert_eq!((rows(&first), rows(&second)), (vec![0], vec![3]));
    // The second time nothing is left to do, and the code says the same.
    corpus.embed("in.jsonl", "out", &["--part-rows", "3"]).with_code(3);
    // In a matrix each row has its place.
    let dense = ["--vectors", "dense"];
    corpus.embed("in.jsonl", "out.npy", &dense).with_code(3);
    let npy = corpus.bytes("out.npy");
    let floats: Vec<f32> =
        npy[128..].as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let missing: Vec<bool> = floats.chunks(8).map(|row| row.iter().all(|v| v.is_nan())).collect();
    assert_eq!(missing, [false, true, true, false]);
}

#[test]
fn a_corrupt_parquet_is_named_and_finished_parts_stay() {
    let corpus = Folder::new();
    fs::create_dir(corpus.path("in")).expect("created");
    write_parquet(&corpus.path("in/a.parquet"), &texts(300));
    write_parquet(&corpus.path("in/b.parquet"), &texts(500));
    let whole = corpus.bytes("in/b.parquet");
    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    for byte in &mut broken[middle - 1000..middle + 1000] {
        *byte ^= 0x5a;
    }
    for (bytes, name) in
        [(&whole[..whole.len() / 2], "cut"), (&broken, "pages"), (&[][..], "empty")]
    {
        corpus.write("in/b.parquet", bytes);
        let ended = corpus.embed("in/*.parquet", name, &["--part-rows", "100"]);
        assert_says(&ended, 1, "b.parquet…not a complete Parquet file");
    }
    let finished = corpus.bytes("cut/part-00001.parquet");
    corpus.write("in/b.parquet", &whole);
    corpus.embed("in/*.parquet", "cut", &["--part-rows", "100"]).with_code(0);
    assert_eq!(corpus.bytes("cut/part-00001.parquet"), finished);
    corpus.embed("in/*.parquet", "other", &["--part-rows", "100"]).with_code(0);
    assert_eq!(bytes(&corpus.path("cut")), bytes(&corpus.path("other")));
}

#[test]
fn an_output_of_something_else_is_not_gone_on_with() {
    let corpus = Folder::with_rows(50);
    let first = ["--part-rows", "20"];
    corpus.embed("in.jsonl", "out", &first).with_code(0);
    let before = bytes(&corpus.path("out"));
    let refused = |more: &[&str], words: &str| {
        let ended = corpus.embed("in.jsonl", "out", more);
        assert_says(&ended, 1, &format!("cannot continue…name another output…{words}"));
    };
    refused(&["--part-rows", "30"], "part_rows…\"20\"…\"30\"");
    refused(&["--part-rows", "20", "--dimensions", "4"], "dimensions");
    refused(&["--part-rows", "20", "--vectors", "dense"], "vectors");
    refused(&["--part-rows", "20", "--format", "jsonl"], "format…\"parquet\"…\"jsonl\"");
    let other = |input_type, says: &Value| {
        let other = Broken::with(says);
        let more = ["--part-rows", "20", "--input-type", input_type];
        run(&mut corpus.command_with(other.path(), "in.jsonl", "out", &more))
    };
    let says = json!({"model_id": "another", "prompts": {"passage": "passage: "}});
    let ended = other("passage", &says);
    assert_says(&ended, 1, "its model is \"tiny-test\", not \"another\"…its prompt is");
    // A text that begins with it gets no other prompt.
    let ended = other("default", &json!({"prompts": {"query": "ask: "}}));
    assert_says(&ended, 1, "its prompt_query is…not \"ask: \"");
    assert_eq!(bytes(&corpus.path("out")), before);
}

#[test]
fn a_model_without_prompts_says_that_input_type_changes_nothing() {
    let corpus = Folder::with_rows(3);
    let prompts = Broken::with(&json!({"prompts": {"query": "ask: "}}));
    for (at, (package, more, times)) in [
        (tiny(), &["--input-type", "query"][..], 1),
        (tiny(), &["--input-type", "passage"], 1),
        (tiny(), &["--input-type", "default"], 0),
        (tiny(), &[], 0),
        (prompts.path().to_owned(), &["--input-type", "query"], 0),
        (prompts.path().to_owned(), &["--input-type", "passage"], 0),
    ]
    .into_iter()
    .enumerate()
    {
        let more = [more, &["--log-level", "warn"]].concat();
        let ended = run(&mut corpus.command_with(&package, "in.jsonl", &format!("{at}"), &more));
        ended.with_code(0);
        let told = ended.stderr.matches("no prompts, so that --input-type changes nothing");
        assert_eq!(told.count(), times, "{more:?}: {}", ended.stderr);
    }
}

#[test]
fn another_input_does_not_go_on_with_a_part_of_the_first() {
    let corpus = Folder::with_rows(50);
    let broken =
        format!("{}{{\"text\": 1}}", fs::read_to_string(corpus.path("in.jsonl")).expect("there"));
    corpus.write("in.jsonl", &broken);
    let more = ["--part-rows", "20", "--fake-run-ms", "300"];
    let part = corpus.path("out/part-00000.parquet");
    kill_at(corpus.command("in.jsonl", "out", &more), &part, || {});
    write_jsonl(&corpus.path("in.jsonl"), &texts(60)[10..]);
    let ended = corpus.embed("in.jsonl", "out", &more);
    assert_says(&ended, 1, "part 0 was made from other rows…name another output");
}

/// A limit on the size of files stands for a disk without room.
#[test]
fn a_full_disk_is_said_and_the_run_goes_on_when_there_is_room() {
    let corpus = Folder::with_rows(400);
    let more = ["--part-rows", "200", "--keep", "text"];
    let whole = corpus.command("in.jsonl", "out", &more);
    // Blocks of 512 bytes; without the trap the signal would end the process.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]);
    limited.arg(whole.get_program()).args(whole.get_args());
    assert_says(&run(&mut limited), 1, "cannot write…File too large…run the same command again");
    corpus.embed("in.jsonl", "out", &more).with_code(0);
    corpus.embed("in.jsonl", "other", &more).with_code(0);
    assert_eq!(bytes(&corpus.path("out")), bytes(&corpus.path("other")));
}

/// The most memory that a run held, in KiB, as Linux tells.
fn peak_kib(corpus: &Folder, input: &str, out: &str) -> u64 {
    let mut child = corpus.command(input, out, &["--part-rows", "500"]).spawn().expect("it starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().expect("it is a child").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        thread::sleep(Duration::from_millis(5));
    }
    peak
}

#[test]
fn memory_does_not_grow_with_the_input() {
    let corpus = Folder::new();
    write_jsonl(&corpus.path("small.jsonl"), &texts(5_000));
    write_jsonl(&corpus.path("large.jsonl"), &texts(40_000));
    let small = peak_kib(&corpus, "small.jsonl", "small");
    let large = peak_kib(&corpus, "large.jsonl", "large");
    println!("{small} KiB for 5,000 rows, {large} KiB for 40,000");
    assert!(small > 0 && large < small + 16 * 1024, "{small} KiB, {large} KiB");
}
