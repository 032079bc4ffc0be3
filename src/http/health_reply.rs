//! `tuning` of `/health`: what the server runs with and what it measured.

use std::collections::BTreeMap;

use serde::Serialize;

use super::millis;
use crate::engine::StageTimes;
use crate::metrics::memory;
use crate::scheduler::{CacheFigures, Counts, WidthFigures};
use crate::service::RunReport;
use crate::worker::tuning::choice::Measured;

/// For the operator: names carry their units, and none is promised to stay.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Tuning<'a> {
    Loading {},
    Loaded(Box<TuningFields<'a>>),
}

#[derive(Serialize)]
pub(super) struct TuningFields<'a> {
    engine_reason: &'a str,
    engine_version: &'a str,
    engine_figures: BTreeMap<&'a str, u64>,
    engine_figures_age_ms: f64,
    device: &'a str,
    precision: &'a str,
    threads_per_worker: usize,
    lanes: Vec<LaneFields>,
    profiles: &'a [String],
    tokenizer_normalization: &'static str,
    token_input: &'static str,
    optimize_for: &'static str,
    measured: Vec<MeasuredSplit>,
    max_batch_tokens: u64,
    buckets: usize,
    bucket_lengths: Vec<usize>,
    warm_up_ms: f64,
    memory_resident_bytes: u64,
    memory_peak_bytes: u64,
    cost_model: CostFields,
    mean_batch_ms: MeanBatch,
    items: ItemCounts,
    items_coalesced: u64,
    cache: CacheFields,
    queue_interactive: usize,
    queue_bulk: usize,
    requests_refused: u64,
    worker_restarts: u64,
    batches_split: u64,
    batches_stuck: u64,
    rows_not_finite: u64,
    rows_rescued: u64,
    batches: u64,
    tokens_real: u64,
    tokens_padded: u64,
    real_per_padded_token: f64,
}

/// The lanes of one width.
#[derive(Serialize)]
struct LaneFields {
    width: usize,
    lanes: usize,
    batches: u64,
    #[serde(flatten)]
    cost: CostFields,
}

/// One way of running the engine that was measured at the start.
#[derive(Serialize)]
struct MeasuredSplit {
    workers: usize,
    threads_per_worker: usize,
    short_text_ms: f64,
    tokens_per_s: f64,
}

#[derive(Serialize)]
struct CostFields {
    floor_us: f64,
    fixed_us: f64,
    per_token_us: f64,
    per_token_length_us: f64,
    median_error: Option<f64>,
    correction: f64,
}

#[derive(Serialize)]
struct MeanBatch {
    copy_in: f64,
    compute: f64,
    copy_out: f64,
}

/// How many items ended how.
#[derive(Serialize)]
struct ItemCounts {
    accepted: u64,
    replied: u64,
    failed: u64,
    expired: u64,
    cancelled: u64,
    abandoned: u64,
}

/// Vectors of texts that have run; all zero when none are kept.
#[derive(Serialize)]
struct CacheFields {
    limit_bytes: u64,
    bytes: u64,
    entries: u64,
    hits: u64,
    misses: u64,
}

impl<'a> Tuning<'a> {
    /// Empty while loading.
    pub(super) fn of(report: Option<&'a RunReport>) -> Self {
        report.map_or(Self::Loading {}, |report| Self::Loaded(Box::new(fields(report))))
    }
}

fn fields(report: &RunReport) -> TuningFields<'_> {
    let RunReport { token_input, resident, snapshot, engine_figures, engine_figures_age } = report;
    let engine = resident.engine.info();
    let buckets = resident.scheduler.shapes().prepared();
    let mut bucket_lengths: Vec<usize> = buckets.iter().map(|bucket| bucket.length).collect();
    bucket_lengths.sort_unstable();
    bucket_lengths.dedup();
    let figures = engine_figures.iter().map(|(name, value)| (name.as_str(), *value));
    let batch_tokens = resident.max_batch_tokens.as_usize();
    let measured = resident.tuned.measured.iter().map(|one| MeasuredSplit::of(one, batch_tokens));
    let memory = memory().unwrap_or_default();
    let counts = &snapshot.counts;
    let incidents = resident.scheduler.incidents();
    let (real, padded) = (counts.tokens_real, counts.tokens_padded);
    TuningFields {
        engine_reason: &resident.engine_reason,
        engine_version: &engine.version,
        engine_figures: figures.collect(),
        engine_figures_age_ms: millis(*engine_figures_age),
        device: &engine.device,
        precision: &engine.precision,
        threads_per_worker: engine.threads_per_session,
        lanes: snapshot.widths.iter().map(LaneFields::of).collect(),
        profiles: &engine.profiles,
        tokenizer_normalization: resident.tokenizer.normalization().name(),
        token_input: token_input.name(),
        optimize_for: resident.tuned.optimize_for.name(),
        measured: measured.collect(),
        max_batch_tokens: resident.max_batch_tokens.get(),
        buckets: buckets.len(),
        bucket_lengths,
        warm_up_ms: millis(resident.warm_up),
        memory_resident_bytes: memory.resident_bytes,
        memory_peak_bytes: memory.peak_bytes,
        cost_model: CostFields::of(&snapshot.widths[0]),
        mean_batch_ms: MeanBatch::of(&snapshot.stages),
        items: ItemCounts::of(counts),
        items_coalesced: counts.coalesced,
        cache: CacheFields::of(&snapshot.cache),
        queue_interactive: snapshot.queue_interactive,
        queue_bulk: snapshot.queue_bulk,
        requests_refused: counts.refused,
        worker_restarts: snapshot.workers.restarts,
        batches_split: incidents.batches_split.get(),
        batches_stuck: incidents.batches_stuck.get(),
        rows_not_finite: incidents.rows_not_finite.get(),
        rows_rescued: incidents.rows_rescued.get(),
        batches: counts.batches,
        tokens_real: real,
        tokens_padded: padded,
        real_per_padded_token: if padded > 0 { real as f64 / padded as f64 } else { 1.0 },
    }
}

impl LaneFields {
    const fn of(figures: &WidthFigures) -> Self {
        let &WidthFigures { width, lanes, batches, .. } = figures;
        Self { width, lanes, batches, cost: CostFields::of(figures) }
    }
}

impl MeasuredSplit {
    fn of(measured: &Measured, batch_tokens: usize) -> Self {
        Self {
            workers: measured.split.workers,
            threads_per_worker: measured.split.threads,
            short_text_ms: millis(measured.alone),
            tokens_per_s: measured.tokens_per_s(batch_tokens).round(),
        }
    }
}

impl CostFields {
    const fn of(figures: &WidthFigures) -> Self {
        Self {
            floor_us: figures.cost.floor_us,
            fixed_us: figures.cost.fixed_us,
            per_token_us: figures.cost.per_token_us,
            per_token_length_us: figures.cost.per_token_length_us,
            median_error: figures.cost_error,
            correction: figures.cost_correction,
        }
    }
}

impl MeanBatch {
    fn of(mean: &StageTimes) -> Self {
        Self {
            copy_in: millis(mean.copy_in),
            compute: millis(mean.compute),
            copy_out: millis(mean.copy_out),
        }
    }
}

impl ItemCounts {
    const fn of(counts: &Counts) -> Self {
        let &Counts { accepted, replied, failed, expired, cancelled, abandoned, .. } = counts;
        Self { accepted, replied, failed, expired, cancelled, abandoned }
    }
}

impl CacheFields {
    const fn of(cache: &CacheFigures) -> Self {
        let &CacheFigures { limit_bytes, bytes, entries, hits, misses } = cache;
        Self { limit_bytes, bytes, entries, hits, misses }
    }
}
