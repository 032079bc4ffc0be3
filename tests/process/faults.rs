//! What goes wrong around the server: batches that do not end.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::lifecycle::ready;
use super::support::{Server, client};

async fn ask(server: &Server) -> (StatusCode, Value) {
    let request = client().post(server.url("/v1/embeddings")).json(&json!({"input": "a"}));
    let answer = request.send().await.expect("an answer");
    (answer.status(), answer.json().await.expect("JSON"))
}

async fn health(server: &Server) -> (StatusCode, Value) {
    let answer = client().get(server.url("/health")).send().await.expect("an answer");
    (answer.status(), answer.json().await.expect("JSON"))
}

#[tokio::test]
async fn a_batch_that_hangs_is_answered_and_fails_readiness_until_it_ends() {
    let server = ready(&["--engine", "fake", "--fake-run-ms", "3000", "--worker-stuck-ms", "200"]);
    let begin = Instant::now();
    let (status, body) = ask(&server).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (503, &json!("no_worker")));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    let (status, body) = health(&server).await;
    assert_eq!((status.as_u16(), &body["status"]), (503, &json!("failed")));
    assert_eq!(body["failure"], "stuck workers: 1");
    while health(&server).await.0 != StatusCode::OK {
        assert!(begin.elapsed() < Duration::from_secs(30), "the batch has ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_batch_that_hangs_ends_the_process_when_told_to() {
    let more = ["--fake-run-ms", "60000", "--worker-stuck-ms", "200", "--exit-on-stuck", "true"];
    let server = ready(&[&["--engine", "fake"], &more[..]].concat());
    let begin = Instant::now();
    assert_eq!(ask(&server).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.wait().code(), Some(1));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}
