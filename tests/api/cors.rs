//! Which web pages may read answers.

use crate::support::*;

const OURS: &str = "https://app.example.org";

fn server(origins: &[&str]) -> Server {
    Server::set(|set| {
        set.http.cors_origins = origins.iter().map(|&origin| origin.to_owned()).collect();
        set.http.api_keys = vec![ApiKey::new("key")];
    })
}

/// The question that a browser asks before a page's request.
fn preflight(server: &Server, origin: &str) -> Answer {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-priority,x-stainless-os"),
    ];
    server.send_unchecked(Method::OPTIONS, DENSE, &headers, Vec::new())
}

fn post(server: &Server, origin: &str, key: &str) -> Answer {
    let json = ("content-type", "application/json");
    server.post_with(DENSE, &[("origin", origin), ("authorization", key), json], TEXT)
}

#[test]
fn a_preflight_needs_no_key_and_allows_what_pages_send() {
    let answer = preflight(&server(&[OURS]), OURS);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), Some(OURS));
    let allowed = answer.header("access-control-allow-headers").expect("headers");
    for header in ["authorization", "content-type", "x-priority", "x-stainless-os"] {
        assert!(allowed.contains(header), "{allowed}");
    }
    assert!(answer.header("access-control-allow-methods").expect("methods").contains("POST"));
    assert_eq!(answer.header("access-control-max-age"), Some("7200"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
}

#[test]
fn answers_and_refusals_can_be_read_by_the_configured_pages_only() {
    let server = server(&["http://localhost:3000", OURS]);
    for (key, status) in [("Bearer key", 200), ("Bearer other", 401)] {
        let answer = post(&server, OURS, key);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("access-control-allow-origin"), Some(OURS));
        let exposed = answer.header("access-control-expose-headers").expect("headers");
        for header in ["x-request-id", "retry-after", "x-request-timeout-ms"] {
            assert!(exposed.contains(header), "{exposed}");
        }
        assert!(answer.header("vary").is_some_and(|vary| vary.contains("Origin")));
        for other in ["https://evil.example", "https://app.example.org:8443", "null"] {
            let answer = post(&server, other, key);
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("access-control-allow-origin"), None, "{other}");
            let asked = preflight(&server, other);
            assert_eq!((asked.status, asked.header("access-control-allow-origin")), (400, None));
        }
    }
}

#[test]
fn a_star_allows_every_page() {
    let server = server(&["*"]);
    for origin in [OURS, "https://any.example", "null"] {
        assert_eq!(preflight(&server, origin).header("access-control-allow-origin"), Some("*"));
        let answer = post(&server, origin, "Bearer key");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
}

#[test]
fn without_configured_origins_nothing_is_allowed() {
    let server = server(&[]);
    let refused = preflight(&server, OURS);
    refused.refused("method_not_allowed", "").says("allows them with --cors-origin");
    let answer = post(&server, OURS, "Bearer key");
    for headers in [answer.headers, refused.headers] {
        assert!(headers.keys().all(|name| !name.as_str().starts_with("access-control")));
    }
}

/// A browser asks no leave for a body without a type, whoever may read the answer.
#[test]
fn a_page_cannot_have_texts_embedded_without_a_preflight() {
    let server = Server::ready();
    for path in [DENSE, "/v1/tokenize", "/embed"] {
        for simple in [&[][..], &[("content-type", "")], &[("content-type", "text/plain")]] {
            let headers = [&[("origin", "https://evil.example")], simple].concat();
            let answer = server.send_unchecked(Method::POST, path, &headers, TEXT.into());
            assert_eq!(answer.status, 415, "{path} {simple:?}");
        }
    }
    server.send(Method::POST, DENSE, &[], TEXT.into()).ok();
    post(&server, "https://own.example", "").ok();
}

#[test]
fn a_preflight_and_a_wrong_method_are_refused_in_json() {
    let server = server(&[OURS]);
    preflight(&server, "https://evil.example").refused("preflight_refused", "origin");
    let answer = server.send(Method::OPTIONS, DENSE, &[("origin", OURS)], Vec::new());
    answer.refused("method_not_allowed", "");
    // While the server drains a preflight closes its connection.
    assert_eq!(preflight(&server, OURS).header("connection"), None);
    server.drain();
    assert_eq!(preflight(&server, OURS).header("connection"), Some("close"));
}
