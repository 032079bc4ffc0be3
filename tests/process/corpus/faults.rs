//! What is said of a wrong input or of an engine that fails, and when.

use super::*;

/// A package whose graph is broken cannot be loaded.
#[test]
fn a_whole_output_is_compared_with_its_input_before_the_model_is_loaded() {
    let corpus = Folder::with_rows(50);
    corpus.embed("in.jsonl", "out", &["--part-rows", "20"]).with_code(0);
    let broken = Broken::new();
    fs::write(broken.file("model.onnx"), "no graph").expect("written");
    let again = || {
        let more = ["--part-rows", "20", "--log-level", "info"];
        run(&mut corpus.command_with(broken.path(), "in.jsonl", "out", &more))
    };
    has(&again().with_code(0).stderr, "already complete");
    write_jsonl(&corpus.path("in.jsonl"), &texts(51));
    assert_says(&again(), 1, "cannot continue…part 2…row 41 of…name another output");
    write_jsonl(&corpus.path("in.jsonl"), &texts(61));
    assert_says(&again(), 1, "cannot continue…part 2");
    write_jsonl(&corpus.path("in.jsonl"), &texts(40));
    assert_says(&again(), 1, "cannot continue…more parts");
}

/// So a typing error costs nothing, and the next command is not held to it.
#[test]
fn a_column_that_is_missing_is_said_before_anything_is_loaded_or_written() {
    let corpus = Folder::with_rows(5);
    let before = bytes(&corpus.path(""));
    let broken = Broken::new();
    fs::write(broken.file("model.onnx"), "no graph").expect("written");
    let mut command = corpus.command_with(broken.path(), "in.jsonl", "out", &["--keep", "idd"]);
    assert_says(&run(&mut command), 1, "in.jsonl…`idd`…id, text");
    assert_eq!(bytes(&corpus.path("")), before);
    corpus.embed("in.jsonl", "out", &["--keep", "id"]).with_code(0);
}

/// The texts are right, so that none may be left out for good.
#[test]
fn an_engine_that_hangs_ends_the_run_and_rejects_no_row() {
    let corpus = Folder::with_rows(3);
    let mut hangs = corpus.command("in.jsonl", "out", &["--fake-run-ms", "4000"]);
    let ended = run(hangs.env("DUOVEC_WORKER_STUCK_MS", "200"));
    assert_says(&ended, 1, "may never end…run the same command again");
    corpus.embed("in.jsonl", "out", &["--fake-run-ms", "1"]).with_code(0);
}
