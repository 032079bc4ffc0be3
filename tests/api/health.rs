//! GET /health, /health/deep, /health/live in every phase.

use std::io::{Read, Write};
use std::net::TcpStream;

use clock::Moment;
use duovec::health::DeepReport;
use duovec::progress::StartStage;
use futures_util::future::{FutureExt, join, join_all};
use reqwest::Method;
use scheduling::batch::TokenIds;
use serde_json::{Value, json};
use settings::HttpConfig;

use crate::package::TWO_ID;
use crate::support::{
    Answer, CANARY, DENSE, MAX_TOKENS, METRICS, MODEL, PATIENCE, Server, WORKERS,
};

/// Clients that ask for the deep check at the same time.
const CHECKERS: usize = 64;

fn status(answer: &Answer) -> (u16, Value) {
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    (answer.status, answer.json()["status"].clone())
}

#[test]
fn health_tells_what_the_contract_lists() {
    let server = Server::ready();
    let body = server.get("/health").ok();
    let mut keys: Vec<_> = body.as_object().expect("an object").keys().cloned().collect();
    keys.sort_unstable();
    let expected = [
        "engine",
        "max_input_tokens",
        "model",
        "predicted_wait_ms",
        "queue_depth",
        "queue_tokens",
        "status",
        "tuning",
        "uptime_s",
        "workers",
    ];
    assert_eq!(keys, expected);
    assert_eq!(body["model"], MODEL);
    assert!(body["engine"].is_string());
    assert_eq!(body["workers"]["live"], body["workers"]["total"]);
    assert!(body["workers"]["busy"].is_u64());
    assert_eq!(body["max_input_tokens"], MAX_TOKENS);
    assert!(body["queue_depth"].is_u64() && body["queue_tokens"].is_u64());
    assert!(body["predicted_wait_ms"].is_f64() && body["uptime_s"].is_f64());
    assert!(body["tuning"].as_object().is_some_and(|tuning| !tuning.is_empty()));
    // The tests' tokenizer is not XLM-R's, so the crate `tokenizers` reads it.
    assert_eq!(body["tuning"]["tokenizer_normalization"], "huggingface");
}

#[test]
fn health_follows_the_phase() {
    let server = Server::loading(HttpConfig::default());
    let answer = server.get("/health");
    assert_eq!(status(&answer), (503, json!("loading")));
    let body = answer.json();
    assert_eq!(body["model"], Value::Null);
    assert_eq!(body["engine"], Value::Null);
    assert_eq!(body["tuning"], json!({}));
    server.become_ready();
    assert_eq!(status(&server.get("/health")), (200, json!("ok")));
    server.lose_worker();
    assert_eq!(status(&server.get("/health")), (200, json!("degraded")));
    server.drain();
    assert_eq!(status(&server.get("/health")), (503, json!("draining")));
    server.fail();
    let answer = server.get("/health");
    assert_eq!(status(&answer), (503, json!("failed")));
    assert!(answer.json()["failure"].is_string());
}

#[test]
fn health_tells_how_far_a_start_is() {
    let server = Server::loading(HttpConfig::default());
    let progress = server.service().progress();
    let told = || server.get("/health").json()["progress"].clone();
    assert_eq!(told(), Value::Null);
    progress.enter(StartStage::WarmUp, None, 8, Moment::START);
    progress.advance();
    let told_parts = told();
    assert_eq!(told_parts["stage"], "warm_up");
    assert_eq!((&told_parts["shapes"], &told_parts["shapes_done"]), (&json!(8), &json!(1)));
    assert!(told_parts["elapsed_s"].is_f64());
    server.become_ready();
    progress.enter(StartStage::WarmUpIdle, None, 3, Moment::START);
    assert_eq!(told()["stage"], "warm_up_idle");
    progress.finish();
    assert_eq!(told(), Value::Null);
}

#[test]
fn live_is_200_in_every_phase() {
    let server = Server::loading(HttpConfig::default());
    for advance in [|_: &Server| {}, Server::become_ready, Server::drain, Server::fail] {
        advance(&server);
        let answer = server.get("/health/live");
        assert_eq!(status(&answer), (200, json!("live")));
        assert_eq!(answer.json(), json!({"status": "live"}));
    }
}

#[test]
fn a_device_that_does_not_answer_holds_no_answer_up() {
    let server = Server::ready();
    server.engine().silence();
    let mut polling = server.connect();
    let request = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    polling.write_all(request).expect("it is open");
    server.engine().wait_asked();
    assert_eq!(status(&server.get("/health/live")), (200, json!("live")));
    assert!(server.service().workers_live());
    server.post_bytes(DENSE, r#"{"input":"text"}"#).ok();
    assert_eq!(server.get(METRICS).status, 200);
    assert_eq!(status(&server.get("/health")), (200, json!("ok")));
    let mut answer = String::new();
    polling.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn the_deep_check_tells_of_each_worker() {
    let server = Server::ready();
    let answer = server.get("/health/deep");
    assert_eq!(status(&answer), (200, json!("ok")));
    let check = answer.json()["checks"][0].clone();
    assert_eq!(check["worker"], 0);
    assert_eq!(check["ok"], true);
    assert!(check["latency_ms"].is_f64());
    assert!(check["dense_cosine"].as_f64() > Some(0.999));
    assert_eq!(check["sparse_ok"], true);
    assert!(check.get("stage").is_none() && check.get("reason").is_none());
}

#[test]
fn a_failed_deep_check_names_stage_and_reason() {
    let server = Server::ready();
    server.break_numbers();
    let answer = server.get("/health/deep");
    assert_eq!(status(&answer), (503, json!("failed")));
    let check = answer.json()["checks"][0].clone();
    assert_eq!(check["ok"], false);
    assert_eq!(check["stage"], "dense");
    assert_eq!(check["reason"], "cosine -1.000000 is below 0.999");
}

#[test]
fn the_deep_check_fails_unless_ready() {
    let server = Server::loading(HttpConfig::default());
    let answer = server.get("/health/deep");
    assert_eq!(status(&answer), (503, json!("loading")));
    assert_eq!(answer.json()["checks"], json!([]));
    server.drain();
    assert_eq!(status(&server.get("/health/deep")), (503, json!("draining")));
    server.fail();
    assert_eq!(status(&server.get("/health/deep")), (503, json!("failed")));
}

fn canaries(runs: &[TokenIds]) -> usize {
    runs.iter().filter(|ids| ***ids == CANARY).count()
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

#[test]
fn deep_checks_that_come_while_one_runs_share_its_report() {
    let server = Server::ready();
    server.hold();
    let checks = (0..CHECKERS).map(|_| server.service().deep_health(PATIENCE));
    // Every check has begun before the workers go on.
    let (reports, ()) = block_on(join(join_all(checks), async { server.release() }));
    assert!(reports.iter().all(DeepReport::passed));
    assert_eq!(canaries(&server.engine().runs()), WORKERS as usize);
    // A report that is finished is nobody's any more.
    server.get("/health/deep").ok();
    assert_eq!(canaries(&server.engine().runs()), 2 * WORKERS as usize);
}

#[test]
fn a_caller_that_leaves_does_not_end_the_deep_check_of_others() {
    let server = Server::ready();
    server.hold();
    let ask = || Box::pin(server.service().deep_health(PATIENCE));
    let (mut first, mut second) = (ask(), ask());
    block_on(async {
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(first);
        server.release();
        assert!(second.await.passed());
    });
    assert_eq!(canaries(&server.engine().runs()), WORKERS as usize);
}

#[test]
fn deep_checks_do_not_keep_a_text_waiting() {
    let server = Server::ready();
    server.hold();
    let send = |request: &str| -> TcpStream {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).expect("it is open");
        stream
    };
    let check = "GET /health/deep HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let checks: Vec<TcpStream> = (0..CHECKERS).map(|_| send(check)).collect();
    let text = send(&format!(
        "POST {DENSE} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 15\r\n\r\n\
         {{\"input\":\"two\"}}"
    ));
    // The checks wait too, but not in the queue of texts.
    let queued = |server: &Server| server.get("/health").ok()["queue_depth"] == 1;
    server.wait_until("the text waits", queued);
    server.release();
    for mut stream in checks.into_iter().chain([text]) {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let runs = server.engine().runs();
    let text = runs.iter().position(|ids| **ids == [0, TWO_ID, 2]).expect("the text ran");
    let before = canaries(&runs[..text]);
    assert!(before <= WORKERS as usize, "{before} runs of the canary before the text");
}

#[test]
fn head_answers_like_get_without_a_body() {
    let server = Server::ready();
    for path in ["/health", "/health/deep", "/health/live", "/v1/models", "/v1/models/x"] {
        let head = server.send(Method::HEAD, path, &[], Vec::new());
        let get = server.get(path);
        assert_eq!(head.status, get.status, "{path}");
        assert_ne!(head.header("content-length"), Some("0"), "{path}");
    }
}
