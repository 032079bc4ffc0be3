//! The outermost layer of the application, which every answer to a request passes: request id, a
//! line in the log, metrics, a trace, and the end of the connection while the server drains. What
//! is recorded holds no texts, keys or vectors.

use std::rc::Rc;
use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HeaderMap;
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};
use opentelemetry::trace::{SpanId, TraceId};
use tracing::field::{DisplayValue, display};

use super::error::{ApiError, Code};
use super::guarded::Activity;
use super::unread::Body;
use super::{Answer, State, Target, request_id, respond, routes};
use crate::clock::{Clock, Moment};
use crate::health::Phase;
use crate::metrics::{Metrics, Stage};
use crate::traces::{RequestEnd, RequestTrace, Traces, traceparent};

/// The header with the caller's span.
const TRACEPARENT: &str = "traceparent";

/// How the trace of a request without an answer says why.
const CLIENT_LEFT: &str = "client_left";

/// The route of what has none.
const NO_ROUTE: &str = "none";

/// The route of browsers' questions, which the layer of `cors` answers.
const PREFLIGHT: &str = "preflight";

/// What the handler is told of its request.
pub(super) struct Arrived {
    pub(super) arrival: Moment,
    /// What it asks for.
    pub(super) found: Result<Target, ApiError>,
}

/// Answers a request by the layers within, and records it. A request that is dropped is recorded
/// as one whose client left.
///
/// # Errors
/// Those of the layers within; in fact they answer everything.
pub(super) async fn observe(
    state: web::Data<State>,
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let arrival = state.clock.now();
    let id = request_id::of(request.headers());
    let found = routes::find(state.config.docs, request.method(), request.path());
    let mut record = Record {
        clock: &*state.clock,
        metrics: state.service.metrics(),
        arrival,
        request_id: id.to_str().unwrap_or_default(),
        route: found.as_ref().map_or(NO_ROUTE, Target::route),
        is_probe: found.as_ref().is_ok_and(Target::is_probe),
        trace: state.traces.as_deref().zip(found.as_ref().ok()).and_then(|(traces, target)| {
            Traced::begin(traces, request.method(), target, request.headers())
        }),
        finished: false,
    };
    // Connections of HTTP/2 end a request's body by themselves.
    let activity = request.conn_data::<Rc<Activity>>().map(Rc::clone);
    let body = activity.as_ref().map(|activity| Body::watch(&mut request, activity));
    request.extensions_mut().insert(Arrived { arrival, found });
    let mut response = next.call(request).await?.map_into_boxed_body();
    let told = response.response_mut().extensions_mut().remove::<Outcome>();
    let outcome = told.unwrap_or_else(|| {
        record.route = PREFLIGHT;
        let error = response.status().is_client_error().then_some(Code::PreflightRefused);
        Outcome::plain(response.status(), error)
    });
    if outcome.error == Some(Code::PreflightRefused.name()) {
        response = response.into_response(respond(Err(ApiError::preflight_refused())));
    }
    if state.service.phase() >= Phase::LameDuck {
        // The client's next request goes to a server that stays.
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    record.finish(outcome);
    if let Some(body) = body
        && !body.finish().await
    {
        // What still comes of it can be no request.
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    response.headers_mut().insert(request_id::X_REQUEST_ID, id);
    Ok(response)
}

/// A request under way; logs that the client left when it is dropped unfinished.
struct Record<'a> {
    clock: &'a dyn Clock,
    metrics: Option<&'a Metrics>,
    arrival: Moment,
    request_id: &'a str,
    route: &'static str,
    /// The route is polled all day.
    is_probe: bool,
    trace: Option<Traced<'a>>,
    finished: bool,
}

/// A request under way that has a trace.
#[derive(Clone, Copy)]
struct Traced<'a> {
    traces: &'a Traces,
    ids: RequestTrace,
    method: &'static str,
}

impl<'a> Traced<'a> {
    /// What is polled all day gets no trace.
    fn begin(
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
    /// Why the server failed; the client is not told.
    cause: Option<String>,
}

impl Outcome {
    /// What is known of an answer before it is sent.
    pub(super) fn of(answer: &Result<Answer, ApiError>) -> Self {
        match answer {
            Ok(answer) => Self {
                items: answer.items,
                tokens: answer.tokens,
                stages: answer.timeline.map(|timeline| timeline.stages()),
                ..Self::plain(answer.status, None)
            },
            Err(error) => {
                Self { cause: error.cause.clone(), ..Self::plain(error.status(), Some(error.code)) }
            }
        }
    }

    /// An answer of which no more is known.
    fn plain(status: StatusCode, error: Option<Code>) -> Self {
        Self {
            status: status.as_u16(),
            items: 0,
            tokens: 0,
            error: error.map(Code::name),
            is_fault: status.is_server_error(),
            stages: None,
            cause: None,
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
    fn finish(mut self, outcome: Outcome) {
        self.finished = true;
        let Outcome { status, items, tokens, error, is_fault, stages, cause } = outcome;
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
            // An operator should see it, but not what is polled all day.
            None if is_fault && !self.is_probe => write_line!(info, "request answered"),
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
