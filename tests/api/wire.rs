//! Below well-behaved clients: raw bytes, early closes, continuations, chunks, the server's end.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;

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
fn what_is_in_flight_is_answered_before_serve_returns_and_idle_connections_do_not_delay_it() {
    let mut server = Server::ready();
    server.hold();
    let (mut stream, mut idle) = (server.open(post("", TEXT)), server.connect());
    server.wait_waiting(1);
    let begin = Instant::now();
    server.begin_stop();
    // New connections are refused as soon as the listener is closed.
    while TcpStream::connect(server.address).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    server.release();
    stream.answer().ok();
    server.join();
    assert!(begin.elapsed() < PATIENCE / 2, "it waited for the whole drain");
    assert_eq!(idle.rest(), "");
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

/// Actix would read them for as long as they come.
#[test]
fn bytes_of_chunks_that_nobody_reads_are_limited() {
    let server = Server::set(|set| set.http.body_timeout = number(2000));
    let (most, chunk) = (16 * 1024, format!("{:x}\r\n{TEXT}\r\n", TEXT.len()));
    for begin in ["1;", "1 ", &format!("{chunk}0\r\nt:"), &format!("{chunk}0\r\n")] {
        let filler = if begin == "1 " { " " } else { "t" };
        let mut stream = server.open(chunked() + begin + &filler.repeat(most + 1));
        stream.answer().refused("invalid_body", "");
    }
    // They are counted together, and a client that sends few is served.
    let ten = |bytes: usize| {
        let chunks = TEXT.chars().map(|letter| format!("1;{}\r\n{letter}\r\n", "x".repeat(bytes)));
        server.open(chunked() + &chunks.collect::<String>() + "0\r\n\r\n").answer()
    };
    ten(most / TEXT.len() - 1).ok();
    ten(most / TEXT.len()).refused("invalid_body", "");
}

/// A route that takes no body reads none while it works.
#[test]
fn a_body_that_no_route_reads_is_not_kept_with_what_stands_between_its_bytes() {
    let server = Server::ready();
    server.hold();
    let mut stream = server.connect();
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("it is a socket");
    stream.say(get("/health/deep", "transfer-encoding: chunked\r\n"));
    let chunk = format!("1;{}\r\nx\r\n", "x".repeat(8000)).repeat(8);
    let taken = (0..1000).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(taken < 500, "the socket has no room for {taken} times 64 KB");
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
        (chunked() + "6\r\n{\"inpu\r\na\r\nt\":\"text\"}\r\n0\r\n\r\n", 200),
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
