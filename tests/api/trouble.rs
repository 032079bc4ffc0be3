//! Overload, faults, deadlines: what the client reads, and what it does not.

use std::time::Duration;

use settings::limits::MaxRequestTimeoutMs;

use crate::support::*;

const TEXT: &str = r#"{"input":["one","two"]}"#;

/// A server whose two workers are held, with bulk items for 4 s in front of them: 80 runs of one
/// class of 64 rows, of 100 ms each.
pub(crate) fn busy_for_4_s() -> Server {
    let server = Server::ready();
    server.predict(Duration::from_millis(100), Duration::ZERO);
    server.hold();
    server.plug(80 * 64);
    server
}

#[test]
fn faults_have_their_status_and_code_on_every_route_and_tell_no_internals() {
    for (trouble, code, param, words) in [
        (Server::fill_queue as fn(&Server), "queue_full", "", "Retry-After"),
        (|server| server.fault(Fault::Fail), "engine_failed", "", "x-request-id"),
        (|server| server.fault(Fault::NotFinite), "non_finite_output", "input", "item 1"),
        (Server::close, "no_worker", "", ""),
    ] {
        for path in ROUTES {
            let server = Server::ready();
            trouble(&server);
            let answer = server.post_bytes(path, TEXT);
            let said = answer.refused(code, param);
            assert!(!said.says(words).0.contains("cuda"), "{}", said.0);
            let retry = matches!(answer.status, 429 | 503);
            assert_eq!(answer.header("retry-after").is_some(), retry, "{code}");
            if code != "no_worker" {
                server.recover();
                server.post_bytes(path, TEXT).ok();
            }
        }
    }
}

#[test]
fn of_items_that_ran_as_one_text_the_first_of_the_run_that_failed_is_named() {
    let server = Server::ready();
    // Two windows: the first ends before the word that fails.
    let one = "one one one one one";
    let body = json!({"input": [one, one, one, "one two one one one"], "late_chunking": true});
    for path in ROUTES {
        server.fault(Fault::NotFinite);
        let said = server.post(path, &body).refused("non_finite_output", "input");
        said.says("item 2 or one behind it…leave late_chunking out");
    }
}

#[test]
fn a_request_that_needs_more_time_than_it_has_is_told_so_at_once() {
    let server = Server::set(|set| set.http.request_timeout = number(30_000));
    for path in ROUTES {
        // Anew, since the run of the one before took no time.
        server.predict(Duration::from_secs(60), Duration::ZERO);
        let answer = server.post_bytes(path, TEXT);
        let said = answer.refused("request_timeout_too_short", "x-request-timeout-ms");
        // More time than the server ever gives would be refused.
        said.says("60000 ms for the input…send less text in each request, or");
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
fn the_deadline_comes_from_the_configuration_or_from_the_header_up_to_what_the_operator_allows() {
    let most_ms = MaxRequestTimeoutMs::DEFAULT.get();
    for (usual_ms, most_ms, asked) in
        [(300, most_ms, None), (120_000, most_ms, Some("300")), (300, 300, Some("3600000"))]
    {
        let server = Server::set(|set| {
            set.http.request_timeout = number(usual_ms);
            set.http.max_request_timeout = number(most_ms);
        });
        server.hold();
        let headers: Vec<_> = asked.map(|ms| ("x-request-timeout-ms", ms)).into_iter().collect();
        server.post_with(DENSE, &headers, TEXT).refused("deadline_exceeded", "").says("300 ms");
        server.wait_waiting(0);
    }
}

#[test]
fn phases_other_than_ready_are_503_with_retry_after() {
    let server = Server::loading();
    let check = |code: &str| {
        for path in ROUTES {
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
