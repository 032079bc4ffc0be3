//! GET /health, /health/deep, /health/live in every phase.

use clock::Moment;
use duovec::health::DeepReport;
use duovec::progress::StartStage;
use futures_util::future::{FutureExt, join, join_all};
use scheduling::batch::TokenIds;
use tokio::time::timeout;

use crate::support::*;

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
    // Which fields there are, and of which type each is, is checked of every answer.
    assert_eq!(body["model"], MODEL);
    assert_eq!(body["workers"]["live"], body["workers"]["total"]);
    assert_eq!(body["max_input_tokens"], MAX_TOKENS);
    assert!(body["tuning"].as_object().is_some_and(|tuning| !tuning.is_empty()));
    // The tests' tokenizer is not XLM-R's, so the crate `tokenizers` reads it.
    assert_eq!(body["tuning"]["tokenizer_normalization"], "huggingface");
}

#[test]
fn health_follows_the_phase_and_live_is_200_in_each() {
    let server = Server::loading();
    let loading = server.get("/health").json();
    assert_eq!((&loading["model"], &loading["engine"]), (&Value::Null, &Value::Null));
    assert_eq!(loading["tuning"], json!({}));
    assert_eq!(server.get("/health/deep").json()["checks"], json!([]));
    type Step = (fn(&Server), u16, &'static str);
    let steps: [Step; 6] = [
        (|_| {}, 503, "loading"),
        (Server::become_ready, 200, "ok"),
        (Server::lose_worker, 200, "degraded"),
        (Server::lose_worker, 503, "failed"),
        (Server::drain, 503, "draining"),
        (Server::fail, 503, "failed"),
    ];
    for (advance, code, word) in steps {
        advance(&server);
        let health = server.get("/health");
        assert_eq!(status(&health), (code, json!(word)));
        assert_eq!(health.json()["failure"].is_string(), word == "failed", "{word}");
        if code == 503 {
            assert_eq!(status(&server.get("/health/deep")), (code, json!(word)));
        }
        let live = server.get("/health/live");
        assert_eq!(status(&live), (200, json!("live")), "{word}");
        assert_eq!(live.json(), json!({"status": "live"}), "{word}");
    }
}

#[test]
fn a_model_that_is_ready_once_the_drain_has_begun_does_not_hold_it_up() {
    let server = Server::loading();
    server.drain();
    server.become_ready();
    let drained = server.service().drained();
    runtime().block_on(async { timeout(PATIENCE / 10, drained).await }).expect("nothing waits");
}

#[test]
fn health_tells_how_far_a_start_is() {
    let server = Server::loading();
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
fn a_device_that_does_not_answer_holds_no_answer_up() {
    let server = Server::ready();
    server.engine().set(|engine| engine.silent = true);
    let mut polling = server.open(get("/health", ""));
    server.engine().wait_asked();
    assert_eq!(status(&server.get("/health/live")), (200, json!("live")));
    assert!(server.service().workers_live());
    server.post_bytes(DENSE, TEXT).ok();
    assert_eq!(server.get(METRICS).status, 200);
    assert_eq!(status(&server.get("/health")), (200, json!("ok")));
    polling.answer().ok();
}

#[test]
fn the_deep_check_tells_of_each_worker_and_of_a_failure_its_stage_and_reason() {
    let server = Server::ready();
    let ask = |expected: (u16, Value)| {
        let answer = server.get("/health/deep");
        assert_eq!(status(&answer), expected);
        answer.json()["checks"][0].take()
    };
    let check = ask((200, json!("ok")));
    assert_eq!((&check["worker"], &check["ok"]), (&json!(0), &json!(true)));
    assert!(check["dense_cosine"].as_f64() > Some(0.999));
    assert_eq!(check["sparse_ok"], true);
    assert!(check.get("stage").is_none() && check.get("reason").is_none());
    server.break_numbers();
    let check = ask((503, json!("failed")));
    assert_eq!((&check["ok"], &check["stage"]), (&json!(false), &json!("dense")));
    assert_eq!(check["reason"], "cosine -1.000000 is below 0.999");
}

fn canaries(runs: &[TokenIds]) -> usize {
    runs.iter().filter(|ids| ***ids == CANARY).count()
}

#[test]
fn deep_checks_that_come_while_one_runs_share_its_report() {
    let server = Server::ready();
    server.hold();
    let checks = (0..CHECKERS).map(|_| server.service().deep_health(PATIENCE));
    // Every check has begun before the workers go on.
    let (reports, ()) = runtime().block_on(join(join_all(checks), async { server.release() }));
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
    runtime().block_on(async {
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
    let checks = [(); CHECKERS].map(|()| server.open(get("/health/deep", "")));
    let text = server.open(post(DENSE, "", r#"{"input":"two"}"#));
    // The checks wait too, but not in the queue of texts.
    let queued = |server: &Server| server.get("/health").ok()["queue_depth"] == 1;
    server.wait_until("the text waits", queued);
    server.release();
    for mut stream in checks.into_iter().chain([text]) {
        stream.answer().ok();
    }
    let runs = server.engine().runs();
    let text = runs.iter().position(|ids| **ids == [0, TWO_ID, 2]).expect("the text ran");
    let before = canaries(&runs[..text]);
    assert!(before <= WORKERS as usize, "{before} runs of the canary before the text");
}
