//! What the process tells of itself at one moment, written down once: `/health` is these facts,
//! and `/metrics` reads its values out of them at the places that its table names.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::EmbeddingService;
use super::figures::Sample;
use crate::engine::Engine;
use crate::health::{Status, WorkerCounts};
use crate::metrics::{MemoryFigures, memory};
use crate::progress::{StartStage, Step};
use crate::scheduler::Snapshot;
use crate::service::ResidentModel;
use crate::worker::tuning::choice::Measured;
use clock::Moment;
use scheduling::state::{PromiseFigures, Width};

/// An object. `json!` would go one level deeper for each of its many fields.
macro_rules! facts {
    ($($name:literal: $value:expr,)*) => {
        Value::from_iter([$(($name, json!($value))),*])
    };
}

/// The facts of `/health`, in its order.
#[derive(Serialize)]
pub(crate) struct Facts {
    pub(crate) status: Status,
    /// Absent until the manifest has been read.
    model: Option<String>,
    engine: Option<&'static str>,
    workers: Value,
    queue_depth: usize,
    queue_tokens: usize,
    predicted_wait_ms: f64,
    /// Absent until the manifest has been read.
    max_input_tokens: Option<usize>,
    uptime_s: f64,
    /// What the server runs with and measured, for the operator: names carry their units, and none
    /// is promised to stay. Empty while loading.
    tuning: Value,
    /// Absent when nothing is loaded or warmed up any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Value>,
    /// Why the model cannot be run, for the operator; only with `Status::Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// What `/metrics` alone tells.
    #[serde(skip)]
    unpublished: Value,
}

impl Facts {
    /// Never waits.
    pub(super) fn of(service: &EmbeddingService) -> Self {
        let (card, phase, now) = (service.card.get(), service.phase(), service.clock.now());
        let running = service.resident.get().zip(service.figures.get());
        let running = running.map(|(resident, figures)| RunningModel {
            token_input: service.config.token_input.name(),
            resident,
            snapshot: resident.scheduler.snapshot(),
            sample: figures.latest(),
            now,
        });
        let snapshot = running.as_ref().map(|running| &running.snapshot);
        let workers = snapshot.map_or_else(WorkerCounts::default, |snapshot| snapshot.workers);
        let WorkerCounts { live, total, busy, stuck, .. } = workers;
        let wait = snapshot.map_or(Duration::ZERO, |snapshot| snapshot.predicted_wait);
        let memory = memory();
        let lost_gpus = running.as_ref().map_or(0, |it| it.resident.engine.lost_gpus().len());
        let status = Status::of(phase, workers, lost_gpus);
        let no_worker = || match stuck {
            0 => "no worker lives; the log says why".to_owned(),
            _ => format!("stuck workers: {stuck}"),
        };
        let failure = || service.failure.get().cloned().unwrap_or_else(no_worker);
        Self {
            status,
            model: card.map(|card| card.model_id.clone()),
            engine: running.as_ref().map(|running| running.resident.engine.info().kind.name()),
            workers: json!({"live": live, "total": total, "busy": busy}),
            queue_depth: snapshot.map_or(0, |snapshot| snapshot.queue_depth),
            queue_tokens: snapshot.map_or(0, |snapshot| snapshot.queue_tokens),
            predicted_wait_ms: millis(wait),
            max_input_tokens: card.map(|card| card.max_input_tokens),
            uptime_s: now.since(service.started).as_secs_f64(),
            tuning: running.as_ref().map_or_else(|| json!({}), |it| it.tuning(memory)),
            progress: service.progress.step().map(|step| progress(step, now)),
            failure: (status == Status::Failed).then(failure),
            unpublished: json!({
                "ready": u8::from(status.takes_requests()),
                "inflight_bytes": service.door.bytes(),
                "memory_resident_bytes": memory.map(|memory| memory.resident_bytes),
                "build": [{"version": env!("CARGO_PKG_VERSION"), "value": 1}],
                "running": running.as_ref().map(RunningModel::unpublished),
            }),
        }
    }

    /// All facts as one value, for the places that the table of metrics names.
    pub(super) fn to_scrape(&self) -> Value {
        json!({"health": self, "unpublished": self.unpublished})
    }
}

/// A model that is loaded, at one moment.
struct RunningModel<'a> {
    token_input: &'static str,
    resident: &'a ResidentModel,
    snapshot: Snapshot,
    sample: Arc<Sample>,
    now: Moment,
}

impl RunningModel<'_> {
    fn tuning(&self, memory: Option<MemoryFigures>) -> Value {
        let Self { token_input, resident, snapshot, sample, now } = self;
        let engine = resident.engine.info();
        let buckets = resident.scheduler.shapes().prepared();
        let mut lengths: Vec<usize> = buckets.iter().map(|bucket| bucket.length).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let batch_tokens = resident.max_batch_tokens.as_usize();
        let measured = resident.tuned.measured.iter().map(|one| split(one, batch_tokens));
        let memory = memory.unwrap_or_default();
        let (counts, cache, stages) = (&snapshot.counts, &snapshot.cache, &snapshot.stages);
        let incidents = resident.scheduler.incidents();
        let (real, padded) = (counts.tokens_real, counts.tokens_padded);
        let engine_figures: serde_json::Map<_, _> =
            sample.figures.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
        facts! {
            "lost_gpus": lost_gpus(&*resident.engine),
            "engine_reason": resident.engine_reason,
            "engine_version": engine.version,
            "engine_figures": engine_figures,
            "engine_figures_age_ms": millis(sample.age(*now)),
            "device": engine.device,
            "precision": engine.precision,
            "threads_per_worker": engine.threads_per_session,
            "lanes": snapshot.widths.iter().map(lane).collect::<Vec<_>>(),
            "profiles": engine.profiles,
            "tokenizer_normalization": resident.tokenizer.normalization().name(),
            "token_input": token_input,
            "optimize_for": resident.tuned.optimize_for.name(),
            "measured": measured.collect::<Vec<_>>(),
            "max_batch_tokens": resident.max_batch_tokens.get(),
            "buckets": buckets.len(),
            "bucket_lengths": lengths,
            "warm_up_ms": millis(resident.warm_up),
            "memory_resident_bytes": memory.resident_bytes,
            "memory_peak_bytes": memory.peak_bytes,
            "cost_model": cost(&snapshot.widths[0]),
            "mean_batch_ms": facts! {
                "copy_in": millis(stages.copy_in),
                "compute": millis(stages.compute),
                "copy_out": millis(stages.copy_out),
            },
            "items": facts! {
                "accepted": counts.accepted,
                "replied": counts.replied,
                "failed": counts.failed,
                "expired": counts.expired,
                "cancelled": counts.cancelled,
                "abandoned": counts.abandoned,
            },
            "items_coalesced": counts.coalesced,
            "cache": cache,
            "promise": promise(&snapshot.promise),
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
        }
    }

    /// Values with the labels of their series are lists of objects.
    fn unpublished(&self) -> Value {
        let Self { resident, snapshot, sample, now, .. } = self;
        let engine = resident.engine.info();
        let gpus = sample.fresh_gpus(*now).iter().map(|gpu| {
            let (free, total) = (gpu.free_bytes, gpu.total_bytes);
            json!({"gpu": gpu.index.to_string(), "name": gpu.name, "free": free, "total": total})
        });
        json!({
            "queue_tokens": snapshot.queue_tokens,
            "predicted_wait_s": snapshot.predicted_wait.as_secs_f64(),
            "workers_total": snapshot.workers.total,
            "workers_live": snapshot.workers.live,
            "workers_busy": snapshot.workers.busy,
            "workers_stuck": snapshot.workers.stuck,
            "engine": [{
                "engine": engine.kind.name(),
                "version": engine.version,
                "device": engine.device,
                "precision": engine.precision,
                "model": resident.package.manifest().model_id,
                "value": 1,
            }],
            "gpus": gpus.collect::<Vec<_>>(),
            "gpus_lost": engine.kind.is_tensorrt().then(|| resident.engine.lost_gpus().len()),
        })
    }
}

/// The GPUs that the engine does without.
fn lost_gpus(engine: &dyn Engine) -> Vec<Value> {
    let lost = engine.lost_gpus().into_iter();
    lost.map(|gpu| json!({"gpu": gpu.index, "reason": gpu.reason})).collect()
}

/// The lanes of one width.
fn lane(figures: &Width) -> Value {
    let mut lane = cost(figures);
    lane["width"] = figures.width.into();
    lane["lanes"] = figures.lanes.into();
    lane["batches"] = figures.batches.into();
    lane
}

fn cost(figures: &Width) -> Value {
    let model = figures.cost.model();
    json!({
        "floor_us": model.floor_us,
        "fixed_us": model.fixed_us,
        "per_token_us": model.per_token_us,
        "per_token_length_us": model.per_token_length_us,
        "median_error": figures.cost.error(),
        "correction": figures.cost.correction(),
    })
}

/// What became of the promised time of interactive items.
fn promise(figures: &PromiseFigures) -> Value {
    json!({
        "p99_s": figures.p99.as_secs_f64(),
        "bulk_batch_s": figures.bulk_batch.as_secs_f64(),
        "kept": figures.kept,
        "missed": figures.missed,
    })
}

/// One way of running the engine that was measured at the start.
fn split(measured: &Measured, batch_tokens: usize) -> Value {
    json!({
        "workers": measured.split.workers,
        "threads_per_worker": measured.split.threads,
        "short_text_ms": millis(measured.alone),
        "tokens_per_s": measured.tokens_per_s(batch_tokens).round(),
    })
}

/// How far a start is. Requests are taken during `warm_up_idle`.
fn progress(step: Step, now: Moment) -> Value {
    let mut progress = json!({
        "stage": step.stage.name(),
        "elapsed_s": now.since(step.begun).as_secs_f64(),
        "shapes_done": step.done,
        "shapes": step.total,
    });
    if step.stage == StartStage::BuildPlan {
        progress["percent"] = (step.permille / 10).into();
    }
    progress
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
