//! Overload, faults, deadlines: what the client reads, and what it does not.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use settings::HttpConfig;
use settings::limits::RequestTimeoutMs;

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
fn a_request_that_would_be_late_is_refused_until_there_is_room() {
    let server = Server::ready();
    server.predict(Duration::from_millis(100));
    server.hold();
    // 80 runs of 64 rows, shared by two workers, are 4 s.
    server.plug(80 * 64);
    let predicted_ms = server.get("/health").ok()["predicted_wait_ms"].as_f64().expect("ms");
    assert!((3900.0..=4200.0).contains(&predicted_ms), "{predicted_ms}");
    for timeout_ms in ["2000", "4000"] {
        // A wait of three quarters of its time would do; each stands behind the one before.
        let headers = [("x-priority", "bulk"), ("x-request-timeout-ms", timeout_ms)];
        let answer = server.post_with(DENSE, &headers, TEXT);
        answer.error().is(429, "overloaded_error", "queue_full", None);
        assert_eq!(answer.header("retry-after"), Some("3"), "{timeout_ms}");
    }
    server.recover();
    server.post_with(DENSE, &[("x-priority", "bulk")], TEXT).ok();
}

#[test]
fn a_request_that_needs_more_time_than_it_has_is_told_so_at_once() {
    let server = Server::ready();
    for path in [DENSE, SPARSE, BOTH] {
        // Anew, since the run of the one before took no time.
        server.predict(Duration::from_secs(60));
        let answer = server.post_bytes(path, TEXT);
        let error = answer.error();
        let param = Some("x-request-timeout-ms");
        error.is(400, "invalid_request_error", "request_timeout_too_short", param);
        let json = answer.json();
        let message = json["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("60000 ms for the input"), "{message}");
        // More time than the server ever gives would be refused.
        assert!(message.contains("send less text in each request, or"), "{message}");
        assert!(message.contains("as far as the server's --max-request-timeout-ms goes"));
        assert_eq!(answer.header("retry-after"), None, "it would be the same again");
        server.post_with(path, &[("x-request-timeout-ms", "61000")], TEXT).ok();
    }
}

#[test]
fn interactive_requests_do_not_wait_for_bulk_requests() {
    let server = Server::ready();
    server.predict(Duration::from_millis(100));
    server.hold();
    server.plug(80 * 64);
    for headers in [vec![], vec![("x-priority", "interactive")]] {
        // Taken although bulk items for 4 s wait; its deadline passes only since all is held.
        let headers = [headers, vec![("x-request-timeout-ms", "1000")]].concat();
        let error = server.post_with(DENSE, &headers, TEXT).error();
        error.is(504, "server_error", "deadline_exceeded", None);
        server.wait_waiting(80 * 64);
    }
    let tuning = &server.get("/health").ok()["tuning"];
    assert_eq!((&tuning["queue_interactive"], &tuning["queue_bulk"]), (&json!(0), &json!(5120)));
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
