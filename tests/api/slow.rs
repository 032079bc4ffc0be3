//! Clients that are slow, and clients that are too many.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use settings::HttpConfig;
use settings::limits::{
    BodyTimeoutMs, HeadTimeoutMs, HttpThreads, KeepAliveS, MaxConnections, MaxItems, WriteTimeoutMs,
};

use crate::support::{BOTH, DENSE, PATIENCE, Server};

const HEALTH: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
const TEXT: &str = r#"{"input":"text"}"#;
const SHORT_MS: u64 = 150;
const SHORT: Duration = Duration::from_millis(SHORT_MS);

fn impatient() -> HttpConfig {
    HttpConfig {
        head_timeout: HeadTimeoutMs::new(SHORT_MS).expect("in range"),
        body_timeout: BodyTimeoutMs::new(SHORT_MS).expect("in range"),
        write_timeout: WriteTimeoutMs::new(SHORT_MS).expect("in range"),
        ..HttpConfig::default()
    }
}

/// One thread, so that the cap is exact.
fn capped(config: HttpConfig) -> Server {
    Server::with(HttpConfig {
        threads: HttpThreads::new(1).expect("in range"),
        max_connections: MaxConnections::new(1).expect("in range"),
        ..config
    })
}

/// Asks and reads one short answer.
fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(HEALTH).expect("it is open");
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[..length]).into_owned()
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
    let server = Server::with(impatient());
    for requests_before in [0, 2] {
        let mut stream = server.connect();
        for _ in 0..requests_before {
            assert!(ask(&mut stream).starts_with("HTTP/1.1 200"));
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
    let keep_alive = KeepAliveS::new(1).expect("in range");
    let server = Server::with(HttpConfig { keep_alive, ..impatient() });
    server.hold();
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", TEXT.len());
    stream.write_all(format!("{head}\r\n{TEXT}").as_bytes()).expect("it is open");
    server.wait_waiting(1);
    // Longer than a head may take: no timer of the head is left to look at the connection.
    thread::sleep(SHORT * 3);
    server.release();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the connection is closed in good order");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[test]
fn a_silent_connection_is_kept_longer_than_a_head_may_take() {
    let server = Server::with(impatient());
    let (mut fresh, mut kept) = (server.connect(), server.connect());
    ask(&mut kept);
    thread::sleep(SHORT * 3);
    assert!(ask(&mut fresh).starts_with("HTTP/1.1 200"));
    assert!(ask(&mut kept).starts_with("HTTP/1.1 200"));
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
    let server = Server::with(HttpConfig { cors_origins: vec!["*".to_owned()], ..impatient() });
    let mut stream = server.connect();
    let head = "origin: https://a.example\r\naccess-control-request-method: POST\r\n";
    let question = format!("OPTIONS {DENSE} HTTP/1.1\r\nhost: x\r\n{head}\r\n");
    stream.write_all(question.as_bytes()).expect("it is open");
    let length = stream.read(&mut [0; 4096]).expect("an answer");
    assert!(length > 0, "the connection stays open");
    assert_eq!(unasked(&mut stream), "");
    assert!(ask(&mut stream).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_refused_chunked_body_gets_one_answer_and_the_connection_ends() {
    let server = Server::with(impatient());
    let mut stream = server.connect();
    let headers = "host: x\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked";
    let head = format!("POST {DENSE} HTTP/1.1\r\n{headers}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    let answers = drip(&mut stream, b"1\r\nx\r\n");
    assert!(answers.starts_with("HTTP/1.1 415"), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{answers}");
    assert!(answers.contains("connection: close"), "{answers}");
}

#[test]
fn a_refused_body_that_has_come_whole_leaves_its_connection_open() {
    let server = Server::with(impatient());
    let mut stream = server.connect();
    for body in ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let headers = "host: x\r\ncontent-type: text/plain\r\n";
        let request = format!("POST {DENSE} HTTP/1.1\r\n{headers}{body}");
        stream.write_all(request.as_bytes()).expect("it is open");
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
        assert_eq!(unasked(&mut stream), "", "after {body:?}");
    }
    assert!(ask(&mut stream).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_body_that_comes_in_drops_is_408_in_json() {
    let server = Server::with(impatient());
    let mut stream = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it is open");
    let answer = drip(&mut stream, b" ");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains(r#""code":"body_timeout""#), "{answer}");
    assert!(answer.contains("x-request-id") && answer.contains("connection: close"), "{answer}");
    server.post_bytes(DENSE, TEXT).ok();
}

#[test]
fn a_client_that_does_not_read_is_cut_and_its_place_is_free() {
    let server =
        capped(HttpConfig { max_items: MaxItems::new(8192).expect("in range"), ..impatient() });
    let mut deaf = server.connect();
    let body = format!(r#"{{"input":[{}"x"]}}"#, r#""x","#.repeat(8000));
    let head = format!("POST {BOTH} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    deaf.set_write_timeout(Some(SHORT * 4)).expect("it is a socket");
    // More than the buffers of both sides hold.
    for _ in 0..40 {
        if deaf.write_all(format!("{head}{body}").as_bytes()).is_err() {
            break;
        }
    }
    let mut other = server.connect();
    assert!(ask(&mut other).starts_with("HTTP/1.1 200"));
    drop(deaf);
}

#[test]
fn connections_over_the_cap_wait_until_another_ends() {
    let server = capped(HttpConfig::default());
    let mut first = server.connect();
    assert!(ask(&mut first).starts_with("HTTP/1.1 200"));
    let mut second = server.connect();
    second.write_all(HEALTH).expect("the system takes it");
    second.set_read_timeout(Some(SHORT)).expect("it is a socket");
    let early = second.read(&mut [0; 1]).expect_err("nobody serves it");
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    assert!(ask(&mut first).starts_with("HTTP/1.1 200"), "who is in is served");
    drop(first);
    second.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let mut answer = [0; 12];
    second.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_chunked_body_that_stops_is_408_and_its_connection_ends() {
    let server = Server::with(impatient());
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    let answer = server.exchange(format!("{head}100\r\n{{").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains(r#""code":"body_timeout""#), "{answer}");
}
