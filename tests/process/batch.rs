//! `duovec batch`: lines of OpenAI's Batch API.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::support::*;

const SIDE: &str = "out.jsonl.rejected.jsonl";
const NOT_OURS: &str = "out.jsonl.rejected.jsonl…is of no run that is on record here";

fn request(id: usize, url: &str, body: &Value) -> Value {
    json!({"custom_id": format!("request-{id}"), "method": "POST", "url": url, "body": body})
}

/// A folder with these lines to be answered.
fn job(lines: &[Value]) -> Folder {
    let job = Folder::new();
    job.write("in.jsonl", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    job
}

impl Folder {
    fn batch(&self, out: &str, more: &[&str]) -> Command {
        self.batch_with(&tiny(), out, more)
    }

    fn batch_with(&self, package: &Path, out: &str, more: &[&str]) -> Command {
        let mut command = quick("batch", package, more);
        command.arg("-i").arg(self.path("in.jsonl")).arg("-o").arg(self.path(out));
        command
    }

    /// Runs it to the end, which must have this code.
    #[track_caller]
    fn run_batch(&self, code: i32, more: &[&str]) -> Ended {
        let ended = run(&mut self.batch("out.jsonl", more));
        ended.with_code(code);
        ended
    }
}

#[test]
fn a_model_without_prompts_says_once_that_input_type_changes_nothing() {
    let asks = json!({"input": "hello", "input_type": "query"});
    let plain = json!({"input": "hello"});
    for (bodies, told) in [(vec![&plain, &asks, &asks], 1), (vec![&plain, &plain], 0)] {
        let lines = bodies.iter().enumerate();
        let lines: Vec<Value> =
            lines.map(|(id, body)| request(id, "/v1/embeddings", body)).collect();
        let ended = job(&lines).run_batch(0, &["--log-level", "warn"]);
        let found = ended.stderr.matches("no prompts, so that input_type changes nothing").count();
        assert_eq!(found, told, "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("line=2"), told == 1, "{}", ended.stderr);
    }
}

/// The end of a run removes what lies there, when nothing was rejected.
#[test]
fn a_file_of_the_user_beside_the_output_is_never_lost() {
    let job = job(&requests(3));
    job.write(SIDE, job.bytes("in.jsonl"));
    assert_says(&job.run_batch(1, &[]), 1, NOT_OURS);
    let refused = |input: &str, out: &str, words: &str| {
        let mut command = quick("batch", tiny(), &[]);
        command.arg("-i").arg(job.path(input)).arg("-o").arg(job.path(out));
        assert_says(&run(&mut command), 2, words);
    };
    refused(SIDE, "out.jsonl", "out.jsonl.rejected.jsonl…the run itself writes it");
    refused("in.jsonl", "new.jsonl/", "new.jsonl/…is a folder…name a file");
    assert_eq!(job.bytes(SIDE), job.bytes("in.jsonl"));
    assert_eq!(fs::read_dir(job.path(".")).expect("a folder").count(), 2, "nothing was made");
    // One that came later.
    job.remove(SIDE);
    job.run_batch(0, &[]);
    job.write(SIDE, "mine");
    job.run_batch(0, &[]);
    job.remove("out.jsonl");
    assert_says(&job.run_batch(1, &[]), 1, &format!("{NOT_OURS}…remove it"));
    assert_eq!(job.bytes(SIDE), b"mine");
    job.remove(SIDE);
    job.run_batch(0, &[]);
}

/// So a mistake costs nothing.
#[test]
fn an_input_that_cannot_be_read_is_said_before_anything_is_loaded_or_written() {
    let job = job(&[]);
    job.write("in.jsonl", b"\x1f\x8b\x08\0packed");
    let broken = Broken::new();
    fs::write(broken.file("model.onnx"), "no graph").expect("written");
    assert_says(&run(&mut job.batch_with(broken.path(), "out.jsonl", &[])), 1, "in.jsonl…gunzip");
    assert_eq!(fs::read_dir(job.path(".")).expect("a folder").count(), 1, "nothing was made");
}

/// It would be a file of that name, with a folder and a record beside it.
#[test]
fn standard_output_is_refused_as_the_place_of_an_output() {
    let job = job(&requests(1));
    for (command, more) in [
        ("embed", &["in.jsonl", "--text-column", "url", "--out", "-"][..]),
        ("batch", &["-i", "in.jsonl", "-o", "-"]),
    ] {
        let ended = run(quick(command, tiny(), more).current_dir(job.path(".")));
        assert_says(&ended, 2, "--out…standard output…name a file…(./-");
        assert_eq!(fs::read_dir(job.path(".")).expect("a folder").count(), 1, "nothing was made");
    }
}

/// A run that goes on reads its input again.
#[test]
fn standard_input_is_refused_as_the_requests_of_batch() {
    let job = job(&requests(1));
    let mut command = quick("batch", tiny(), &["-i", "-", "-o", "out.jsonl"]);
    let ended = run(command.current_dir(job.path(".")));
    assert_says(&ended, 2, "--input -…standard input…name a file…(./-");
}

#[tokio::test]
async fn lines_have_the_answers_of_the_routes_in_their_order() {
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
    // It needs no run.
    let question = json!({"input": ["cat", "the dog"], "input_type": "query", "lexical": "table"});
    let asked = (0..40).map(|at| (routes[at % 3], &bodies[at / 3 % 4]));
    let asked: Vec<(&str, &Value)> = asked.chain([(routes[1], &question)]).collect();
    let lines: Vec<Value> =
        asked.iter().enumerate().map(|(id, (url, body))| request(id, url, body)).collect();
    let job = job(&lines);
    job.run_batch(0, &[]);
    let answers = job.lines("out.jsonl");
    assert_eq!(answers.len(), asked.len());
    let server = ready_fake(&[]);
    for (at, ((url, body), answer)) in asked.iter().zip(&answers).enumerate() {
        assert_eq!(answer["custom_id"], format!("request-{at}"));
        assert_eq!(
            (&answer["error"], &answer["response"]["status_code"]),
            (&Value::Null, &json!(200))
        );
        assert_eq!(answer["response"]["body"], server.ask(url, Some(body)).await.1);
    }
}

#[test]
fn requests_that_ask_for_no_prompt_get_the_one_of_the_setting() {
    let prompts = json!({"query": "query: ", "passage": "passage: "});
    let package = Broken::with(&json!({"prompts": prompts, "default_prompt": "query"}));
    let bodies = [
        json!({"input": "hello"}),
        json!({"input": "query: hello"}),
        json!({"input": "passage: hello"}),
    ];
    let lines = bodies.iter().enumerate().map(|(id, body)| request(id, "/v1/embeddings", body));
    let job = job(&lines.collect::<Vec<_>>());
    let vectors = |prompt: &[&str]| {
        run(&mut job.batch_with(package.path(), "out.jsonl", prompt)).with_code(0);
        let answers = job.lines("out.jsonl");
        job.remove("out.jsonl");
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
        request(6, "/v1/embeddings", &json!({"input": "a", "token_vectors": true})),
        request(7, "/v1/embeddings", &good),
    ];
    let job = job(&lines);
    has(&job.run_batch(3, &[]).stderr, "6 of 8 requests failed");
    let answers = job.lines("out.jsonl");
    let codes: Vec<_> = answers.iter().map(|one| one["response"]["status_code"].as_u64()).collect();
    let [ok, refused, unknown] = [200, 400, 404].map(Some);
    assert_eq!(codes, [ok, refused, unknown, None, None, unknown, refused, ok]);
    assert_eq!(answers[1]["response"]["body"]["error"]["code"], "invalid_input");
    assert_eq!(answers[3]["error"]["code"], "invalid_line");
    assert_eq!(answers[3]["custom_id"], Value::Null);
    assert_eq!(answers[4]["custom_id"], "request-4");
    let message = |at: usize| answers[at]["response"]["body"]["error"]["message"].as_str();
    assert!(message(6).is_some_and(|text| text.contains("not for files of requests")));
    has(message(2).expect("a text"), "this url is not for files of requests; use /v1/embeddings, ");
    assert_eq!(answers[4]["error"]["message"], "the method of line 5 is not POST; use POST");
    let before = job.bytes("out.jsonl");
    // Nothing is left to do, and the code says as much.
    job.run_batch(3, &[]);
    assert_eq!(job.bytes("out.jsonl"), before);
}

#[test]
fn a_line_that_is_no_request_is_told_what_a_request_is() {
    let lines = [
        ("[]", "it is not an object", Value::Null),
        (r#"["a", "POST", "/v1/embeddings", {"input": "x"}]"#, "not an object", Value::Null),
        (r#"{"custom_id": "c", "body": {}}"#, "missing field `url`", json!("c")),
        (r#"{"custom_id": "d", "url": 5, "body": {}}"#, "url is not a text", json!("d")),
        (r#"{"custom_id": "e","#, "not valid JSON", Value::Null),
    ];
    let job = job(&[]);
    let text = lines.each_ref().map(|(line, ..)| *line).join("\n");
    job.write("in.jsonl", text);
    assert_says(&job.run_batch(3, &[]), 3, "5 of 5 requests failed");
    for (at, (answer, (_, problem, custom_id))) in
        job.lines("out.jsonl").iter().zip(&lines).enumerate()
    {
        let message = answer["error"]["message"].as_str().expect("a text");
        let start = format!("line {} is not a request: send an object with custom_id", at + 1);
        assert!(message.starts_with(&start) && message.contains(problem), "{message}");
        assert!(!message.contains("struct") && !message.contains("at line"), "{message}");
        assert_eq!(answer["custom_id"], *custom_id);
    }
}

/// Whoever looks an answer up by its name must not find another request's vectors.
#[test]
fn a_custom_id_that_came_before_is_refused_in_its_line() {
    let bodies = ["one", "two", "three"].map(|text| json!({"input": text}));
    let [first, second, third] = &bodies;
    // The second part of the output knows the names of the first.
    let many = json!({"input": vec!["filler"; 1024]});
    let lines = [
        request(1, "/v1/embeddings", first),
        request(2, "/v1/embeddings", second),
        request(1, "/v1/embeddings", third),
        request(3, "/v1/embeddings", &many),
        request(2, "/v1/nothing", second),
    ];
    let job = job(&lines);
    has(&job.run_batch(3, &[]).stderr, "2 of 5 requests failed");
    let answers = job.lines("out.jsonl");
    let is_answered = |at: usize| answers[at]["response"]["status_code"] == 200;
    assert!([0, 1, 3].into_iter().all(is_answered));
    for (at, told) in [
        (2, "line 3 has the custom_id of line 1; give"),
        (4, "line 5 has the custom_id of line 2; give"),
    ] {
        assert_eq!(answers[at]["custom_id"], lines[at]["custom_id"]);
        assert_eq!(answers[at]["error"]["code"], "invalid_line");
        let message = answers[at]["error"]["message"].as_str();
        assert!(message.is_some_and(|text| text.starts_with(told)), "{message:?}");
    }
}

#[test]
fn an_empty_input_leaves_no_file_and_none_at_all_is_a_wrong_use() {
    let job = job(&[]);
    job.remove("in.jsonl");
    assert_says(&job.run_batch(2, &[]), 2, "in.jsonl: there is no such file");
    fs::create_dir(job.path("in.jsonl")).expect("created");
    assert_says(&job.run_batch(2, &[]), 2, "in.jsonl: it is a folder; name a file");
    fs::remove_dir(job.path("in.jsonl")).expect("it is empty");
    for input in ["", "\n \n"] {
        job.write("in.jsonl", input);
        assert_says(&job.run_batch(1, &[]), 1, "the input is empty");
        let left: Vec<_> = fs::read_dir(job.path(".")).expect("a folder").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

/// More items than a server's queue holds, and none of them twice.
#[test]
fn any_number_of_texts_is_answered_in_order_and_none_is_refused() {
    let texts =
        |id: usize| -> Vec<String> { (0..1500).map(|at| format!("{id} hello {at}")).collect() };
    let body = |id: usize| json!({"input": texts(id), "encoding_format": "base64"});
    let lines: Vec<Value> = (0..14).map(|id| request(id, "/v1/embeddings", &body(id))).collect();
    let job = job(&lines);
    job.run_batch(0, &["--fake-run-ms", "1"]);
    let answers = job.lines("out.jsonl");
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
    let lines: Vec<Value> =
        requests(6000).into_iter().filter(|one| one["body"]["input"] != json!([])).collect();
    let job = job(&lines);
    let more = ["--fake-run-ms", "2"];
    job.run_batch(0, &more);
    kill_and_repeat(|| job.batch("killed.jsonl", &more), Duration::from_millis(150));
    assert!(job.bytes("killed.jsonl") == job.bytes("out.jsonl"), "the bytes differ");
    assert!(!job.path("killed.jsonl.duovec_work").exists());
}

/// A batch whose first parts are finished, killed then.
fn begun() -> Folder {
    let job = job(&requests(4000));
    let part = job.path("out.jsonl.duovec_work/part-00000.jsonl");
    kill_at(job.batch("out.jsonl", &["--fake-run-ms", "20"]), &part, || {
        assert_says(&job.run_batch(1, &[]), 1, "out.jsonl…another process is writing to it");
    });
    job
}

#[test]
fn a_batch_goes_on_with_the_requests_the_package_and_the_options_of_before_only() {
    let job = begun();
    let refused = |command: &mut Command, words: &str| {
        assert_says(&run(command), 1, &format!("cannot continue…out.jsonl…{words}"));
        assert!(!job.path("out.jsonl").exists());
    };
    let other = Broken::with(&json!({"model_id": "another"}));
    let mut with_other = job.batch_with(other.path(), "out.jsonl", &[]);
    refused(&mut with_other, "its model is \"tiny-test\", not \"another\"");
    for (name, value, word) in [
        ("DUOVEC_TRUNCATE", "false", "its truncate is \"true\", not \"false\""),
        ("DUOVEC_MAX_ITEM_BYTES", "9999", "its max_item_bytes is \"1048576\", not \"9999\""),
        ("DUOVEC_MAX_BATCH_TOKENS", "256", "its batch_tokens is \"512\", not \"256\""),
        ("DUOVEC_MODEL_ALIASES", "x", "model_aliases"),
    ] {
        refused(job.batch("out.jsonl", &[]).env(name, value), word);
    }
    // Other texts under the names of before.
    let input = job.path("in.jsonl");
    let right = fs::read_to_string(&input).expect("it is there");
    fs::write(&input, right.replacen("hello", "other", 1)).expect("written");
    refused(&mut job.batch("out.jsonl", &[]), "part 0 was made from other requests…line 1");
    fs::write(&input, &right).expect("written");
    // Some requests are wrong by themselves.
    let words = "goes on with what an earlier run finished";
    has(&job.run_batch(3, &["--log-level", "info"]).stderr, words);
    assert_eq!(job.lines("out.jsonl").len(), 4000);
    // A complete output is not taken for that of a longer file.
    fs::write(&input, format!("{right}{}\n", requests(1)[0])).expect("written");
    let ended = job.run_batch(1, &["--openvino-library-dir", "/nowhere"]);
    assert_says(&ended, 1, "cannot continue…part 9");
}
