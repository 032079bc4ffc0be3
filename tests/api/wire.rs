//! Below well-behaved clients: raw bytes, early closes, continuations, chunks.

use std::net::Shutdown;

use crate::support::{DENSE, Server, Talk, WORKERS, get, head, number};

const TEXT: &str = r#"{"input":"text"}"#;
const LIVE: &str = "/health/live";

fn post(headers: &str, body: &str) -> String {
    crate::support::post(DENSE, headers, body)
}

/// The head of a request whose body comes in chunks.
fn chunked() -> String {
    head(DENSE, "transfer-encoding: chunked\r\n")
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let server = Server::ready();
    server.hold();
    for leaves in [false, true] {
        let stream = server.open(post("", TEXT));
        server.wait_waiting(1);
        stream.shutdown(if leaves { Shutdown::Both } else { Shutdown::Write }).expect("it is open");
        server.wait_waiting(0);
    }
}

/// All three have the same text, which runs once for those who stay.
#[test]
fn only_the_request_of_the_client_that_leaves_is_cancelled() {
    let server = Server::ready();
    server.hold();
    let first_leaves = server.open(post("", TEXT));
    server.wait_waiting(1);
    let mut stays = server.open(post("", TEXT));
    server.wait_waiting(2);
    let last_leaves = server.open(post("", TEXT));
    server.wait_waiting(3);
    drop((first_leaves, last_leaves));
    server.wait_waiting(1);
    // One that leaves within its body starts nothing.
    let whole = post("", TEXT);
    drop(server.open(&whole[..whole.len() - 3]));
    server.release();
    stays.answer().ok();
    server.wait_waiting(0);
    assert_eq!(server.accepted(), 3 + WORKERS);
}

#[test]
fn expect_continue_gets_its_100_and_then_its_answer() {
    let server = Server::ready();
    let whole = post("expect: 100-continue\r\n", TEXT);
    let (head, body) = whole.split_at(whole.len() - TEXT.len());
    let mut stream = server.open(head);
    assert_eq!(stream.answer().status, 100);
    stream.say(body);
    stream.answer().ok();
}

#[test]
fn a_chunked_body_is_refused_as_soon_as_it_is_too_large() {
    let server = Server::set(|set| set.http.max_body_bytes = number(1024));
    let announced = |length: &str| head(DENSE, &format!("content-length: {length}\r\n"));
    let chunk = chunked() + &format!("401\r\n{}\r\n", " ".repeat(1025));
    // What announces its size is refused before it comes.
    for request in [chunk, announced("1025"), announced("99999999999")] {
        server.open(request).answer().refused("body_too_large", "");
    }
}

#[test]
fn a_chunked_body_is_read_whole() {
    let server = Server::ready();
    let whole = chunked() + "6\r\n{\"inpu\r\na\r\nt\":\"text\"}\r\n0\r\n\r\n";
    server.open(whole).answer().ok();
    let broken = format!("{}zz\r\n{TEXT}\r\n0\r\n\r\n", chunked());
    server.open(broken).answer().refused("invalid_body", "");
}

#[test]
fn a_body_that_does_not_come_within_the_requests_time_is_408() {
    let server = Server::ready();
    let whole = post("x-request-timeout-ms: 40\r\n", TEXT);
    let mut stream = server.open(&whole[..whole.len() - 3]);
    stream.answer().refused("body_timeout", "").says("within 40 ms");
}

#[test]
fn a_connection_outlives_errors() {
    let server = Server::ready();
    let mut stream = server.connect();
    for (request, status) in [
        (post("", "no json"), 400),
        (post("content-type: text/plain\r\n", ""), 415),
        (post("", TEXT), 200),
        (get("/nothing", ""), 404),
        (get("/health", "").replace("GET", "PUT"), 405),
        (get(LIVE, ""), 200),
    ] {
        stream.say(&request);
        assert_eq!(stream.answer().status, status, "{request}");
    }
}

#[test]
fn absolute_targets_and_http_1_0_are_understood() {
    let server = Server::ready();
    let answer =
        server.exchange(b"GET http://x/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = server.exchange(b"GET /health HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let answer = server.exchange(b"OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("\"not_found\""), "{answer}");
}

#[test]
fn what_is_not_http_is_refused_and_closed() {
    let server = Server::ready();
    let line = "; send HTTP/1.1";
    let length = "; send one such number";
    for (bytes, advice) in [
        (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n"[..], line),
        (b"no http at all\r\n\r\n", line),
        (b"GET /health HTTP/9.9\r\n\r\n", line),
        (b"GET /he alth HTTP/1.1\r\nhost: x\r\n\r\n", line),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", line),
        (b"GET /health HTTP/1.1\r\nbad header\r\n\r\n", "; send each header so"),
        (b"GET /health HTTP/1.1\r\n\r\n", "needs the header host, once; send one"),
        (b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", length),
        (
            b"POST /v1/embeddings HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{",
            length,
        ),
        (b"POST /v1/embeddings HTTP/1.0\r\n\r\n", "; send that header, or HTTP/1.1"),
    ] {
        let answer = server.exchange(bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400"), "{shown}: {answer}");
        assert!(answer.contains("\"malformed_head\""), "{shown}: {answer}");
        assert!(answer.contains(&format!("{advice}\"")), "{shown}: {answer}");
    }
    server.get("/health").ok();
}
