//! Connections that idle between requests, and connections that are too many.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{DENSE, PATIENCE, Server, Talk, head, number};

const HEALTH: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
const SHORT_MS: u64 = 150;
const SHORT: Duration = Duration::from_millis(SHORT_MS);

/// Asks and reads one short answer.
fn ask(stream: &mut TcpStream) {
    stream.say(HEALTH);
    stream.answer().ok();
}

/// What the server says on its own account within three times the time of a head.
fn unasked(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(SHORT * 3)).expect("it is a socket");
    let mut said = [0; 4096];
    let length = match stream.read(&mut said) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        other => other.expect("the connection is not cut"),
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    String::from_utf8_lossy(&said[..length]).into_owned()
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
    assert_eq!(unasked(&mut stream), "");
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
        assert_eq!(unasked(&mut stream), "", "after {body:?}");
    }
    ask(&mut stream);
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
    second.set_read_timeout(Some(SHORT)).expect("it is a socket");
    let early = second.read(&mut [0; 1]).expect_err("nobody serves it");
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    // Who is in is served.
    ask(&mut first);
    drop(first);
    second.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    second.answer().ok();
}
