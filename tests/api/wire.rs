//! Below well-behaved clients: raw bytes, early closes, continuations, chunks.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use settings::HttpConfig;
use settings::limits::MaxBodyBytes;

use crate::support::{DENSE, Server};

const TEXT: &str = r#"{"input":"text"}"#;

fn post(headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

/// Reads one answer from a connection that stays open.
fn read_answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).expect("ASCII");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).expect("a body");
    head + &String::from_utf8(body).expect("UTF-8")
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let server = Server::ready();
    server.hold();
    let mut stream = server.connect();
    stream.write_all(post("", TEXT).as_bytes()).expect("it is open");
    server.wait_waiting(1);
    drop(stream);
    server.wait_waiting(0);
}

#[test]
fn a_client_that_closes_its_writing_side_has_left_too() {
    let server = Server::ready();
    server.hold();
    let mut stream = server.connect();
    stream.write_all(post("", TEXT).as_bytes()).expect("it is open");
    server.wait_waiting(1);
    stream.shutdown(Shutdown::Write).expect("it is open");
    server.wait_waiting(0);
}

#[test]
fn only_the_request_of_the_client_that_leaves_is_cancelled() {
    let server = Server::ready();
    server.hold();
    let mut stays = server.connect();
    let mut leaves = server.connect();
    stays.write_all(post("", TEXT).as_bytes()).expect("it is open");
    leaves.write_all(post("", TEXT).as_bytes()).expect("it is open");
    server.wait_waiting(2);
    drop(leaves);
    server.wait_waiting(1);
    server.release();
    assert!(read_answer(&mut stays).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_client_that_leaves_within_its_body_starts_nothing() {
    let server = Server::ready();
    let mut stream = server.connect();
    let whole = post("", TEXT);
    stream.write_all(&whole.as_bytes()[..whole.len() - 3]).expect("it is open");
    drop(stream);
    server.wait_waiting(0);
    server.post_bytes(DENSE, TEXT).ok();
}

#[test]
fn expect_continue_gets_its_100_and_then_its_answer() {
    let server = Server::ready();
    let mut stream = server.connect();
    let whole = post("expect: 100-continue\r\n", TEXT);
    let (head, body) = whole.split_at(whole.len() - TEXT.len());
    stream.write_all(head.as_bytes()).expect("it is open");
    assert!(read_answer(&mut stream).starts_with("HTTP/1.1 100 Continue\r\n"));
    stream.write_all(body.as_bytes()).expect("it is open");
    assert!(read_answer(&mut stream).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_body_announced_as_too_large_is_answered_before_it_comes() {
    let max_body_bytes = MaxBodyBytes::new(1024).expect("in range");
    let server = Server::with(HttpConfig { max_body_bytes, ..HttpConfig::default() });
    for length in ["1025", "99999999999"] {
        let mut stream = server.connect();
        let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it is open");
        let answer = read_answer(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert!(answer.contains("body_too_large") && answer.contains("x-request-id"), "{answer}");
    }
}

#[test]
fn a_chunked_body_is_refused_as_soon_as_it_is_too_large() {
    let max_body_bytes = MaxBodyBytes::new(1024).expect("in range");
    let server = Server::with(HttpConfig { max_body_bytes, ..HttpConfig::default() });
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    let chunk = format!("401\r\n{}\r\n", " ".repeat(1025));
    stream.write_all(chunk.as_bytes()).expect("it is open");
    let answer = read_answer(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[test]
fn a_chunked_body_is_read_whole() {
    let server = Server::ready();
    let headers = "host: x\r\nconnection: close\r\ntransfer-encoding: chunked";
    let head = format!("POST {DENSE} HTTP/1.1\r\n{headers}\r\n\r\n");
    let answer = server
        .exchange(format!("{head}6\r\n{{\"inpu\r\na\r\nt\":\"text\"}}\r\n0\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = server.exchange(format!("{head}zz\r\n{TEXT}\r\n0\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn a_body_that_does_not_come_within_the_requests_time_is_408() {
    let server = Server::ready();
    let mut stream = server.connect();
    let whole = post("x-request-timeout-ms: 40\r\n", TEXT);
    stream.write_all(&whole.as_bytes()[..whole.len() - 3]).expect("it is open");
    let answer = read_answer(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("body_timeout") && answer.contains("within 40 ms"), "{answer}");
}

#[test]
fn a_connection_outlives_errors() {
    let server = Server::ready();
    let mut stream = server.connect();
    for (request, status) in [
        (post("", "no json"), "400"),
        (post("content-type: text/plain\r\n", ""), "415"),
        (post("", TEXT), "200"),
        ("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), "404"),
        ("PUT /health HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), "405"),
        ("GET /health HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), "200"),
    ] {
        stream.write_all(request.as_bytes()).expect("it is still open");
        let answer = read_answer(&mut stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

#[test]
fn requests_in_one_packet_are_answered_in_order() {
    let server = Server::ready();
    let mut stream = server.connect();
    let first = post("x-request-id: first\r\n", TEXT);
    let second = post("x-request-id: second\r\n", TEXT);
    stream.write_all((first + &second).as_bytes()).expect("it is open");
    assert!(read_answer(&mut stream).contains("x-request-id: first"));
    assert!(read_answer(&mut stream).contains("x-request-id: second"));
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
