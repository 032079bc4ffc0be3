//! Requests that are sent ahead of the answers to earlier ones, and heads at the limits of
//! HTTP/1.1: each request is answered as if it had come alone.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use fastrand::Rng;

use crate::fuzz::{GOOD_ENDS, chunked};
use crate::support::*;
use testing::{pick, run_for};

const LIVE: &str = "GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";

fn post(headers: &str) -> String {
    crate::support::post(DENSE, headers, TEXT)
}

/// Whether the server says that it closes the connection behind this answer.
fn is_last(answer: &Answer) -> bool {
    let connection = answer.header("connection");
    connection == Some("close")
        || answer.asked.ends_with("HTTP/1.0") && connection != Some("keep-alive")
}

/// One answer, without what differs between two answers to the same request; `None` when the server
/// has closed the connection instead.
fn read_reply(stream: &mut TcpStream, to_head: bool) -> Option<Answer> {
    let mut answer = stream.answer_to(to_head)?;
    for name in ["date", "x-request-id", "server-timing"] {
        answer.headers.remove(name);
    }
    Some(answer)
}

/// The answers to requests that are sent in pieces without a pause.
fn send_ahead(server: &Server, requests: &[String], length: impl FnMut() -> usize) -> Vec<Answer> {
    let mut stream = server.connect();
    // The server closes the connection behind the last answer, whatever else comes.
    stream.say_in_pieces(requests.concat().as_bytes(), length);
    read_replies(&mut stream, requests)
}

fn read_replies(stream: &mut TcpStream, requests: &[String]) -> Vec<Answer> {
    let mut replies = Vec::new();
    for request in requests {
        let Some(reply) = read_reply(stream, request.starts_with("HEAD ")) else { break };
        replies.push(reply);
        if replies.last().is_some_and(is_last) {
            assert_eq!(read_reply(stream, false), None, "the server said that it closes");
            break;
        }
    }
    replies
}

/// The answers to requests of which each is sent when the one before it has been answered.
fn send_in_turn(server: &Server, requests: &[String]) -> Vec<Answer> {
    let mut stream = server.connect();
    let mut replies = Vec::new();
    for request in requests {
        stream.say(request);
        let mut reply = read_replies(&mut stream, std::slice::from_ref(request));
        replies.append(&mut reply);
        if replies.last().is_none_or(is_last) {
            break;
        }
    }
    replies
}

#[test]
fn connection_close_holds_whatever_is_sent_behind_it() {
    let server = Server::ready();
    let requests = [post("connection: close\r\n"), LIVE.to_owned(), post("")];
    let replies = send_ahead(&server, &requests, || usize::MAX);
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert!(replies[0].status == 200 && is_last(&replies[0]), "{replies:?}");
}

#[test]
fn garbage_behind_a_request_does_not_take_its_answer_away() {
    let server = Server::ready();
    server.hold();
    let mut stream = server.open(post("") + "no http at all\r\n\r\n");
    server.wait_waiting(1);
    server.release();
    stream.answer().ok();
    let refused = stream.answer();
    refused.refused("malformed_head", "");
    assert_eq!(refused.header("connection"), Some("close"));
    assert_eq!(read_reply(&mut stream, false), None);
}

#[test]
fn heads_above_64_kib_and_of_too_many_headers_are_431_in_json() {
    let server = Server::ready();
    let long = "a".repeat(65_536);
    let many = "a: b\r\n".repeat(97);
    for headers in [
        format!("{long}: b\r\n"),
        format!("a: {long}\r\n"),
        format!("a: {}\r\n", "b".repeat(300_000)),
        format!("b: {}", "c".repeat(1_000_000)),
        many,
    ] {
        let mut stream = server.connect();
        let request = format!("GET /health HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        // The server does not wait for the end of what it refuses.
        let _ = stream.write_all(request.as_bytes());
        let answer = stream.answer();
        answer.refused("head_too_large", "");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    let large = LIVE.replace("host: x", &format!("host: x\r\na: {}", "b".repeat(60_000)));
    server.open(large).answer().ok();
}

#[test]
fn an_upgrade_that_is_asked_for_is_ignored() {
    let server = Server::ready();
    for upgrade in [
        "upgrade: websocket\r\n",
        "upgrade: websocket\r\nconnection: upgrade\r\n",
        "connection: keep-alive, Upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: A\r\n",
    ] {
        let requests = [post(upgrade), LIVE.to_owned()];
        let replies = send_in_turn(&server, &requests);
        assert_eq!(replies.len(), 2, "after {upgrade:?}: {replies:?}");
        let is_usual = |reply: &Answer| reply.status == 200 && !is_last(reply);
        assert!(replies.iter().all(is_usual), "{replies:?}");
        assert!(!format!("{:?}", replies[0].headers).contains("upgrade"), "{replies:?}");
    }
}

#[test]
fn a_refusal_that_the_head_alone_decides_comes_without_100_continue() {
    let server = Server::set(|set| {
        set.http.api_keys = vec![ApiKey::new("key")];
        set.http.max_body_bytes = number(1024);
    });
    for (path, headers, status) in [
        (DENSE, "content-length: 16\r\n", 401),
        // The key comes before all else that is said of the body.
        (DENSE, "x-priority: a\r\ncontent-type: a/b\r\ncontent-length: 1025\r\n", 401),
        (DENSE, "authorization: Bearer key\r\ncontent-length: 1025\r\n", 413),
        (DENSE, "authorization: Bearer key\r\nx-priority: a\r\ncontent-length: 16\r\n", 400),
        (DENSE, "authorization: Bearer key\r\ncontent-type: a/b\r\ncontent-length: 1\r\n", 415),
        ("/nothing", "transfer-encoding: chunked\r\n", 404),
        ("/health", "content-length: 16\r\n", 405),
    ] {
        let headers = format!("expect: 100-continue\r\n{headers}");
        let mut stream = server.open(head(path, &headers));
        let reply = read_reply(&mut stream, false).expect("an answer");
        assert!(reply.status == status && is_last(&reply), "no body will come: {reply:?}");
        assert_eq!(read_reply(&mut stream, false), None);
    }
}

#[test]
fn empty_lines_before_a_request_begin_no_head() {
    let server = Server::set(|set| set.http.head_timeout = number(100));
    let mut stream = server.open("\r\n");
    for _ in 0..2 {
        assert_eq!(said_within(&mut stream, Duration::from_millis(300)), "");
        stream.say(format!("\r\n\r\n{LIVE}\r\n"));
        stream.answer().ok();
    }
}

#[test]
fn requests_sent_ahead_get_the_answers_that_they_get_in_turn() {
    let server = Server::ready();
    run_for("pipelines", |rng| {
        let requests: Vec<String> = (0..rng.usize(1..7)).map(|_| request(rng)).collect();
        let alone = send_in_turn(&server, &requests);
        let most = *pick(rng, &[&2, &30, &300, &100_000]);
        let ahead = send_ahead(&server, &requests, || rng.usize(1..most));
        assert_eq!(ahead, alone, "{requests:#?}");
    });
}

/// One request that is well-formed, of any kind.
fn request(rng: &mut Rng) -> String {
    let version = pick(rng, &["1.1", "1.1", "1.1", "1.1", "1.0"]);
    let mut head = match (version, rng.u8(..6)) {
        ("1.0", 0) => String::new(),
        ("1.0", _) => "connection: keep-alive\r\n".to_owned(),
        (_, 0) => pick(rng, &["connection: close\r\n", "upgrade: websocket\r\n"]).to_owned(),
        _ => "host: x\r\n".to_owned(),
    };
    if version == "1.1" && !head.contains("host") {
        head.push_str("host: x\r\n");
    }
    let empty_lines = "\r\n".repeat(rng.usize(..8).saturating_sub(5));
    if rng.bool() {
        let method = pick(rng, &["GET", "HEAD", "OPTIONS", "DELETE"]);
        let path = pick(rng, &["/health/live", "/v1/models", "/nothing", DENSE]);
        return format!("{method} {path} HTTP/{version}\r\n{head}\r\n{empty_lines}");
    }
    let path = pick(rng, &[DENSE, SPARSE]);
    let long = format!(r#"{{"input":["{}"]}}"#, "a b ".repeat(rng.usize(..4)));
    let body = pick(rng, &[TEXT, "no json", "", &long]);
    let framed = if version == "1.1" && rng.bool() {
        let chunks = chunked(rng, body.as_bytes(), 20, GOOD_ENDS);
        format!("transfer-encoding: chunked\r\n\r\n{}", String::from_utf8_lossy(&chunks))
    } else {
        format!("content-length: {}\r\n\r\n{body}", body.len())
    };
    format!("POST {path} HTTP/{version}\r\n{head}{framed}")
}
