//! `duovec batch`: lines of OpenAI's Batch API.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::lifecycle::ready;
use super::support::{Broken, Ended, assert_says, client, duovec, kill_and_repeat, run, tiny};

fn request(id: usize, url: &str, body: &Value) -> Value {
    json!({"custom_id": format!("request-{id}"), "method": "POST", "url": url, "body": body})
}

fn write(path: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text).expect("written");
}

fn command(input: &Path, output: &Path, more: &[&str]) -> Command {
    let mut command = duovec();
    command.args(["batch", "--engine", "fake", "--package"]).arg(tiny());
    if !more.contains(&"--log-level") {
        command.args(["--log-level", "error"]);
    }
    command.args(more).arg("-i").arg(input).arg("-o").arg(output);
    command
}

fn read(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("it is there");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn lines_have_the_answers_of_the_routes_in_their_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let routes = ["/v1/embeddings", "/v1/sparse-embeddings", "/v1/embeddings:both"];
    let bodies = [
        json!({"input": "hello", "model": "tiny-test"}),
        json!({"input": ["hello", "hello world"], "encoding_format": "base64"}),
        json!({"input": ["a", "b"], "sparse_format": "tokens", "dimensions": 4}),
        json!({
            "input": ["hello world hello", "world"],
            "chunking": {"by": "tokens", "size": 2, "late": true},
        }),
    ];
    let asked: Vec<(&str, &Value)> =
        (0..40).map(|at| (routes[at % 3], &bodies[at / 3 % 4])).collect();
    let lines: Vec<Value> =
        asked.iter().enumerate().map(|(id, (url, body))| request(id, url, body)).collect();
    write(&input, &lines);
    let Ended { code, stderr, .. } = run(&mut command(&input, &output, &[]));
    assert_eq!(code, Some(0), "{stderr}");
    let answers = read(&output);
    assert_eq!(answers.len(), asked.len());
    let server = ready(&["--engine", "fake"]);
    for (at, ((url, body), answer)) in asked.iter().zip(&answers).enumerate() {
        assert_eq!(answer["custom_id"], format!("request-{at}"));
        assert_eq!(
            (&answer["error"], &answer["response"]["status_code"]),
            (&Value::Null, &json!(200))
        );
        let served = client().post(server.url(url)).json(body).send().await.expect("an answer");
        let served: Value = served.json().await.expect("JSON");
        assert_eq!(answer["response"]["body"], served);
    }
}

#[test]
fn requests_that_ask_for_no_prompt_get_the_one_of_the_setting() {
    let package = Broken::new();
    package.manifest(|manifest| {
        manifest["prompts"] = json!({"query": "query: ", "passage": "passage: "});
        manifest["default_prompt"] = "query".into();
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let bodies = [
        json!({"input": "hello"}),
        json!({"input": "query: hello"}),
        json!({"input": "passage: hello"}),
    ];
    let lines = bodies.iter().enumerate().map(|(id, body)| request(id, "/v1/embeddings", body));
    write(&input, &lines.collect::<Vec<_>>());
    let vectors = |prompt: &[&str]| {
        let mut command = duovec();
        command.args(["batch", "--engine", "fake", "--log-level", "error", "--package"]);
        command.arg(package.path()).args(prompt).arg("-i").arg(&input).arg("-o").arg(&output);
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let answers = read(&output);
        fs::remove_file(&output).expect("it is there");
        let vector = |answer: &Value| answer["response"]["body"]["data"][0]["embedding"].clone();
        answers.iter().map(vector).collect::<Vec<_>>()
    };
    let [auto, none, query, passage] =
        ["auto", "none", "query", "passage"].map(|prompt| vectors(&["--default-prompt", prompt]));
    assert_eq!(vectors(&[]), auto);
    assert_eq!(auto, query, "it is the manifest's");
    // The client's own prompts are the same, whatever the setting.
    for found in [&none, &query, &passage] {
        assert_eq!(found[1..], auto[1..]);
    }
    assert_eq!((&query[0], &passage[0]), (&auto[1], &auto[2]));
    assert!(!auto.contains(&none[0]), "it has no prompt");
}

#[test]
fn requests_that_fail_are_answered_in_their_place_and_the_code_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let good = json!({"input": "hello"});
    let mut get = request(4, "/v1/embeddings", &good);
    get["method"] = "GET".into();
    let lines = [
        request(0, "/v1/embeddings", &good),
        request(1, "/v1/embeddings", &json!({"input": []})),
        request(2, "/v1/chat/completions", &good),
        json!("no request"),
        get,
        request(5, "/v1/embeddings", &json!({"input": "a", "model": "other"})),
        request(6, "/v1/embeddings", &good),
    ];
    write(&input, &lines);
    let ended = run(&mut command(&input, &output, &[]));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("5 of 7 requests failed"), "{}", ended.stderr);
    let answers = read(&output);
    let codes: Vec<_> = answers.iter().map(|one| one["response"]["status_code"].as_u64()).collect();
    assert_eq!(codes, [Some(200), Some(400), Some(404), None, None, Some(404), Some(200)]);
    assert_eq!(answers[1]["response"]["body"]["error"]["code"], "invalid_input");
    assert_eq!(answers[3]["error"]["code"], "invalid_line");
    assert_eq!(answers[3]["custom_id"], Value::Null);
    assert_eq!(answers[4]["custom_id"], "request-4");
    assert!(answers[4]["error"]["message"].as_str().is_some_and(|text| text.contains("POST")));
    let before = fs::read(&output).expect("it is there");
    let again = run(&mut command(&input, &output, &[]));
    assert_eq!(again.code, Some(3), "nothing is left to do, and the code says as much");
    assert_eq!(fs::read(&output).expect("it is there"), before);
}

#[test]
fn a_line_that_is_no_request_is_told_what_a_request_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let lines = [
        ("[]", "it is not an object", Value::Null),
        (r#"["a", "POST", "/v1/embeddings", {"input": "x"}]"#, "not an object", Value::Null),
        (r#"{"custom_id": "c", "body": {}}"#, "missing field `url`", json!("c")),
        (r#"{"custom_id": "d", "url": 5, "body": {}}"#, "url is not a text", json!("d")),
        (r#"{"custom_id": "e","#, "not valid JSON", Value::Null),
    ];
    fs::write(&input, lines.each_ref().map(|(line, ..)| *line).join("\n")).expect("written");
    let ended = run(&mut command(&input, &output, &[]));
    assert_says(&ended, 3, &["5 of 5 requests failed"]);
    for (at, (answer, (_, problem, custom_id))) in read(&output).iter().zip(&lines).enumerate() {
        let message = answer["error"]["message"].as_str().expect("a text");
        let start = format!("line {} is not a request: send an object with custom_id", at + 1);
        assert!(message.starts_with(&start) && message.contains(problem), "{message}");
        assert!(!message.contains("struct") && !message.contains("at line"), "{message}");
        assert_eq!(answer["custom_id"], *custom_id);
    }
}

/// More items than a server's queue holds, and none of them twice.
#[test]
fn any_number_of_texts_is_answered_in_order_and_none_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let texts =
        |id: usize| -> Vec<String> { (0..1500).map(|at| format!("{id} hello {at}")).collect() };
    let body = |id: usize| json!({"input": texts(id), "encoding_format": "base64"});
    let lines: Vec<Value> = (0..14).map(|id| request(id, "/v1/embeddings", &body(id))).collect();
    write(&input, &lines);
    let ended = run(&mut command(&input, &output, &["--fake-run-ms", "1"]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let answers = read(&output);
    let all = answers.iter().flat_map(|one| {
        let data = one["response"]["body"]["data"].as_array().expect("a list");
        data.iter().map(|item| item["embedding"].as_str().expect("base64"))
    });
    let different: std::collections::BTreeSet<&str> = all.clone().collect();
    assert_eq!((all.count(), different.len()), (21_000, 21_000));
    let names: Vec<&Value> = answers.iter().map(|one| &one["custom_id"]).collect();
    assert_eq!(names, lines.iter().map(|line| &line["custom_id"]).collect::<Vec<_>>());
}

/// Requests of one to four different texts, some of which are refused.
fn requests(count: usize) -> Vec<Value> {
    let text = |id: usize, at: usize| format!("{id} {}", "hello world ".repeat(id * at % 17));
    let body = |id: usize| match id % 50 {
        7 => json!({"input": []}),
        _ => json!({"input": (0..=id % 4).map(|at| text(id, at)).collect::<Vec<_>>()}),
    };
    let url = |id: usize| ["/v1/embeddings", "/v1/embeddings:both"][id % 2];
    (0..count).map(|id| request(id, url(id), &body(id))).collect()
}

#[test]
fn a_batch_that_is_killed_at_any_moment_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let lines: Vec<Value> =
        requests(6000).into_iter().filter(|one| one["body"]["input"] != json!([])).collect();
    write(&path("in.jsonl"), &lines);
    let more = ["--fake-run-ms", "2"];
    let whole = run(&mut command(&path("in.jsonl"), &path("whole.jsonl"), &more));
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let killed = || command(&path("in.jsonl"), &path("killed.jsonl"), &more);
    kill_and_repeat(killed, Duration::from_millis(150));
    let read = |name: &str| fs::read(path(name)).expect("it is there");
    assert!(read("killed.jsonl") == read("whole.jsonl"), "the bytes differ");
    assert!(!path("killed.jsonl.duovec_work").exists());
}

/// How many workers there are is measured, and may come out otherwise when a run goes on.
#[test]
fn the_number_of_workers_does_not_change_the_answers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    write(&path("in.jsonl"), &requests(600));
    for (out, workers, threads) in [("few", "1", "2"), ("many", "2", "1")] {
        let mut real = duovec();
        real.args(["batch", "--log-level", "error", "--package"]).arg(tiny());
        real.args(["--workers", workers, "--threads-per-worker", threads]);
        let ended = run(real.arg("-i").arg(path("in.jsonl")).arg("-o").arg(path(out)));
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    }
    let read = |name: &str| fs::read(path(name)).expect("it is there");
    assert!(read("few") == read("many"), "the bytes differ");
}

/// A batch whose first parts are finished, killed then.
fn begun(folder: &Path) -> (PathBuf, PathBuf) {
    let (input, output) = (folder.join("in.jsonl"), folder.join("out.jsonl"));
    write(&input, &requests(4000));
    let mut child = command(&input, &output, &["--fake-run-ms", "20"]).spawn().expect("it starts");
    while !folder.join("out.jsonl.duovec_work/part-00000.jsonl").exists() {
        assert!(child.try_wait().expect("a child").is_none(), "it runs");
        thread::sleep(Duration::from_millis(5));
    }
    let second = run(&mut command(&input, &output, &[]));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_says(&second, 1, &["out.jsonl", "another process is writing to it"]);
    (input, output)
}

#[test]
fn a_batch_goes_on_with_the_requests_the_package_and_the_options_of_before_only() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = begun(folder.path());
    let refused = |ended: &Ended, words: &[&str]| {
        assert_says(ended, 1, &[&["cannot continue", "out.jsonl"], words].concat());
        assert!(!output.exists());
    };
    let other = Broken::new();
    other.manifest(|manifest| manifest["model_id"] = "another".into());
    let mut command_with_other = duovec();
    command_with_other.args(["batch", "--engine", "fake", "--log-level", "error", "--package"]);
    command_with_other.arg(other.path()).arg("-i").arg(&input).arg("-o").arg(&output);
    let ended = run(&mut command_with_other);
    refused(&ended, &["its model is \"tiny-test\", not \"another\""]);
    for (name, value, word) in [
        ("DUOVEC_TRUNCATE", "false", "its truncate is \"true\", not \"false\""),
        ("DUOVEC_MAX_ITEM_BYTES", "9999", "its max_item_bytes is \"1048576\", not \"9999\""),
        ("DUOVEC_MAX_BATCH_TOKENS", "256", "its batch_tokens is \"512\", not \"256\""),
        ("DUOVEC_MODEL_ALIASES", "x", "model_aliases"),
    ] {
        refused(&run(command(&input, &output, &[]).env(name, value)), &[word]);
    }
    // Other texts under the names of before.
    let right = fs::read_to_string(&input).expect("it is there");
    fs::write(&input, right.replacen("hello", "other", 1)).expect("written");
    refused(
        &run(&mut command(&input, &output, &[])),
        &["part 0 was made from other requests", "line 1"],
    );
    fs::write(&input, &right).expect("written");
    let mut goes_on = command(&input, &output, &["--log-level", "info"]);
    let ended = run(&mut goes_on);
    assert_eq!(ended.code, Some(3), "some requests are wrong by themselves: {}", ended.stderr);
    assert!(ended.stderr.contains("goes on with what an earlier run finished"), "{}", ended.stderr);
    assert_eq!(read(&output).len(), 4000);
    // A complete output is not taken for that of a longer file.
    fs::write(&input, format!("{right}{}\n", requests(1)[0])).expect("written");
    let ended = run(&mut command(&input, &output, &["--openvino-library-dir", "/nowhere"]));
    assert_says(&ended, 1, &["cannot continue", "part 9"]);
}

#[test]
fn answers_that_were_changed_since_they_were_written_are_not_taken_for_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = begun(folder.path());
    let whole = folder.path().join("whole.jsonl");
    assert_eq!(run(&mut command(&input, &whole, &[])).code, Some(3));
    let whole = fs::read(whole).expect("it is there");
    // A finished part, with other digits.
    let part = folder.path().join("out.jsonl.duovec_work/part-00000.jsonl");
    let text = fs::read_to_string(&part).expect("it is there");
    fs::write(&part, text.replacen("0.1", "0.2", 5)).expect("written");
    let ended = run(&mut command(&input, &output, &["--log-level", "warn"]));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("part-00000.jsonl has other bytes"), "{}", ended.stderr);
    assert!(fs::read(&output).expect("it is there") == whole, "the bytes differ");
    // The whole.
    for bytes in [&whole[..1000], &[&whole[..], b"junk\n"].concat()] {
        fs::write(&output, bytes).expect("written");
        let ended = run(&mut command(&input, &output, &[]));
        let found = format!("out.jsonl has {} bytes", bytes.len());
        assert_says(&ended, 1, &["cannot continue", &found, "delete this file"]);
    }
    fs::remove_file(&output).expect("it is there");
    assert_eq!(run(&mut command(&input, &output, &[])).code, Some(3));
    assert!(fs::read(&output).expect("it is there") == whole, "the bytes differ");
}

#[test]
fn an_engine_that_fails_ends_the_batch_and_no_request_is_blamed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    write(&input, &requests(7));
    let mut hangs = command(&input, &output, &["--fake-run-ms", "4000"]);
    let ended = run(hangs.env("DUOVEC_WORKER_STUCK_MS", "200"));
    assert_says(&ended, 1, &["may never end", "run the same command again"]);
    assert!(!output.exists());
    let ended = run(&mut command(&input, &output, &[]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
