//! Routes, methods, content types, encodings, sizes, request ids.

use reqwest::Method;
use settings::limits::MaxBodyBytes;
use settings::{Dialect, HttpConfig};

use crate::support::{BOTH, DENSE, SPARSE, Server, gzip};

const TEXT: &str = r#"{"input":"text"}"#;

#[test]
fn unknown_routes_are_404_for_every_method() {
    let server = Server::ready();
    for path in [
        "/v1",
        "/v1/",
        "/v1/embeddings/",
        "/v1/embeddings:both/",
        "/v1/embeddings:",
        "/health/",
        "/v1/completions",
        "/v1/sparse_embeddings",
        "/v1/embeddings%2Fx",
        "/V1/embeddings",
        "/%",
        "/%ff",
        "/health/live/",
        "//health",
        "/v1/models/",
        "/metrics/../health/",
        "/v1/embeddings%3Bboth",
        "/v1/models/%f",
        "/v1/models/a%zz",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
            let answer = server.send(method, path, &[], Vec::new());
            answer.error().is(404, "not_found_error", "not_found", None);
        }
    }
}

#[test]
fn wrong_methods_are_405_with_allow() {
    let server = Server::ready();
    let methods = |path: &str, tried: &[Method], allow: &str| {
        for method in tried {
            let answer = server.send(method.clone(), path, &[], Vec::new());
            assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
            assert_eq!(answer.status, 405);
            if method != Method::HEAD {
                answer.error().is(405, "not_found_error", "method_not_allowed", None);
            }
        }
    };
    let odd = Method::from_bytes(b"BREW").expect("a token");
    let others = [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, odd];
    for path in [DENSE, SPARSE, BOTH, "/v1/embeddings%3Aboth", "/v1/embeddings/both"] {
        methods(path, &others, "POST");
        methods(path, &[Method::GET, Method::HEAD], "POST");
    }
    for path in ["/health", "/health/deep", "/health/live", "/v1/models", "/v1/models/a/b"] {
        methods(path, &others, "GET, HEAD");
        methods(path, &[Method::POST], "GET, HEAD");
    }
    methods("/", &others, "GET, HEAD, POST");
    let dialects = vec![Dialect::OpenAi];
    let server = Server::with(HttpConfig { dialects, ..HttpConfig::default() });
    let wrong = server.send(Method::DELETE, "/", &[], Vec::new());
    assert_eq!(wrong.header("allow"), Some("GET, HEAD"));
}

#[test]
fn an_escaped_letter_of_a_path_is_that_letter() {
    let server = Server::ready();
    server.post_bytes("/v1/%65mbeddings%3aboth", TEXT).ok();
    server.get("/he%61lth").ok();
}

#[test]
fn queries_are_ignored() {
    let server = Server::ready();
    server.post_bytes("/v1/embeddings?api-version=2024-02-01", TEXT).ok();
    server.get("/health?verbose").ok();
}

#[test]
fn json_content_types_are_accepted_and_so_is_none() {
    let server = Server::ready();
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON;charset=UTF-8",
        "application/json;",
        "application/vnd.api+json",
        "application/ld+json; profile=x",
        "; charset=utf-8",
        "",
    ] {
        server.post_with(DENSE, &[("content-type", content_type)], TEXT).ok();
    }
    server.post_with(DENSE, &[], TEXT).ok();
}

#[test]
fn other_content_types_are_415() {
    let server = Server::ready();
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "text/json",
        "json",
        "application/jsonl",
        "é",
    ] {
        // The content type is looked at before the body.
        for body in [TEXT, "no json"] {
            let answer = server.post_with(DENSE, &[("content-type", content_type)], body);
            let param = Some("content-type");
            answer.error().is(415, "invalid_request_error", "unsupported_media_type", param);
        }
    }
}

#[test]
fn gzip_bodies_are_unpacked() {
    let server = Server::ready();
    let plain = server.post_bytes(DENSE, TEXT).ok();
    for encoding in ["gzip", "GZIP", "x-gzip"] {
        let body = gzip(TEXT.as_bytes());
        assert_eq!(server.post_with(DENSE, &[("content-encoding", encoding)], body).ok(), plain);
    }
    for encoding in ["identity", ""] {
        assert_eq!(server.post_with(DENSE, &[("content-encoding", encoding)], TEXT).ok(), plain);
    }
}

#[test]
fn other_encodings_are_415() {
    let server = Server::ready();
    for encoding in ["br", "zstd", "deflate", "gzip, gzip", "gzip, br", "aws-chunked"] {
        let error = server.post_with(DENSE, &[("content-encoding", encoding)], TEXT).error();
        let param = Some("content-encoding");
        error.is(415, "invalid_request_error", "unsupported_media_type", param);
    }
}

#[test]
fn damaged_gzip_is_400() {
    let server = Server::ready();
    let whole = gzip(TEXT.as_bytes());
    let cut = whole[..whole.len() - 4].to_vec();
    for body in [cut, TEXT.as_bytes().to_vec(), Vec::new(), vec![0x1f, 0x8b]] {
        let error = server.post_with(DENSE, &[("content-encoding", "gzip")], body).error();
        error.is(400, "invalid_request_error", "invalid_body", Some("content-encoding"));
    }
    let error = server.post_with(DENSE, &[("content-encoding", "gzip")], gzip(b"{")).error();
    error.is(400, "invalid_request_error", "invalid_json", None);
}

#[test]
fn the_size_of_a_body_is_limited_packed_and_unpacked() {
    let max_body_bytes = MaxBodyBytes::new(2048).expect("in range");
    let server = Server::with(HttpConfig { max_body_bytes, ..HttpConfig::default() });
    let padded = |length: usize| format!("{TEXT}{}", " ".repeat(length - TEXT.len()));
    server.post_bytes(DENSE, padded(2048)).ok();
    server.post_with(DENSE, &[("content-encoding", "gzip")], gzip(padded(2048).as_bytes())).ok();
    let packed = [("content-encoding", "gzip")];
    for answer in [
        server.post_bytes(DENSE, padded(2049)),
        server.post_bytes(DENSE, padded(8_000_000)),
        server.post_with(DENSE, &packed, gzip(padded(2049).as_bytes())),
        // 2 MiB of zeros take 2 kB: a bomb that fits.
        server.post_with(DENSE, &packed, gzip(&vec![b' '; 1_900_000])),
        // What is packed is limited too.
        server.post_with(DENSE, &packed, vec![0; 4096]),
    ] {
        let error = answer.error();
        error.is(413, "invalid_request_error", "body_too_large", None);
        assert!(error.message.contains("2048"), "{}", error.message);
    }
    server.post_bytes(DENSE, TEXT).ok();
}

#[test]
fn request_ids_come_back_when_printable_and_short() {
    let server = Server::ready();
    let longest = "x".repeat(128);
    for id in ["abc-123", "with space ~!", &longest] {
        for path in [DENSE, "/nothing"] {
            let answer = server.post_with(path, &[("x-request-id", id)], TEXT);
            assert_eq!(answer.header("x-request-id"), Some(id));
        }
    }
}

#[test]
fn request_ids_are_made_otherwise() {
    let server = Server::ready();
    let mut made = Vec::new();
    for id in ["", "tab\there", "ümlaut", &"x".repeat(129)] {
        let answer = server.post_with(DENSE, &[("x-request-id", id)], TEXT);
        made.push(answer.header("x-request-id").expect("an id").to_owned());
    }
    made.push(server.get("/health").header("x-request-id").expect("an id").to_owned());
    assert!(made.iter().all(|id| id.len() == 36 && id.is_ascii()), "{made:?}");
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 5);
}
