//! Traces of requests: ids, sampling, and the queue to the thread that exports them.
//!
//! A running request carries ids only. When it ends, a record goes into a bounded queue, and the
//! exporting thread makes spans of the record. A full queue loses whole traces and never waits. A
//! record has only numbers and our own names: no text, key or vector can get into a span.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use tokio::sync::oneshot;

use crate::metrics::Stage;
use clock::{Clock, wall_time};
use settings::TraceConfig;

mod export;
pub mod traceparent;

use export::Exporter;
use traceparent::TraceParent;

/// The most requests that may wait for their export.
const QUEUE_REQUESTS: usize = 4096;

/// How long the end of the process may wait for the last export.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// The ids of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestTrace {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    /// The caller's span.
    parent: Option<SpanId>,
    sampled: bool,
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestEnd {
    pub method: &'static str,
    pub route: &'static str,
    pub took: Duration,
    /// Absent if the client left before the answer.
    pub status: Option<u16>,
    /// Whether the server is to blame.
    pub(crate) is_fault: bool,
    /// The code of an error.
    pub error: Option<&'static str>,
    pub items: usize,
    pub tokens: u64,
    /// The time of each stage, in the order of [`Stage::ALL`]. Only requests with vectors have
    /// stages.
    pub stages: Option<[Duration; Stage::ALL.len()]>,
}

/// What the exporting thread makes the spans of a request from.
#[derive(Debug)]
struct TraceRecord {
    trace: RequestTrace,
    end: RequestEnd,
    ended: SystemTime,
}

#[derive(Debug)]
enum Message {
    Ended(Box<TraceRecord>),
    /// Asks the thread to export all earlier records.
    Flush(oneshot::Sender<()>),
}

/// Makes ids for requests and hands records to the exporter. All threads share it.
#[derive(Debug)]
pub(crate) struct Traces {
    queue: SyncSender<Message>,
    /// Traces that were lost because the queue was full.
    lost: Arc<AtomicU64>,
    /// New traces whose id's lower half is below this are sampled.
    sampled_below: u128,
    ids: RandomIdGenerator,
}

impl Traces {
    /// Starts the exporting thread; `None` without an endpoint.
    ///
    /// # Errors
    /// If the thread or the client of the endpoint cannot be made.
    pub(crate) fn start(config: &TraceConfig, clock: Arc<dyn Clock>) -> io::Result<Option<Self>> {
        let Some(url) = config.endpoint.as_deref() else { return Ok(None) };
        let (queue, records) = sync_channel(QUEUE_REQUESTS);
        let lost = Arc::new(AtomicU64::new(0));
        let exporter = Exporter::new(url, Arc::clone(&lost), clock)?;
        let thread = thread::Builder::new().name("duovec-traces".to_owned());
        thread.spawn(move || exporter.run(&records))?;
        let sampled_below = (config.sample_ratio * 2_f64.powi(64)) as u128;
        Ok(Some(Self { queue, lost, sampled_below, ids: RandomIdGenerator::default() }))
    }

    /// The ids of a request, in its caller's trace or in a new trace.
    pub(crate) fn begin(&self, parent: Option<TraceParent>) -> RequestTrace {
        let span_id = self.ids.new_span_id();
        match parent {
            Some(TraceParent { trace_id, span_id: parent, sampled }) => {
                RequestTrace { trace_id, span_id, parent: Some(parent), sampled }
            }
            None => {
                let trace_id = self.ids.new_trace_id();
                let lower = u128::from_be_bytes(trace_id.to_bytes()) & u128::from(u64::MAX);
                let sampled = lower < self.sampled_below;
                RequestTrace { trace_id, span_id, parent: None, sampled }
            }
        }
    }

    /// Hands a request over to the exporter, if its trace is sampled; never waits.
    pub(crate) fn end(&self, trace: RequestTrace, end: RequestEnd) {
        if !trace.sampled {
            return;
        }
        let record = Box::new(TraceRecord { trace, end, ended: wall_time() });
        match self.queue.try_send(Message::Ended(record)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until all ended requests are exported, for a few seconds at most.
    pub(crate) async fn close(&self) {
        let (done, flushed) = oneshot::channel();
        let queue = self.queue.clone();
        // Sending into a full queue blocks, which an async task must not do.
        thread::spawn(move || queue.send(Message::Flush(done)));
        if !matches!(tokio::time::timeout(CLOSE_TIME, flushed).await, Ok(Ok(()))) {
            tracing::warn!("the last traces could not be exported in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::RealClock;

    /// Nobody listens at the endpoint, and these tests export nothing.
    fn traces(ratio: &str) -> Traces {
        let config = TraceConfig {
            endpoint: Some("http://127.0.0.1:9/v1/traces".to_owned()),
            sample_ratio: ratio.parse().expect("it is a ratio"),
        };
        let traces = Traces::start(&config, Arc::new(RealClock::new()));
        traces.expect("the thread starts").expect("there is an endpoint")
    }

    #[test]
    fn new_traces_are_sampled_by_the_ratio() {
        let sampled = |ratio| {
            let traces = traces(ratio);
            (0..4000).filter(|_| traces.begin(None).sampled).count()
        };
        assert_eq!(sampled("0"), 0);
        assert_eq!(sampled("1"), 4000);
        // The bounds are nine standard deviations away.
        assert!((750..=1250).contains(&sampled("0.25")));
    }

    #[test]
    fn a_full_queue_loses_traces_and_does_not_wait() {
        let (queue, _records) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let ids = RandomIdGenerator::default();
        let traces = Traces { queue, lost, sampled_below: u128::MAX, ids };
        let end = RequestEnd {
            method: "POST",
            route: "/v1/embeddings",
            took: Duration::ZERO,
            status: Some(200),
            is_fault: false,
            error: None,
            items: 1,
            tokens: 2,
            stages: None,
        };
        for _ in 0..3 {
            traces.end(traces.begin(None), end);
        }
        assert_eq!(traces.lost.load(Ordering::Relaxed), 2);
    }
}
