//! API keys: who must show one, and what is answered without.

use duovec::config::HttpConfig;
use reqwest::Method;

use crate::support::{BOTH, DENSE, SPARSE, Server};

const TEXT: &str = r#"{"input":"text"}"#;

fn server() -> Server {
    let api_keys = vec!["first-key".to_owned(), "second-key".to_owned()];
    Server::with(HttpConfig { api_keys, ..HttpConfig::default() })
}

#[test]
fn each_configured_key_opens_the_routes() {
    let server = server();
    for key in ["Bearer first-key", "bearer second-key", "second-key"] {
        let headers = [("authorization", key)];
        for path in [DENSE, SPARSE, BOTH] {
            server.post_with(path, &headers, TEXT).ok();
        }
        for path in ["/v1/models", "/v1/models/org/stub-model"] {
            server.send(Method::GET, path, &headers, Vec::new()).ok();
        }
    }
}

#[test]
fn without_a_right_key_the_answer_is_401_with_the_scheme() {
    let server = server();
    let wrong = ["", "Bearer ", "Bearer first-ke", "Bearer first-key2", "Basic Zmlyc3Qta2V5"];
    for key in wrong.map(Some).into_iter().chain([None]) {
        let headers: Vec<_> = key.map(|key| ("authorization", key)).into_iter().collect();
        let answers = [
            server.post_with(DENSE, &headers, TEXT),
            server.post_with(SPARSE, &headers, TEXT),
            server.post_with(BOTH, &headers, TEXT),
            server.send(Method::GET, "/v1/models", &headers, Vec::new()),
            server.send(Method::GET, "/v1/models/x", &headers, Vec::new()),
        ];
        for answer in answers {
            answer.error().is(401, "authentication_error", "invalid_api_key", None);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!String::from_utf8_lossy(&answer.body).contains("first-key"));
        }
    }
}

#[test]
fn health_routes_stay_open() {
    let server = server();
    for path in ["/health", "/health/deep", "/health/live"] {
        server.get(path).ok();
    }
}

#[test]
fn unknown_routes_and_methods_come_before_the_key_and_the_key_before_the_body() {
    let server = server();
    server.get("/nothing").error().is(404, "not_found_error", "not_found", None);
    server.get(DENSE).error().is(405, "not_found_error", "method_not_allowed", None);
    let odd = [("content-type", "text/plain"), ("x-request-timeout-ms", "x")];
    let error = server.post_with(DENSE, &odd, "no json").error();
    error.is(401, "authentication_error", "invalid_api_key", None);
}
