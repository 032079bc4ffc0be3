//! Connections that idle between requests, and connections that are too many.

use std::net::TcpStream;
use std::time::Duration;

use crate::support::*;

const HEALTH: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
const SHORT_MS: u64 = 150;
const SHORT: Duration = Duration::from_millis(SHORT_MS);

/// Asks and reads one short answer.
fn ask(stream: &mut TcpStream) {
    stream.say(HEALTH);
    stream.answer().ok();
}

#[test]
fn a_connection_idles_after_a_preflight_without_an_unasked_answer() {
    let server = Server::set(|set| {
        set.http.head_timeout = number(SHORT_MS);
        set.http.cors_origins = vec!["*".to_owned()];
    });
    let head = "origin: https://a.example\r\naccess-control-request-method: POST\r\n";
    let mut stream = server.open(format!("OPTIONS {DENSE} HTTP/1.1\r\nhost: x\r\n{head}\r\n"));
    assert!(stream.message(false).is_some(), "the connection stays open");
    assert_eq!(said_within(&mut stream, SHORT * 3), "");
    ask(&mut stream);
}

#[test]
fn a_refused_body_that_has_come_whole_leaves_its_connection_open() {
    let server = Server::set(|set| {
        set.http.head_timeout = number(SHORT_MS);
        set.http.body_timeout = number(SHORT_MS);
    });
    let mut stream = server.connect();
    for (framing, body) in
        [("content-length: 5", "hello"), ("transfer-encoding: chunked", "0\r\n\r\n")]
    {
        stream.say(head(DENSE, &format!("content-type: text/plain\r\n{framing}\r\n")) + body);
        stream.answer().refused("unsupported_media_type", "content-type");
        assert_eq!(said_within(&mut stream, SHORT * 3), "", "after {body:?}");
    }
    ask(&mut stream);
}

#[test]
fn a_connection_that_had_a_long_head_is_closed_behind_its_answer_while_memory_is_scarce() {
    let scarce = Server::set(|set| set.door.max_inflight_bytes = number(65_536));
    for (server, bytes, is_closed) in
        [(&scarce, 60_000, true), (&scarce, 6_000, false), (&Server::ready(), 60_000, false)]
    {
        let mut stream = server.open(get("/health/live", &format!("a: {}\r\n", "b".repeat(bytes))));
        let answer = stream.answer();
        answer.ok();
        assert_eq!(answer.header("connection") == Some("close"), is_closed, "{bytes}");
        match is_closed {
            true => assert_eq!(stream.rest(), ""),
            false => ask(&mut stream),
        }
    }
}

#[test]
fn connections_over_the_cap_wait_until_another_ends() {
    let server = Server::set(|set| {
        // One thread, so that the cap is exact.
        set.http.threads = number(1);
        set.http.max_connections = number(1);
    });
    let mut first = server.connect();
    ask(&mut first);
    let mut second = server.open(HEALTH);
    assert_eq!(said_within(&mut second, SHORT), "", "nobody serves it");
    // Who is in is served.
    ask(&mut first);
    drop(first);
    second.answer().ok();
}
