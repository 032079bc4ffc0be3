//! `/health`, `/health/deep`, `/health/live`, `/metrics`.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::{Bytes, Data};
use serde::Serialize;
use serde_json::json;

use super::error::{ApiError, Code, NOT_READY, OK};
use super::headers::NO_STORE;
use super::held;
use super::state::AppState;
use super::timeline::millis;
use crate::health::{DeepReport, Phase, Status, WorkerCheck};
use crate::service::Refusal;

/// Prometheus' text format.
pub(super) const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const SECOND: Duration = Duration::from_secs(1);

/// The canary on every worker.
#[derive(Serialize)]
pub(super) struct Deep<'a> {
    status: &'static str,
    checks: Vec<Check<'a>>,
}

#[derive(Serialize)]
pub(super) struct Check<'a> {
    worker: usize,
    ok: bool,
    latency_ms: f64,
    /// Cosine with the golden vector.
    dense_cosine: Option<f64>,
    /// Whether the lexical weights are near the golden ones.
    sparse_ok: Option<bool>,
    /// Where it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// The process lives; true from the bound port until exit.
pub(super) async fn live() -> HttpResponse {
    HttpResponse::build(OK).insert_header(NO_STORE).json(json!({"status": "live"}))
}

/// Readiness and diagnostics; never waits.
pub(super) async fn report(state: Data<AppState>) -> HttpResponse {
    let facts = state.service.facts();
    let status = if facts.status.takes_requests() { OK } else { NOT_READY };
    HttpResponse::build(status).insert_header(NO_STORE).json(facts)
}

/// What was counted and timed. Anybody may ask for it, so it is held as other answers are.
pub(super) async fn metrics(state: Data<AppState>) -> Result<HttpResponse, ApiError> {
    let text = state.service.metrics_text().ok_or_else(|| {
        let message = "metrics are off; start the server with --metrics true";
        ApiError::new(Code::NotFound, message)
    })?;
    let text = hold_metrics(&state, text).map_err(ApiError::unavailable)?;
    let mut response = HttpResponse::build(OK);
    Ok(response.insert_header(NO_STORE).content_type(METRICS_CONTENT_TYPE).body(text))
}

/// The text in the room of answers without a key. While others leave many of these unread, all who
/// ask within a second get one text.
fn hold_metrics(state: &AppState, text: String) -> Result<Bytes, Refusal> {
    let (now, bytes) = (state.clock.now(), text.capacity() as u64);
    let mut last = state.crowded_metrics.lock();
    *last = last.take().filter(|(made, _)| now.since(*made) < SECOND);
    if let Ok(permit) = state.service.public_room_for(bytes) {
        return Ok(held::hold(text.into_bytes(), permit));
    }
    if let Some((_, text)) = &*last {
        return Ok(text.clone());
    }
    let text = held::hold(text.into_bytes(), state.service.room_for(bytes)?);
    *last = Some((now, text.clone()));
    Ok(text)
}

/// The canary on every worker.
pub(super) async fn deep(state: Data<AppState>) -> HttpResponse {
    let timeout = Duration::from_millis(state.config.deep_health_timeout.get());
    let report = state.service.deep_health(timeout).await;
    let status = if report.passed() { OK } else { NOT_READY };
    let body =
        Deep { status: status_word(&report), checks: report.checks.iter().map(check).collect() };
    HttpResponse::build(status).insert_header(NO_STORE).json(body)
}

fn status_word(report: &DeepReport) -> &'static str {
    if report.passed() {
        return Status::Ok.name();
    }
    match report.phase {
        Phase::Loading => Status::Loading.name(),
        Phase::LameDuck | Phase::Draining => Status::Draining.name(),
        Phase::Ready | Phase::Failed => Status::Failed.name(),
    }
}

fn check(check: &WorkerCheck) -> Check<'_> {
    Check {
        worker: check.worker,
        ok: check.failure.is_none(),
        latency_ms: millis(check.latency),
        dense_cosine: check.dense_cosine,
        sparse_ok: check.sparse_ok,
        stage: check.failure.as_ref().map(|failure| failure.stage),
        reason: check.failure.as_ref().map(|failure| failure.reason.as_str()),
    }
}
