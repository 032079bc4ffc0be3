//! SIGTERM under load: health says no first, every answer closes its connection, none is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Response, StatusCode, header};
use tokio::task::{JoinHandle, JoinSet};

use super::support::*;

const CLIENTS: usize = 64;

/// Signals that come sooner behind the first one are one signal with it.
const REPEAT: Duration = Duration::from_millis(600);

/// Asks again and again on one connection until told to leave, as clients of a load balancer do;
/// how many answers it got.
async fn ask(url: String, asked: Arc<AtomicUsize>) -> usize {
    let client = client();
    let mut answered = 0;
    loop {
        asked.fetch_add(1, Ordering::Relaxed);
        let request = client.post(&url).json(&json!({"input": "some words"}));
        let answer = request.send().await.expect("every request is answered");
        assert_eq!(answer.status(), StatusCode::OK);
        let leave = answer.headers().get(header::CONNECTION).is_some_and(|value| value == "close");
        let body: Value = answer.json().await.expect("the answer is whole");
        assert_eq!(body["data"][0]["index"], 0);
        answered += 1;
        if leave {
            return answered;
        }
    }
}

#[tokio::test]
async fn sigterm_under_load_of_64_clients_fails_no_request() {
    let server = ready_fake(&["--fake-run-ms", "20", "--drain-delay-ms", "4000"]);
    let asked = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(ask(server.url("/v1/embeddings"), Arc::clone(&asked)));
    }
    while asked.load(Ordering::Relaxed) < 4 * CLIENTS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.signal("TERM");
    let answered: usize = clients.join_all().await.iter().sum();
    let asked = asked.load(Ordering::Relaxed);
    println!(
        "{CLIENTS} clients: {asked} requests, {answered} answered, {} failed",
        asked - answered
    );
    assert_eq!(asked, answered);
    assert_eq!(server.wait().code(), Some(0));
}

/// Health says no at once, requests are taken until the delay is over.
#[tokio::test]
async fn health_says_no_before_requests_are_refused() {
    let mut server = ready_fake(&["--drain-delay-ms", "600000"]);
    server.signal("TERM");
    server.wait_for("not ready any more");
    let health = client().get(server.url("/health")).send().await.expect("an answer");
    assert_eq!(health.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(health.headers()[header::CONNECTION], "close");
    assert_eq!(health.json::<Value>().await.expect("JSON")["status"], "draining");
    assert_eq!(server.text("a").send().await.expect("an answer").status(), StatusCode::OK);
    tokio::time::sleep(REPEAT).await;
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1), "a second signal ends the process at once");
}

/// Nothing was accepted, so the drain ends at once; the end waits for a body that never comes.
#[tokio::test]
async fn a_second_signal_is_heard_at_the_step_from_the_drain_to_the_end() {
    let mut server = ready_fake(&["--drain-delay-ms", "700"]);
    let _half = server.half_a_request();
    server.signal("TERM");
    server.wait_for("draining");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1), "it is no repetition of the first one");
}

/// GNU `timeout` signals its child, and then the whole group with the child in it.
#[tokio::test]
async fn a_signal_that_is_repeated_at_once_is_one_signal() {
    let mut server = ready_fake(&["--drain-delay-ms", "600"]);
    server.signals(&["TERM", "INT", "TERM"]);
    assert_eq!(server.wait_within(PATIENCE).and_then(|end| end.code()), Some(0));
}

/// Two requests of a server with one worker.
async fn one_runs_and_one_waits(server: &Server) -> [JoinHandle<reqwest::Result<Response>>; 2] {
    let running = server.begin("a");
    server.wait_for_busy().await;
    // Too long for the batch of the first, so that it waits.
    let waiting = server.begin(&"a ".repeat(20));
    server.wait_until("/health", |health| health.contains("\"queue_depth\":1,")).await;
    [running, waiting]
}

/// None of these asks for an end, but each of them ends a process that does not expect it.
#[tokio::test]
async fn signals_that_mean_nothing_here_end_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("duovec.sock");
    let path = socket.to_str().expect("it is UTF-8");
    let mut server = ready_fake(&["--drain-delay-ms", "0", "--unix-socket", path]);
    server.signals(&["HUP", "USR1", "USR2", "ALRM"]);
    server.wait_for("SIGHUP");
    assert_eq!(server.ask("/health", None).await.1["status"], "ok");
    server.stop();
    assert!(!socket.exists(), "the socket's file is left");
}

/// One runs, one waits, and the texts of one are tokenized.
#[tokio::test]
async fn whatever_was_accepted_when_the_drain_begins_is_answered() {
    // On a busy machine the ten megabytes of the third take longer than requests usually may.
    let patient = ["--request-timeout-ms", "200000", "--drain-timeout-ms", "200000"];
    let more = ["--fake-run-ms", "2000", "--drain-delay-ms", "0"];
    let server = ready_fake(&[more, patient].concat());
    let [running, waiting] = one_runs_and_one_waits(&server).await;
    let wait_ms = |health: &str| {
        let health: Value = serde_json::from_str(health).expect("JSON");
        health["predicted_wait_ms"].as_f64().expect("a number")
    };
    let before_ms = wait_ms(&server.read("/health").await);
    let large = json!({"input": vec!["a b ".repeat(250_000); 10]});
    let large = tokio::spawn(client().post(server.url("/v1/embeddings")).json(&large).send());
    // Room is reserved for ten texts, although one run will do.
    server.wait_until("/health", |health| wait_ms(health) > 5.0 * before_ms).await;
    server.signal("TERM");
    for asked in [running, waiting, large] {
        let answer = asked.await.expect("it did not panic").expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(server.wait().code(), Some(0));
}

/// What is not answered when the time is over is answered with 503 or cut, and the process ends.
#[tokio::test]
async fn the_drain_has_a_deadline() {
    let more = ["--fake-run-ms", "60000", "--drain-delay-ms", "0", "--drain-timeout-ms", "100"];
    let server = ready_fake(&more);
    let [running, waiting] = one_runs_and_one_waits(&server).await;
    let begin = Instant::now();
    server.signal("TERM");
    let answer = waiting.await.expect("it did not panic").expect("an answer");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(running.await.expect("it did not panic").is_err(), "it is cut");
    assert_eq!(server.wait().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

/// A batch that hangs while the process ends is as bad as one before: the process says so.
#[tokio::test]
async fn a_worker_lost_during_the_drain_ends_with_a_failure() {
    let more = ["--fake-run-ms", "60000", "--worker-stuck-ms", "5000", "--exit-on-stuck", "true"];
    let drain = ["--drain-delay-ms", "0", "--drain-timeout-ms", "60000"];
    let mut server = ready_fake(&[&more[..], &drain].concat());
    let asked = server.begin("a");
    server.wait_for_busy().await;
    server.signal("TERM");
    server.wait_for("draining");
    let answer = asked.await.expect("it did not panic").expect("an answer");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let log = server.rest();
    assert!(!log.contains("nothing that was accepted is left"), "{log}");
    assert!(log.contains("the model cannot be run any more"), "{log}");
    assert_eq!(server.wait().code(), Some(1));
}
