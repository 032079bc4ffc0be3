//! From the start to the drain: what health says, what is still answered, how the process ends.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::drain::REPEAT;
use super::support::{Server, client, tiny};

fn arguments(more: &[&str]) -> Vec<String> {
    let package = tiny().to_string_lossy().into_owned();
    let mut all = vec!["--package".to_owned(), package];
    all.extend(more.iter().map(|&argument| argument.to_owned()));
    all
}

pub(crate) fn ready(more: &[&str]) -> Server {
    let all = arguments(more);
    Server::ready(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

#[tokio::test]
async fn the_tiny_package_is_served_by_openvino() {
    let server = ready(&[]);
    let body = json!({"input": ["hello", "hello world"], "sparse_format": "tokens"});
    let request = client().post(server.url("/v1/embeddings%3Aboth")).json(&body);
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let answer: Value = answer.json().await.expect("JSON");
    assert_eq!(answer["data"][0]["embedding"].as_array().map(Vec::len), Some(8));
    assert_eq!(answer["data"][1]["object"], "paired_embedding");
    let deep = client().get(server.url("/health/deep")).send().await.expect("an answer");
    assert_eq!(deep.status(), StatusCode::OK);
    let deep: Value = deep.json().await.expect("JSON");
    assert_eq!(deep["checks"][0]["sparse_ok"], true);
    let health: Value =
        client().get(server.url("/health")).send().await.expect("one").json().await.expect("JSON");
    assert_eq!(health["engine"], "openvino");
    // Nobody builds it again for a GPU that is not there.
    let reason = health["tuning"]["engine_reason"].as_str().expect("a text");
    let has_gpu = Path::new("/proc/driver/nvidia").exists();
    assert!(has_gpu || !reason.contains("--features"), "{reason}");
    assert_eq!(health["workers"]["live"], health["workers"]["total"]);
    let measured = health["tuning"]["measured"].as_array().expect("a list");
    let short_text_ms = measured[0]["short_text_ms"].as_f64();
    assert!(short_text_ms.is_some_and(|ms| ms > 0.0), "{measured:?}");
}

#[tokio::test]
async fn what_the_engine_does_not_use_and_what_the_machine_does_not_have_is_said() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = (cores + 1).to_string();
    let arguments = arguments(&["--devices", "0,1", "--workers", &workers]);
    let mut server = Server::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    wait_until(&client(), &server, "/health", |health| health.contains("\"ok\"")).await;
    server.signal("TERM");
    let log = server.rest();
    for warning in ["--devices names GPUs", "processor threads"] {
        assert_eq!(log.matches(warning).count(), 1, "'{warning}': {log}");
    }
}

/// SIGTERM in the middle of a run: health goes 503, new requests are refused, what was accepted is
/// answered, and the exit code is 0.
#[tokio::test]
async fn sigterm_drains_and_exits_with_zero() {
    let mut server = ready(&["--engine", "fake", "--fake-run-ms", "3000", "--drain-delay-ms", "0"]);
    let client = client();
    let accepted: Vec<_> = (0..3)
        .map(|_| {
            let request = client.post(server.url("/v1/embeddings")).json(&json!({"input": "a"}));
            tokio::spawn(request.send())
        })
        .collect();
    wait_for_accepted(&client, &server, accepted.len()).await;
    server.signal("TERM");
    server.wait_for("draining");
    let health = client.get(server.url("/health")).send().await.expect("an answer");
    assert_eq!(health.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(health.json::<Value>().await.expect("JSON")["status"], "draining");
    let refused = client.post(server.url("/v1/embeddings")).json(&json!({"input": "b"}));
    let refused = refused.send().await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refused.json::<Value>().await.expect("JSON")["error"]["code"], "draining");
    for answer in accepted {
        let answer = answer.await.expect("it did not panic").expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(server.wait().code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_drain() {
    let mut server = ready(&["--engine", "fake", "--fake-run-ms", "60000"]);
    let client = client();
    let request = client.post(server.url("/v1/embeddings")).json(&json!({"input": "a"}));
    let pending = tokio::spawn(request.send());
    wait_for_busy(&client, &server).await;
    server.signal("INT");
    server.wait_for("draining");
    tokio::time::sleep(REPEAT).await;
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1));
    assert!(pending.await.expect("it did not panic").is_err(), "it was not answered");
}

/// Asks until a worker runs, so that the next signal meets a request in flight.
pub(crate) async fn wait_for_busy(client: &reqwest::Client, server: &Server) {
    let is_busy =
        |health: &str| serde_json::from_str::<Value>(health).expect("JSON")["workers"]["busy"] == 1;
    wait_until(client, server, "/health", is_busy).await;
}

/// Asks until this many items were accepted: on a busy machine some requests come later.
async fn wait_for_accepted(client: &reqwest::Client, server: &Server, items: usize) {
    let line = format!("duovec_items_total{{outcome=\"accepted\"}} {items}\n");
    wait_until(client, server, "/metrics", |metrics| metrics.contains(&line)).await;
}

/// Asks this path until the answer is as wanted.
async fn wait_until(
    client: &reqwest::Client,
    server: &Server,
    path: &str,
    wanted: impl Fn(&str) -> bool,
) {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        let answer = client.get(server.url(path)).send().await.expect("an answer");
        if wanted(&answer.text().await.expect("text")) {
            return;
        }
    }
    panic!("{path} never had what was waited for");
}

async fn status_with(server: &Server, key: &str) -> u16 {
    let request = client().post(server.url("/v1/embeddings")).json(&json!({"input": "a"}));
    request.bearer_auth(key).send().await.expect("an answer").status().as_u16()
}

/// A key may have a comma: a part of it opens nothing.
#[tokio::test]
async fn a_key_of_a_flag_is_never_split() {
    let server = ready(&["--engine", "fake", "--api-key", "kept,x"]);
    for (key, expected) in [("x", 401), ("kept", 401), ("kept,x", 200)] {
        assert_eq!(status_with(&server, key).await, expected, "{key}");
    }
}

/// The flag may be repeated, and its keys are in no line of the log and in no answer.
#[tokio::test]
async fn keys_of_flags_open_the_routes_and_are_nowhere_shown() {
    let flags = ["--engine", "fake", "--log-level", "trace"];
    let mut server = ready(&[&flags[..], &["--api-key", "kept-1", "--api-key", "kept-2"]].concat());
    for (key, expected) in [("kept-1", 200), ("kept-2", 200), ("other", 401)] {
        assert_eq!(status_with(&server, key).await, expected);
    }
    let health = client().get(server.url("/health")).send().await.expect("an answer");
    let health = health.text().await.expect("a text");
    server.signal("TERM");
    let log = server.rest();
    assert!(log.contains("draining"), "{log}");
    assert!(!log.contains("kept-") && !health.contains("kept-"), "{log}{health}");
}
