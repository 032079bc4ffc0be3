//! Bytes that are not HTTP/1.1, or whose end can be understood in two ways.

use crate::support::*;

/// Heads, and what their refusal advises.
#[rustfmt::skip]
const HEADS: [(&[u8], &str); 10] = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n", LINE),
    (b"no http at all\r\n\r\n", LINE),
    (b"GET /health HTTP/9.9\r\n\r\n", LINE),
    (b"GET /he alth HTTP/1.1\r\nhost: x\r\n\r\n", LINE),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", LINE),
    (b"GET /health HTTP/1.1\r\nbad header\r\n\r\n", "; send each header so"),
    (b"GET /health HTTP/1.1\r\n\r\n", "needs the header host, once; send one"),
    (b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", LENGTH),
    (b"POST /v1/embeddings HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{", LENGTH),
    (b"POST /v1/embeddings HTTP/1.0\r\n\r\n", "; send that header, or HTTP/1.1"),
];
const LINE: &str = "; send HTTP/1.1";
const LENGTH: &str = "; send one such number";

/// Headers of a body of 16 bytes.
const HEADERS: [&str; 19] = [
    "content-length: 16\r\ntransfer-encoding: chunked\r\n",
    "transfer-encoding: chunked\r\ncontent-length: 16\r\n",
    "content-length: 16\r\ncontent-length: 16\r\n",
    "content-length: 16\r\ncontent-length: 0\r\n",
    "content-length: 16, 16\r\n",
    "content-length: +16\r\n",
    "content-length: 0x10\r\n",
    "content-length:\r\n",
    "content-length : 16\r\n",
    "content-length: 99999999999999999999\r\n",
    "transfer-encoding: chunked, identity\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: identity\r\n",
    "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    "transfer-encoding:\r\n chunked\r\n",
    "transfer-encoding: \u{b}chunked\r\n",
    " content-length: 16\r\n",
    "a: b\rcontent-length: 16\r\n",
    "host: y\r\ncontent-length: 16\r\n",
];

/// A chunked body, in which TEXT stands for those bytes.
const CHUNKS: [&str; 13] = [
    "10\nTEXT\r\n0\r\n\r\n",
    "10\r\nTEXT0\r\n\r\n",
    "10\r\nTEXT\n0\r\n\r\n",
    "0x10\r\nTEXT\r\n0\r\n\r\n",
    " 10\r\nTEXT\r\n0\r\n\r\n",
    "1 0\r\nTEXT\r\n0\r\n\r\n",
    "10;a\rb\r\nTEXT\r\n0\r\n\r\n",
    "10\r\nTEXT\r\n0\n\n",
    "10\r\nTEXT\r\n0\r\n\rX",
    "10\r\nTEXT\r\n0\r\n\n",
    "10\r\nTEXT\r\n0\r\nX",
    "10\r\nTEXT\r\n0\r\nt: a\n\r\n",
    "ffffffffffffffff0\r\nTEXT\r\n0\r\n\r\n",
];

#[test]
fn what_is_not_http_or_has_two_ends_is_refused_once_and_nothing_behind_it_is_served() {
    let server = Server::ready();
    let heads = HEADS.map(|(bytes, advice)| (bytes.to_vec(), "malformed_head", advice));
    let headers =
        HEADERS.map(|headers| ((head(DENSE, headers) + TEXT).into_bytes(), "malformed_head", ""));
    let chunks = CHUNKS.map(|chunks| {
        let head = head(DENSE, "transfer-encoding: chunked\r\n");
        ((head + &chunks.replace("TEXT", TEXT)).into_bytes(), "invalid_body", "")
    });
    let live = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
    for (bytes, code, advice) in heads.into_iter().chain(headers).chain(chunks) {
        let answer = server.exchange(&[&bytes[..], live].concat());
        let shown = format!("{:?}: {answer}", String::from_utf8_lossy(&bytes));
        assert!(answer.starts_with("HTTP/1.1 400"), "{shown}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{shown}");
        assert!(answer.contains(&format!("\"{code}\"")), "{shown}");
        assert!(answer.contains(&format!("{advice}\"")), "{shown}");
    }
    server.get("/health").ok();
}
