//! The record of every request: its id, a line in the log, metrics, a trace. What is recorded holds
//! no texts, keys or vectors.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix_cors::CorsError;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, ResponseError};
use opentelemetry::trace::{SpanId, TraceId};
use tracing::field::{DisplayValue, display};

use super::endpoint::Endpoint;
use super::error::{ApiError, Code};
use super::headers::X_REQUEST_TIMEOUT_MS;
use super::request_id;
use super::state::AppState;
use super::timeline::millis;
use crate::health::Phase;
use crate::metrics::Stage;
use crate::traces::traceparent::{self, TraceParent};
use crate::traces::{RequestEnd, RequestTrace, Traces};
use clock::Moment;

/// The header with the caller's span.
const TRACEPARENT: &str = "traceparent";

/// How the trace of a request without an answer says why.
const CLIENT_LEFT: &str = "client_left";

/// The method of what no route takes, as OpenTelemetry names it.
const OTHER_METHOD: &str = "_OTHER";

/// The route of what has none.
const NO_ROUTE: &str = "none";

/// The route of browsers' questions, which the layer of `cors` answers.
const PREFLIGHT: &str = "preflight";

/// What the record of a request is told while the request runs.
pub(super) struct RequestContext {
    /// When its head was whole.
    pub(super) arrival: Moment,
    entered: Cell<Option<Entered>>,
    /// What its answer holds.
    pub(super) served: Cell<Served>,
    /// Its time in milliseconds, when it asked for more than it may have.
    pub(super) cut_ms: Cell<Option<u64>>,
}

/// A route that was found for a request.
#[derive(Clone, Copy)]
struct Entered {
    endpoint: Endpoint,
    method: &'static str,
    trace: Option<RequestTrace>,
}

/// What an answer with vectors holds; other answers hold nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Served {
    pub(super) items: usize,
    pub(super) tokens: u64,
    pub(super) stages: Option<[Duration; Stage::ALL.len()]>,
}

impl RequestContext {
    /// That of a request which `observe` has seen.
    pub(super) fn of(request: &HttpRequest) -> Rc<Self> {
        let context = request.extensions().get::<Rc<Self>>().cloned();
        context.expect("`observe` is a layer around all that ask for it")
    }

    /// A route was found, which does not take the request's method.
    pub(super) fn refuse_method(&self, endpoint: Endpoint) {
        self.entered.set(Some(Entered { endpoint, method: OTHER_METHOD, trace: None }));
    }

    /// A route was found; a trace begins, unless the route has none.
    pub(super) fn enter(
        &self,
        endpoint: Endpoint,
        request: &ServiceRequest,
        traces: Option<&Traces>,
    ) {
        let traces = traces.filter(|_| !endpoint.is_polled);
        let trace = traces.map(|traces| traces.begin(parent(request.headers())));
        let method = match *request.method() {
            Method::POST => "POST",
            Method::HEAD => "HEAD",
            _ => "GET",
        };
        self.entered.set(Some(Entered { endpoint, method, trace }));
    }
}

/// The caller's span. Of several headers none is to be believed.
fn parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut parents = headers.get_all(TRACEPARENT);
    let parent = parents.next().filter(|_| parents.next().is_none());
    traceparent::parse(parent?.as_bytes())
}

/// The layer that records requests. One that is dropped is recorded as one whose client left.
pub(super) async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let state = AppState::of(request.request()).clone();
    let id = request_id::of(request.headers());
    let record = Record::begin(&state, id.to_str().unwrap_or_default());
    request.extensions_mut().insert(Rc::clone(&record.context));
    let mut response = next.call(request).await?.map_into_boxed_body();
    // What actix and its layers refuse by themselves has the form of all refusals.
    if let Some(error) = response.response().error().and_then(in_our_form) {
        response = response.error_response(error);
    }
    let cut_ms = record.context.cut_ms.get();
    let error = response.response().error().and_then(Error::as_error);
    record.finish(response.status(), error);
    if state.service.phase() >= Phase::LameDuck {
        // Health says no, so the client's next request goes to a server that stays.
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    let headers = response.headers_mut();
    headers.insert(request_id::X_REQUEST_ID, id);
    if let Some(millis) = cut_ms {
        let name = HeaderName::from_static(X_REQUEST_TIMEOUT_MS);
        headers.insert(name, HeaderValue::from(millis));
    }
    Ok(response)
}

/// Records a request that no layer sees, since its head was refused. Gives its answer, after which
/// the connection ends.
pub(super) fn refuse_head(state: &AppState, error: &ApiError) -> Vec<u8> {
    let id = request_id::new();
    Record::begin(state, &id).finish(error.status_code(), Some(error));
    error.to_bare_answer(&id)
}

/// Our error for one of actix or its layers; `None` for one that is ours already.
fn in_our_form(error: &Error) -> Option<ApiError> {
    if error.as_error::<ApiError>().is_some() {
        return None;
    }
    Some(match error.as_error::<CorsError>() {
        Some(_) => ApiError::preflight_refused(),
        None => ApiError::server(Code::InternalError, error.to_string()),
    })
}

/// A request under way; records that the client left when it is dropped unfinished.
struct Record<'a> {
    state: &'a AppState,
    context: Rc<RequestContext>,
    request_id: &'a str,
    is_finished: bool,
}

/// An id in a line of the log; a request without a trace has none.
type LogId<I> = Option<DisplayValue<I>>;

impl<'a> Record<'a> {
    /// A request of which the head has just come, or been refused.
    fn begin(state: &'a AppState, request_id: &'a str) -> Self {
        let context = Rc::new(RequestContext {
            arrival: state.clock.now(),
            entered: Cell::default(),
            served: Cell::default(),
            cut_ms: Cell::default(),
        });
        Self { state, context, request_id, is_finished: false }
    }

    /// The answer is ready to be sent.
    fn finish(mut self, status: StatusCode, error: Option<&ApiError>) {
        self.is_finished = true;
        let Served { items, tokens, stages } = self.context.served.get();
        let (route, took) = (self.route(error), self.took());
        let (is_fault, status) = (status.is_server_error(), status.as_u16());
        let code = error.map(|error| error.code.name());
        if let Some(metrics) = self.state.service.metrics() {
            metrics.answered(route, status, took);
            if let Some(code) = code {
                metrics.refused(code);
            }
            if let Some(stages) = &stages {
                metrics.staged(stages);
            }
        }
        self.end_trace(Some(status), is_fault, code);
        let (request_id, ms) = (self.request_id, millis(took));
        let (trace_id, span_id) = self.ids();
        let is_polled =
            self.context.entered.get().is_some_and(|entered| entered.endpoint.is_polled);
        // The level of a line is a constant of its place in the code.
        macro_rules! write_line {
            ($level:ident, $($field:ident,)* $text:literal) => {
                tracing::$level!(
                    request_id, route, status, items, tokens, ms, trace_id, span_id, $($field,)*
                    $text
                )
            };
        }
        let is_notable = || self.state.is_notable();
        match error.and_then(|error| error.cause.as_deref()) {
            Some(cause) if is_notable() => write_line!(error, cause, "a request failed"),
            Some(cause) => write_line!(debug, cause, "a request failed"),
            // An operator should see it, but not what is polled all day.
            None if is_fault && !is_polled && is_notable() => {
                write_line!(info, "request answered");
            }
            None => write_line!(debug, "request answered"),
        }
    }

    fn route(&self, error: Option<&ApiError>) -> &'static str {
        match (self.context.entered.get(), error.map(|error| error.code)) {
            (Some(entered), _) => entered.endpoint.name,
            (None, None | Some(Code::PreflightRefused)) => PREFLIGHT,
            (None, Some(_)) => NO_ROUTE,
        }
    }

    /// Trace and span, for a line in the log.
    fn ids(&self) -> (LogId<TraceId>, LogId<SpanId>) {
        let trace = self.context.entered.get().and_then(|entered| entered.trace);
        (trace.map(|ids| display(ids.trace_id)), trace.map(|ids| display(ids.span_id)))
    }

    fn end_trace(&self, status: Option<u16>, is_fault: bool, error: Option<&'static str>) {
        let (Some(traces), Some(entered)) = (&self.state.traces, self.context.entered.get()) else {
            return;
        };
        let Some(trace) = entered.trace else { return };
        let Served { items, tokens, stages } = self.context.served.get();
        let (method, route, took) = (entered.method, entered.endpoint.name, self.took());
        let end =
            RequestEnd { method, route, took, status, is_fault, error, items, tokens, stages };
        traces.end(trace, end);
    }

    fn took(&self) -> Duration {
        self.state.clock.now().since(self.context.arrival)
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if let Some(metrics) = self.state.service.metrics() {
            metrics.cancelled();
        }
        self.end_trace(None, false, Some(CLIENT_LEFT));
        let (request_id, route) = (self.request_id, self.route(None));
        let ms = millis(self.took());
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
