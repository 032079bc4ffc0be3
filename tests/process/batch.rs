//! `duovec batch`: lines of OpenAI's Batch API.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::lifecycle::ready;
use super::support::{Ended, client, duovec, run, tiny};

fn request(id: usize, url: &str, body: &Value) -> Value {
    json!({"custom_id": format!("request-{id}"), "method": "POST", "url": url, "body": body})
}

fn write(path: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text).expect("written");
}

fn command(input: &Path, output: &Path, more: &[&str]) -> Command {
    let mut command = duovec();
    command.args(["batch", "--engine", "fake", "--log-level", "error", "--package"]).arg(tiny());
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
    ];
    let asked: Vec<(&str, &Value)> =
        (0..40).map(|at| (routes[at % 3], &bodies[at / 3 % 3])).collect();
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
    let again = run(&mut command(&input, &output, &[]));
    assert_eq!(again.code, Some(1), "an output is not written over");
    assert!(again.stderr.contains("is there already"), "{}", again.stderr);
}

/// More items than the queue holds: requests of one file wait for each other, and none is refused.
#[test]
fn more_than_the_queue_holds_is_answered_nevertheless() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let body = json!({"input": vec!["hello"; 1500]});
    let lines: Vec<Value> = (0..12).map(|id| request(id, "/v1/embeddings", &body)).collect();
    write(&input, &lines);
    let ended = run(&mut command(&input, &output, &["--fake-run-ms", "1"]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(read(&output).len(), 12);
}

#[test]
fn a_batch_that_is_killed_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let body = |id: usize| json!({"input": "hello ".repeat(id % 40)});
    let lines: Vec<Value> = (0..3000).map(|id| request(id, "/v1/embeddings", &body(id))).collect();
    write(&path("in.jsonl"), &lines);
    let more = ["--fake-run-ms", "4"];
    let whole = run(&mut command(&path("in.jsonl"), &path("whole.jsonl"), &more));
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let mut kills = 0;
    loop {
        let mut child = command(&path("in.jsonl"), &path("killed.jsonl"), &more);
        let mut child = child.stderr(Stdio::null()).spawn().expect("it starts");
        if kills < 5 {
            thread::sleep(Duration::from_millis(fastrand::u64(50..900)));
            // It may have come to its end.
            let _ = child.kill();
        }
        if child.wait().expect("it is a child").success() {
            break;
        }
        kills += 1;
    }
    println!("{kills} kills");
    let read = |name: &str| fs::read(path(name)).expect("it is there");
    assert!(read("killed.jsonl") == read("whole.jsonl"), "the bytes differ");
    // Another file's answers are not gone on with.
    fs::rename(path("whole.jsonl"), path("other.jsonl.partial")).expect("renamed");
    write(&path("in.jsonl"), &lines[1..]);
    let ended = run(&mut command(&path("in.jsonl"), &path("other.jsonl"), &more));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("it answers other requests"), "{}", ended.stderr);
}
