//! What a server that is ready says of its engine, of the machine and of its keys.

use std::path::Path;

use super::support::*;

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

/// A key may have a comma: a part of it opens nothing. Keys are in no line of the log and in no
/// answer.
#[tokio::test]
async fn a_key_of_a_flag_is_never_split_and_nowhere_shown() {
    let keys = ["--api-key", "kept-1,x", "--api-key", "kept-2"];
    let mut server = ready_fake(&[&["--log-level", "trace"], &keys[..]].concat());
    for (key, expected) in
        [("kept-1,x", 200), ("kept-2", 200), ("x", 401), ("kept-1", 401), ("other", 401)]
    {
        let answer = server.text("a").bearer_auth(key).send().await.expect("an answer");
        assert_eq!(answer.status(), expected, "{key}");
    }
    let health = server.ask("/health", None).await.1.to_string();
    server.signal("TERM");
    let log = server.rest();
    assert!(log.contains("draining"), "{log}");
    assert!(!log.contains("kept-") && !health.contains("kept-"), "{log}{health}");
}
