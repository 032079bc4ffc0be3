//! Counts and times for `GET /metrics`, in Prometheus' text format.
//!
//! Recording adds to atomics through handles that are looked up once. Counts that the scheduler has
//! anyway are read at a scrape, and cost nothing before.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry, TextEncoder,
};
use serde_json::Value;

use names::{METRICS, Metric, MetricKind, MetricSource};

pub mod names;

/// Keys with handles of their own. Further keys are looked up each time.
const SLOTS: usize = 64;

/// Why building a metric cannot fail: the definitions are constants, and a test makes a series of
/// each.
const SOUND: &str = "names, labels and buckets of our table are sound";

settings::named! {
    /// A stage of a request. The stages of one request follow each other without a gap.
    pub(crate) enum Stage {
        /// Reading the body, unpacking, parsing, checking.
        Parse = "parse",
        /// Text to ids.
        Tokenize = "tokenize",
        /// Until the first batch with an item of the request starts.
        Queue = "queue",
        /// Until the last row is back, waits between the request's batches included.
        Compute = "compute",
        /// Cutting dense rows, choosing lexical weights.
        Select = "select",
        /// Writing the answer's body.
        Serialize = "serialize",
    }
}

/// A batch that succeeded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchFigures {
    pub items: usize,
    pub(crate) real_tokens: usize,
    pub(crate) padded_tokens: usize,
    /// Time from choosing the batch to its rows.
    pub whole: Duration,
    pub stages: StageTimes,
}

/// Time of a run by stage; zero for stages that the engine does not have. All stages are zero if
/// the run was not timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StageTimes {
    pub(crate) copy_in: Duration,
    pub compute: Duration,
    pub(crate) copy_out: Duration,
}

/// Sums over the timed runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StageSums {
    sums: StageTimes,
    runs: u64,
}

impl StageSums {
    pub(crate) fn add(&mut self, run: StageTimes) {
        self.sums.copy_in += run.copy_in;
        self.sums.compute += run.compute;
        self.sums.copy_out += run.copy_out;
        self.runs += u64::from(run != StageTimes::default());
    }

    pub(crate) fn mean(&self) -> StageTimes {
        let runs = self.runs.max(1) as f64;
        StageTimes {
            copy_in: self.sums.copy_in.div_f64(runs),
            compute: self.sums.compute.div_f64(runs),
            copy_out: self.sums.copy_out.div_f64(runs),
        }
    }
}

/// Everything that is recorded as it happens. All threads share it.
pub(crate) struct Metrics {
    requests: Series<IntCounter>,
    refusals: Series<IntCounter>,
    cancelled: IntCounter,
    request_seconds: Series<Histogram>,
    stages: [Histogram; Stage::ALL.len()],
    truncated: IntCounter,
    batch_seconds: Histogram,
    batch_stages: [Histogram; 3],
    batch_items: Histogram,
    batch_fill: Histogram,
    /// The fields above, as they are exported.
    registry: Registry,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let counters = |metric: &Metric| {
            let counters = IntCounterVec::new(options(metric), metric.labels).expect(SOUND);
            registered(&registry, counters)
        };
        let histograms = |metric: &Metric| {
            let options = HistogramOpts::from(options(metric)).buckets(metric.buckets.to_vec());
            registered(&registry, HistogramVec::new(options, metric.labels).expect(SOUND))
        };
        let counter = |metric| counters(metric).with_label_values::<&str>(&[]);
        let histogram = |metric| histograms(metric).with_label_values::<&str>(&[]);
        let (requests, refusals) = (counters(&names::REQUESTS), counters(&names::REFUSALS));
        let request_seconds = histograms(&names::REQUEST_SECONDS);
        let stages = histograms(&names::STAGE_SECONDS);
        let batch_stages = histograms(&names::BATCH_STAGE_SECONDS);
        Self {
            requests: Series::new(move |labels| requests.with_label_values(labels)),
            refusals: Series::new(move |labels| refusals.with_label_values(labels)),
            cancelled: counter(&names::CANCELLED),
            request_seconds: Series::new(move |labels| request_seconds.with_label_values(labels)),
            stages: Stage::ALL.map(|stage| stages.with_label_values(&[stage.name()])),
            truncated: counter(&names::TRUNCATED),
            batch_seconds: histogram(&names::BATCH_SECONDS),
            batch_stages: ["copy_in", "compute", "copy_out"]
                .map(|stage| batch_stages.with_label_values(&[stage])),
            batch_items: histogram(&names::BATCH_ITEMS),
            batch_fill: histogram(&names::BATCH_FILL),
            registry,
        }
    }

    pub(crate) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.with((route, status), IntCounter::inc);
        self.request_seconds.with((route, 0), |histogram| histogram.observe(took.as_secs_f64()));
    }

    /// A request was answered with an error of this code.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refusals.with((reason, 0), IntCounter::inc);
    }

    pub(crate) fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// A request got its vectors. `stages` are in the order of [`Stage::ALL`].
    pub(crate) fn staged(&self, stages: &[Duration; Stage::ALL.len()]) {
        for (histogram, took) in self.stages.iter().zip(stages) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// Items were cut at the model's length.
    pub(crate) fn truncated(&self, items: usize) {
        if items > 0 {
            self.truncated.inc_by(items as u64);
        }
    }

    pub(crate) fn ran(&self, batch: &BatchFigures) {
        self.batch_seconds.observe(batch.whole.as_secs_f64());
        let StageTimes { copy_in, compute, copy_out } = batch.stages;
        for (histogram, took) in self.batch_stages.iter().zip([copy_in, compute, copy_out]) {
            if !took.is_zero() {
                histogram.observe(took.as_secs_f64());
            }
        }
        self.batch_items.observe(batch.items as f64);
        self.batch_fill.observe(batch.real_tokens as f64 / batch.padded_tokens.max(1) as f64);
    }

    /// All recorded metrics, and those that the `facts` of this moment have, as text.
    pub(crate) fn text(&self, facts: &Value) -> String {
        let read = Registry::new();
        METRICS.iter().for_each(|metric| put(&read, metric, &series(metric, facts)));
        let mut families = [self.registry.gather(), read.gather()].concat();
        families.sort_by(|a, b| a.name().cmp(b.name()));
        TextEncoder::new().encode_to_string(&families).expect(SOUND)
    }
}

/// The values of a metric that are in `facts`, each with those of its labels. A value that is not
/// there has no series.
fn series<'a>(metric: &Metric, facts: &'a Value) -> Vec<(Vec<&'a str>, f64)> {
    match metric.source {
        MetricSource::Recorded => Vec::new(),
        MetricSource::At(places) => {
            let one = |&(label, place): &(&'static str, &str)| {
                let labels = metric.labels.iter().map(|_| label).collect();
                Some((labels, facts.pointer(place)?.as_f64()?))
            };
            places.iter().filter_map(one).collect()
        }
        MetricSource::Each(list, value) => {
            let objects = facts.pointer(list).and_then(Value::as_array).into_iter().flatten();
            let one = |object: &'a Value| {
                let labels = metric.labels.iter().map(|label| object[label].as_str());
                Some((labels.collect::<Option<_>>()?, object[value].as_f64()?))
            };
            objects.filter_map(one).collect()
        }
    }
}

/// Adds a counter or a gauge with one series for each set of label values.
fn put(registry: &Registry, metric: &Metric, series: &[(Vec<&str>, f64)]) {
    if series.is_empty() {
        return;
    }
    let options = options(metric);
    if metric.kind == MetricKind::Counter {
        let counters = CounterVec::new(options, metric.labels).expect(SOUND);
        let counters = registered(registry, counters);
        series.iter().for_each(|(labels, n)| counters.with_label_values(labels).inc_by(*n));
    } else {
        let gauges = registered(registry, GaugeVec::new(options, metric.labels).expect(SOUND));
        series.iter().for_each(|(labels, value)| gauges.with_label_values(labels).set(*value));
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, family: C) -> C {
    registry.register(Box::new(family.clone())).expect(SOUND);
    family
}

/// Resident memory of the process, mapped files included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryFigures {
    pub(crate) resident_bytes: u64,
    /// The most resident memory so far.
    pub(crate) peak_bytes: u64,
}

/// Memory as Linux tells it; `None` on other systems.
pub(crate) fn memory() -> Option<MemoryFigures> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let (resident_bytes, peak_bytes) = (bytes(&status, "VmRSS:")?, bytes(&status, "VmHWM:")?);
    Some(MemoryFigures { resident_bytes, peak_bytes })
}

/// What a file of Linux tells in kibibytes behind this name.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Bytes that this process may still take, by the machine and by its control group; `None` if
/// neither is known.
pub(crate) fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| bytes(&text, "MemAvailable:"));
    let own = read("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    // In a container the process's own group is the root.
    let groups = [format!("/sys/fs/cgroup{own}"), "/sys/fs/cgroup".to_owned()];
    let left = |folder: &String| {
        let number = |name: &str| read(&format!("{folder}/{name}"))?.trim().parse::<u64>().ok();
        let (most, used) = (number("memory.max")?, number("memory.current")?);
        let stat = read(&format!("{folder}/memory.stat")).unwrap_or_default();
        let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
        // The system drops cached files that nobody reads when memory is needed.
        Some(most.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
    };
    machine.into_iter().chain(groups.iter().filter_map(left)).min()
}

/// How long threads of this process were ready to run while others had the cores, together; nothing
/// where Linux does not tell it.
pub(crate) fn waited_for_cores() -> Duration {
    let waited = |thread: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let figures = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        figures.split(' ').nth(1)?.parse().ok()
    };
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    Duration::from_nanos(threads.filter_map(waited).sum())
}

fn options(metric: &Metric) -> Opts {
    Opts::new(metric.name, metric.help)
}

/// The handles of a family. A short walk over the handles in use replaces a lookup of labels.
/// Common handles are created early, so they are found first.
struct Series<H> {
    look_up: Box<LookUp<H>>,
    slots: [OnceLock<(SeriesKey, H)>; SLOTS],
}

/// Gives the handle of the series with these labels.
type LookUp<H> = dyn Fn(&[&str]) -> H + Send + Sync;

/// A name, and a status if the family has one (else 0).
type SeriesKey = (&'static str, u16);

impl<H> Series<H> {
    fn new(look_up: impl Fn(&[&str]) -> H + Send + Sync + 'static) -> Self {
        let slots = std::array::from_fn(|_| OnceLock::new());
        Self { look_up: Box::new(look_up), slots }
    }

    fn with(&self, key: SeriesKey, record: impl FnOnce(&H)) {
        for slot in &self.slots {
            let (taken, handle) = slot.get_or_init(|| (key, self.look_up(key)));
            if *taken == key {
                return record(handle);
            }
        }
        record(&self.look_up(key));
    }

    fn look_up(&self, (name, status): SeriesKey) -> H {
        match status {
            0 => (self.look_up)(&[name]),
            status => (self.look_up)(&[name, &status.to_string()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use settings::limits::MaxRequestTimeoutMs;

    #[test]
    fn more_series_than_slots_are_counted_all_the_same() {
        let metrics = Metrics::new();
        for status in 100..300 {
            metrics.answered("none", status, Duration::ZERO);
            metrics.answered("none", status, Duration::ZERO);
        }
        let text = metrics.text(&Value::Null);
        for status in 100..300 {
            let line = format!(r#"duovec_requests_total{{route="none",status="{status}"}} 2"#);
            assert!(text.contains(&line), "{line}");
        }
    }

    #[test]
    fn values_of_the_facts_have_their_labels_and_those_that_are_not_there_no_series() {
        let gpus = json!([{"gpu": "0", "name": "a", "free": 1, "total": 2}, {"gpu": "1"}]);
        let facts = json!({
            "health": {"tuning": {"tokens_real": 7, "cost_model": {"median_error": null}}},
            "unpublished": {"running": {"gpus": gpus}},
        });
        let text = Metrics::new().text(&facts);
        let found = text.lines().filter(|line| !line.starts_with('#'));
        let found: Vec<&str> = found.filter(|line| !line.contains("duovec_batch")).collect();
        let expected = [
            r#"duovec_gpu_memory_free_bytes{gpu="0",name="a"} 1"#,
            r#"duovec_gpu_memory_total_bytes{gpu="0",name="a"} 2"#,
            "duovec_items_truncated_total 0",
        ];
        assert!(expected.iter().all(|line| found.contains(line)), "{found:?}");
        assert!(found.contains(&r#"duovec_tokens_total{kind="real"} 7"#), "{found:?}");
        let others = ["padded", "cost_model", "uptime", "gpu=\"1\""];
        assert!(
            !others.iter().any(|word| found.iter().any(|line| line.contains(word))),
            "{found:?}"
        );
    }

    #[test]
    fn names_are_unique_and_end_in_their_units() {
        for (place, metric) in METRICS.iter().enumerate() {
            let name = metric.name;
            assert!(METRICS[..place].iter().all(|other| other.name != name), "{name}");
            assert_eq!(metric.kind == MetricKind::Counter, name.ends_with("_total"), "{name}");
            assert_eq!(metric.kind == MetricKind::Histogram, !metric.buckets.is_empty(), "{name}");
            assert!(metric.buckets.is_sorted(), "{name}");
            let longest_s = MaxRequestTimeoutMs::DEFAULT.get() as f64 / 1e3;
            let is_long = metric.buckets.last().is_none_or(|last| *last >= longest_s);
            assert!(is_long || !name.ends_with("_seconds"), "{name}");
        }
    }

    #[test]
    fn runs_that_were_not_timed_are_left_out_of_the_mean() {
        let run = |ms| StageTimes { compute: Duration::from_millis(ms), ..StageTimes::default() };
        let mut sums = StageSums::default();
        assert_eq!(sums.mean(), StageTimes::default());
        [run(2), run(0), run(0), run(4)].into_iter().for_each(|run| sums.add(run));
        assert_eq!(sums.mean(), run(3));
    }

    #[test]
    fn the_mean_holds_over_any_number_of_runs() {
        let run = StageTimes { compute: Duration::from_millis(2), ..StageTimes::default() };
        let all = StageTimes { compute: run.compute * u32::MAX, ..run };
        let mut sums = StageSums { sums: all, runs: u32::MAX.into() };
        sums.add(run);
        assert_eq!(sums.mean(), run);
    }
}
