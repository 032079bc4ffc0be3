//! GET /metrics: what is counted, under which names.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use duovec::metrics::names;
use serde_json::json;
use settings::HttpConfig;
use settings::limits::HeadTimeoutMs;
use settings::secret::ApiKey;

use crate::log::{lines, listen};
use crate::support::{BOTH, DENSE, LONG_TEXT, METRICS, PATIENCE, SPARSE, Server, Trouble};

/// Series (name with labels) and their values.
fn scrape(server: &Server) -> BTreeMap<String, f64> {
    let answer = server.get(METRICS);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let text = String::from_utf8(answer.body).expect("it is UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        (series.to_owned(), value.parse().expect("a number"))
    });
    series.collect()
}

/// Names in the text's own words: what follows `# TYPE`.
fn families(server: &Server) -> BTreeSet<(String, String)> {
    let text = String::from_utf8(server.get(METRICS).body).expect("it is UTF-8");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let pair = |line: &str| {
        let (name, kind) = line.split_once(' ').expect("a name and a kind");
        (name.to_owned(), kind.to_owned())
    };
    types.map(pair).collect()
}

fn wait_for(server: &Server, series: &str, value: f64) {
    let end = std::time::Instant::now() + PATIENCE;
    while scrape(server).get(series) != Some(&value) {
        assert!(std::time::Instant::now() < end, "{series} never was {value}");
        thread::yield_now();
    }
}

#[test]
fn exactly_the_documented_metrics_are_exported() {
    let server = Server::ready();
    // A fit of the cost model, and an answer with an error, so that every family has a series.
    server.predict(Duration::ZERO);
    server.post(DENSE, &json!({"input": "text"})).ok();
    assert_eq!(server.get("/nowhere").status, 404);
    let documented: BTreeSet<(String, String)> = names::METRICS
        .iter()
        .filter(|metric| !metric.labels.contains(&"gpu"))
        .filter(|metric| cfg!(target_os = "linux") || !metric.name.starts_with("process_"))
        .map(|metric| (metric.name.to_owned(), metric.kind.name().to_owned()))
        .collect();
    assert_eq!(families(&server), documented);
}

#[test]
fn refused_heads_are_counted_and_logged_under_the_id_of_their_answer() {
    listen();
    let head_timeout = HeadTimeoutMs::new(100).expect("in range");
    let server = Server::with(HttpConfig { head_timeout, ..HttpConfig::default() });
    let large = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(70_000));
    for (head, status, code) in [
        ("no http at all\r\n\r\n", 400, "malformed_head"),
        (&large, 431, "head_too_large"),
        ("GET / HTTP/1.1\r\nhost: x", 408, "head_timeout"),
    ] {
        let answer = server.exchange(head.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        let id = id.unwrap_or_else(|| panic!("it has no id: {answer}"));
        let lines = lines(id);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["level"], "DEBUG");
        let fields = &lines[0]["fields"];
        assert_eq!((&fields["status"], &fields["route"]), (&json!(status), &json!("none")));
        let seen = scrape(&server);
        let answers = format!("duovec_requests_total{{route=\"none\",status=\"{status}\"}}");
        let errors = format!("duovec_request_errors_total{{reason=\"{code}\"}}");
        assert_eq!((seen.get(&answers), seen.get(&errors)), (Some(&1.0), Some(&1.0)), "{seen:#?}");
    }
}

#[test]
fn requests_items_and_tokens_are_counted() {
    let server = Server::ready();
    server.post(DENSE, &json!({"input": ["one", "two three"]})).ok();
    server.post(SPARSE, &json!({"input": LONG_TEXT})).ok();
    server.post(BOTH, &json!({"input": "x"})).ok();
    server.post_bytes(DENSE, "{").error();
    server.get("/health");
    let seen = scrape(&server);
    let value = |series: &str| *seen.get(series).unwrap_or_else(|| panic!("{series}: {seen:#?}"));
    assert_eq!(value(r#"duovec_requests_total{route="/v1/embeddings",status="200"}"#), 1.0);
    assert_eq!(value(r#"duovec_requests_total{route="/v1/embeddings",status="400"}"#), 1.0);
    assert_eq!(value(r#"duovec_requests_total{route="/v1/embeddings:both",status="200"}"#), 1.0);
    assert_eq!(value(r#"duovec_requests_total{route="/health",status="200"}"#), 1.0);
    assert_eq!(value(r#"duovec_request_errors_total{reason="invalid_json"}"#), 1.0);
    assert_eq!(value(r#"duovec_items_total{outcome="accepted"}"#), 4.0);
    assert_eq!(value(r#"duovec_items_total{outcome="replied"}"#), 4.0);
    assert_eq!(value("duovec_items_truncated_total"), 1.0);
    assert_eq!(value(r#"duovec_request_seconds_count{route="/v1/embeddings"}"#), 2.0);
    for stage in ["parse", "tokenize", "queue", "compute", "select", "serialize"] {
        let count = format!("duovec_request_stage_seconds_count{{stage=\"{stage}\"}}");
        assert_eq!(value(&count), 3.0, "{stage}");
    }
    let real = value(r#"duovec_tokens_total{kind="real"}"#);
    let padded = value(r#"duovec_tokens_total{kind="padded"}"#);
    assert!(real > 0.0 && padded >= real, "{real} of {padded}");
    assert_eq!(value("duovec_batch_items_sum"), 4.0);
    assert_eq!(value("duovec_batches_total"), value("duovec_batch_seconds_count"));
    assert_eq!(value(r#"duovec_workers{state="live"}"#), 2.0);
    assert_eq!(value("duovec_ready"), 1.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
}

#[test]
fn refusals_expiries_and_cancellations_are_counted() {
    let server = Server::ready();
    server.hold();
    let late = [("x-request-timeout-ms", "20")];
    assert_eq!(server.post_with(DENSE, &late, r#"{"input":"late"}"#).status, 504);
    // A client that leaves while its item waits.
    let body = r#"{"input":"gone"}"#;
    let head =
        format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut stream = server.connect();
    std::io::Write::write_all(&mut stream, format!("{head}{body}").as_bytes()).expect("it is sent");
    server.wait_waiting(1);
    assert_eq!(scrape(&server)[r#"duovec_queue_items{priority="interactive"}"#], 1.0);
    assert_eq!(scrape(&server)[r#"duovec_workers{state="busy"}"#], 2.0);
    drop(stream);
    wait_for(&server, "duovec_requests_cancelled_total", 1.0);
    server.recover();
    server.prepare(Trouble::QueueFull);
    assert_eq!(server.post_bytes(DENSE, body).status, 429);
    server.recover();
    let seen = scrape(&server);
    assert_eq!(seen[r#"duovec_request_errors_total{reason="queue_full"}"#], 1.0);
    assert_eq!(seen[r#"duovec_request_errors_total{reason="deadline_exceeded"}"#], 1.0);
    let ended = |outcome: &str| seen[&format!("duovec_items_total{{outcome=\"{outcome}\"}}")];
    // Either the queue notices first that the time is over, or the request does.
    assert!(ended("cancelled") + ended("expired") >= 2.0, "{seen:#?}");
    let all = ["replied", "failed", "expired", "cancelled", "abandoned"].map(ended);
    assert_eq!(all.iter().sum::<f64>(), ended("accepted"));
}

#[test]
fn a_method_that_a_route_does_not_take_counts_for_the_route() {
    let server = Server::ready();
    for method in [reqwest::Method::PUT, reqwest::Method::GET] {
        assert_eq!(server.send(method, DENSE, &[], Vec::new()).status, 405);
    }
    let seen = scrape(&server);
    let series = r#"duovec_requests_total{route="/v1/embeddings",status="405"}"#;
    assert_eq!(seen.get(series), Some(&2.0), "{seen:#?}");
}

#[test]
fn a_client_that_leaves_within_its_body_counts_as_one_that_left() {
    let server = Server::ready();
    for (left, framing) in ["content-length: 16", "transfer-encoding: chunked"].iter().enumerate() {
        let mut stream = server.connect();
        let request = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n5\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it is open");
        drop(stream);
        wait_for(&server, "duovec_requests_cancelled_total", left as f64 + 1.0);
    }
    let seen = scrape(&server);
    let refused = r#"duovec_request_errors_total{reason="invalid_body"}"#;
    assert_eq!(seen.get(refused), None, "{seen:#?}");
}

#[test]
fn rows_that_are_not_finite_are_counted() {
    let server = Server::ready();
    server.prepare(Trouble::NonFinite);
    // The next run of the second text.
    assert_eq!(server.post(DENSE, &json!({"input": ["one", "two"]})).status, 500);
    let seen = scrape(&server);
    assert_eq!(seen[r#"duovec_incidents_total{kind="row_not_finite"}"#], 1.0);
    assert_eq!(seen[r#"duovec_incidents_total{kind="row_rescued"}"#], 0.0);
}

#[test]
fn while_loading_there_are_metrics_without_a_model() {
    let server = Server::loading(HttpConfig::default());
    let seen = scrape(&server);
    assert_eq!(seen["duovec_ready"], 0.0);
    assert!(!seen.keys().any(|series| series.starts_with("duovec_engine_info")));
    server.become_ready();
    assert_eq!(scrape(&server)["duovec_ready"], 1.0);
}

#[test]
fn metrics_that_are_off_are_not_found() {
    let server = Server::with(HttpConfig { metrics: false, ..HttpConfig::default() });
    server.get(METRICS).error().is(404, "not_found_error", "not_found", None);
    server.post(DENSE, &json!({"input": "text"})).ok();
}

#[test]
fn metrics_want_a_key_when_told_to() {
    for needed in [false, true] {
        let api_keys = vec![ApiKey::new("secret".to_owned())];
        let config = HttpConfig { api_keys, metrics_need_key: needed, ..HttpConfig::default() };
        let server = Server::with(config);
        assert_eq!(server.get(METRICS).status, if needed { 401 } else { 200 });
        let shown = [("authorization", "Bearer secret")];
        assert_eq!(server.send(reqwest::Method::GET, METRICS, &shown, Vec::new()).status, 200);
    }
}
