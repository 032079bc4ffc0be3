//! What is left of a request: a line of the log, counts, and a span of its trace.

use std::io::Write;

use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};

use crate::collector::Collector;
use crate::log::{line, listen, log};
use crate::support::*;
use crate::traces::{PARENT, TRACE, attributes, ended};

const TEXTS: &str = r#"{"input":["words-kept secret","two"]}"#;

/// The fields of the line of an answer, which is counted once by its route and by its error.
#[track_caller]
fn recorded(server: &Server, answer: &Answer, level: &str, route: &str, code: &str) -> Value {
    let line = line(answer.header("x-request-id").expect("an id"));
    let (fields, status) = (&line["fields"], answer.status);
    assert_eq!((&line["level"], &fields["route"]), (&json!(level), &json!(route)), "{line}");
    assert_eq!(fields["status"], status, "{line}");
    assert!(route != DENSE || fields["ms"].as_f64() > Some(0.0), "{line}");
    let answers = format!("duovec_requests_total{{route=\"{route}\",status=\"{status}\"}}");
    assert_eq!(server.metric(&answers), 1.0, "{line}");
    if !code.is_empty() {
        let errors = format!("duovec_request_errors_total{{reason=\"{code}\"}}");
        assert_eq!(server.metric(&errors), 1.0, "{line}");
    }
    line["fields"].clone()
}

/// Why there are no vectors, the status, and whether it is a fault, by a request's span.
fn outcome(span: Span) -> Value {
    let found = attributes(&span);
    let is_error = span.status.is_some_and(|told| told.code == StatusCode::Error as i32);
    json!([found.get("error.type"), found.get("http.response.status_code"), is_error])
}

#[test]
fn every_answer_has_an_id_a_line_and_counts_and_what_was_sent_is_in_none() {
    listen();
    let collector = Collector::start();
    let server = Server::set(|set| {
        set.http.api_keys = vec![ApiKey::new("key-kept-secret")];
        set.http.cors_origins = vec!["https://ours.example".to_owned()];
        set.http.head_timeout = number(100);
        set.http.traces = collector.traces("1");
    });
    let ask = |method: Method, path: &str, id: &str, headers: &[(&str, &str)], body: &str| {
        let headers = [&[("x-request-id", id)], headers].concat();
        let answer = server.send_unchecked(method, path, &headers, body.into());
        assert_eq!(answer.header("x-request-id"), Some(id));
        answer
    };
    let key = ("authorization", "Bearer key-kept-secret");
    let answer = ask(Method::POST, DENSE, "record-ok", &[key], TEXTS);
    let fields = recorded(&server, &answer, "DEBUG", DENSE, "");
    assert_eq!((&fields["items"], &fields["tokens"]), (&json!(2), &json!(7)));
    let answer = ask(Method::POST, DENSE, "record-json", &[key], "{kept");
    recorded(&server, &answer, "DEBUG", DENSE, "invalid_json");
    server.fault(Fault::Fail);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let answer = ask(Method::POST, DENSE, "record-fault", &[key, ("traceparent", &parent)], TEXTS);
    let fields = recorded(&server, &answer, "ERROR", DENSE, "engine_failed");
    assert!(fields["cause"].as_str().is_some_and(|cause| cause.contains("Secret")), "{fields}");
    assert_eq!(fields["trace_id"], TRACE);
    let span = fields["span_id"].as_str().expect("an id");
    assert!(span.len() == 16 && span != PARENT, "{span}");
    for (origin, code) in [("https://ours.example", ""), ("https://x.example", "preflight_refused")]
    {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        let answer = ask(Method::OPTIONS, DENSE, &format!("record-{origin}"), &headers, "");
        recorded(&server, &answer, "DEBUG", "preflight", code);
    }
    let large = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(70_000));
    for (head, code) in [
        ("no http at all\r\n\r\n", "malformed_head"),
        (&large, "head_too_large"),
        ("GET / HTTP/1.1\r\nhost: x", "head_timeout"),
    ] {
        let mut stream = server.connect();
        // The server may close before it has read everything.
        let _ = stream.write_all(head.as_bytes());
        let answer = stream.answer();
        answer.refused(code, "");
        recorded(&server, &answer, "DEBUG", "none", code);
    }
    server.hold();
    let headers = format!("{}: {}\r\nx-request-id: record-left\r\n", key.0, key.1);
    let stream = server.open(post(DENSE, &headers, TEXTS));
    server.wait_waiting(2);
    drop(stream);
    server.wait_until("the log says who left", |_| log().contains("record-left"));
    let left = line("record-left")["fields"]["message"].to_string();
    assert!(left.contains("left"), "{left}");
    server.release();
    server.drain();
    // Probes that say no are nothing to be told of.
    let answer = ask(Method::GET, "/health", "record-probe", &[], "");
    assert_eq!(answer.status, 503);
    recorded(&server, &answer, "DEBUG", "/health", "");
    assert!(!log().contains("kept"), "what was sent is in the log");
    let told = ended(server, &collector).into_iter().filter(|span| span.name.contains('/'));
    let expected = json!([
        [null, "200", false],
        ["invalid_json", "400", false],
        ["engine_failed", "500", true],
        ["client_left", null, false],
    ]);
    assert_eq!(told.map(outcome).collect::<Value>(), expected);
}
