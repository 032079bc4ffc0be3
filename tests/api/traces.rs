//! Traces: whose they are, what is in them, and that they stand in nobody's way.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};

use crate::collector::Collector;
use crate::support::*;

pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(crate) const PARENT: &str = "00f067aa0ba902b7";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Attributes as text, by name.
pub(crate) fn attributes(span: &Span) -> BTreeMap<String, String> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let pairs = span.attributes.iter();
    pairs.map(|pair| (pair.key.clone(), text(pair.value.clone().and_then(|v| v.value)))).collect()
}

/// Everything that the server exported until its end, which flushes.
pub(crate) fn ended(mut server: Server, collector: &Collector) -> Vec<Span> {
    server.begin_stop();
    server.join();
    collector.spans()
}

#[test]
fn a_request_is_a_span_of_its_callers_trace_with_a_child_for_each_stage() {
    let collector = Collector::start();
    let server = Server::set(|set| set.http.traces = collector.traces("0"));
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let body = json!({"input": ["one", "two three"]}).to_string();
    server.post_with(BOTH, &[("traceparent", &parent)], body).ok();
    let spans = ended(server, &collector);
    let (root, stages) = spans.split_first().expect("there are spans");
    assert_eq!(hex(&root.trace_id), TRACE);
    assert_eq!(hex(&root.parent_span_id), PARENT);
    assert_eq!(root.name, format!("POST {BOTH}"));
    assert_eq!(root.kind, SpanKind::Server as i32);
    let expected = [
        ("duovec.items", "2"),
        ("duovec.tokens", "7"),
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("http.route", BOTH),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(attributes(root), BTreeMap::from(expected));
    let names: Vec<&str> = stages.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["parse", "tokenize", "queue", "compute", "select", "serialize"]);
    let mut begun = root.start_time_unix_nano;
    for stage in stages {
        assert_eq!(stage.trace_id, root.trace_id);
        assert_eq!(stage.parent_span_id, root.span_id);
        assert_eq!(stage.start_time_unix_nano, begun, "{}", stage.name);
        assert!(stage.end_time_unix_nano >= begun, "{}", stage.name);
        assert!(stage.attributes.is_empty());
        begun = stage.end_time_unix_nano;
    }
    // Behind the last stage only the head of the answer is put together.
    assert!(begun <= root.end_time_unix_nano);
    let rest = Duration::from_nanos(root.end_time_unix_nano - begun);
    assert!(rest < Duration::from_secs(5), "{rest:?}");
    let mut ids: Vec<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
}

#[test]
fn without_a_fit_parent_a_trace_is_new_and_without_its_flag_none_is_kept() {
    let collector = Collector::start();
    let server = Server::set(|set| set.http.traces = collector.traces("1"));
    let body = TEXT;
    let parent = |flags: &str| format!("00-{TRACE}-{PARENT}-{flags}");
    // One that is not sampled, one that is malformed, two, and none.
    for parents in [vec![parent("00")], vec![parent("1")], vec![parent("01"); 2], vec![]] {
        let headers: Vec<_> = parents.iter().map(|parent| ("traceparent", &**parent)).collect();
        server.post_with(DENSE, &headers, body).ok();
    }
    let spans = ended(server, &collector);
    let roots: Vec<&Span> = spans.iter().filter(|span| span.name.contains('/')).collect();
    assert_eq!(roots.len(), 3);
    for root in roots {
        assert!(root.parent_span_id.is_empty());
        assert_ne!(hex(&root.trace_id), TRACE);
    }
}

#[test]
fn what_is_polled_all_day_has_no_trace() {
    let collector = Collector::start();
    let server = Server::set(|set| set.http.traces = collector.traces("1"));
    for path in ["/health", "/health/live", "/health/deep", METRICS, "/nowhere"] {
        server.get(path);
    }
    server.get("/v1/models").ok();
    let names: Vec<String> = ended(server, &collector).into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["GET /v1/models"]);
}

#[test]
fn no_text_key_or_vector_leaves_with_a_trace() {
    let collector = Collector::start();
    let server = Server::set(|set| {
        set.http.api_keys = vec![ApiKey::new("key-kept-secret")];
        set.http.traces = collector.traces("1");
    });
    let headers = [
        ("authorization", "Bearer key-kept-secret"),
        ("x-request-id", "id-kept-secret"),
        ("tracestate", "state=kept-secret"),
    ];
    let body = r#"{"input":"words-kept-secret","encoding_format":"base64","user":"kept-secret"}"#;
    let answer = server.post_with(DENSE, &headers, body).ok();
    let vector = answer["data"][0]["embedding"].as_str().expect("base64").to_owned();
    server.post_with("/v1/models/model-kept-secret", &headers, "");
    server.send(reqwest::Method::GET, "/v1/models/model-kept-secret?kept", &headers, Vec::new());
    assert_eq!(ended(server, &collector).len(), 7 + 1);
    for body in collector.bodies() {
        let text = String::from_utf8_lossy(&body);
        assert!(!text.contains("kept"), "{text}");
        assert!(!text.contains(&vector[..12]), "{text}");
    }
}

#[test]
fn a_collector_that_is_away_stands_in_nobodys_way() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", gone.local_addr().expect("it is bound"));
    drop(gone);
    let mut server = Server::set(|set| set.http.traces.endpoint = Some(endpoint));
    for _ in 0..50 {
        server.post_bytes(DENSE, TEXT).ok();
    }
    let start = Instant::now();
    server.begin_stop();
    server.join();
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
}
