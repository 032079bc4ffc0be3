//! What is counted and timed for `GET /metrics`, in Prometheus' text format.
//!
//! Recording is atomic additions on handles that are looked up once. What the scheduler counts
//! anyway is read when somebody asks, and costs nothing before.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    TextEncoder,
};
use serde_json::Value;

use names::{METRICS, Metric, MetricKind, MetricSource};

pub mod names;

/// Keys that have handles of their own; further ones are looked up each time.
const SLOTS: usize = 64;

/// The definitions are constants, and a test makes a series of each of them.
const SOUND: &str = "names, labels and buckets of our table are sound";

/// A stage of a request. The stages of one request follow each other without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Reading the body, unpacking, parsing, checking.
    Parse,
    /// Text to ids.
    Tokenize,
    /// Until the first batch with an item of the request starts.
    Queue,
    /// Until the last row is back, waits between the request's batches included.
    Compute,
    /// Cutting dense rows, choosing lexical weights.
    Select,
    /// Writing the answer's body.
    Serialize,
}

impl Stage {
    /// In their order.
    pub(crate) const ALL: [Self; 6] =
        [Self::Parse, Self::Tokenize, Self::Queue, Self::Compute, Self::Select, Self::Serialize];

    /// The name in labels and headers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Tokenize => "tokenize",
            Self::Queue => "queue",
            Self::Compute => "compute",
            Self::Select => "select",
            Self::Serialize => "serialize",
        }
    }
}

/// What a batch that succeeded was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchFigures {
    pub items: usize,
    pub(crate) real_tokens: usize,
    pub(crate) padded_tokens: usize,
    /// From its choice to its rows.
    pub whole: Duration,
    /// Copy in, compute, copy out; zero for stages that the engine does not measure.
    pub stages: [Duration; 3],
}

/// Everything that is recorded while it happens; shared by all threads.
pub(crate) struct Metrics {
    requests: Series<IntCounterVec>,
    refusals: Series<IntCounterVec>,
    cancelled: IntCounter,
    request_seconds: Series<HistogramVec>,
    stages: [Histogram; Stage::ALL.len()],
    truncated: IntCounter,
    batch_seconds: Histogram,
    batch_stages: [Histogram; 3],
    batch_items: Histogram,
    batch_fill: Histogram,
    /// Those of the fields above, as they are exported.
    collectors: Vec<Box<dyn Collector>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All zero.
    pub(crate) fn new() -> Self {
        let requests = counters(&names::REQUESTS);
        let refusals = counters(&names::REFUSALS);
        let cancelled = counters(&names::CANCELLED);
        let request_seconds = histograms(&names::REQUEST_SECONDS);
        let stages = histograms(&names::STAGE_SECONDS);
        let truncated = counters(&names::TRUNCATED);
        let batch_seconds = histograms(&names::BATCH_SECONDS);
        let batch_stages = histograms(&names::BATCH_STAGE_SECONDS);
        let batch_items = histograms(&names::BATCH_ITEMS);
        let batch_fill = histograms(&names::BATCH_FILL);
        Self {
            cancelled: cancelled.with_label_values::<&str>(&[]),
            stages: Stage::ALL.map(|stage| stages.with_label_values(&[stage.name()])),
            truncated: truncated.with_label_values::<&str>(&[]),
            batch_seconds: batch_seconds.with_label_values::<&str>(&[]),
            batch_stages: ["copy_in", "compute", "copy_out"]
                .map(|stage| batch_stages.with_label_values(&[stage])),
            batch_items: batch_items.with_label_values::<&str>(&[]),
            batch_fill: batch_fill.with_label_values::<&str>(&[]),
            collectors: vec![
                Box::new(requests.clone()),
                Box::new(refusals.clone()),
                Box::new(cancelled),
                Box::new(request_seconds.clone()),
                Box::new(stages),
                Box::new(truncated),
                Box::new(batch_seconds),
                Box::new(batch_stages),
                Box::new(batch_items),
                Box::new(batch_fill),
            ],
            requests: Series::new(requests),
            refusals: Series::new(refusals),
            request_seconds: Series::new(request_seconds),
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.with((route, status), IntCounter::inc);
        self.request_seconds.with((route, 0), |histogram| histogram.observe(took.as_secs_f64()));
    }

    /// A request was answered with an error of this code.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refusals.with((reason, 0), IntCounter::inc);
    }

    /// A request's client left.
    pub(crate) fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// A request got its vectors; its stages in the order of [`Stage::ALL`].
    pub(crate) fn staged(&self, stages: &[Duration; Stage::ALL.len()]) {
        for (histogram, took) in self.stages.iter().zip(stages) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// So many items were cut.
    pub(crate) fn truncated(&self, items: usize) {
        if items > 0 {
            self.truncated.inc_by(items as u64);
        }
    }

    /// A batch gave its rows.
    pub(crate) fn ran(&self, batch: &BatchFigures) {
        self.batch_seconds.observe(batch.whole.as_secs_f64());
        for (histogram, took) in self.batch_stages.iter().zip(batch.stages) {
            if !took.is_zero() {
                histogram.observe(took.as_secs_f64());
            }
        }
        self.batch_items.observe(batch.items as f64);
        self.batch_fill.observe(batch.real_tokens as f64 / batch.padded_tokens.max(1) as f64);
    }

    /// Everything that was recorded, and what the `facts` of this moment tell, as text.
    pub(crate) fn text(&self, facts: &Value) -> String {
        let mut readings = Readings::default();
        METRICS.iter().for_each(|metric| readings.read(metric, facts));
        readings.0.extend(self.collectors.iter().flat_map(|collector| collector.collect()));
        readings.text()
    }
}

/// Values that are read at the moment of a scrape.
#[derive(Debug, Default)]
struct Readings(Vec<MetricFamily>);

impl Readings {
    /// Adds a metric whose values are in `facts`. A value that is not there has no series.
    fn read(&mut self, metric: &Metric, facts: &Value) {
        let mut series: Vec<(Vec<&str>, f64)> = Vec::new();
        match metric.source {
            MetricSource::Recorded => return,
            MetricSource::At(places) => {
                series.extend(places.iter().filter_map(|(label, place)| {
                    let labels = metric.labels.iter().map(|_| *label).collect();
                    Some((labels, facts.pointer(place)?.as_f64()?))
                }))
            }
            MetricSource::Each(list, value) => {
                let objects = facts.pointer(list).and_then(Value::as_array).into_iter().flatten();
                series.extend(objects.filter_map(|object| {
                    let labels = metric.labels.iter().map(|label| object[label].as_str());
                    Some((labels.collect::<Option<_>>()?, object[value].as_f64()?))
                }));
            }
        }
        self.put(metric, &series);
    }

    /// Adds a counter or a gauge with one series for each set of label values.
    fn put(&mut self, metric: &Metric, series: &[(Vec<&str>, f64)]) {
        let options = options(metric);
        let families = match metric.kind {
            MetricKind::Counter => {
                let counters = CounterVec::new(options, metric.labels).expect(SOUND);
                for (values, value) in series {
                    counters.with_label_values(values).inc_by(*value);
                }
                counters.collect()
            }
            MetricKind::Gauge | MetricKind::Histogram => {
                let gauges = GaugeVec::new(options, metric.labels).expect(SOUND);
                for (values, value) in series {
                    gauges.with_label_values(values).set(*value);
                }
                gauges.collect()
            }
        };
        self.0.extend(families);
    }

    fn text(mut self) -> String {
        // A family without a series is no valid text.
        self.0.retain(|family| !family.get_metric().is_empty());
        self.0.sort_by(|a, b| a.name().cmp(b.name()));
        TextEncoder::new().encode_to_string(&self.0).expect(SOUND)
    }
}

/// Memory of the process that is in the machine's, files that are mapped included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryFigures {
    pub(crate) resident_bytes: u64,
    /// The most so far.
    pub(crate) peak_bytes: u64,
}

/// As Linux tells it; `None` elsewhere.
pub(crate) fn memory() -> Option<MemoryFigures> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    };
    Some(MemoryFigures { resident_bytes: bytes("VmRSS:")?, peak_bytes: bytes("VmHWM:")? })
}

/// Bytes that this process may still take, by the machine and by its control group; `None` where
/// nobody says.
pub(crate) fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    });
    let own = read("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    // In a container the own group is the root.
    let groups = [format!("/sys/fs/cgroup{own}"), "/sys/fs/cgroup".to_owned()];
    let left = |folder: &String| {
        let number = |name: &str| read(&format!("{folder}/{name}"))?.trim().parse::<u64>().ok();
        let (most, used) = (number("memory.max")?, number("memory.current")?);
        let stat = read(&format!("{folder}/memory.stat")).unwrap_or_default();
        let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
        // Files that nobody reads make room when it is needed.
        Some(most.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
    };
    machine.into_iter().chain(groups.iter().filter_map(left)).min()
}

fn options(metric: &Metric) -> Opts {
    Opts::new(metric.name, metric.help)
}

fn counters(metric: &Metric) -> IntCounterVec {
    IntCounterVec::new(options(metric), metric.labels).expect(SOUND)
}

fn histograms(metric: &Metric) -> HistogramVec {
    let options = HistogramOpts::from(options(metric)).buckets(metric.buckets.to_vec());
    HistogramVec::new(options, metric.labels).expect(SOUND)
}

/// The handles of a family, found by a short walk over those in use rather than by a lookup of
/// labels. Those that come first, the common ones, are found first.
struct Series<F: Family> {
    family: F,
    slots: [OnceLock<(SeriesKey, F::Handle)>; SLOTS],
}

/// A metric with labels.
trait Family {
    type Handle;

    fn handle(&self, labels: &[&str]) -> Self::Handle;
}

impl Family for IntCounterVec {
    type Handle = IntCounter;

    fn handle(&self, labels: &[&str]) -> IntCounter {
        self.with_label_values(labels)
    }
}

impl Family for HistogramVec {
    type Handle = Histogram;

    fn handle(&self, labels: &[&str]) -> Histogram {
        self.with_label_values(labels)
    }
}

/// A name, and a status where the family has one (0 elsewhere).
type SeriesKey = (&'static str, u16);

impl<F: Family> Series<F> {
    fn new(family: F) -> Self {
        Self { family, slots: std::array::from_fn(|_| OnceLock::new()) }
    }

    fn with(&self, key: SeriesKey, record: impl FnOnce(&F::Handle)) {
        for slot in &self.slots {
            let (taken, handle) = slot.get_or_init(|| (key, self.look_up(key)));
            if *taken == key {
                return record(handle);
            }
        }
        record(&self.look_up(key));
    }

    fn look_up(&self, (name, status): SeriesKey) -> F::Handle {
        match status {
            0 => self.family.handle(&[name]),
            status => self.family.handle(&[name, &status.to_string()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        }
    }
}
