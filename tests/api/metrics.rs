//! GET /metrics: what is counted, under which names.

use std::collections::BTreeSet;
use std::time::Duration;

use duovec::metrics::names;

use crate::support::*;

/// Names in the text's own words: what follows `# TYPE`.
fn families(server: &Server) -> BTreeSet<(String, String)> {
    let text = server.get(METRICS).text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let pair = |line: &str| {
        let (name, kind) = line.split_once(' ').expect("a name and a kind");
        (name.to_owned(), kind.to_owned())
    };
    types.map(pair).collect()
}

fn wait_for(server: &Server, series: &str, value: f64) {
    server.wait_until(series, |server| server.metrics().get(series) == Some(&value));
}

#[test]
fn exactly_the_documented_metrics_are_exported() {
    let server = Server::ready();
    // A fit of the cost model, and an answer with an error, so that every family has a series.
    server.predict(Duration::ZERO, Duration::ZERO);
    server.post(DENSE, &json!({"input": "text"})).ok();
    server.get("/nowhere").refused("not_found", "");
    let documented: BTreeSet<(String, String)> = names::METRICS
        .iter()
        .filter(|metric| !metric.name.starts_with("duovec_gpu"))
        .filter(|metric| cfg!(target_os = "linux") || !metric.name.starts_with("process_"))
        .map(|metric| (metric.name.to_owned(), metric.kind.name().to_owned()))
        .collect();
    assert_eq!(families(&server), documented);
}

#[test]
fn requests_items_and_tokens_are_counted() {
    let server = Server::ready();
    server.post(DENSE, &json!({"input": ["one", "two three"]})).ok();
    server.post(SPARSE, &json!({"input": LONG_TEXT})).ok();
    server.post(BOTH, &json!({"input": "x"})).ok();
    server.post_bytes(DENSE, "{").refused("invalid_json", "");
    server.get("/health");
    // A method that a route does not take counts for the route.
    for method in [Method::PUT, Method::GET] {
        assert_eq!(server.send(method, DENSE, &[], Vec::new()).status, 405);
    }
    server.post("/embed", &json!({"inputs": "x"})).ok();
    let seen = server.metrics();
    let value = |series: &str| *seen.get(series).unwrap_or_else(|| panic!("{series}: {seen:#?}"));
    for (series, expected) in [
        (r#"duovec_requests_total{route="/v1/embeddings",status="200"}"#, 1.0),
        (r#"duovec_requests_total{route="/v1/embeddings",status="400"}"#, 1.0),
        (r#"duovec_requests_total{route="/v1/embeddings",status="405"}"#, 2.0),
        (r#"duovec_requests_total{route="/v1/embeddings:both",status="200"}"#, 1.0),
        (r#"duovec_requests_total{route="/health",status="200"}"#, 1.0),
        (r#"duovec_requests_total{route="/embed",status="200"}"#, 1.0),
        (r#"duovec_request_errors_total{reason="invalid_json"}"#, 1.0),
        (r#"duovec_items_total{outcome="accepted"}"#, 5.0),
        (r#"duovec_items_total{outcome="replied"}"#, 5.0),
        ("duovec_items_truncated_total", 1.0),
        (r#"duovec_request_seconds_count{route="/v1/embeddings"}"#, 4.0),
        ("duovec_batch_items_sum", 5.0),
        (r#"duovec_workers{state="live"}"#, 2.0),
        ("duovec_ready", 1.0),
    ] {
        assert_eq!(value(series), expected, "{series}");
    }
    for stage in ["parse", "tokenize", "queue", "compute", "select", "serialize"] {
        let count = format!("duovec_request_stage_seconds_count{{stage=\"{stage}\"}}");
        assert_eq!(value(&count), 4.0, "{stage}");
    }
    let real = value(r#"duovec_tokens_total{kind="real"}"#);
    let padded = value(r#"duovec_tokens_total{kind="padded"}"#);
    assert!(real > 0.0 && padded >= real, "{real} of {padded}");
    assert_eq!(value("duovec_batches_total"), value("duovec_batch_seconds_count"));
    assert!(value("process_resident_memory_bytes") > 1e6);
}

#[test]
fn the_index_is_not_counted_with_the_texts_that_are_posted_to_its_path() {
    let server = Server::ready();
    for method in [Method::GET, Method::HEAD, Method::GET] {
        assert_eq!(server.send(method, "/", &[], Vec::new()).status, 200);
    }
    server.post("/", &json!({"inputs": "x"})).ok();
    assert_eq!(server.metric(r#"duovec_requests_total{route="/",status="200"}"#), 1.0);
    assert_eq!(server.metric(r#"duovec_requests_total{route="/ (index)",status="200"}"#), 3.0);
}

#[test]
fn refusals_expiries_and_cancellations_are_counted() {
    let server = Server::ready();
    server.hold();
    let late = [("x-request-timeout-ms", "300")];
    assert_eq!(server.post_with(DENSE, &late, r#"{"input":"late"}"#).status, 504);
    // A client that leaves while its item waits.
    let body = r#"{"input":"gone"}"#;
    let stream = server.open(post(DENSE, "", body));
    server.wait_waiting(1);
    assert_eq!(server.metrics()[r#"duovec_queue_items{priority="interactive"}"#], 1.0);
    assert_eq!(server.metrics()[r#"duovec_workers{state="busy"}"#], 2.0);
    drop(stream);
    wait_for(&server, "duovec_requests_cancelled_total", 1.0);
    server.recover();
    server.fill_queue();
    assert_eq!(server.post_bytes(DENSE, body).status, 429);
    server.recover();
    server.fault(Fault::NotFinite);
    assert_eq!(server.post(DENSE, &json!({"input": ["one", "two"]})).status, 500);
    let seen = server.metrics();
    assert_eq!(seen[r#"duovec_incidents_total{kind="row_not_finite"}"#], 1.0);
    assert_eq!(seen[r#"duovec_incidents_total{kind="row_rescued"}"#], 0.0);
    assert_eq!(seen[r#"duovec_request_errors_total{reason="queue_full"}"#], 1.0);
    assert_eq!(seen[r#"duovec_request_errors_total{reason="deadline_exceeded"}"#], 1.0);
    let ended = |outcome: &str| seen[&format!("duovec_items_total{{outcome=\"{outcome}\"}}")];
    // Whether the queue notices first that the time is over, or the request does.
    assert_eq!(ended("expired"), 1.0, "{seen:#?}");
    assert!(ended("cancelled") >= 1.0, "{seen:#?}");
    // Items of those who did not wait end when their batch does.
    server.wait_until("every item has ended", |server| {
        let seen = server.metrics();
        let count = |outcome| seen[&format!("duovec_items_total{{outcome=\"{outcome}\"}}")];
        let all = ["replied", "failed", "expired", "cancelled", "abandoned"].map(count);
        all.iter().sum::<f64>() == count("accepted")
    });
}

#[test]
fn a_client_that_leaves_within_its_body_counts_as_one_that_left() {
    let server = Server::ready();
    for (left, framing) in ["content-length: 16", "transfer-encoding: chunked"].iter().enumerate() {
        drop(server.open(head(DENSE, &format!("{framing}\r\n")) + "5\r\n"));
        wait_for(&server, "duovec_requests_cancelled_total", left as f64 + 1.0);
    }
    let seen = server.metrics();
    let refused = r#"duovec_request_errors_total{reason="invalid_body"}"#;
    assert_eq!(seen.get(refused), None, "{seen:#?}");
}

#[test]
fn while_loading_there_are_metrics_without_a_model() {
    let server = Server::loading();
    let seen = server.metrics();
    assert_eq!(seen["duovec_ready"], 0.0);
    assert!(!seen.keys().any(|series| series.starts_with("duovec_engine_info")));
    server.become_ready();
    assert_eq!(server.metrics()["duovec_ready"], 1.0);
}

#[test]
fn metrics_want_a_key_when_told_to_and_can_be_off() {
    let server = Server::set(|set| set.http.metrics = false);
    server.get(METRICS).refused("not_found", "").says("--metrics true");
    assert_eq!(server.get("/").ok()["metrics"], Value::Null);
    let said = server.get("/nowhere").refused("not_found", "");
    assert!(!said.0.contains(METRICS), "{}", said.0);
    server.post(DENSE, &json!({"input": "text"})).ok();
    for needed in [false, true] {
        let server = Server::set(|set| {
            set.http.api_keys = vec![ApiKey::new("secret")];
            set.http.metrics_need_key = needed;
        });
        assert_eq!(server.get(METRICS).status, if needed { 401 } else { 200 });
        let shown = [("authorization", "Bearer secret")];
        assert_eq!(server.send(Method::GET, METRICS, &shown, Vec::new()).status, 200);
    }
}
