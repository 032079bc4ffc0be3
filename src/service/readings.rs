//! Values of `/metrics` that are read when somebody asks.

use crate::engine::GpuFigures;
use crate::health::Status;
use crate::metrics::{Readings, memory, names};
use crate::scheduler::{CacheFigures, Incidents, PromiseFigures, Snapshot};
use crate::service::{EmbeddingService, ResidentModel};

/// Everything that this moment tells; what does not exist yet is left out.
pub(super) fn readings(service: &EmbeddingService) -> Readings {
    let mut readings = Readings::default();
    let snapshot = service.resident.get().map(|resident| resident.scheduler.snapshot());
    if let Some(resident) = service.resident.get() {
        engine(&mut readings, resident);
        incidents(&mut readings, resident.scheduler.incidents());
    }
    if let Some(figures) = service.figures.get() {
        gpus(&mut readings, figures.latest().fresh_gpus(service.clock.now()));
    }
    if let Some(snapshot) = &snapshot {
        counts(&mut readings, snapshot);
        cache(&mut readings, &snapshot.cache);
        promise(&mut readings, &snapshot.promise);
        queue(&mut readings, snapshot);
    }
    let workers = snapshot.map(|snapshot| snapshot.workers).unwrap_or_default();
    let ready = Status::of(service.phase(), workers).takes_requests();
    readings.put(&names::READY, &[(&[], f64::from(u8::from(ready)))]);
    readings.put(&names::INFLIGHT_BYTES, &[(&[], service.door.bytes() as f64)]);
    let uptime = service.clock.now().since(service.started);
    readings.put(&names::UPTIME, &[(&[], uptime.as_secs_f64())]);
    readings.put(&names::BUILD_INFO, &[(&[env!("CARGO_PKG_VERSION")], 1.0)]);
    if let Some(memory) = memory() {
        readings.put(&names::RESIDENT_MEMORY, &[(&[], memory.resident_bytes as f64)]);
    }
    readings
}

fn engine(readings: &mut Readings, resident: &ResidentModel) {
    let info = resident.engine.info();
    let model = &resident.package.manifest().model_id;
    let labels: &[&str] =
        &[info.kind.name(), &info.version, &info.device, &info.precision, model.as_str()];
    readings.put(&names::ENGINE_INFO, &[(labels, 1.0)]);
}

fn gpus(readings: &mut Readings, gpus: &[GpuFigures]) {
    let indices: Vec<String> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
    let labels: Vec<[&str; 2]> =
        gpus.iter().zip(&indices).map(|(gpu, index)| [index.as_str(), &gpu.name]).collect();
    let series = |bytes: Vec<u64>| -> Vec<(&[&str], f64)> {
        labels.iter().zip(bytes).map(|(labels, bytes)| (&labels[..], bytes as f64)).collect()
    };
    let free = series(gpus.iter().map(|gpu| gpu.free_bytes).collect());
    let total = series(gpus.iter().map(|gpu| gpu.total_bytes).collect());
    readings.put(&names::GPU_FREE, &free);
    readings.put(&names::GPU_TOTAL, &total);
}

fn counts(readings: &mut Readings, snapshot: &Snapshot) {
    let counts = &snapshot.counts;
    readings.put(
        &names::ITEMS,
        &[
            (&["accepted"], counts.accepted as f64),
            (&["replied"], counts.replied as f64),
            (&["failed"], counts.failed as f64),
            (&["expired"], counts.expired as f64),
            (&["cancelled"], counts.cancelled as f64),
            (&["abandoned"], counts.abandoned as f64),
        ],
    );
    readings.put(
        &names::TOKENS,
        &[(&["real"], counts.tokens_real as f64), (&["padded"], counts.tokens_padded as f64)],
    );
    readings.put(&names::COALESCED, &[(&[], counts.coalesced as f64)]);
    readings.put(&names::BATCHES, &[(&[], counts.batches as f64)]);
    readings.put(&names::WORKER_RESTARTS, &[(&[], snapshot.workers.restarts as f64)]);
}

fn cache(readings: &mut Readings, cache: &CacheFigures) {
    let lookups: [(&[&str], f64); 2] =
        [(&["hit"], cache.hits as f64), (&["miss"], cache.misses as f64)];
    readings.put(&names::CACHE_LOOKUPS, &lookups);
    readings.put(&names::CACHE_ENTRIES, &[(&[], cache.entries as f64)]);
    readings.put(&names::CACHE_BYTES, &[(&[], cache.bytes as f64)]);
    readings.put(&names::CACHE_LIMIT, &[(&[], cache.limit_bytes as f64)]);
}

fn promise(readings: &mut Readings, promise: &PromiseFigures) {
    readings.put(&names::PROMISE, &[(&[], promise.p99.as_secs_f64())]);
    readings.put(&names::PROMISE_BULK_BATCH, &[(&[], promise.bulk_batch.as_secs_f64())]);
    let outcomes: [(&[&str], f64); 2] =
        [(&["kept"], promise.kept as f64), (&["missed"], promise.missed as f64)];
    readings.put(&names::PROMISE_ITEMS, &outcomes);
}

fn incidents(readings: &mut Readings, incidents: &Incidents) {
    readings.put(
        &names::INCIDENTS,
        &[
            (&["batch_split"], incidents.batches_split.get() as f64),
            (&["batch_stuck"], incidents.batches_stuck.get() as f64),
            (&["row_not_finite"], incidents.rows_not_finite.get() as f64),
            (&["row_rescued"], incidents.rows_rescued.get() as f64),
        ],
    );
}

fn queue(readings: &mut Readings, snapshot: &Snapshot) {
    let (interactive, bulk) = (snapshot.queue_interactive, snapshot.queue_bulk);
    readings.put(
        &names::QUEUE_ITEMS,
        &[(&["interactive"], interactive as f64), (&["bulk"], bulk as f64)],
    );
    readings.put(&names::QUEUE_TOKENS, &[(&[], snapshot.queue_tokens as f64)]);
    let wait = snapshot.predicted_wait.as_secs_f64();
    readings.put(&names::PREDICTED_WAIT, &[(&[], wait)]);
    let workers = &snapshot.workers;
    readings.put(
        &names::WORKERS,
        &[
            (&["total"], workers.total as f64),
            (&["live"], workers.live as f64),
            (&["busy"], workers.busy as f64),
            (&["stuck"], workers.stuck as f64),
        ],
    );
    let narrowest = &snapshot.widths[0];
    if let Some(error) = narrowest.cost_error {
        readings.put(&names::COST_ERROR, &[(&[], error)]);
    }
    readings.put(&names::COST_CORRECTION, &[(&[], narrowest.cost_correction)]);
}
