//! Every metric: name, kind, labels, help. The only file with their names.

/// What kind of series a metric has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from 0 at the start of the process.
    Counter,
    /// The value of the moment of the scrape.
    Gauge,
    /// Counts of values by bucket, with their sum.
    Histogram,
}

impl MetricKind {
    /// The word of the text format and of the document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Where the values of a metric come from.
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

impl Metric {
    const fn at(self, places: &'static [(&'static str, &'static str)]) -> Self {
        Self { source: MetricSource::At(places), ..self }
    }

    const fn each(self, list: &'static str, value: &'static str) -> Self {
        Self { source: MetricSource::Each(list, value), ..self }
    }
}

/// Bounds in seconds: from a stage that takes next to nothing to the default request timeout.
const SECONDS: &[f64] = &[
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 30.0,
];
/// Bounds of rows.
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// Bounds of a part of a whole.
const PARTS: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];

const fn metric(
    kind: MetricKind,
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help, buckets: &[], source: MetricSource::Recorded }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(MetricKind::Counter, name, labels, help)
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    metric(MetricKind::Gauge, name, labels, help)
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    buckets: &'static [f64],
    help: &'static str,
) -> Metric {
    Metric { buckets, ..metric(MetricKind::Histogram, name, labels, help) }
}

/// Makes a constant of each row, and the list of all.
macro_rules! metrics {
    ($($name:ident = $metric:expr;)*) => {
        $(pub(crate) const $name: Metric = $metric;)*

        /// All of them, in the order of the document.
        pub const METRICS: &[&Metric] = &[$(&$name),*];
    };
}

metrics! {
    REQUESTS = counter(
        "duovec_requests_total",
        &["route", "status"],
        "Requests answered, by route (none for an unknown one, preflight for a browser's) and \
         status",
    );
    REFUSALS = counter(
        "duovec_request_errors_total",
        &["reason"],
        "Requests answered with an error, by the code in the answer's body",
    );
    CANCELLED = counter(
        "duovec_requests_cancelled_total",
        &[],
        "Requests whose client left before the answer was ready",
    );
    REQUEST_SECONDS = histogram(
        "duovec_request_seconds",
        &["route"],
        SECONDS,
        "Time from a request's head to its answer, whatever its status",
    );
    STAGE_SECONDS = histogram(
        "duovec_request_stage_seconds",
        &["stage"],
        SECONDS,
        "Time of a request that got vectors, by stage; the stages of a request add up to its time",
    );
    ITEMS = counter(
        "duovec_items_total",
        &["outcome"],
        "Items by what became of them; accepted is the sum of the others and of those under way",
    )
    .at(&[
        ("accepted", "/health/tuning/items/accepted"),
        ("replied", "/health/tuning/items/replied"),
        ("failed", "/health/tuning/items/failed"),
        ("expired", "/health/tuning/items/expired"),
        ("cancelled", "/health/tuning/items/cancelled"),
        ("abandoned", "/health/tuning/items/abandoned"),
    ]);
    TRUNCATED = counter(
        "duovec_items_truncated_total",
        &[],
        "Items that were cut to the model's longest input",
    );
    COALESCED = counter(
        "duovec_items_coalesced_total",
        &[],
        "Items that shared the run of another one with the same tokens; they are in accepted too",
    )
    .at(&[("", "/health/tuning/items_coalesced")]);
    CACHE_LOOKUPS = counter(
        "duovec_cache_lookups_total",
        &["result"],
        "Items looked up in the cache: hit or miss. A hit needs no run and is not in accepted",
    )
    .at(&[("hit", "/health/tuning/cache/hits"), ("miss", "/health/tuning/cache/misses")]);
    CACHE_ENTRIES = gauge("duovec_cache_entries", &[], "Texts whose vectors are in the cache")
        .at(&[("", "/health/tuning/cache/entries")]);
    CACHE_BYTES = gauge("duovec_cache_bytes", &[], "Memory of the cache's entries")
        .at(&[("", "/health/tuning/cache/bytes")]);
    CACHE_LIMIT = gauge(
        "duovec_cache_limit_bytes",
        &[],
        "Memory that the cache may use, as --cache-bytes says; 0 is no cache",
    )
    .at(&[("", "/health/tuning/cache/limit_bytes")]);
    PROMISE = gauge(
        "duovec_promise_seconds",
        &[],
        "Time that interactive items are promised, as --interactive-p99-ms says; 0 is none",
    )
    .at(&[("", "/health/tuning/promise/p99_s")]);
    PROMISE_BULK_BATCH = gauge(
        "duovec_promise_bulk_batch_seconds",
        &[],
        "Longest batch of bulk items that is started for the promise's sake; 0 without one",
    )
    .at(&[("", "/health/tuning/promise/bulk_batch_s")]);
    PROMISE_ITEMS = counter(
        "duovec_promise_items_total",
        &["outcome"],
        "Interactive items by whether they got their rows in the promised time: kept or missed",
    )
    .at(&[
        ("kept", "/health/tuning/promise/kept"),
        ("missed", "/health/tuning/promise/missed"),
    ]);
    TOKENS = counter(
        "duovec_tokens_total",
        &["kind"],
        "Tokens that were run: real are those of items, padded those of whole batches",
    )
    .at(&[("real", "/health/tuning/tokens_real"), ("padded", "/health/tuning/tokens_padded")]);
    BATCHES = counter("duovec_batches_total", &[], "Batches that were started")
        .at(&[("", "/health/tuning/batches")]);
    BATCH_SECONDS = histogram(
        "duovec_batch_seconds",
        &[],
        SECONDS,
        "Time of a batch that succeeded, from its choice to its rows",
    );
    BATCH_STAGE_SECONDS = histogram(
        "duovec_batch_stage_seconds",
        &["stage"],
        SECONDS,
        "Time of a batch on its engine: copy_in, compute, copy_out, as far as the engine measures \
         them",
    );
    BATCH_ITEMS = histogram("duovec_batch_items", &[], ROWS, "Items of a batch that succeeded");
    BATCH_FILL = histogram(
        "duovec_batch_fill_ratio",
        &[],
        PARTS,
        "Real tokens of a batch that succeeded over its padded tokens",
    );
    INFLIGHT_BYTES = gauge(
        "duovec_inflight_bytes",
        &[],
        "Bytes that requests hold: bodies, then tokens, vectors and answers until they are sent",
    )
    .at(&[("", "/unpublished/inflight_bytes")]);
    QUEUE_ITEMS = gauge(
        "duovec_queue_items",
        &["priority"],
        "Items that wait, by priority: interactive or bulk",
    )
    .at(&[
        ("interactive", "/health/tuning/queue_interactive"),
        ("bulk", "/health/tuning/queue_bulk"),
    ]);
    QUEUE_TOKENS = gauge(
        "duovec_queue_tokens",
        &[],
        "Tokens of the items that wait, without padding",
    )
    .at(&[("", "/unpublished/running/queue_tokens")]);
    PREDICTED_WAIT = gauge(
        "duovec_predicted_wait_seconds",
        &[],
        "Time that a new item would wait before it runs, were it the last of the queue",
    )
    .at(&[("", "/unpublished/running/predicted_wait_s")]);
    WORKERS = gauge(
        "duovec_workers",
        &["state"],
        "Workers: total are configured, live have a session, busy run a batch, stuck run too long",
    )
    .at(&[
        ("total", "/unpublished/running/workers_total"),
        ("live", "/unpublished/running/workers_live"),
        ("busy", "/unpublished/running/workers_busy"),
        ("stuck", "/unpublished/running/workers_stuck"),
    ]);
    WORKER_RESTARTS = counter("duovec_worker_restarts_total", &[], "Workers that were replaced")
        .at(&[("", "/health/tuning/worker_restarts")]);
    INCIDENTS = counter(
        "duovec_incidents_total",
        &["kind"],
        "batch_split for want of memory, batch_stuck, row_not_finite, row_rescued of those",
    )
    .at(&[
        ("batch_split", "/health/tuning/batches_split"),
        ("batch_stuck", "/health/tuning/batches_stuck"),
        ("row_not_finite", "/health/tuning/rows_not_finite"),
        ("row_rescued", "/health/tuning/rows_rescued"),
    ]);
    COST_ERROR = gauge(
        "duovec_cost_model_error_ratio",
        &[],
        "Median relative error of the cost model when it was fitted at warm-up",
    )
    .at(&[("", "/health/tuning/cost_model/median_error")]);
    COST_CORRECTION = gauge(
        "duovec_cost_model_correction_ratio",
        &[],
        "Measured over predicted time of the batches of late",
    )
    .at(&[("", "/health/tuning/cost_model/correction")]);
    READY = gauge("duovec_ready", &[], "1 when requests are taken, as /health answers, else 0")
        .at(&[("", "/unpublished/ready")]);
    UPTIME = gauge("duovec_uptime_seconds", &[], "Time since the service was made")
        .at(&[("", "/health/uptime_s")]);
    BUILD_INFO = gauge("duovec_build_info", &["version"], "Always 1; the version is in the label")
        .each("/unpublished/build", "value");
    ENGINE_INFO = gauge(
        "duovec_engine_info",
        &["engine", "version", "device", "precision", "model"],
        "Always 1; what runs the model is in the labels. Absent while loading",
    )
    .each("/unpublished/running/engine", "value");
    GPU_FREE = gauge(
        "duovec_gpu_memory_free_bytes",
        &["gpu", "name"],
        "Free memory of a GPU, by CUDA's number and name. Only with TensorRT",
    )
    .each("/unpublished/running/gpus", "free");
    GPU_TOTAL = gauge(
        "duovec_gpu_memory_total_bytes",
        &["gpu", "name"],
        "Memory of a GPU, by CUDA's number and name. Only with TensorRT",
    )
    .each("/unpublished/running/gpus", "total");
    RESIDENT_MEMORY = gauge(
        "process_resident_memory_bytes",
        &[],
        "Resident memory of the process. Only on Linux",
    )
    .at(&[("", "/unpublished/memory_resident_bytes")]);
}
