//! Texts that come again where rows are kept, as answers and metrics tell of them.

use crate::support::*;

/// One with the smallest cache that there may be.
fn with_cache() -> Server {
    Server::set(|set| set.queue.cache_bytes = number(1 << 16))
}

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
        for path in ROUTES {
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
    for path in ROUTES {
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
