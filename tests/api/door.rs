//! The door: what is refused before its body is read, and what nobody may ask for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use settings::limits::{MaxInflightBytes, MaxRequestTimeoutMs, RequestTimeoutMs};
use settings::{DoorConfig, HttpConfig, RaisedPriority};

use crate::support::{Answer, BOTH, DENSE, SPARSE, Server, gzip};
use crate::tls::{Secure, embed_within};

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
    let max_request_timeout = MaxRequestTimeoutMs::new(300).expect("in range");
    let request_timeout = RequestTimeoutMs::new(300).expect("in range");
    let config = HttpConfig { max_request_timeout, request_timeout, ..HttpConfig::default() };
    let server = Server::with(config);
    server.hold();
    let headers = [("x-request-timeout-ms", "3600000")];
    let error = server.post_with(DENSE, &headers, r#"{"input":"text"}"#).error();
    error.is(504, "server_error", "deadline_exceeded", None);
    assert!(error.message.contains("300"), "{}", error.message);
    server.release();
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

/// Opens a request of `length` bytes and sends half of them: it holds all until it is dropped.
fn hold_bytes(server: &Server, length: usize) -> TcpStream {
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    stream.write_all(&vec![b' '; length / 2]).expect("it is open");
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

/// Nine texts whose vectors take some 20 KB as an answer of any form.
fn answer_of(server: &Server, texts: usize, more: &Value) -> Answer {
    let mut body = json!({"input": vec!["a b c d"; texts], "offsets": true});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
    server.post(BOTH, &body)
}

#[test]
fn the_room_for_an_answer_is_asked_before_the_model_is_run() {
    let server = small_door();
    let _held = hold_bytes(&server, 600_000);
    wait_held(&server, 600_000.0);
    let before = server.accepted();
    let refused = answer_of(&server, 100, &json!({}));
    refused.error().is(429, "overloaded_error", "inflight_bytes_exceeded", None);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.accepted(), before, "no item came to the queue");
    answer_of(&server, 10, &json!({})).ok();
    wait_held(&server, 600_000.0);
}

#[test]
fn an_answer_that_can_never_fit_is_413_and_says_what_to_do() {
    let server = small_door();
    for more in
        [json!({}), json!({"sparse_format": "tokens"}), json!({"encoding_format": "base64"})]
    {
        let error = answer_of(&server, 2000, &more).error();
        error.is(413, "invalid_request_error", "request_too_large", None);
        assert!(error.message.contains("700000 bytes"), "{}", error.message);
        assert!(error.message.contains("fewer or shorter texts"), "{}", error.message);
    }
    let body = json!({ "input": "a".repeat(750_000) });
    server.post(DENSE, &body).error().is(413, "invalid_request_error", "request_too_large", None);
    wait_held(&server, 0.0);
}

#[test]
fn a_small_packed_body_waits_behind_no_large_one() {
    let server = Server::ready();
    // Its members unpack to nothing for as long as anybody lets them.
    let endless = gzip(b"").repeat(1_000_000);
    let mut holder = server.connect();
    let head = format!(
        "POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        endless.len()
    );
    holder.write_all(head.as_bytes()).expect("it is open");
    holder.write_all(&endless).expect("the server reads it");
    let begin = Instant::now();
    let packed = gzip(br#"{"input":"a"}"#);
    server.post_with(DENSE, &[("content-encoding", "gzip")], packed).ok();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let mut answer = [0; 4096];
    let length = holder.read(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("invalid_body"), "{answer}");
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

/// A server whose longest text is predicted to take what one of a common model takes on a
/// processor.
fn as_slow_as_a_model(server: &Server) {
    server.predict_tokens(Duration::from_millis(2), Duration::from_millis(200));
}

#[test]
fn heads_on_many_streams_whose_bodies_do_not_come_delay_nobody() {
    for timeout in ["30000", "300000"] {
        let secure = Secure::new();
        as_slow_as_a_model(&secure.server);
        let connections: Vec<_> = (0..4).map(|_| secure.http_2()).collect();
        let client = secure.http_2();
        secure.runtime.block_on(async {
            let mut heads = Vec::new();
            for mut send in connections {
                for _ in 0..128 {
                    send = send.ready().await.expect("it is open");
                    let head = http::Request::post(format!("https://localhost{DENSE}"));
                    let head = head.header("content-length", "65536");
                    let head = head.header("x-request-timeout-ms", timeout);
                    let head = head.body(()).expect("valid");
                    heads.push(send.send_request(head, false).expect("it is sent"));
                }
            }
            for _ in 0..20 {
                assert_eq!(embed_within(&client, "1000").await, 200);
                assert_eq!(embed_within(&client, "30000").await, 200);
            }
            assert_eq!(heads.len(), 512);
        });
    }
}

/// Opens a request and sends its head alone; it has passed the door, or was refused there.
fn open_head(server: &Server, headers: &str, length: usize) -> TcpStream {
    let mut stream = server.connect();
    let head = format!(
        "POST {DENSE} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n{headers}\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it is open");
    let read = stream.read(&mut [0; 4096]).expect("it may go on, or it is refused");
    assert!(read > 0, "it is answered");
    stream
}

#[test]
fn heads_on_many_connections_whose_bodies_do_not_come_delay_nobody() {
    duovec::descriptors::raise_limit().expect("there is a limit");
    for headers in ["", "x-request-timeout-ms: 300000\r\n"] {
        let server = Server::ready();
        as_slow_as_a_model(&server);
        let heads: Vec<_> = (0..400).map(|_| open_head(&server, headers, 65_536)).collect();
        for timeout_ms in ["1000", "30000"] {
            let headers = [("x-request-timeout-ms", timeout_ms)];
            server.post_with(DENSE, &headers, r#"{"input":"text"}"#).ok();
        }
        drop(heads);
    }
}

#[test]
fn bytes_that_are_announced_and_do_not_come_are_held_by_nobody() {
    for (heads, length) in [(7, 33_554_432), (20, 65_536)] {
        let server = if heads == 7 { Server::ready() } else { small_door() };
        let heads: Vec<_> = (0..heads).map(|_| open_head(&server, "", length)).collect();
        server.post(DENSE, &json!({"input": "a ".repeat(50_000)})).ok();
        server.post(DENSE, &json!({"input": "a"})).ok();
        assert_eq!(held_bytes(&server), 0.0);
        drop(heads);
    }
}

#[test]
fn bytes_that_came_are_held_and_as_many_again() {
    let server = small_door();
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: 300000\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    for held in [2_000.0, 100_000.0, 300_000.0] {
        let came = held_bytes(&server) / 2.0;
        stream.write_all(&vec![b' '; (held / 2.0 - came) as usize]).expect("it is open");
        wait_held(&server, held);
    }
    drop(stream);
    wait_held(&server, 0.0);
}
