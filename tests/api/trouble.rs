//! Overload, faults, deadlines: what the client reads, and what it does not.

use std::time::Duration;

use serde_json::json;

use crate::support::{BOTH, DENSE, SPARSE, Server, Trouble, number};

const TEXT: &str = r#"{"input":["one","two"]}"#;

/// A server whose two workers are held, with bulk items for 4 s in front of them: 80 runs of one
/// class of 64 rows, of 100 ms each.
pub(crate) fn busy_for_4_s() -> Server {
    let server = Server::ready();
    server.predict(Duration::from_millis(100));
    server.hold();
    server.plug(80 * 64);
    server
}

#[test]
fn every_trouble_has_its_status_and_code_on_every_route() {
    for (trouble, code, param) in [
        (Trouble::QueueFull, "queue_full", ""),
        (Trouble::Engine, "engine_failed", ""),
        (Trouble::NonFinite, "non_finite_output", "input"),
        (Trouble::NoWorker, "no_worker", ""),
    ] {
        for path in [DENSE, SPARSE, BOTH] {
            let server = Server::ready();
            server.prepare(trouble);
            let answer = server.post_bytes(path, TEXT);
            answer.refused(code, param);
            let retry = matches!(answer.status, 429 | 503);
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
    let server = busy_for_4_s();
    let predicted_ms = server.get("/health").ok()["predicted_wait_ms"].as_f64().expect("ms");
    assert!((3900.0..=4200.0).contains(&predicted_ms), "{predicted_ms}");
    for timeout_ms in ["2000", "4000"] {
        // A wait of three quarters of its time would do; each stands behind the one before.
        let headers = [("x-priority", "bulk"), ("x-request-timeout-ms", timeout_ms)];
        let answer = server.post_with(DENSE, &headers, TEXT);
        answer.refused("queue_full", "");
        assert_eq!(answer.header("retry-after"), Some("3"), "{timeout_ms}");
    }
    server.recover();
    server.post_with(DENSE, &[("x-priority", "bulk")], TEXT).ok();
}

#[test]
fn a_request_that_needs_more_time_than_it_has_is_told_so_at_once() {
    let server = Server::set(|set| set.http.request_timeout = number(30_000));
    for path in [DENSE, SPARSE, BOTH] {
        // Anew, since the run of the one before took no time.
        server.predict(Duration::from_secs(60));
        let answer = server.post_bytes(path, TEXT);
        let said = answer.refused("request_timeout_too_short", "x-request-timeout-ms");
        // More time than the server ever gives would be refused.
        said.says("60000 ms for the input").says("send less text in each request, or");
        said.says("as far as the server's --max-request-timeout-ms goes");
        assert_eq!(answer.header("retry-after"), None, "it would be the same again");
        server.post_with(path, &[("x-request-timeout-ms", "61000")], TEXT).ok();
    }
}

#[test]
fn interactive_requests_do_not_wait_for_bulk_requests() {
    let server = busy_for_4_s();
    for headers in [vec![], vec![("x-priority", "interactive")]] {
        // Taken although bulk items for 4 s wait; its deadline passes only since all is held.
        let headers = [headers, vec![("x-request-timeout-ms", "500")]].concat();
        server.post_with(DENSE, &headers, TEXT).refused("deadline_exceeded", "");
        server.wait_waiting(80 * 64);
    }
    let tuning = &server.get("/health").ok()["tuning"];
    assert_eq!((&tuning["queue_interactive"], &tuning["queue_bulk"]), (&json!(0), &json!(5120)));
}

#[test]
fn faults_tell_no_internals() {
    let server = Server::ready();
    server.prepare(Trouble::Engine);
    let said = server.post_bytes(DENSE, TEXT).refused("engine_failed", "");
    assert!(!said.says("x-request-id").0.contains("cuda"), "{}", said.0);
    server.prepare(Trouble::NonFinite);
    server.post_bytes(DENSE, TEXT).refused("non_finite_output", "input").says("item 1");
}

#[test]
fn the_deadline_comes_from_the_header_else_from_the_configuration() {
    for (usual_ms, headers) in [(300, &[][..]), (120_000, &[("x-request-timeout-ms", "300")])] {
        let server = Server::set(|set| set.http.request_timeout = number(usual_ms));
        server.hold();
        server.post_with(DENSE, headers, TEXT).refused("deadline_exceeded", "").says("300 ms");
        server.wait_waiting(0);
    }
}

#[test]
fn phases_other_than_ready_are_503_with_retry_after() {
    let server = Server::loading();
    let check = |code: &str| {
        for path in [DENSE, SPARSE, BOTH] {
            // Decided before the body is read: malformed ones get the same answer.
            for body in [TEXT, "no json", ""] {
                let answer = server.post_bytes(path, body);
                answer.refused(code, "");
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
