//! Streams of bytes that are nearly HTTP, over real connections, as long as `DUOVEC_FUZZ_SECONDS`
//! says: what is answered is HTTP, the connection ends, and the server is as well as before.

use std::collections::BTreeMap;
use std::net::Shutdown;

use fastrand::Rng;

use crate::support::*;
use testing::{damage, pick, run_for};

const SHORT_MS: u64 = 100;
const TEXT: &str = r#"{"input":["text","a"]}"#;
const GOOD: &[u8] = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                      content-length: 22\r\n\r\n{\"input\":[\"text\",\"a\"]}";

/// Headers that decide where a message ends, or what becomes of the request.
#[rustfmt::skip]
const HEADERS: [&str; 22] = [
    "content-length: 22", "content-length: 0", "content-length: +22", "content-length: 22, 22",
    "content-length: 99999999999999999999", "content-length: -1", "transfer-encoding: chunked",
    "transfer-encoding: gzip, chunked", "transfer-encoding : chunked",
    "transfer-encoding: identity", "content-encoding: gzip", "content-encoding: br",
    "content-type: text/plain", "connection: close", "connection: keep-alive, upgrade",
    "upgrade: h2c", "expect: 100-continue", "x-request-timeout-ms: 1", "x-priority: bulk",
    "x-request-id: \u{e9}", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    " folded",
];

#[test]
fn whatever_bytes_come_the_answers_are_http_and_the_server_lives() {
    let server = Server::set(|set| {
        set.http.head_timeout = number(SHORT_MS);
        set.http.body_timeout = number(SHORT_MS);
        set.http.write_timeout = number(SHORT_MS);
        set.http.keep_alive = number(1);
        set.http.max_body_bytes = number(4096);
    });
    let mut statuses = BTreeMap::<u16, u64>::new();
    run_for("http", |rng| {
        let mut bytes = Vec::new();
        for _ in 0..rng.u8(1..6) {
            bytes.append(&mut request(rng));
        }
        for _ in 0..rng.u8(..4).saturating_sub(1) {
            damage(rng, &mut bytes);
        }
        // A client that closes its side has left. Behind this request the server closes, so that
        // those before it are answered.
        let is_served = rng.bool();
        if is_served {
            bytes.extend_from_slice(GOOD);
        }
        let mut stream = server.connect();
        let lengths = [1, 20, 1000, 100_000];
        let mut whole = stream.say_in_pieces(&bytes, || lengths[rng.usize(..lengths.len())]);
        if !is_served && rng.u8(..64) > 0 {
            whole &= stream.shutdown(Shutdown::Write).is_ok();
        }
        // Some clients leave without a word; of the others the server must get rid.
        if whole && rng.u8(..8) > 0 {
            let answers = stream.rest_of_bytes();
            for status in statuses_of(&answers, &bytes) {
                *statuses.entry(status).or_default() += 1;
            }
        }
        server.open(GOOD).answer().ok();
    });
    println!("http: answers by status: {statuses:?}");
    assert!(!statuses.contains_key(&500), "a bug was met: run again with --no-capture");
}

/// One request, more or less.
fn request(rng: &mut Rng) -> Vec<u8> {
    let method = pick(rng, &["POST", "POST", "POST", "GET", "HEAD", "OPTIONS", "PUT", "CONNECT"]);
    let path = pick(rng, &[DENSE, SPARSE, BOTH, METRICS, "/health", "/v1/models", "/docs", "*"]);
    let version = pick(rng, &["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0"]);
    let mut head = format!("{method} {path} {version}\r\nhost: x\r\n");
    for _ in 0..rng.u8(..3) {
        head.push_str(pick(rng, &HEADERS));
        head.push_str("\r\n");
    }
    let (framing, body) = body(rng);
    [head.as_bytes(), framing.as_bytes(), b"\r\n", &body].concat()
}

/// The header that frames a body, and the body.
fn body(rng: &mut Rng) -> (String, Vec<u8>) {
    let mut body = match rng.u8(..4) {
        0 => gzip(TEXT.as_bytes()),
        1 => " ".repeat(rng.usize(..9000)).into_bytes(),
        _ => TEXT.as_bytes().to_vec(),
    };
    match rng.u8(..4) {
        0 => (String::new(), Vec::new()),
        1 => {
            body = chunked(rng, &body, 2000, &ENDS);
            ("transfer-encoding: chunked\r\n".to_owned(), body)
        }
        _ => (format!("content-length: {}\r\n", body.len()), body),
    }
}

/// Ends of a chunked body, the last two of which are none.
const ENDS: [&str; 5] =
    ["0\r\n\r\n", "000\r\n\r\n", "0;a\r\ntrailer: x\r\n\r\n", "0\r\n", "ffffffffffffffff\r\n"];
/// Those that are one.
pub(crate) const GOOD_ENDS: &[&str] = ENDS.split_at(3).0;

/// A body in chunks below such a length, with one of these ends.
pub(crate) fn chunked(rng: &mut Rng, body: &[u8], longest: usize, ends: &[&str]) -> Vec<u8> {
    let mut chunks = Vec::new();
    for part in body.chunks(rng.usize(1..longest)) {
        let extension = pick(rng, &["", "", ";name=value", "\t;", "  "]);
        chunks.extend(format!("{:x}{extension}\r\n", part.len()).bytes());
        chunks.extend_from_slice(part);
        chunks.extend(b"\r\n");
    }
    chunks.extend(pick(rng, ends).bytes());
    chunks
}

/// Cuts answers apart; the last one may be cut short by a reset.
fn statuses_of(answers: &[u8], sent: &[u8]) -> Vec<u16> {
    let shown = || {
        let (sent, got) = (String::from_utf8_lossy(sent), String::from_utf8_lossy(answers));
        format!("sent {sent:?}, got {got:?}")
    };
    let mut statuses = Vec::new();
    let mut left = answers;
    while !left.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut headers);
        let Ok(parsed) = head.parse(left) else { panic!("this is not HTTP: {}", shown()) };
        let httparse::Status::Complete(length) = parsed else { return statuses };
        let status = head.code.expect("it was parsed");
        statuses.push(status);
        let announced = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
        let announced = announced.and_then(|h| std::str::from_utf8(h.value).ok()?.parse().ok());
        let body: usize = announced.unwrap_or(0);
        left = &left[length..];
        // An answer to HEAD announces a body that does not come.
        let absent = left.is_empty() || left.starts_with(b"HTTP/1.");
        left = &left[if absent { 0 } else { body.min(left.len()) }..];
    }
    statuses
}
