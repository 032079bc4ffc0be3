//! Texts that come again: they share a run while they wait or run, and need none afterwards where
//! rows are kept.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::support::{Answer, BOTH, DENSE, METRICS, SPARSE, Server, Trouble};

/// What the answer says of the cache.
fn cache_use(answer: &Answer) -> Option<String> {
    let timing = answer.header("server-timing").expect("there is a Server-Timing");
    timing.split(", cache;desc=").nth(1).map(str::to_owned)
}

fn metric(server: &Server, series: &str) -> f64 {
    let metrics = String::from_utf8(server.get(METRICS).body).expect("it is text");
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.expect("the metric is there").parse().expect("a number")
}

/// Sends a request on a connection of its own, which is closed after the answer.
fn send(server: &Server, path: &str, body: &str) -> TcpStream {
    let mut stream = server.connect();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it is open");
    stream
}

fn body(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split("\r\n\r\n").nth(1).expect("a body").to_owned()
}

#[test]
fn answers_are_the_same_bytes_with_and_without_a_cache() {
    let (with, without) = (Server::with_cache(), Server::ready());
    let input = json!(["one", "two three", "one"]);
    for format in ["float", "base64"] {
        for path in [DENSE, SPARSE, BOTH] {
            let request = match path {
                SPARSE => json!({ "input": input }),
                _ => json!({ "input": input, "encoding_format": format }),
            };
            let expected = without.post(path, &request);
            expected.ok();
            assert_eq!(cache_use(&expected), None);
            for _ in 0..2 {
                let answer = with.post(path, &request);
                assert_eq!(answer.body, expected.body, "{path} {format}");
            }
        }
    }
    // The first of all ran for both kinds of vectors.
    assert_eq!(metric(&with, "duovec_tokens_total{kind=\"real\"}"), 3.0 + 4.0);
}

#[test]
fn a_text_that_comes_again_does_not_run_again() {
    let server = Server::with_cache();
    let post = |path, input| server.post(path, &json!({ "input": input }));
    let first = post(DENSE, json!("one two"));
    assert_eq!(cache_use(&first).as_deref(), Some("miss"));
    let batches = metric(&server, "duovec_batches_total");
    for path in [DENSE, SPARSE, BOTH] {
        assert_eq!(cache_use(&post(path, json!(["one two", "one two"]))).as_deref(), Some("hit"));
    }
    assert_eq!(metric(&server, "duovec_batches_total"), batches);
    let partial = post(DENSE, json!(["one two", "three"]));
    assert_eq!(cache_use(&partial).as_deref(), Some("partial"));
    assert_eq!(metric(&server, "duovec_batches_total"), batches + 1.0);
    assert_eq!(metric(&server, "duovec_cache_lookups_total{result=\"hit\"}"), 7.0);
    assert_eq!(metric(&server, "duovec_cache_lookups_total{result=\"miss\"}"), 2.0);
    assert_eq!(metric(&server, "duovec_cache_entries"), 2.0);
    let health = server.get("/health").ok();
    let cache = &health["tuning"]["cache"];
    assert_eq!((&cache["hits"], &cache["entries"]), (&json!(7), &json!(2)));
    assert_eq!(cache["limit_bytes"], json!(1 << 20));
    assert!(cache["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{cache}");
}

#[test]
fn prompts_and_cuts_make_other_texts() {
    let server = Server::with_cache();
    let post = |body| cache_use(&server.post(DENSE, &body));
    let (hit, miss) = (Some("hit".to_owned()), Some("miss".to_owned()));
    assert_eq!(post(json!({"input": "one two"})), miss);
    assert_eq!(post(json!({"input": "one  two"})), hit, "the ids count, not the letters");
    assert_eq!(post(json!({"input": "one two", "input_type": "query"})), miss);
    assert_eq!(post(json!({"input": "one two", "input_type": "query"})), hit);
    assert_eq!(post(json!({"input": "one two", "dimensions": 4})), hit);
}

#[test]
fn requests_for_the_same_text_at_the_same_time_run_it_once() {
    let server = Server::ready();
    server.hold();
    let runs = server.engine().runs().len();
    let streams: Vec<TcpStream> =
        (0..8).map(|_| send(&server, DENSE, r#"{"input":"one two"}"#)).collect();
    let sparse = send(&server, SPARSE, r#"{"input":["one two","one two"]}"#);
    server.wait_waiting(10);
    assert_eq!(server.get("/health").ok()["queue_depth"], json!(1));
    server.release();
    let bodies: Vec<String> = streams.into_iter().map(body).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    body(sparse);
    assert_eq!(server.engine().runs().len(), runs + 1);
    assert_eq!(metric(&server, "duovec_items_coalesced_total"), 9.0);
}

#[test]
fn a_client_that_leaves_takes_the_run_from_nobody() {
    let server = Server::ready();
    server.hold();
    let leaves = send(&server, DENSE, r#"{"input":"one two"}"#);
    server.wait_waiting(1);
    let stays = send(&server, DENSE, r#"{"input":"one two"}"#);
    server.wait_waiting(2);
    drop(leaves);
    server.wait_waiting(1);
    server.release();
    body(stays);
}

#[test]
fn a_cached_text_is_answered_while_the_queue_is_full() {
    let server = Server::with_cache();
    server.post(DENSE, &json!({"input": "one two"})).ok();
    server.prepare(Trouble::QueueFull);
    let again = server.post(DENSE, &json!({"input": "one two"}));
    again.ok();
    assert_eq!(cache_use(&again).as_deref(), Some("hit"));
    for input in [json!("three"), json!(["one two", "three"])] {
        let refused = server.post(DENSE, &json!({ "input": input }));
        refused.error().is(429, "overloaded_error", "queue_full", None);
    }
    server.recover();
}

#[test]
fn deep_checks_run_the_canary_whatever_is_cached() {
    let server = Server::with_cache();
    for _ in 0..2 {
        let before = server.engine().runs().len();
        server.get("/health/deep").ok();
        assert!(server.engine().runs().len() >= before + 2, "once on each worker");
    }
    assert_eq!(metric(&server, "duovec_cache_entries"), 0.0);
    server.break_numbers();
    assert_eq!(server.get("/health/deep").status, 503);
}
