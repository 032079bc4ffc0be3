//! The HTTP side: one listener, one table of routes, one form of error. The only entry to actix.
//!
//! A request is checked in this order, and the first failure is the answer: route and method, API
//! key, readiness, `x-request-timeout-ms`, `x-priority`, content type and encoding, announced size,
//! the service's door (a live worker, bytes in flight, the wait of the class), JSON, fields in the
//! order they were sent, model, and then what the service refuses. All up to the door is decided
//! before the body is read.
//!
//! Actix answers by itself what is no request, before anything of ours is asked: 400 for bytes that
//! are not HTTP/1.x, 431 for a head of more than 128 KiB (`h1::Dispatcher::poll_request` of
//! actix-http 3.20 puts both on its queue in place of a request). They have no body and no
//! `x-request-id`, and close the connection. `Expect: 100-continue` is always answered with 100
//! before any check. A head that comes too slowly is 408 in JSON, without an id (see `guarded`).
//!
//! All other answers pass `access::observe`, the outermost layer. Where origins are configured, the
//! layer within it answers browsers' preflights (`cors`), and the handler is not asked.
//!
//! From the moment that health says no, every answer closes its connection. So does an answer that
//! comes before the end of its request's body, unless the rest is small and comes at once (see
//! `unread`).

use std::any::Any;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    ALLOW, CACHE_CONTROL, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use futures_util::FutureExt;
use serde::Serialize;

use crate::clock::{Clock, Moment};
use crate::config::HttpConfig;
use crate::service::EmbeddingService;
use crate::traces::Traces;

mod access;
mod auth;
mod body;
mod connection;
mod cors;
mod docs;
mod embed;
mod entrance;
mod error;
mod guarded;
mod http_2;
mod meta;
mod openapi;
mod payload;
mod probe;
mod reply;
mod request_id;
mod routes;
mod timeline;
mod tls;
mod unix_socket;
mod unread;
mod validate;
mod watched;

use access::{Arrived, Outcome};
pub use auth::key_file::KeyFileError;
pub use entrance::{Entrance, EntranceError};
pub use tls::TlsError;
pub use unix_socket::UnixSocketError;

use auth::Keys;
use error::{ApiError, Code};
use routes::Target;
use timeline::Timeline;

/// The content type of all answers but `/metrics` and `/docs`.
const JSON: &str = "application/json";

/// What every connection shares.
struct State {
    service: Arc<EmbeddingService>,
    config: HttpConfig,
    keys: Arc<Keys>,
    clock: Arc<dyn Clock>,
    traces: Option<Arc<Traces>>,
    /// `/openapi.json`, once the model's card is known.
    description: OnceLock<Vec<u8>>,
}

/// Serves at `entrance` until `shutdown` resolves; then takes no new connection, closes idle ones,
/// and returns when every request in flight is answered, or after `drain_timeout` (in whole
/// seconds, rounded up). A request whose client leaves is dropped, and with it what it queued.
///
/// Runs on the runtime of [`block_on`]; starts `config.threads` threads of its own.
///
/// # Errors
/// When the listener cannot be used, or the export of traces cannot begin.
pub async fn serve(
    entrance: Entrance,
    service: Arc<EmbeddingService>,
    config: HttpConfig,
    drain_timeout: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let Entrance { doors, keys, socket_file } = entrance;
    keys.keep_looking()?;
    doors.tls.iter().try_for_each(|tls| tls.keep_looking())?;
    let clock = service.clock();
    let traces = Traces::start(&config.traces, Arc::clone(&clock))?.map(Arc::new);
    let ending = traces.clone();
    let state = web::Data::new(State {
        service,
        config,
        keys,
        clock,
        traces,
        description: OnceLock::new(),
    });
    let server = connection::server(doors, &state, drain_timeout)?;
    let handle = server.handle();
    let mut server = Box::pin(server);
    let ended = tokio::select! {
        ended = &mut server => ended,
        () = shutdown => tokio::join!(handle.stop(!drain_timeout.is_zero()), server).1,
    };
    drop(socket_file);
    if let Some(traces) = ending {
        traces.close().await;
    }
    ended
}

/// Runs `future` on the kind of runtime that [`serve`] needs: one thread, with local tasks.
pub fn block_on<F: Future>(future: F) -> F::Output {
    actix_web::rt::System::new().block_on(future)
}

/// An answer in the making.
struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: Vec<u8>,
    /// Further headers.
    headers: Vec<(&'static str, &'static str)>,
    /// It is true for this moment only.
    no_store: bool,
    items: usize,
    tokens: u64,
    /// Only answers with vectors have one.
    timeline: Option<Timeline>,
}

impl Answer {
    /// An answer whose body is JSON.
    fn new(status: StatusCode, body: Vec<u8>) -> Self {
        let (content_type, headers) = (JSON, Vec::new());
        Self {
            status,
            content_type,
            body,
            headers,
            no_store: false,
            items: 0,
            tokens: 0,
            timeline: None,
        }
    }

    fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("our own types have string keys only");
        Self::new(status, body)
    }
}

/// The one handler; all but the layers around it have their answers here.
async fn answer(
    request: HttpRequest,
    payload: web::Payload,
    state: web::Data<State>,
) -> HttpResponse {
    let arrived = request.extensions_mut().remove::<Arrived>();
    let Arrived { arrival, found } = arrived.expect("`observe` tells it of every request");
    let work = async { dispatch(&state, found?, request.headers(), payload, arrival).await };
    // A panic must not take the connection, and with it the client's request id, away.
    let work = AssertUnwindSafe(work).catch_unwind();
    respond(work.await.unwrap_or_else(|panic| {
        Err(ApiError::server(Code::InternalError, panic_text(panic.as_ref())))
    }))
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
    if target.needs_key(&state.config) {
        state.keys.check(headers)?;
    }
    match target {
        Target::Embed(vectors) => embed::embed(state, headers, payload, vectors, arrival).await,
        Target::Health => Ok(probe::health(&state.service)),
        Target::DeepHealth => Ok(probe::deep(&state.service, &state.config).await),
        Target::Live => Ok(probe::live()),
        Target::Metrics => probe::metrics(&state.service),
        Target::Models => meta::list(&state.service),
        Target::Model(name) => meta::one(&state.service, &name),
        Target::OpenApi => Ok(openapi::answer(state)),
        Target::Docs(part) => Ok(docs::part(part, headers)),
    }
}

/// An answer, with what is to be recorded of it.
fn respond(answer: Result<Answer, ApiError>) -> HttpResponse {
    let outcome = Outcome::of(&answer);
    let mut response = match answer {
        Ok(answer) => success(answer),
        Err(error) => refusal(&error),
    };
    response.extensions_mut().insert(outcome);
    response
}

fn success(answer: Answer) -> HttpResponse {
    let mut response = HttpResponse::build(answer.status);
    if answer.no_store {
        response.insert_header((CACHE_CONTROL, "no-store"));
    }
    if let Some(timeline) = answer.timeline {
        response.insert_header((timeline::SERVER_TIMING, timeline.server_timing()));
        let tokens = HeaderValue::from(answer.tokens);
        response.insert_header((timeline::X_COMPUTE_TOKENS, tokens));
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
    response.content_type(JSON).body(error.to_json())
}
