//! `Server-Timing` and `x-compute-tokens`: what an answer says of its own making.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;

const STAGES: [&str; 6] = ["parse", "tokenize", "queue", "compute", "select", "serialize"];

/// Milliseconds by stage, the total last.
fn timing(answer: &Answer) -> Vec<f64> {
    let text = answer.header("server-timing").expect("there is a Server-Timing");
    let parts: Vec<(&str, &str)> =
        text.split(", ").filter_map(|part| part.split_once(";dur=")).collect();
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    assert_eq!(names[..6], STAGES, "{text}");
    assert_eq!(names[6..], ["total"], "{text}");
    parts.iter().map(|(_, millis)| millis.parse().expect("a number")).collect()
}

#[test]
fn the_parts_of_answers_with_vectors_add_up_to_the_total_and_fit_what_the_client_saw() {
    let server = Server::ready();
    for path in ROUTES {
        let start = Instant::now();
        let answer = server.post(path, &json!({"input": vec!["some text"; 100]}));
        let seen_ms = start.elapsed().as_secs_f64() * 1e3;
        answer.ok();
        let timing = timing(&answer);
        let sum: f64 = timing[..6].iter().sum();
        assert!((sum - timing[6]).abs() < 1e-6, "{timing:?}");
        assert!(timing[6] > 0.0 && timing[6] <= seen_ms, "{timing:?} in {seen_ms} ms");
    }
    for answer in [server.get("/health"), server.post_bytes(DENSE, "{"), server.get("/v1/models")] {
        for name in ["server-timing", "x-compute-tokens"] {
            assert_eq!(answer.header(name), None, "an answer without vectors: {}", answer.asked);
        }
    }
}

#[test]
fn waiting_is_in_the_queue_and_nowhere_else() {
    let wait = Duration::from_millis(500);
    let server = Server::ready();
    server.hold();
    let mut stream = server.open(post(DENSE, "", TEXT));
    server.wait_waiting(1);
    thread::sleep(wait);
    server.release();
    let answer = stream.answer();
    assert_eq!(answer.status, 200);
    let timing = timing(&answer);
    let queue = timing[2];
    assert!(queue >= wait.as_secs_f64() * 1e3, "{timing:?}");
    assert!(timing[6] - queue < queue, "{timing:?}");
}

#[test]
fn compute_tokens_are_those_that_ran_without_padding() {
    let server = Server::ready();
    for (input, tokens) in [
        (json!("one"), 3),
        (json!(["one two three", "four"]), 5 + 3),
        (json!(LONG_TEXT), MAX_TOKENS),
        (json!(""), 2),
    ] {
        let answer = server.post(DENSE, &json!({ "input": input }));
        assert_eq!(answer.ok()["usage"]["prompt_tokens"], tokens, "{input}");
        assert_eq!(answer.header("x-compute-tokens"), Some(&*tokens.to_string()), "{input}");
    }
}
