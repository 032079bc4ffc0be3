//! Every metric: name, kind, labels, help. The only file with their names.

use MetricSource::{At, Each, Recorded};

settings::named! {
    /// What kind of series a metric has: the word of the text format and of the document.
    pub enum MetricKind {
        /// Only grows, from 0 at the start of the process.
        Counter = "counter",
        /// The value of the moment of the scrape.
        Gauge = "gauge",
        /// Counts of values by bucket, with their sum.
        Histogram = "histogram",
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricSource {
    /// They are recorded while it happens.
    Recorded,
    /// The facts of the moment of a scrape: for each series the value of its label, empty where the
    /// metric has none, and the number's place as a JSON pointer.
    At(&'static [(&'static str, &'static str)]),
    /// A list of the facts, which has an object for each series: its labels by their names, and its
    /// value. The list's place, and the value's name.
    Each(&'static str, &'static str),
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// As it is scraped.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: MetricKind,
    /// Names of its labels; each series has a value for each.
    pub labels: &'static [&'static str],
    /// The sentence of its `# HELP` line.
    pub help: &'static str,
    /// Upper bounds of a histogram's buckets.
    pub buckets: &'static [f64],
    pub(super) source: MetricSource,
}

/// Bounds in seconds: from a stage that takes next to nothing to the longest time that a request
/// may ask for by default.
const SECONDS: &[f64] = &[
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
/// Bounds of rows.
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// Bounds of a part of a whole.
const PARTS: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];

/// Makes a constant of each row, and the list of all. A row has its kind (with the bounds of a
/// histogram), name, labels, source and help.
macro_rules! metrics {
    ($($constant:ident: $kind:ident$(($buckets:ident))?, $name:literal, [$($label:literal),*],
        $source:expr, $help:literal;)*) => {
        $(pub(crate) const $constant: Metric = Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
            buckets: metrics!(@buckets $($buckets)?),
            source: $source,
        };)*

        /// All of them, in the order of the document.
        pub const METRICS: &[&Metric] = &[$(&$constant),*];
    };
    (@buckets) => { &[] };
    (@buckets $buckets:ident) => { $buckets };
}

metrics! {
    REQUESTS: Counter, "duovec_requests_total", ["route", "status"], Recorded,
        "Requests answered, by route (none for an unknown one, preflight for a browser's) and \
         status";
    REFUSALS: Counter, "duovec_request_errors_total", ["reason"], Recorded,
        "Requests answered with an error, by the code in the answer's body";
    CANCELLED: Counter, "duovec_requests_cancelled_total", [], Recorded,
        "Requests whose client left before the answer was ready";
    REQUEST_SECONDS: Histogram(SECONDS), "duovec_request_seconds", ["route"], Recorded,
        "Time from a request's head to its answer, whatever its status";
    STAGE_SECONDS: Histogram(SECONDS), "duovec_request_stage_seconds", ["stage"], Recorded,
        "Time of a request that got vectors, by stage; the stages of a request add up to its time";
    ITEMS: Counter, "duovec_items_total", ["outcome"], At(&[
        ("accepted", "/health/tuning/items/accepted"),
        ("replied", "/health/tuning/items/replied"),
        ("failed", "/health/tuning/items/failed"),
        ("expired", "/health/tuning/items/expired"),
        ("cancelled", "/health/tuning/items/cancelled"),
        ("abandoned", "/health/tuning/items/abandoned"),
    ]),
        "Items by what became of them; accepted is the sum of the others and of those under way";
    TRUNCATED: Counter, "duovec_items_truncated_total", [], Recorded,
        "Items that were cut to the model's longest input";
    COALESCED: Counter, "duovec_items_coalesced_total", [],
        At(&[("", "/health/tuning/items_coalesced")]),
        "Items that shared the run of another one with the same tokens; they are in accepted too";
    CACHE_LOOKUPS: Counter, "duovec_cache_lookups_total", ["result"],
        At(&[("hit", "/health/tuning/cache/hits"), ("miss", "/health/tuning/cache/misses")]),
        "Items looked up in the cache: hit or miss. A hit needs no run and is not in accepted";
    CACHE_ENTRIES: Gauge, "duovec_cache_entries", [], At(&[("", "/health/tuning/cache/entries")]),
        "Texts whose vectors are in the cache";
    CACHE_BYTES: Gauge, "duovec_cache_bytes", [], At(&[("", "/health/tuning/cache/bytes")]),
        "Memory of the cache's entries";
    CACHE_LIMIT: Gauge, "duovec_cache_limit_bytes", [],
        At(&[("", "/health/tuning/cache/limit_bytes")]),
        "Memory that the cache may use, as --cache-bytes says; 0 is no cache";
    PROMISE: Gauge, "duovec_promise_seconds", [], At(&[("", "/health/tuning/promise/p99_s")]),
        "Time that interactive items are promised, as --interactive-p99-ms says; 0 is none";
    PROMISE_BULK_BATCH: Gauge, "duovec_promise_bulk_batch_seconds", [],
        At(&[("", "/health/tuning/promise/bulk_batch_s")]),
        "Longest batch of bulk items that is started for the promise's sake; 0 without one";
    PROMISE_ITEMS: Counter, "duovec_promise_items_total", ["outcome"],
        At(&[("kept", "/health/tuning/promise/kept"), ("missed", "/health/tuning/promise/missed")]),
        "Interactive items by whether they got their rows in the promised time: kept or missed";
    TOKENS: Counter, "duovec_tokens_total", ["kind"],
        At(&[("real", "/health/tuning/tokens_real"), ("padded", "/health/tuning/tokens_padded")]),
        "Tokens that were run: real are those of items, padded those of whole batches";
    BATCHES: Counter, "duovec_batches_total", [], At(&[("", "/health/tuning/batches")]),
        "Batches that were started";
    BATCH_SECONDS: Histogram(SECONDS), "duovec_batch_seconds", [], Recorded,
        "Time of a batch that succeeded, from its choice to its rows";
    BATCH_STAGE_SECONDS: Histogram(SECONDS), "duovec_batch_stage_seconds", ["stage"], Recorded,
        "Time of a batch on its engine: copy_in, compute, copy_out, as far as the engine measures \
         them";
    BATCH_ITEMS: Histogram(ROWS), "duovec_batch_items", [], Recorded,
        "Items of a batch that succeeded";
    BATCH_FILL: Histogram(PARTS), "duovec_batch_fill_ratio", [], Recorded,
        "Real tokens of a batch that succeeded over its padded tokens";
    INFLIGHT_BYTES: Gauge, "duovec_inflight_bytes", [], At(&[("", "/unpublished/inflight_bytes")]),
        "Bytes that requests hold: bodies, then tokens, vectors and answers until they are sent";
    QUEUE_ITEMS: Gauge, "duovec_queue_items", ["priority"], At(&[
        ("interactive", "/health/tuning/queue_interactive"),
        ("bulk", "/health/tuning/queue_bulk"),
    ]),
        "Items that wait, by priority: interactive or bulk";
    QUEUE_TOKENS: Gauge, "duovec_queue_tokens", [],
        At(&[("", "/unpublished/running/queue_tokens")]),
        "Tokens of the items that wait, without padding";
    PREDICTED_WAIT: Gauge, "duovec_predicted_wait_seconds", [],
        At(&[("", "/unpublished/running/predicted_wait_s")]),
        "Time that a new item would wait before it runs, were it the last of the queue";
    WORKERS: Gauge, "duovec_workers", ["state"], At(&[
        ("total", "/unpublished/running/workers_total"),
        ("live", "/unpublished/running/workers_live"),
        ("busy", "/unpublished/running/workers_busy"),
        ("stuck", "/unpublished/running/workers_stuck"),
    ]),
        "Workers: total are configured, live have a session, busy run a batch, stuck run too long";
    WORKER_RESTARTS: Counter, "duovec_worker_restarts_total", [],
        At(&[("", "/health/tuning/worker_restarts")]),
        "Workers that were replaced";
    INCIDENTS: Counter, "duovec_incidents_total", ["kind"], At(&[
        ("batch_split", "/health/tuning/batches_split"),
        ("batch_stuck", "/health/tuning/batches_stuck"),
        ("row_not_finite", "/health/tuning/rows_not_finite"),
        ("row_rescued", "/health/tuning/rows_rescued"),
    ]),
        "batch_split for want of memory, batch_stuck, row_not_finite, row_rescued of those";
    COST_ERROR: Gauge, "duovec_cost_model_error_ratio", [],
        At(&[("", "/health/tuning/cost_model/median_error")]),
        "Median relative error of the cost model when it was fitted at warm-up";
    COST_CORRECTION: Gauge, "duovec_cost_model_correction_ratio", [],
        At(&[("", "/health/tuning/cost_model/correction")]),
        "Measured over predicted time of the batches of late";
    READY: Gauge, "duovec_ready", [], At(&[("", "/unpublished/ready")]),
        "1 when requests are taken, as /health answers, else 0";
    UPTIME: Gauge, "duovec_uptime_seconds", [], At(&[("", "/health/uptime_s")]),
        "Time since the service was made";
    BUILD_INFO: Gauge, "duovec_build_info", ["version"], Each("/unpublished/build", "value"),
        "Always 1; the version is in the label";
    ENGINE_INFO: Gauge, "duovec_engine_info", ["engine", "version", "device", "precision", "model"],
        Each("/unpublished/running/engine", "value"),
        "Always 1; what runs the model is in the labels. Absent while loading";
    GPU_FREE: Gauge, "duovec_gpu_memory_free_bytes", ["gpu", "name"],
        Each("/unpublished/running/gpus", "free"),
        "Free memory of a GPU, by CUDA's number and name. Only with TensorRT";
    GPU_TOTAL: Gauge, "duovec_gpu_memory_total_bytes", ["gpu", "name"],
        Each("/unpublished/running/gpus", "total"),
        "Memory of a GPU, by CUDA's number and name. Only with TensorRT";
    GPUS_LOST: Gauge, "duovec_gpus_lost", [],
        At(&[("", "/unpublished/running/gpus_lost")]),
        "GPUs that were named and are not used, or no longer: the others serve. Only with TensorRT";
    RESIDENT_MEMORY: Gauge, "process_resident_memory_bytes", [],
        At(&[("", "/unpublished/memory_resident_bytes")]),
        "Resident memory of the process. Only on Linux";
}
