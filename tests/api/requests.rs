//! Routes, methods, content types, encodings, sizes, request ids.

use crate::support::*;

#[rustfmt::skip]
const UNKNOWN: [&str; 19] = [
    "/v1", "/v1/", "/v1/embeddings/", "/v1/embeddings:both/", "/v1/embeddings:", "/health/",
    "/v1/completions", "/v1/sparse_embeddings", "/v1/embeddings%2Fx", "/V1/embeddings", "/%",
    "/%ff", "/health/live/", "//health", "/v1/models/", "/metrics/../health/",
    "/v1/embeddings%3Bboth", "/v1/models/%f", "/v1/models/a%zz",
];

#[test]
fn unknown_routes_are_404_for_every_method() {
    let server = Server::ready();
    for path in UNKNOWN {
        for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
            let said = server.send(method.clone(), path, &[], Vec::new()).refused("not_found", "");
            said.says(&format!("no route {method} /")).says("base_url ends in /v1");
        }
    }
    let said = server.get(&"/long".repeat(1000)).refused("not_found", "");
    assert!(said.says("no route GET /long").0.len() < 500, "{}", said.0);
}

#[rustfmt::skip]
const JSON_TYPES: [&str; 8] = [
    "application/json", "application/json; charset=utf-8", "APPLICATION/JSON;charset=UTF-8",
    "application/json;", "application/vnd.api+json", "application/ld+json; profile=x",
    "; charset=utf-8", "",
];
#[rustfmt::skip]
const OTHER_TYPES: [&str; 8] = [
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
    "application/octet-stream", "text/json", "json", "application/jsonl", "é",
];

#[test]
fn other_content_types_and_encodings_are_415() {
    let server = Server::ready();
    let encodings = ["br", "zstd", "deflate", "gzip, gzip", "gzip, br", "aws-chunked"];
    for (header, values) in
        [("content-type", &OTHER_TYPES[..]), ("content-encoding", &encodings[..])]
    {
        // The header is looked at before the body.
        for (value, body) in values.iter().flat_map(|value| [(value, TEXT), (value, "no json")]) {
            let answer = server.post_with(DENSE, &[(header, *value)], body);
            answer.refused("unsupported_media_type", header);
        }
    }
}

#[test]
fn types_of_json_packed_bodies_and_paths_in_every_spelling_are_taken() {
    let server = Server::ready();
    let plain = server.post_bytes(DENSE, TEXT).ok();
    assert_eq!(server.post_with(DENSE, &[], TEXT).ok(), plain);
    for content_type in JSON_TYPES {
        let answer = server.post_with(DENSE, &[("content-type", content_type)], TEXT);
        assert_eq!(answer.ok(), plain, "{content_type}");
    }
    for path in ["/v1/%65mbeddings", "/v1/embeddings?api-version=2024-02-01"] {
        assert_eq!(server.post_bytes(path, TEXT).ok(), plain, "{path}");
    }
    for path in ["/he%61lth", "/health?verbose"] {
        server.get(path).ok();
    }
    for encoding in ["gzip", "GZIP", "x-gzip"] {
        let body = gzip(TEXT.as_bytes());
        assert_eq!(server.post_with(DENSE, &[("content-encoding", encoding)], body).ok(), plain);
    }
    for encoding in ["identity", ""] {
        assert_eq!(server.post_with(DENSE, &[("content-encoding", encoding)], TEXT).ok(), plain);
    }
    let damaged = server.post_with(DENSE, &[("content-encoding", "gzip")], TEXT);
    damaged.refused("invalid_body", "content-encoding");
}

#[test]
fn the_size_of_a_body_is_limited_packed_and_unpacked() {
    let server = Server::set(|set| set.http.max_body_bytes = number(2048));
    let padded = |length: usize| format!("{TEXT}{}", " ".repeat(length - TEXT.len()));
    let packed = [("content-encoding", "gzip")];
    server.post_bytes(DENSE, padded(2048)).ok();
    server.post_with(DENSE, &packed, gzip(padded(2048).as_bytes())).ok();
    for answer in [
        server.post_bytes(DENSE, padded(2049)),
        server.post_bytes(DENSE, padded(8_000_000)),
        server.post_with(DENSE, &packed, gzip(padded(2049).as_bytes())),
        // 2 MiB of zeros take 2 kB: a bomb that fits.
        server.post_with(DENSE, &packed, gzip(&vec![b' '; 1_900_000])),
        // What is packed is limited too.
        server.post_with(DENSE, &packed, vec![0; 4096]),
    ] {
        answer.refused("body_too_large", "").says("2048");
    }
    server.post_bytes(DENSE, TEXT).ok();
}

#[test]
fn request_ids_come_back_when_printable_and_short_and_are_made_otherwise() {
    let server = Server::ready();
    let longest = "x".repeat(128);
    let id_of = |path: &str, id: &str| {
        let answer = server.post_with(path, &[("x-request-id", id)], TEXT);
        answer.header("x-request-id").expect("an id").to_owned()
    };
    for id in ["abc-123", "with space ~!", &longest] {
        for path in [DENSE, "/nothing"] {
            assert_eq!(id_of(path, id), id);
        }
    }
    let mut made =
        ["", "tab\there", "ümlaut", &"x".repeat(129)].map(|id| id_of(DENSE, id)).to_vec();
    made.push(server.get("/health").header("x-request-id").expect("an id").to_owned());
    assert!(made.iter().all(|id| id.len() == 36 && id.is_ascii()), "{made:?}");
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 5);
}

/// Of two, a proxy in front may read the one and the server the other, so none is believed.
#[test]
fn a_header_that_comes_twice_is_refused_by_its_name() {
    let server = Server::ready();
    for (name, values) in [
        ("content-type", ["application/json", "text/plain"]),
        ("content-encoding", ["identity", "gzip"]),
        ("x-request-timeout-ms", ["60000", "1"]),
        ("x-priority", ["bulk", "bulk"]),
    ] {
        let twice = values.map(|value| (name, value));
        server.post_with(DENSE, &twice, TEXT).refused("invalid_value", name).says("send it once");
        server.post_with(DENSE, &twice[..1], TEXT).ok();
    }
}
