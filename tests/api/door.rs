//! The door: what is refused before its body is read, and what nobody may ask for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use duovec::config::{DoorConfig, RaisedPriority};
use duovec::limits::MaxInflightBytes;
use serde_json::{Value, json};

use crate::support::{BOTH, DENSE, SPARSE, Server, gzip};

/// More than an interactive request may have; the same text would wait once.
const NINE_TEXTS: [&str; 9] =
    ["one", "two", "three", "words", "here", "text", "short", "hello", "world"];

/// Above the default of `--max-item-bytes`.
const TOO_LARGE: usize = 1024 * 1024 + 1;

/// Sends a head that announces `length` bytes, and not one of them; gives the answer.
fn announce(server: &Server, path: &str, headers: &str, length: usize) -> String {
    let mut stream = server.connect();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).expect("an answer without a byte of the body");
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// Waiting items by priority, interactive ones first.
fn waiting_by_priority(server: &Server) -> (u64, u64) {
    let tuning: Value = server.get("/health").ok()["tuning"].clone();
    let count = |name: &str| tuning[name].as_u64().expect("a count");
    (count("queue_interactive"), count("queue_bulk"))
}

#[test]
fn a_request_that_would_be_late_is_refused_before_its_body_comes() {
    let server = Server::ready();
    server.predict(Duration::from_millis(100));
    server.hold();
    // 80 runs of one class of 64 rows, shared by two workers, are 4 s.
    server.plug(80 * 64);
    let headers = "x-priority: bulk\r\nx-request-timeout-ms: 2000\r\n";
    for path in [DENSE, SPARSE, BOTH] {
        let answer = announce(&server, path, headers, 200_000);
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("retry-after: ") && answer.contains("queue_full"), "{answer}");
    }
}

#[test]
fn a_text_above_the_limit_is_refused_with_its_place_whatever_truncate_says() {
    let server = Server::ready();
    let large = "a ".repeat(TOO_LARGE / 2 + 1);
    for (input, place) in [(json!(large), "item 0"), (json!(["a", large, "b"]), "item 1")] {
        for truncate in [true, false] {
            let answer = server.post(DENSE, &json!({"input": input, "truncate": truncate}));
            let error = answer.error();
            error.is(400, "invalid_request_error", "item_too_large", Some("input"));
            assert!(error.message.contains(place), "{}", error.message);
            assert!(error.message.contains("1048576 bytes"), "{}", error.message);
        }
    }
    let largest = "a ".repeat(TOO_LARGE / 2);
    server.post(DENSE, &json!({ "input": largest })).ok();
}

#[test]
fn a_text_above_the_limit_is_refused_while_its_body_still_comes() {
    let server = Server::ready();
    let begin = r#"{"user":"input","input":["one",""#;
    let body = format!("{begin}{}", "\\u0061 ".repeat(TOO_LARGE / 2 + 1));
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    stream.write_all(body.as_bytes()).expect("it is open");
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).expect("an answer without the rest of the body");
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("item_too_large") && answer.contains("item 1"), "{answer}");
}

#[test]
fn a_list_of_token_ids_that_takes_more_memory_than_a_text_may_is_refused() {
    let server = Server::ready();
    let ids = vec![5; TOO_LARGE / 4 + 1];
    let error = server.post(DENSE, &json!({ "input": [[5], ids] })).error();
    error.is(400, "invalid_request_error", "item_too_large", Some("input"));
    assert!(error.message.contains("item 1"), "{}", error.message);
}

#[test]
fn nobody_may_wait_longer_than_the_operator_allows() {
    let server = Server::ready();
    let headers = [("x-request-timeout-ms", "3600000")];
    let error = server.post_with(DENSE, &headers, r#"{"input":"text"}"#).error();
    error.is(400, "invalid_request_error", "invalid_value", Some("x-request-timeout-ms"));
    let headers = [("x-request-timeout-ms", "300000")];
    server.post_with(DENSE, &headers, r#"{"input":"text"}"#).ok();
}

#[test]
fn a_priority_is_lowered_freely_and_not_raised() {
    let server = Server::ready();
    server.hold();
    let large = json!({"input": NINE_TEXTS});
    for (priority, body, expected) in [
        ("interactive", &large, (0, 9)),
        ("bulk", &large, (0, 9)),
        ("bulk", &json!({"input": "a"}), (0, 1)),
        ("interactive", &json!({"input": "a"}), (1, 0)),
    ] {
        let (items, bytes) = (expected.0 + expected.1, body.to_string());
        let request = format!(
            "POST {DENSE} HTTP/1.1\r\nhost: x\r\nx-priority: {priority}\r\n\
             content-length: {}\r\n\r\n{bytes}",
            bytes.len()
        );
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).expect("it is open");
        server.wait_waiting(items as usize);
        assert_eq!(waiting_by_priority(&server), expected, "{priority} {items}");
        // The request is held; leaving takes it out of the queue again.
        drop(stream);
        server.wait_waiting(0);
    }
}

/// Opens a request of `length` bytes and sends none of them: it holds them until it is dropped.
fn hold_bytes(server: &Server, length: usize) -> TcpStream {
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    stream
}

fn held_bytes(server: &Server) -> f64 {
    let metrics = String::from_utf8(server.get("/metrics").body).expect("it is text");
    let line = metrics.lines().find_map(|line| line.strip_prefix("duovec_inflight_bytes "));
    line.expect("the metric is there").parse().expect("a number")
}

fn wait_held(server: &Server, bytes: f64) {
    server.wait_until("so many bytes are held", |server| held_bytes(server) == bytes);
}

fn small_door() -> Server {
    let max_inflight_bytes = MaxInflightBytes::new(800_000).expect("in range");
    Server::with_door(DoorConfig { max_inflight_bytes, ..DoorConfig::default() })
}

#[test]
fn bytes_beyond_those_in_flight_are_refused_and_small_requests_are_not() {
    let server = small_door();
    let first = hold_bytes(&server, 400_000);
    let second = hold_bytes(&server, 300_000);
    wait_held(&server, 700_000.0);
    let answer = announce(&server, DENSE, "", 100_000);
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    assert!(answer.contains("inflight_bytes_exceeded"), "{answer}");
    server.post(DENSE, &json!({"input": "a"})).ok();
    drop(first);
    wait_held(&server, 300_000.0);
    server.post(DENSE, &json!({"input": "a ".repeat(60_000)})).ok();
    drop(second);
    wait_held(&server, 0.0);
}

#[test]
fn bytes_that_were_not_announced_are_counted_as_they_come() {
    let server = small_door();
    let _held = hold_bytes(&server, 600_000);
    wait_held(&server, 600_000.0);
    let body = json!({"input": "a ".repeat(100_000)}).to_string();
    let packed = gzip(body.as_bytes());
    assert!(packed.len() < 10_000, "only what is unpacked is too much");
    let refused = server.post_with(DENSE, &[("content-encoding", "gzip")], packed);
    refused.error().is(429, "overloaded_error", "inflight_bytes_exceeded", None);
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunked = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let mut stream = server.connect();
    stream.write_all(chunked.as_bytes()).expect("it is open");
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("inflight_bytes_exceeded"), "{answer}");
}

#[test]
fn a_priority_is_raised_where_the_operator_allows_it() {
    let raised_priority = RaisedPriority::Obey;
    let server = Server::with_door(DoorConfig { raised_priority, ..DoorConfig::default() });
    server.hold();
    let body = json!({"input": NINE_TEXTS}).to_string();
    let mut stream = server.connect();
    let head = format!(
        "POST {DENSE} HTTP/1.1\r\nhost: x\r\nx-priority: interactive\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it is open");
    server.wait_waiting(9);
    assert_eq!(waiting_by_priority(&server), (9, 0));
}

#[test]
fn many_texts_that_would_be_late_are_refused_before_they_are_tokenized() {
    let server = Server::ready();
    server.predict(Duration::from_millis(100));
    server.hold();
    server.plug(80 * 64);
    // The head does not tell the priority, so the body is read; its nine texts make it bulk.
    let texts = vec!["a ".repeat(10_000); 9];
    let headers = [("x-request-timeout-ms", "2000")];
    let body = json!({ "input": texts }).to_string();
    let answer = server.post_with(DENSE, &headers, body);
    answer.error().is(429, "overloaded_error", "queue_full", None);
    assert_eq!(answer.header("server-timing"), None);
}
