//! `tuning` of `/health`: what the server runs with and what it measured.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::scheduler::Snapshot;
use crate::service::Resident;
use crate::worker::tuning::choice::Measured;

/// A JSON object for the operator; its names carry their units.
pub(super) fn tuning(
    resident: &Resident,
    snapshot: &Snapshot,
    figures: &[(String, u64)],
    figures_age: Duration,
) -> Value {
    let engine = resident.engine.info();
    let counts = &snapshot.counts;
    let (real, padded) = (counts.tokens_real, counts.tokens_padded);
    let buckets = resident.scheduler.buckets();
    let mut lengths: Vec<usize> = buckets.iter().map(|bucket| bucket.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let figures: Map<String, Value> =
        figures.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    let batches = counts.batches.max(1) as f64;
    let stages = &snapshot.stages;
    let incidents = resident.scheduler.incidents();
    let ways = resident.tuned.measured.iter();
    let ways = ways.map(|measured| way(measured, resident.max_batch_tokens.as_usize()));
    json!({
        "engine_reason": resident.engine_reason,
        "optimize_for": resident.tuned.optimize_for.name(),
        "measured": ways.collect::<Vec<_>>(),
        "engine_figures": figures,
        "engine_figures_age_ms": millis(figures_age),
        "profiles": engine.profiles,
        "max_batch_tokens": resident.max_batch_tokens.get(),
        "mean_batch_ms": {
            "copy_in": millis(stages.copy_in) / batches,
            "compute": millis(stages.compute) / batches,
            "copy_out": millis(stages.copy_out) / batches,
        },
        "engine_version": engine.version,
        "tokenizer_normalization": resident.tokenizer.normalization().name(),
        "device": engine.device,
        "precision": engine.precision,
        "threads_per_worker": engine.threads_per_session,
        "buckets": buckets.len(),
        "bucket_lengths": lengths,
        "warm_up_ms": millis(resident.warm_up),
        "cost_model": {
            "fixed_us": snapshot.cost.fixed_us,
            "per_token_us": snapshot.cost.per_token_us,
            "per_token_length_us": snapshot.cost.per_token_length_us,
            "median_error": snapshot.cost_error,
            "correction": snapshot.cost_correction,
        },
        "items": {
            "accepted": counts.accepted,
            "replied": counts.replied,
            "failed": counts.failed,
            "expired": counts.expired,
            "cancelled": counts.cancelled,
            "abandoned": counts.abandoned,
        },
        "queue_interactive": snapshot.queue_interactive,
        "queue_bulk": snapshot.queue_bulk,
        "requests_refused": counts.refused,
        "worker_restarts": snapshot.workers.restarts,
        "batches_split": incidents.batches_split.get(),
        "batches_stuck": incidents.batches_stuck.get(),
        "rows_not_finite": incidents.rows_not_finite.get(),
        "rows_rescued": incidents.rows_rescued.get(),
        "batches": counts.batches,
        "tokens_real": real,
        "tokens_padded": padded,
        "real_per_padded_token": if padded > 0 { real as f64 / padded as f64 } else { 1.0 },
    })
}

/// One way of running the engine that was measured at the start.
fn way(measured: &Measured, batch_tokens: usize) -> Value {
    json!({
        "workers": measured.split.workers,
        "threads_per_worker": measured.split.threads,
        "short_text_ms": millis(measured.alone),
        "tokens_per_s": measured.tokens_per_s(batch_tokens).round(),
    })
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
