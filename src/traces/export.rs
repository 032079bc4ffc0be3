//! The exporting thread: records to spans, in batches, to an OTLP collector over HTTP.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use futures_executor::block_on;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanExporter, SpanLinks,
};

use super::{Message, TraceRecord};
use crate::metrics::Stage;
use clock::{Clock, Moment};

/// The most requests of one export.
const BATCH_REQUESTS: usize = 512;

/// The least time from the start of one full batch to the next. The spans of a request cost some 20
/// microseconds, so tracing takes at most 4 % of one core (2048 requests a second), whatever the
/// load.
const FULL_BATCH_TIME: Duration = Duration::from_millis(250);

/// How long a batch gathers after its first request.
const GATHER: Duration = Duration::from_secs(1);

/// Time of one export, its retries included.
const EXPORT_TIME: Duration = Duration::from_secs(5);

/// The log says at most this often that the collector cannot be reached.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(60);

/// What the exporting thread owns.
pub(super) struct Exporter {
    client: opentelemetry_otlp::SpanExporter,
    /// Traces that were lost because the queue was full.
    lost: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
    losses: Losses,
}

/// Traces that were lost, and when the log last said so.
#[derive(Debug, Default)]
struct Losses {
    untold: u64,
    told: Option<Moment>,
}

impl Losses {
    /// Counts lost traces. Returns their number when a line in the log is due.
    fn add(&mut self, traces: u64, now: Moment) -> Option<u64> {
        self.untold += traces;
        let due = self.told.is_none_or(|told| now.since(told) >= COMPLAINT_PAUSE);
        due.then(|| {
            self.told = Some(now);
            std::mem::take(&mut self.untold)
        })
    }
}

impl Exporter {
    pub(super) fn new(url: &str, lost: Arc<AtomicU64>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let builder = opentelemetry_otlp::SpanExporter::builder().with_http();
        let builder = builder.with_endpoint(url).with_protocol(Protocol::HttpBinary);
        let mut client = builder.with_timeout(EXPORT_TIME).build().map_err(io::Error::other)?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder_empty().with_service_name("duovec");
        client.set_resource(&resource.with_attribute(version).build());
        let scope = InstrumentationScope::builder("duovec").build();
        let ids = RandomIdGenerator::default();
        Ok(Self { client, lost, clock, ids, scope, losses: Losses::default() })
    }

    /// Exports until all senders are gone.
    pub(super) fn run(mut self, records: &Receiver<Message>) {
        while let Ok(first) = records.recv() {
            let begun = self.clock.now();
            let until = begun + GATHER;
            let mut batch = Vec::new();
            let mut next = Ok(first);
            let flushed = loop {
                match next {
                    Ok(Message::Ended(record)) => batch.push(record),
                    Ok(Message::Flush(done)) => break Some(done),
                    Err(_) => break None,
                }
                if batch.len() >= BATCH_REQUESTS {
                    break None;
                }
                next = records.recv_timeout(until.since(self.clock.now()));
            };
            self.export(&batch);
            if let Some(done) = flushed {
                // The receiver is gone if closing took too long.
                let _ = done.send(());
            }
            // Requests that end during the pause wait in the queue. Traces beyond its capacity are
            // lost.
            thread::sleep(pause(batch.len(), self.clock.now().since(begun)));
        }
    }

    fn export(&mut self, batch: &[Box<TraceRecord>]) {
        let spans: Vec<SpanData> = batch.iter().flat_map(|record| self.spans(record)).collect();
        if spans.is_empty() {
            return;
        }
        let result = block_on(self.client.export(spans));
        let overflowed = self.lost.swap(0, Ordering::Relaxed);
        match result {
            Ok(()) if overflowed == 0 => {}
            Ok(()) => self.complain(
                overflowed,
                "too many requests for one exporter; lower otlp-sample-ratio",
            ),
            Err(error) => self.complain(overflowed + batch.len() as u64, &error.to_string()),
        }
    }

    fn complain(&mut self, traces: u64, reason: &str) {
        if let Some(lost) = self.losses.add(traces, self.clock.now()) {
            tracing::warn!(lost, reason, "traces are lost");
        }
    }

    /// The spans of a request, its own span first.
    fn spans(&self, record: &TraceRecord) -> Vec<SpanData> {
        let TraceRecord { trace, end, ended } = record;
        let mut begun = *ended - end.took;
        let mut spans = Vec::with_capacity(1 + Stage::ALL.len());
        spans.push(SpanData {
            parent_span_id: trace.parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: trace.parent.is_some(),
            span_kind: SpanKind::Server,
            name: format!("{} {}", end.method, end.route).into(),
            attributes: attributes(record),
            status: match end.error {
                Some(error) if end.is_fault => Status::error(error),
                _ => Status::Unset,
            },
            ..self.span(record, trace.span_id)
        });
        for (stage, took) in Stage::ALL.iter().zip(end.stages.iter().flatten()) {
            let stage_end = begun + *took;
            spans.push(SpanData {
                name: stage.name().into(),
                start_time: begun,
                end_time: stage_end,
                ..self.span(record, self.ids.new_span_id())
            });
            begun = stage_end;
        }
        spans
    }

    /// A span with the request's times, which still lacks its name.
    fn span(&self, record: &TraceRecord, id: SpanId) -> SpanData {
        let TraceRecord { trace, end, ended } = record;
        let flags = TraceFlags::SAMPLED;
        SpanData {
            span_context: SpanContext::new(trace.trace_id, id, flags, false, TraceState::NONE),
            parent_span_id: trace.span_id,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "".into(),
            start_time: *ended - end.took,
            end_time: *ended,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// How long to pause after a batch of `requests` that took `took`.
fn pause(requests: usize, took: Duration) -> Duration {
    if requests < BATCH_REQUESTS { Duration::ZERO } else { FULL_BATCH_TIME.saturating_sub(took) }
}

/// The attributes, by OpenTelemetry's conventions for HTTP servers.
fn attributes(record: &TraceRecord) -> Vec<KeyValue> {
    let end = &record.end;
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new("http.request.method", end.method),
        KeyValue::new("http.route", end.route),
    ];
    if let Some(status) = end.status {
        attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
    }
    if let Some(error) = end.error {
        attributes.push(KeyValue::new("error.type", error));
    }
    if end.items > 0 {
        attributes.push(KeyValue::new("duovec.items", count(end.items as u64)));
        attributes.push(KeyValue::new("duovec.tokens", count(end.tokens)));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_batches_are_paced() {
        let millis = Duration::from_millis;
        assert_eq!(pause(BATCH_REQUESTS - 1, millis(1)), Duration::ZERO);
        assert_eq!(pause(BATCH_REQUESTS, millis(1)), FULL_BATCH_TIME - millis(1));
        assert_eq!(pause(BATCH_REQUESTS, FULL_BATCH_TIME * 2), Duration::ZERO);
    }

    #[test]
    fn losses_are_told_once_in_a_while_and_none_is_forgotten() {
        let mut losses = Losses::default();
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        assert_eq!(losses.add(5, at(1)), Some(5));
        assert_eq!(losses.add(6, at(2)), None);
        assert_eq!(losses.add(7, at(60)), None);
        assert_eq!(losses.add(8, at(61)), Some(21));
        assert_eq!(losses.add(1, at(200)), Some(1));
    }
}
