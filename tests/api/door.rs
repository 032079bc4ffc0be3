//! The door: what is refused before its body is read, and what nobody may ask for.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use settings::RaisedPriority;

use crate::http_2_client;
use crate::support::*;
use crate::tls::{Secure, embed_within};
use crate::trouble::busy_for_4_s;

/// More than an interactive request may have; the same text would wait once.
const NINE_TEXTS: [&str; 9] =
    ["one", "two", "three", "words", "here", "text", "short", "hello", "world"];

/// Above the default of `--max-item-bytes`.
const TOO_LARGE: usize = 1024 * 1024 + 1;

/// The head of a request that announces `length` bytes, without one of them.
fn announce(path: &str, headers: &str, length: usize) -> String {
    head(path, &format!("content-length: {length}\r\n{headers}"))
}

/// Waiting items by priority, interactive ones first.
fn waiting_by_priority(server: &Server) -> (u64, u64) {
    let tuning: Value = server.get("/health").ok()["tuning"].clone();
    let count = |name: &str| tuning[name].as_u64().expect("a count");
    (count("queue_interactive"), count("queue_bulk"))
}

#[test]
fn a_request_that_would_be_late_is_refused_before_its_body_comes_until_there_is_room() {
    let server = busy_for_4_s();
    let predicted_ms = server.get("/health").ok()["predicted_wait_ms"].as_f64().expect("ms");
    assert!((3900.0..=4200.0).contains(&predicted_ms), "{predicted_ms}");
    let [bulk, soon, later] = [
        ("x-priority", "bulk"),
        ("x-request-timeout-ms", "2000"),
        ("x-request-timeout-ms", "4000"),
    ];
    for time in [soon, later] {
        // A wait of three quarters of its time would do; each stands behind the one before.
        let answer = server.post_with(DENSE, &[bulk, time], r#"{"input":["one","two"]}"#);
        answer.refused("queue_full", "");
        assert_eq!(answer.header("retry-after"), Some("3"), "{time:?}");
    }
    for path in ROUTES {
        let headers = "x-priority: bulk\r\nx-request-timeout-ms: 2000\r\n";
        let answer = server.open(announce(path, headers, 200_000)).answer();
        answer.refused("queue_full", "");
        assert!(answer.header("retry-after").is_some());
    }
    // This head does not tell the priority, so the body is read; its nine texts make it bulk.
    let body = json!({"input": vec!["a ".repeat(10_000); 9]}).to_string();
    let answer = server.post_with(DENSE, &[soon], body);
    answer.refused("queue_full", "");
    assert_eq!(answer.header("server-timing"), None, "nothing is tokenized");
    server.recover();
    server.post_with(DENSE, &[bulk], r#"{"input":"a"}"#).ok();
}

#[test]
fn a_text_or_ids_above_the_limit_are_refused_with_their_place_whatever_truncate_says() {
    let server = Server::ready();
    let large = "a ".repeat(TOO_LARGE / 2 + 1);
    let ids = vec![5; TOO_LARGE / 4 + 1];
    for (input, place) in [
        (json!(large), "item 0"),
        (json!(["a", large, "b"]), "item 1"),
        (json!([[5], ids]), "item 1"),
    ] {
        for truncate in [true, false] {
            let answer = server.post(DENSE, &json!({"input": input, "truncate": truncate}));
            answer.refused("item_too_large", "input").says(place).says("1048576 bytes");
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
    let mut stream = server.open(announce(DENSE, "", 30_000_000) + &body);
    stream.answer().refused("item_too_large", "input").says("item 1");
}

#[test]
fn a_priority_is_lowered_freely_and_not_raised() {
    let large = json!({"input": NINE_TEXTS});
    let small = json!({"input": "a"});
    for (raised_priority, priority, body, expected) in [
        (RaisedPriority::Ignore, "interactive", &large, (0, 9)),
        (RaisedPriority::Ignore, "bulk", &large, (0, 9)),
        (RaisedPriority::Ignore, "bulk", &small, (0, 1)),
        (RaisedPriority::Ignore, "interactive", &small, (1, 0)),
        // Only where the operator allows it.
        (RaisedPriority::Obey, "interactive", &large, (9, 0)),
    ] {
        let server = Server::set(|set| set.door.raised_priority = raised_priority);
        server.hold();
        let headers = format!("x-priority: {priority}\r\n");
        let _stream = server.open(post(DENSE, &headers, &body.to_string()));
        server.wait_waiting((expected.0 + expected.1) as usize);
        assert_eq!(waiting_by_priority(&server), expected, "{priority}");
    }
}

/// Opens a request of `length` bytes and sends half of them: it holds all until it is dropped.
fn hold_bytes(server: &Server, length: usize) -> TcpStream {
    server.open(announce(DENSE, "", length) + &" ".repeat(length / 2))
}

fn held_bytes(server: &Server) -> f64 {
    server.metric("duovec_inflight_bytes")
}

fn wait_held(server: &Server, bytes: f64) {
    server.wait_until("so many bytes are held", |server| held_bytes(server) == bytes);
}

fn small_door() -> Server {
    Server::set(|set| {
        set.door.max_inflight_bytes = number(800_000);
        // The less is free, the shorter a body is waited for: a busy machine is slow to send it.
        set.http.body_timeout = number(300_000);
    })
}

#[test]
fn bytes_beyond_those_in_flight_are_refused_and_small_requests_are_not() {
    let server = small_door();
    let first = hold_bytes(&server, 400_000);
    let second = hold_bytes(&server, 300_000);
    wait_held(&server, 700_000.0);
    let answer = server.open(announce(DENSE, "", 100_000)).answer();
    answer.refused("inflight_bytes_exceeded", "");
    assert_eq!(answer.header("retry-after"), Some("1"));
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
    refused.refused("inflight_bytes_exceeded", "");
    let chunked = head(DENSE, "transfer-encoding: chunked\r\n");
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    server.open(chunked + &chunks).answer().refused("inflight_bytes_exceeded", "");
}

/// Nine texts whose vectors take some 20 KB as an answer of any form.
fn answer_of(server: &Server, texts: usize, more: &Value) -> Answer {
    let body = json!({"input": vec!["a b c d"; texts], "offsets": true});
    server.post(BOTH, &joined(body, more))
}

#[test]
fn the_room_for_an_answer_is_asked_before_the_model_is_run() {
    let server = small_door();
    let _held = hold_bytes(&server, 600_000);
    wait_held(&server, 600_000.0);
    let before = server.accepted();
    let refused = answer_of(&server, 100, &json!({}));
    refused.refused("inflight_bytes_exceeded", "");
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
        let said = answer_of(&server, 2000, &more).refused("request_too_large", "");
        said.says("700000 bytes…fewer or shorter texts");
    }
    server.post(DENSE, &json!({ "input": "a".repeat(750_000) })).refused("request_too_large", "");
    wait_held(&server, 0.0);
}

#[test]
fn tokens_are_counted_while_other_texts_are_tokenized() {
    let refused = |limit: u64, body: &Value| {
        let server = Server::set(|set| set.door.max_inflight_bytes = number(limit));
        server.post(SPARSE, body).refused("request_too_large", "");
    };
    // What else is wrong is told when all of them are tokenized.
    let mut spans = vec![vec![[0, 599]; 60]; 30];
    spans[29] = vec![[0, 601]];
    let chunking = json!({"by": "spans", "spans": spans});
    let texts = vec!["a ".repeat(300); 30];
    refused(400_000, &json!({"input": texts, "chunking": chunking, "offsets": true}));
    let texts = vec![LONG_TEXT; 2000];
    refused(1_900_000, &json!({"input": texts, "truncate": false, "offsets": true}));
    // The tokens of one text, too, are counted before all of them are there.
    let (text, spans) = ("a ".repeat(100_000), json!([[[0, 200_001]]]));
    refused(2_000_000, &json!({"input": text, "chunking": {"by": "spans", "spans": spans}}));
}

#[test]
fn a_small_packed_body_waits_for_no_large_one_that_stops() {
    let server = Server::ready();
    let numbers: String =
        (0..100_000).map(|number| format!("{} ", number * 7919 % 99_991)).collect();
    let large = gzip(json!({ "input": numbers }).to_string().as_bytes());
    let (first, rest) = large.split_at(large.len() / 2);
    let mut holder = server.connect();
    holder.say(announce(DENSE, "content-encoding: gzip\r\n", large.len()));
    holder.say(first);
    let packed = gzip(br#"{"input":"a"}"#);
    server.post_with(DENSE, &[("content-encoding", "gzip")], packed).ok();
    holder.say(rest);
    holder.answer().ok();
}

/// A server whose longest text is predicted to take ten times what one of a common model takes on a
/// processor: a busy machine takes its part of the time that requests have.
fn as_slow_as_a_model(server: &Server) {
    server.predict(Duration::from_millis(20), Duration::from_secs(2));
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
                    let told = [("content-length", "65536"), ("x-request-timeout-ms", timeout)];
                    let head = http_2_client::head(DENSE, &told);
                    heads.push(send.send_request(head, false).expect("it is sent"));
                }
            }
            for _ in 0..20 {
                assert_eq!(embed_within(&client, "10000").await, 200);
                assert_eq!(embed_within(&client, "30000").await, 200);
            }
            assert_eq!(heads.len(), 512);
        });
    }
}

/// Opens a request and sends its head alone; it has passed the door, or was refused there.
fn open_head(server: &Server, headers: &str, length: usize) -> TcpStream {
    let headers = format!("expect: 100-continue\r\n{headers}");
    let mut stream = server.open(announce(DENSE, &headers, length));
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
        for timeout_ms in ["10000", "30000"] {
            let headers = [("x-request-timeout-ms", timeout_ms)];
            server.post_with(DENSE, &headers, TEXT).ok();
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
    let mut stream = server.open(announce(DENSE, "", 300_000));
    for held in [2_000.0, 100_000.0, 300_000.0] {
        let came = held_bytes(&server) / 2.0;
        stream.say(" ".repeat((held / 2.0 - came) as usize));
        wait_held(&server, held);
    }
    drop(stream);
    wait_held(&server, 0.0);
}
