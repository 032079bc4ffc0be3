//! Texts that come again: they share a run while they wait or run, and need none afterwards where
//! rows are kept.

use serde_json::json;

use crate::support::{Answer, BOTH, DENSE, SPARSE, Server, Talk, Trouble, number, post};

/// One with the smallest cache that there may be.
fn with_cache() -> Server {
    Server::set(|set| set.cache_bytes = number(1 << 16))
}

const ONE_TWO: &str = r#"{"input":"one two"}"#;

/// What the answer says of the cache.
fn cache_use(answer: &Answer) -> Option<String> {
    let timing = answer.header("server-timing").expect("there is a Server-Timing");
    timing.split(", cache;desc=").nth(1).map(str::to_owned)
}

#[test]
fn answers_are_the_same_bytes_with_and_without_a_cache() {
    let (with, without) = (with_cache(), Server::ready());
    let input = json!(["one", "two three", "one"]);
    for format in ["float", "base64"] {
        for path in [DENSE, SPARSE, BOTH] {
            let request = match path {
                SPARSE => json!({ "input": input }),
                _ => json!({ "input": input, "encoding_format": format }),
            };
            let expected = without.post(path, &request);
            expected.ok();
            assert_eq!(cache_use(&expected), None);
            for _ in 0..2 {
                let answer = with.post(path, &request);
                assert_eq!(answer.body, expected.body, "{path} {format}");
            }
        }
    }
    // The first of all ran for both kinds of vectors.
    assert_eq!(with.metric("duovec_tokens_total{kind=\"real\"}"), 3.0 + 4.0);
}

#[test]
fn a_text_that_comes_again_does_not_run_again() {
    let server = with_cache();
    let post = |path, input| server.post(path, &json!({ "input": input }));
    let first = post(DENSE, json!("one two"));
    assert_eq!(cache_use(&first).as_deref(), Some("miss"));
    let batches = server.metric("duovec_batches_total");
    for path in [DENSE, SPARSE, BOTH] {
        assert_eq!(cache_use(&post(path, json!(["one two", "one two"]))).as_deref(), Some("hit"));
    }
    assert_eq!(server.metric("duovec_batches_total"), batches);
    let partial = post(DENSE, json!(["one two", "three"]));
    assert_eq!(cache_use(&partial).as_deref(), Some("partial"));
    assert_eq!(server.metric("duovec_batches_total"), batches + 1.0);
    assert_eq!(server.metric("duovec_cache_lookups_total{result=\"hit\"}"), 7.0);
    assert_eq!(server.metric("duovec_cache_lookups_total{result=\"miss\"}"), 2.0);
    assert_eq!(server.metric("duovec_cache_entries"), 2.0);
    let health = server.get("/health").ok();
    let cache = &health["tuning"]["cache"];
    assert_eq!((&cache["hits"], &cache["entries"]), (&json!(7), &json!(2)));
    assert_eq!(cache["limit_bytes"], json!(1 << 16));
    assert!(cache["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{cache}");
}

#[test]
fn prompts_and_cuts_make_other_texts() {
    let server = with_cache();
    let post = |body| cache_use(&server.post(DENSE, &body));
    let (hit, miss) = (Some("hit".to_owned()), Some("miss".to_owned()));
    assert_eq!(post(json!({"input": "one two"})), miss);
    assert_eq!(post(json!({"input": "one  two"})), hit, "the ids count, not the letters");
    assert_eq!(post(json!({"input": "one two", "input_type": "query"})), miss);
    assert_eq!(post(json!({"input": "one two", "input_type": "query"})), hit);
    assert_eq!(post(json!({"input": "one two", "dimensions": 4})), hit);
}

#[test]
fn requests_for_the_same_text_at_the_same_time_run_it_once() {
    let server = Server::ready();
    server.hold();
    let runs = server.engine().runs().len();
    let streams = [(); 8].map(|()| server.open(post(DENSE, "", ONE_TWO)));
    let mut sparse = server.open(post(SPARSE, "", r#"{"input":["one two","one two"]}"#));
    server.wait_waiting(10);
    assert_eq!(server.get("/health").ok()["queue_depth"], json!(1));
    server.release();
    let bodies = streams.map(|mut stream| stream.answer().ok());
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    sparse.answer().ok();
    assert_eq!(server.engine().runs().len(), runs + 1);
    assert_eq!(server.metric("duovec_items_coalesced_total"), 9.0);
}

#[test]
fn a_cached_text_is_answered_while_the_queue_is_full() {
    let server = with_cache();
    server.post(DENSE, &json!({"input": "one two"})).ok();
    server.prepare(Trouble::QueueFull);
    let again = server.post(DENSE, &json!({"input": "one two"}));
    again.ok();
    assert_eq!(cache_use(&again).as_deref(), Some("hit"));
    for input in [json!("three"), json!(["one two", "three"])] {
        server.post(DENSE, &json!({ "input": input })).refused("queue_full", "");
    }
    server.recover();
}

#[test]
fn deep_checks_run_the_canary_whatever_is_cached() {
    let server = with_cache();
    for _ in 0..2 {
        let before = server.engine().runs().len();
        server.get("/health/deep").ok();
        assert!(server.engine().runs().len() >= before + 2, "once on each worker");
    }
    assert_eq!(server.metric("duovec_cache_entries"), 0.0);
    server.break_numbers();
    assert_eq!(server.get("/health/deep").status, 503);
}
