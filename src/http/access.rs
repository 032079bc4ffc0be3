//! What is recorded of each request: a line in the log, metrics, a trace; never texts, keys or
//! vectors.

use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::HeaderMap;
use opentelemetry::trace::{SpanId, TraceId};
use tracing::field::{DisplayValue, display};

use super::error::ApiError;
use super::{Answer, Target};
use crate::clock::{Clock, Moment};
use crate::metrics::{Metrics, Stage};
use crate::traces::{RequestEnd, RequestTrace, Traces, traceparent};

/// The header with the caller's span.
const TRACEPARENT: &str = "traceparent";

/// How the trace of a request without an answer says why.
const CLIENT_LEFT: &str = "client_left";

/// A request under way; logs that the client left when it is dropped unfinished.
pub(super) struct Record<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) metrics: Option<&'a Metrics>,
    pub(super) arrival: Moment,
    pub(super) request_id: &'a str,
    pub(super) route: &'static str,
    pub(super) trace: Option<Traced<'a>>,
    pub(super) finished: bool,
}

/// A request under way that has a trace.
#[derive(Clone, Copy)]
pub(super) struct Traced<'a> {
    traces: &'a Traces,
    ids: RequestTrace,
    method: &'static str,
}

impl<'a> Traced<'a> {
    /// What is polled all day gets no trace.
    pub(super) fn begin(
        traces: &'a Traces,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
    ) -> Option<Self> {
        if target.is_probe() || *target == Target::Metrics {
            return None;
        }
        // Of several headers none is to be believed.
        let mut parents = headers.get_all(TRACEPARENT);
        let parent = parents.next().filter(|_| parents.next().is_none());
        let parent = parent.and_then(|header| traceparent::parse(header.as_bytes()));
        let method = match *method {
            Method::POST => "POST",
            Method::HEAD => "HEAD",
            _ => "GET",
        };
        Some(Self { traces, ids: traces.begin(parent), method })
    }
}

/// An id in a line of the log; a request without a trace has none.
type LogId<I> = Option<DisplayValue<I>>;

/// How a request ended.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    status: u16,
    items: usize,
    tokens: u64,
    error: Option<&'static str>,
    is_fault: bool,
    stages: Option<[Duration; Stage::ALL.len()]>,
    /// An operator should see it: a fault on a route that is not polled all day.
    notable: bool,
    /// Why the server failed; the client is not told.
    cause: Option<String>,
}

impl Outcome {
    /// What is known of an answer before it is sent.
    pub(super) fn of(answer: &Result<Answer, ApiError>, is_probe: bool) -> Self {
        let (status, error) = match answer {
            Ok(answer) => (answer.status, None),
            Err(error) => (error.status(), Some(error.code.name())),
        };
        let cause = answer.as_ref().err().and_then(|error| error.cause.clone());
        let answer = answer.as_ref().ok();
        Self {
            status: status.as_u16(),
            items: answer.map_or(0, |answer| answer.items),
            tokens: answer.map_or(0, |answer| answer.tokens),
            error,
            is_fault: status.is_server_error(),
            stages: answer.and_then(|answer| answer.timeline).map(|timeline| timeline.stages()),
            notable: status.is_server_error() && !is_probe,
            cause,
        }
    }
}

impl Record<'_> {
    /// Trace and span, for a line in the log.
    fn ids(&self) -> (LogId<TraceId>, LogId<SpanId>) {
        let ids = self.trace.map(|trace| trace.ids);
        (ids.map(|ids| display(ids.trace_id)), ids.map(|ids| display(ids.span_id)))
    }

    /// The answer is ready to be sent.
    pub(super) fn finish(mut self, outcome: Outcome) {
        self.finished = true;
        let Outcome { status, items, tokens, error, is_fault, stages, notable, cause } = outcome;
        let took = self.took();
        if let Some(metrics) = self.metrics {
            metrics.answered(self.route, status, took);
            if let Some(error) = error {
                metrics.refused(error);
            }
            if let Some(stages) = &stages {
                metrics.staged(stages);
            }
        }
        self.end_trace(|end| {
            let status = Some(status);
            RequestEnd { took, status, is_fault, error, items, tokens, stages, ..end }
        });
        let (request_id, route, ms) = (self.request_id, self.route, millis(took));
        let (trace_id, span_id) = self.ids();
        // The level of a line is a constant of its place in the code.
        macro_rules! write_line {
            ($level:ident, $($field:ident,)* $text:literal) => {
                tracing::$level!(
                    request_id, route, status, items, tokens, ms, trace_id, span_id, $($field,)*
                    $text
                )
            };
        }
        match cause {
            Some(cause) => write_line!(error, cause, "a request failed"),
            None if notable => write_line!(info, "request answered"),
            None => write_line!(debug, "request answered"),
        }
    }

    fn end_trace(&self, fill: impl FnOnce(RequestEnd) -> RequestEnd) {
        let Some(Traced { traces, ids, method }) = self.trace else { return };
        let end = RequestEnd {
            method,
            route: self.route,
            took: Duration::ZERO,
            status: None,
            is_fault: false,
            error: None,
            items: 0,
            tokens: 0,
            stages: None,
        };
        traces.end(ids, fill(end));
    }

    fn took(&self) -> Duration {
        self.clock.now().since(self.arrival)
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.finished {
            if let Some(metrics) = self.metrics {
                metrics.cancelled();
            }
            let took = self.took();
            self.end_trace(|end| RequestEnd { took, error: Some(CLIENT_LEFT), ..end });
            let (request_id, route, ms) = (self.request_id, self.route, millis(took));
            let (trace_id, span_id) = self.ids();
            tracing::debug!(
                request_id,
                route,
                ms,
                trace_id,
                span_id,
                "the client left before its answer"
            );
        }
    }
}
