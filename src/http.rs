//! The HTTP side: one listener, one table of routes, one form of error. The only entry to actix.
//!
//! A request is checked in this order, and the first failure is the answer: route and method, API
//! key, readiness, `x-request-timeout-ms`, content type and encoding, size, JSON, fields in the
//! order they were sent, model, and then what the service refuses. All up to the announced size is
//! decided before the body is read.
//!
//! Answers that actix makes itself have no body and no `x-request-id`, and close the connection:
//! 400 for bytes that are not HTTP/1.x, 431 for oversized headers, 408 when the first request of a
//! connection does not come. `Expect: 100-continue` is always answered with 100 before any check.
//! Actix has no timer for a later head of a kept connection, nor for a client that does not read
//! its answer; a proxy in front has.
//!
//! A refusal that comes before the body is read closes the connection after the answer.

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    ALLOW, CACHE_CONTROL, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use futures_util::FutureExt;
use serde::Serialize;

use crate::clock::{Clock, Moment, RealClock};
use crate::config::{DocsRoutes, HttpConfig};
use crate::service::EmbeddingService;

mod access;
mod auth;
mod body;
mod docs;
mod embed;
mod error;
mod meta;
mod openapi;
mod payload;
mod probe;
mod reply;
mod request_id;
mod routes;
mod validate;

use access::{Outcome, Record};
use auth::Keys;
use error::{ApiError, Code};
use routes::Target;

/// After an answer that came before the whole body, how long the rest is read and thrown away. A
/// socket closed at once would take the answer with it.
const LINGER: Duration = Duration::from_secs(5);

/// What every connection shares.
struct State {
    service: Arc<EmbeddingService>,
    config: HttpConfig,
    keys: Keys,
    clock: RealClock,
}

/// Serves on `listener` until `shutdown` resolves; then takes no new connection, closes idle ones,
/// and returns when every request in flight is answered, or after `drain_timeout` (in whole
/// seconds, rounded up). A request whose client leaves is dropped, and with it what it queued.
///
/// Runs on the runtime of [`block_on`]; starts `config.threads` threads of its own.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(
    listener: TcpListener,
    service: Arc<EmbeddingService>,
    config: HttpConfig,
    drain_timeout: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (threads, keep_alive) = (config.threads, Duration::from_secs(config.keep_alive.get()));
    let keys = Keys::new(&config.api_keys);
    let state = web::Data::new(State { service, config, keys, clock: RealClock::new() });
    let app = move || App::new().app_data(state.clone()).default_service(web::to(answer));
    let server = HttpServer::new(app)
        .workers(threads.as_usize())
        .keep_alive(keep_alive)
        // Connections are opened in advance by pools and load balancers; they may idle as well.
        .client_request_timeout(keep_alive)
        .client_disconnect_timeout(LINGER)
        // A client that closes its side has left: its request is dropped. One that only half-closes
        // looks the same and is not served.
        .h1_allow_half_closed(false)
        // An answer's last packet does not wait for the client's acknowledgement.
        .tcp_nodelay(true)
        .shutdown_timeout(drain_timeout.as_secs_f64().ceil() as u64)
        .disable_signals()
        .listen(listener)?
        .run();
    let handle = server.handle();
    let mut server = Box::pin(server);
    tokio::select! {
        ended = &mut server => return ended,
        () = shutdown => {}
    }
    let (_, ended) = tokio::join!(handle.stop(!drain_timeout.is_zero()), server);
    ended
}

/// Runs `future` on the kind of runtime that [`serve`] needs: one thread, with local tasks.
pub fn block_on<F: Future>(future: F) -> F::Output {
    actix_web::rt::System::new().block_on(future)
}

/// An answer in the making.
struct Answer {
    status: StatusCode,
    body: Vec<u8>,
    content_type: &'static str,
    /// Further headers.
    headers: Vec<(&'static str, &'static str)>,
    /// It is true for this moment only.
    no_store: bool,
    items: usize,
    tokens: u64,
}

impl Answer {
    /// An answer whose body is JSON.
    fn new(status: StatusCode, body: Vec<u8>) -> Self {
        let (content_type, headers) = ("application/json", Vec::new());
        Self { status, body, content_type, headers, no_store: false, items: 0, tokens: 0 }
    }

    fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("our own types have string keys only");
        Self::new(status, body)
    }
}

async fn answer(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> HttpResponse {
    let arrival = state.clock.now();
    let id = request_id::of(request.headers());
    let request_id = id.to_str().unwrap_or_default();
    let found = match state.config.docs {
        DocsRoutes::Omit if routes::is_docs(request.path()) => Err(routes::not_found()),
        DocsRoutes::Omit | DocsRoutes::Serve => routes::find(request.method(), request.path()),
    };
    let (route, is_probe) = match &found {
        Ok(target) => (target.route(), target.is_probe()),
        Err(_) => ("none", false),
    };
    let clock = &state.clock;
    let record = Record { clock, arrival, request_id, route, finished: false };
    let work = async { dispatch(&state, found?, request.headers(), payload, arrival).await };
    // A panic must not take the connection, and with it the client's request id, away.
    let outcome = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        Err(ApiError::server(Code::InternalError, panic_text(panic.as_ref())))
    });
    if let Err(ApiError { cause: Some(cause), .. }) = &outcome {
        tracing::error!(request_id, route, cause, "a request failed");
    }
    let (items, tokens) = outcome.as_ref().map_or((0, 0), |answer| (answer.items, answer.tokens));
    let mut response = match outcome {
        Ok(answer) => success(answer),
        Err(error) => refusal(&error),
    };
    let status = response.status();
    let notable = status.is_server_error() && !is_probe;
    record.finish(Outcome { status: status.as_u16(), items, tokens, notable });
    response.headers_mut().insert(request_id::X_REQUEST_ID, id);
    response
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a panic: {}", text.as_deref().unwrap_or("without a message"))
}

async fn dispatch(
    state: &State,
    target: Target,
    headers: &HeaderMap,
    payload: web::Payload,
    arrival: Moment,
) -> Result<Answer, ApiError> {
    if target.needs_key() {
        state.keys.check(headers)?;
    }
    match target {
        Target::Embed(vectors) => embed::embed(state, headers, payload, vectors, arrival).await,
        Target::Health => Ok(probe::health(&state.service)),
        Target::DeepHealth => Ok(probe::deep(&state.service, &state.config).await),
        Target::Live => Ok(probe::live()),
        Target::Models => meta::list(&state.service),
        Target::Model(name) => meta::one(&state.service, &name),
        Target::OpenApi => Ok(openapi::answer(&state.service, &state.config)),
        Target::Docs(part) => Ok(docs::part(part, headers)),
    }
}

fn success(answer: Answer) -> HttpResponse {
    let mut response = HttpResponse::build(answer.status);
    if answer.no_store {
        response.insert_header((CACHE_CONTROL, "no-store"));
    }
    for header in answer.headers {
        response.insert_header(header);
    }
    response.content_type(answer.content_type).body(answer.body)
}

fn refusal(error: &ApiError) -> HttpResponse {
    let mut response = HttpResponse::build(error.status());
    if let Some(seconds) = error.retry_after_s() {
        response.insert_header((RETRY_AFTER, seconds));
    }
    if let Some(methods) = error.allow {
        response.insert_header((ALLOW, methods));
    }
    if error.code == Code::InvalidApiKey {
        response.insert_header((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
    }
    response.content_type("application/json").body(error.to_json())
}
