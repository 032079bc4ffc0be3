//! From the start to the drain: what health says, what is still answered, how the process ends.

use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::drain::REPEAT;
use super::support::{Server, duovec, ready, ready_fake, tiny};

#[tokio::test]
async fn the_tiny_package_is_served_by_openvino() {
    let server = ready(&[]);
    let body = json!({"input": ["hello", "hello world"], "sparse_format": "tokens"});
    let (status, answer) = server.ask("/v1/embeddings%3Aboth", Some(&body)).await;
    assert_eq!(status, 200);
    assert_eq!(answer["data"][0]["embedding"].as_array().map(Vec::len), Some(8));
    assert_eq!(answer["data"][1]["object"], "paired_embedding");
    let (status, deep) = server.ask("/health/deep", None).await;
    assert_eq!((status, &deep["checks"][0]["sparse_ok"]), (200, &json!(true)));
    let (_, health) = server.ask("/health", None).await;
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
    let mut command = duovec();
    command.args(["serve", "--devices", "0,1", "--workers", &workers, "--package"]);
    let mut server = Server::spawn(command.arg(tiny()));
    server.wait_until("/health", |health| health.contains("\"ok\"")).await;
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
    let mut server = ready_fake(&["--fake-run-ms", "3000", "--drain-delay-ms", "0"]);
    let accepted = [(); 3].map(|()| server.begin("a"));
    // On a busy machine some requests come later.
    let all = "duovec_items_total{outcome=\"accepted\"} 3\n";
    server.wait_until("/metrics", |metrics| metrics.contains(all)).await;
    server.signal("TERM");
    server.wait_for("draining");
    let (status, health) = server.ask("/health", None).await;
    assert_eq!((status, &health["status"]), (503, &json!("draining")));
    let refused = server.text("b").send().await.expect("an answer");
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
    let mut server = ready_fake(&["--fake-run-ms", "60000"]);
    let pending = server.begin("a");
    server.wait_for_busy().await;
    server.signal("INT");
    server.wait_for("draining");
    tokio::time::sleep(REPEAT).await;
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1));
    assert!(pending.await.expect("it did not panic").is_err(), "it was not answered");
}

async fn status_with(server: &Server, key: &str) -> u16 {
    server.text("a").bearer_auth(key).send().await.expect("an answer").status().as_u16()
}

/// A key may have a comma: a part of it opens nothing.
#[tokio::test]
async fn a_key_of_a_flag_is_never_split() {
    let server = ready_fake(&["--api-key", "kept,x"]);
    for (key, expected) in [("x", 401), ("kept", 401), ("kept,x", 200)] {
        assert_eq!(status_with(&server, key).await, expected, "{key}");
    }
}

/// The flag may be repeated, and its keys are in no line of the log and in no answer.
#[tokio::test]
async fn keys_of_flags_open_the_routes_and_are_nowhere_shown() {
    let keys = ["--api-key", "kept-1", "--api-key", "kept-2"];
    let mut server = ready_fake(&[&["--log-level", "trace"], &keys[..]].concat());
    for (key, expected) in [("kept-1", 200), ("kept-2", 200), ("other", 401)] {
        assert_eq!(status_with(&server, key).await, expected);
    }
    let health = server.ask("/health", None).await.1.to_string();
    server.signal("TERM");
    let log = server.rest();
    assert!(log.contains("draining"), "{log}");
    assert!(!log.contains("kept-") && !health.contains("kept-"), "{log}{health}");
}
