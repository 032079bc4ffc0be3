//! Files of an output that were cut, changed or lost after they were written.

use super::*;

const MORE: [&str; 4] = ["--part-rows", "20", "--keep", "id"];

/// Sixty rows in three parts; the second part has a row that cannot be embedded.
fn corpus() -> Folder {
    let corpus = Folder::with_rows(60);
    let right = fs::read_to_string(corpus.path("in.jsonl")).expect("there");
    let lines = right.lines().enumerate().map(|(at, line)| match at {
        30 => "{\"id\": 30, \"text\": 1}\n".to_owned(),
        _ => format!("{line}\n"),
    });
    corpus.write("in.jsonl", lines.collect::<String>());
    corpus
}

fn embed(corpus: &Folder, out: &str) -> Ended {
    corpus.embed("in.jsonl", out, &MORE)
}

fn cut(path: &Path) {
    let file = File::options().write(true).open(path).expect("it is there");
    file.set_len(500).expect("it is cut");
}

#[test]
fn a_whole_output_with_a_part_that_was_changed_is_refused_and_the_part_named() {
    let corpus = corpus();
    embed(&corpus, "out").with_code(3);
    let whole = bytes(&corpus.path("out"));
    let path = corpus.path("out/part-00001.parquet");
    let mut other = whole["part-00001.parquet"].clone();
    other[500] ^= 1;
    fs::write(&path, other).expect("written");
    let words = "part-00001.parquet has other bytes…delete this file…run the same command";
    assert_says(&embed(&corpus, "out"), 1, words);
    cut(&path);
    assert_says(&embed(&corpus, "out"), 1, "part-00001.parquet has 500 bytes");
    fs::remove_file(&path).expect("it is there");
    embed(&corpus, "out").with_code(3);
    assert!(bytes(&corpus.path("out")) == whole, "the bytes differ");
}

#[test]
fn what_is_missing_of_a_whole_output_is_made_again() {
    let corpus = corpus();
    embed(&corpus, "out").with_code(3);
    let whole = bytes(&corpus.path("out"));
    let written = |name: &str| {
        fs::metadata(corpus.path(&format!("out/{name}"))).and_then(|found| found.modified()).ok()
    };
    let first = written("part-00000.parquet");
    for names in [
        &["part-00001.parquet"][..],
        &["_rejected.jsonl"],
        &["part-00002.parquet", "_rejected.jsonl"],
    ] {
        for name in names {
            corpus.remove(&format!("out/{name}"));
        }
        embed(&corpus, "out").with_code(3);
        assert!(bytes(&corpus.path("out")) == whole, "the bytes differ without {names:?}");
    }
    assert_eq!(written("part-00000.parquet"), first, "it is left as it is");
}

#[test]
fn a_part_of_an_interrupted_run_that_was_changed_is_made_again() {
    let corpus = corpus();
    embed(&corpus, "whole").with_code(3);
    let more = [&MORE[..], &["--fake-run-ms", "100"]].concat();
    let part = corpus.path("out/part-00001.parquet");
    kill_at(corpus.command("in.jsonl", "out", &more), &part, || {});
    cut(&corpus.path("out/part-00000.parquet"));
    corpus.write("out/_duovec_work/rejected-00001.jsonl", "");
    embed(&corpus, "out").with_code(3);
    assert!(bytes(&corpus.path("out")) == bytes(&corpus.path("whole")), "the bytes differ");
}

/// Neither is a run's own file taken for such a one.
#[test]
fn a_file_of_another_program_that_came_after_the_run_began_is_never_lost() {
    let corpus = corpus();
    let more = [&MORE[..], &["--fake-run-ms", "100"]].concat();
    let part = corpus.path("out.parquet.duovec_work/part-00001.parquet");
    kill_at(corpus.command("in.jsonl", "out.parquet", &more), &part, || {});
    // The second refusal comes after the run's own list of rejected rows has its name.
    for theirs in ["out.parquet.rejected.jsonl", "out.parquet"] {
        corpus.write(theirs, "theirs");
        let words = format!("{theirs}…is of no run that is on record here…remove it");
        assert_says(&embed(&corpus, "out.parquet"), 1, &words);
        assert_eq!(corpus.bytes(theirs), b"theirs");
        corpus.remove(theirs);
    }
    embed(&corpus, "out.parquet").with_code(3);
    assert_eq!(corpus.lines("out.parquet.rejected.jsonl").len(), 1);
}

#[test]
fn a_whole_file_is_left_as_it_is_a_changed_one_refused_and_one_that_is_gone_made_again() {
    let corpus = Folder::with_rows(30);
    let path = corpus.path("out.parquet");
    let written = || {
        embed(&corpus, "out.parquet").with_code(0);
        fs::metadata(&path).and_then(|found| found.modified()).expect("it is there")
    };
    assert_eq!(written(), written());
    let whole = fs::read(&path).expect("it is there");
    cut(&path);
    assert_says(&embed(&corpus, "out.parquet"), 1, "out.parquet has 500 bytes");
    fs::remove_file(&path).expect("it is there");
    embed(&corpus, "out.parquet").with_code(0);
    assert!(fs::read(&path).expect("it is there") == whole, "the bytes differ");
}

#[test]
fn a_whole_file_that_lost_its_side_file_is_made_again_of_the_same_input_alone() {
    let corpus = corpus();
    embed(&corpus, "out.parquet").with_code(3);
    let files = || (corpus.bytes("out.parquet"), corpus.bytes("out.parquet.rejected.jsonl"));
    let before = files();
    corpus.remove("out.parquet.rejected.jsonl");
    let other = corpus.embed("in.jsonl", "out.parquet", &["--part-rows", "20"]);
    assert_says(&other, 1, "cannot continue…its kept_columns is \"id\", not \"\"");
    let right = String::from_utf8(corpus.bytes("in.jsonl")).expect("UTF-8");
    for (input, words) in [
        (right.replacen("\"id\":0", "\"id\":7", 1), "part 0 was made from other rows"),
        (right.split_inclusive('\n').take(40).collect(), "more parts"),
        (format!("{right}\"one\"\n"), "goes on at row 61"),
    ] {
        corpus.write("in.jsonl", input);
        assert_says(&embed(&corpus, "out.parquet"), 1, &format!("cannot continue…{words}"));
        assert!(corpus.bytes("out.parquet") == before.0, "{words}: the bytes differ");
    }
    corpus.write("in.jsonl", right);
    embed(&corpus, "out.parquet").with_code(3);
    assert!(files() == before, "the bytes differ");
    assert!(!corpus.path("out.parquet.duovec_work").exists());
}

#[test]
fn a_changed_file_is_refused_also_where_another_one_is_missing() {
    let corpus = corpus();
    for (out, changed, lost) in [
        ("out.jsonl", "out.jsonl", "out.jsonl.rejected.jsonl"),
        ("out.jsonl", "out.jsonl.rejected.jsonl", "out.jsonl"),
        ("out", "out/part-00000.parquet", "out/_rejected.jsonl"),
    ] {
        embed(&corpus, out).with_code(3);
        let whole = corpus.bytes(changed);
        let mine = [&whole[..], b"mine\n"].concat();
        corpus.write(changed, &mine);
        corpus.remove(lost);
        let name = Path::new(changed).file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let words = format!("{name}…delete this file…run the same command");
        assert_says(&embed(&corpus, out), 1, &words);
        assert!(corpus.bytes(changed) == mine, "{changed} is left as it is");
        corpus.write(changed, whole);
    }
}

#[test]
fn parts_that_a_shorter_input_lacks_are_never_left() {
    let corpus = Folder::with_rows(100);
    let more = [&MORE[..], &["--fake-run-ms", "100"]].concat();
    let part = |number: u32| corpus.path(&format!("out/part-0000{number}.parquet"));
    kill_at(corpus.command("in.jsonl", "out", &more), &part(3), || {});
    fs::remove_file(part(2)).expect("it is there");
    write_jsonl(&corpus.path("in.jsonl"), &texts(40));
    assert_says(&embed(&corpus, "out"), 1, "cannot continue…more parts");
}

#[test]
fn reasons_of_rows_that_are_right_now_go() {
    for (out, vectors, rejected) in [
        ("out.jsonl", "out.jsonl", "out.jsonl.rejected.jsonl"),
        ("out", "out/part-00001.parquet", "out/_rejected.jsonl"),
    ] {
        let corpus = corpus();
        embed(&corpus, out).with_code(3);
        assert!(corpus.path(rejected).exists());
        write_jsonl(&corpus.path("in.jsonl"), &texts(60));
        corpus.remove(vectors);
        embed(&corpus, out).with_code(0);
        assert!(!corpus.path(rejected).exists(), "{rejected} tells of rows that were embedded");
    }
}
