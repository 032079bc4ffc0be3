//! Clients that are slow, and clients that are too many.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{BOTH, DENSE, PATIENCE, Server, Setup, Talk, head, number, post};

const HEALTH: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
const TEXT: &str = r#"{"input":"text"}"#;
const SHORT_MS: u64 = 150;
const SHORT: Duration = Duration::from_millis(SHORT_MS);

fn impatient(set: &mut Setup) {
    set.http.head_timeout = number(SHORT_MS);
    set.http.body_timeout = number(SHORT_MS);
    set.http.write_timeout = number(SHORT_MS);
}

/// One thread, so that the cap is exact.
fn capped(set: &mut Setup) {
    set.http.threads = number(1);
    set.http.max_connections = number(1);
}

/// Asks and reads one short answer.
fn ask(stream: &mut TcpStream) {
    stream.say(HEALTH);
    stream.answer().ok();
}

/// Sends byte by byte until the server has had enough; its last words.
fn drip(stream: &mut TcpStream, bytes: &[u8]) -> String {
    stream.set_read_timeout(Some(SHORT / 5)).expect("it is a socket");
    let mut answer = Vec::new();
    let end = Instant::now() + PATIENCE;
    for byte in bytes.iter().cycle() {
        assert!(Instant::now() < end, "the server never has enough");
        let _ = stream.write_all(&[*byte]);
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_head_that_comes_in_drops_is_408_on_the_first_and_on_a_later_request() {
    let server = Server::set(impatient);
    for requests_before in [0, 2] {
        let mut stream = server.connect();
        for _ in 0..requests_before {
            ask(&mut stream);
        }
        let answer = drip(&mut stream, b"GET /health HTTP/1.1\r\nx-long: aaaaaaaaaaaaaaaaaa");
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(answer.contains(r#""code":"head_timeout""#), "{answer}");
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        assert!(answer.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
    }
}

#[test]
fn a_connection_is_closed_in_silence_after_a_request_that_took_long() {
    let server = Server::set(|set| {
        impatient(set);
        set.http.keep_alive = number(1);
    });
    server.hold();
    let mut stream = server.open(post(DENSE, "", TEXT));
    server.wait_waiting(1);
    // Longer than a head may take: no timer of the head is left to look at the connection.
    thread::sleep(SHORT * 3);
    server.release();
    stream.answer().ok();
    assert_eq!(stream.rest(), "");
}

#[test]
fn a_silent_connection_is_kept_longer_than_a_head_may_take() {
    let server = Server::set(impatient);
    let (mut fresh, mut kept) = (server.connect(), server.connect());
    ask(&mut kept);
    thread::sleep(SHORT * 3);
    ask(&mut fresh);
    ask(&mut kept);
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
        impatient(set);
        set.http.cors_origins = vec!["*".to_owned()];
    });
    let head = "origin: https://a.example\r\naccess-control-request-method: POST\r\n";
    let mut stream = server.open(format!("OPTIONS {DENSE} HTTP/1.1\r\nhost: x\r\n{head}\r\n"));
    assert!(stream.message(false).is_some(), "the connection stays open");
    assert_eq!(unasked(&mut stream), "");
    ask(&mut stream);
}

#[test]
fn a_refused_chunked_body_gets_one_answer_and_the_connection_ends() {
    let server = Server::set(impatient);
    let headers = "content-type: text/plain\r\ntransfer-encoding: chunked\r\n";
    let mut stream = server.open(head(DENSE, headers));
    let answers = drip(&mut stream, b"1\r\nx\r\n");
    assert!(answers.starts_with("HTTP/1.1 415"), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{answers}");
    assert!(answers.contains("connection: close"), "{answers}");
}

#[test]
fn a_refused_body_that_has_come_whole_leaves_its_connection_open() {
    let server = Server::set(impatient);
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
fn a_body_that_comes_in_drops_is_408_in_json() {
    let server = Server::set(impatient);
    let mut drops = server.open(head(DENSE, "content-length: 100000\r\n"));
    let mut stops = server.open(head(DENSE, "transfer-encoding: chunked\r\n") + "100\r\n{");
    for answer in [drip(&mut drops, b" "), stops.rest()] {
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(answer.contains(r#""code":"body_timeout""#), "{answer}");
        assert!(answer.contains("did not come within"), "memory is free: {answer}");
        assert!(answer.contains("x-request-id"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    server.post_bytes(DENSE, TEXT).ok();
}

#[test]
fn a_client_that_does_not_read_is_cut_and_its_place_is_free() {
    let server = Server::set(|set| {
        impatient(set);
        capped(set);
        set.http.max_items = number(8192);
    });
    let mut deaf = server.connect();
    let body = format!(r#"{{"input":[{}"x"]}}"#, r#""x","#.repeat(8000));
    deaf.set_write_timeout(Some(SHORT * 4)).expect("it is a socket");
    // More than the buffers of both sides hold.
    for _ in 0..40 {
        if deaf.write_all(post(BOTH, "", &body).as_bytes()).is_err() {
            break;
        }
    }
    ask(&mut server.connect());
    drop(deaf);
}

#[test]
fn connections_over_the_cap_wait_until_another_ends() {
    let server = Server::set(capped);
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
