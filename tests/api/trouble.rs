//! Overload, faults, deadlines: what the client reads, and what it does not.

use std::sync::mpsc;
use std::thread;

use duovec::config::HttpConfig;
use duovec::limits::RequestTimeoutMs;
use reqwest::Method;

use crate::support::{BOTH, DENSE, SPARSE, Server, Trouble};

const TEXT: &str = r#"{"input":["one","two"]}"#;

#[test]
fn every_trouble_has_its_status_and_code_on_every_route() {
    for (trouble, status, kind, code, param) in [
        (Trouble::QueueFull, 429, "overloaded_error", "queue_full", None),
        (Trouble::Engine, 500, "server_error", "engine_failed", None),
        (Trouble::NonFinite, 500, "server_error", "non_finite_output", Some("input")),
        (Trouble::NoWorker, 503, "server_error", "no_worker", None),
    ] {
        for path in [DENSE, SPARSE, BOTH] {
            let server = Server::ready();
            server.prepare(trouble);
            let answer = server.post_bytes(path, TEXT);
            answer.error().is(status, kind, code, param);
            let retry = matches!(status, 429 | 503);
            assert_eq!(answer.header("retry-after").is_some(), retry, "{trouble:?}");
            if trouble != Trouble::NoWorker {
                server.recover();
                server.post_bytes(path, TEXT).ok();
            }
        }
    }
}

#[test]
fn retry_after_is_about_the_predicted_wait() {
    let server = Server::ready();
    server.prepare(Trouble::QueueFull);
    let predicted_s = server.get("/health").ok()["predicted_wait_ms"].as_f64().expect("ms") / 1e3;
    let answer = server.post_bytes(DENSE, TEXT);
    let seconds: f64 = answer.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((seconds - predicted_s.ceil()).abs() <= 1.0, "{seconds} {predicted_s}");
    assert!(seconds >= 1.0);
}

#[test]
fn faults_tell_no_internals() {
    let server = Server::ready();
    server.prepare(Trouble::Engine);
    let error = server.post_bytes(DENSE, TEXT).error();
    assert!(!error.message.contains("cuda"), "{}", error.message);
    assert!(error.message.contains("x-request-id"), "{}", error.message);
    server.prepare(Trouble::NonFinite);
    assert!(server.post_bytes(DENSE, TEXT).error().message.contains("item 1"));
}

#[test]
fn the_deadline_comes_from_the_header_else_from_the_configuration() {
    let request_timeout = RequestTimeoutMs::new(30).expect("in range");
    for (config, headers) in [
        (HttpConfig { request_timeout, ..HttpConfig::default() }, vec![]),
        (HttpConfig::default(), vec![("x-request-timeout-ms", "30")]),
    ] {
        let server = Server::with(config);
        server.hold();
        let error = server.post_with(DENSE, &headers, TEXT).error();
        error.is(504, "server_error", "deadline_exceeded", None);
        assert!(error.message.contains("30 ms"), "{}", error.message);
        server.wait_waiting(0);
    }
}

#[test]
fn phases_other_than_ready_are_503_with_retry_after() {
    let server = Server::loading(HttpConfig::default());
    let check = |code: &str| {
        for path in [DENSE, SPARSE, BOTH] {
            // Decided before the body is read: malformed ones get the same answer.
            for body in [TEXT, "no json", ""] {
                let answer = server.post_bytes(path, body);
                answer.error().is(503, "server_error", code, None);
                let seconds = answer.header("retry-after").expect("a time").parse::<u64>();
                assert!(seconds.is_ok_and(|seconds| seconds >= 1));
            }
        }
    };
    check("loading");
    server.become_ready();
    server.post_bytes(DENSE, TEXT).ok();
    server.drain();
    check("draining");
    server.fail();
    check("no_worker");
}

#[test]
fn other_requests_are_answered_while_one_waits() {
    let server = Server::ready();
    server.hold();
    let (sent, answered) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let sent = sent;
            sent.send(server.post_bytes(DENSE, TEXT).status).expect("the test waits");
        });
        server.wait_waiting(2);
        for path in ["/health", "/health/live", "/v1/models"] {
            server.send(Method::GET, path, &[], Vec::new()).ok();
        }
        server.release();
        assert_eq!(answered.recv(), Ok(200));
    });
}
