//! API keys: who must show one, and what is answered without.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use reqwest::Method;
use settings::HttpConfig;
use settings::secret::ApiKey;

use crate::support::{BOTH, DENSE, PATIENCE, SPARSE, Server};

const TEXT: &str = r#"{"input":"text"}"#;

fn server() -> Server {
    let api_keys = vec![ApiKey::new("first-key"), ApiKey::new("second-key")];
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
        for path in ["/v1/models", "/v1/models/org/stub-model", "/v1/metadata"] {
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
            server.send(Method::GET, "/v1/metadata", &headers, Vec::new()),
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
    for path in
        ["/health", "/health/deep", "/health/live", "/v1/health/live", "/v1/health/ready", "/ping"]
    {
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

#[test]
fn keys_of_a_file_are_exchanged_while_the_server_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys");
    fs::write(&path, "# ours\n\nold-key\n").expect("it is written");
    let server =
        Server::with(HttpConfig { api_key_file: Some(path.clone()), ..HttpConfig::default() });
    let status = |key: &str| {
        let key = format!("Bearer {key}");
        server.post_with(DENSE, &[("authorization", &key)], TEXT).status
    };
    assert_eq!((status("old-key"), status("new-key"), status("")), (200, 401, 401));
    fs::write(&path, "new-key\n").expect("it is written");
    let end = Instant::now() + PATIENCE;
    while status("new-key") != 200 {
        assert!(Instant::now() < end, "the new key never came");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(status("old-key"), 401);
    server.get("/health").ok();
}

/// An emergency brake: nobody passes, whatever is shown.
#[test]
fn an_emptied_file_revokes_its_keys_and_opens_the_server_to_nobody() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys");
    fs::write(&path, "only-key\n").expect("it is written");
    let server =
        Server::with(HttpConfig { api_key_file: Some(path.clone()), ..HttpConfig::default() });
    let status = |key: &str| {
        let key = format!("Bearer {key}");
        server.post_with(DENSE, &[("authorization", &key)], TEXT).status
    };
    assert_eq!(status("only-key"), 200);
    fs::write(&path, "# all are revoked\n").expect("it is written");
    let end = Instant::now() + PATIENCE;
    while status("only-key") != 401 {
        assert!(Instant::now() < end, "the key still opens the server");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(status(""), 401);
    assert_eq!(server.post(DENSE, &serde_json::json!({"input": "text"})).status, 401);
}
