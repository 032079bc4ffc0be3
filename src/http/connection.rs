//! From listeners to requests: plain or secure connections, HTTP/1.1 or HTTP/2 on them.
//!
//! What actix lacks is here. Each file's header has its states and what leads from one to the next.
//! Each file is there for promises of SECURITY.md, and goes when actix keeps them:
//!
//! - `gate`: hands on one request of HTTP/1.1 at a time, times heads and silence. Promises: a
//!   request is answered as if it came alone; requests sent ahead cost no time; every wait has
//!   a time.
//! - `gate/head`: judges a head before actix sees it. Promises: a request ends where a proxy
//!   takes it to end; heads above 64 KiB are 431 in JSON; `Upgrade` is ignored.
//! - `gate/body`: finds a body's end. Promises: a request ends where a proxy takes it to end.
//! - `activity`: what handlers and connection tell each other. Promises: the answer comes
//!   before the next request is handed on; `100 Continue` only when the body is wanted.
//! - `unread`: the end of a body that no handler has read. Promises: a refused body gets one
//!   answer, and the connection ends.
//! - `timed_stream`: ends a connection whose client wears the server's patience out. Promises: a
//!   slow reader is cut.
//! - `http_2`: streams that end their request when they are reset. Promises: a client that
//!   leaves costs nothing more; heads of HTTP/2 are bounded; a slow reader's stream is reset.
//! - `streams`: the cap on streams, lower while there are many connections. Promises: at most
//!   128 requests at once on a connection, and as few as 8.
//!
//! Every wait for a client has a time. A client that waits for a place among `--max-connections`
//! waits in the system's queue; the server knows nothing of it.
//!
//! | wait for | time | where |
//! |---|---|---|
//! | the TLS handshake, all of it | `--head-timeout-ms` | `secure` |
//! | the first byte of a request | `--keep-alive-s` | `gate`; `http_2` by `patience` |
//! | the rest of its head | `--head-timeout-ms` | `gate` |
//! | the first frames of HTTP/2 | `--head-timeout-ms` | `http_2` |
//! | its body | `--body-timeout-ms`, the request's deadline | `embed` |
//! | a small body that nobody read, before the answer | a tenth of a second | `unread` |
//! | the client to close, after an answer before its body's end | 5 s | `gate` |
//! | the client to take its answer | `--write-timeout-ms`, `--min-read-bytes-per-s` | `patience` |
//! | the client to close, when told to | 5 s, with HTTP/2 2 s | actix, `http_2` |

use std::io;
use std::rc::Rc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, ServiceConfig};
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{
    IntoService, Service, ServiceFactory, ServiceFactoryExt, fn_factory, fn_service,
};
use actix_web::rt::net::TcpStream;
use actix_web::rt::time::timeout;
use actix_web::web;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::app::application;
use super::entrance::Listeners;
use super::held::PART_BYTES;
use super::patience::Timeouts;
use super::record;
use super::state::AppState;
use super::tls::HTTP_2;
use crate::allocator;

mod activity;
mod gate;
mod http_2;
#[cfg(test)]
mod paused;
pub(super) mod streams;
mod timed_stream;
mod turn;
pub(super) mod unread;

use gate::{LINGER, RefuseHead, RequestGate};
use http_2::Common;
use timed_stream::TimedStream;

/// What a connection of HTTP/1.1 takes in memory, about, without what permits hold and without long
/// heads; of HTTP/2 see [`http_2`].
const HTTP_1_BYTES: u64 = 16 * 1024;

/// What a client can have kept before its handshake ends: rustls takes a first message of so many.
const HANDSHAKE_BYTES: u64 = 64 * 1024;

/// Serves at `listeners`, with `config.threads` threads, from the first poll of the result.
///
/// # Errors
/// When a listener cannot be used.
pub(super) fn server(
    listeners: Listeners,
    state: &web::Data<AppState>,
    drain_timeout: Duration,
) -> io::Result<Server> {
    let threads = state.config.threads.as_usize();
    let per_thread = state.config.max_connections.as_usize().div_ceil(threads);
    let builder = Server::build()
        .workers(threads)
        // Further connections wait in the system's queue of the listener.
        .max_concurrent_connections(per_thread)
        .shutdown_timeout(drain_timeout.as_secs_f64().ceil() as u64)
        .disable_signals();
    let draining = builder.graceful_shutdown_signal();
    let Listeners { tcp, unix, tls } = listeners;
    let builder = match unix {
        None => builder,
        Some(unix) => {
            let (state, draining) = (state.clone(), draining.clone());
            builder.listen_uds("unix", unix, move || http_1(state.clone(), draining.clone()))?
        }
    };
    let state = state.clone();
    let builder = match tls {
        None => builder.listen("tcp", tcp, move || {
            fn_service(plain).and_then(http_1(state.clone(), draining.clone()))
        }),
        Some(tls) => builder.listen("tls", tcp, move || {
            let (acceptor, timeouts) = (tls.acceptor(), timeouts(&state));
            fn_service(move |stream| secure(acceptor.clone(), timeouts.clone(), stream))
                .and_then(http_1_or_2(state.clone(), draining.clone()))
        }),
    };
    Ok(builder?.run())
}

async fn plain(stream: TcpStream) -> Result<TcpStream, DispatchError> {
    set_up(&stream);
    Ok(stream)
}

/// A stream of TLS, in a box: the futures of a connection have it in several places, in turn.
type Secured = Box<TlsStream<TcpStream>>;

async fn secure(
    acceptor: TlsAcceptor,
    timeouts: Timeouts,
    stream: TcpStream,
) -> Result<Secured, DispatchError> {
    set_up(&stream);
    let _memory = timeouts.door.count_beside(HANDSHAKE_BYTES);
    match timeout(timeouts.head, acceptor.accept(stream)).await {
        Ok(Ok(mut stream)) => {
            stream.get_mut().1.set_buffer_limit(Some(PART_BYTES));
            Ok(Box::new(stream))
        }
        // Scanners and plain HTTP do this all day.
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            Err(DispatchError::Io(error))
        }
        Err(_) => Err(DispatchError::SlowRequestTimeout),
    }
}

fn set_up(stream: &TcpStream) {
    // An answer's last packet does not wait for the client's acknowledgement. A socket that refuses
    // has been closed already.
    let _ = stream.set_nodelay(true);
}

fn timeouts(state: &AppState) -> Timeouts {
    let config = &state.config;
    Timeouts {
        idle: Duration::from_secs(config.keep_alive.get()),
        head: Duration::from_millis(config.head_timeout.get()),
        write: Duration::from_millis(config.write_timeout.get()),
        least_per_s: config.min_read_rate.get(),
        door: state.service.door(),
    }
}

/// A connection of HTTP/1.1.
fn http_1<T: AsyncRead + AsyncWrite + Unpin + 'static>(
    state: web::Data<AppState>,
    draining: GracefulShutdownSignal,
) -> impl ServiceFactory<T, Config = (), Response = (), Error = DispatchError, InitError = ()> {
    // Each of the server's threads asks for its services, and lives as long as they do.
    actix_web::rt::spawn(allocator::give_back_of_thread());
    let timeouts = timeouts(&state);
    let http = HttpService::build()
        // Silence is timed by `RequestGate`, before the first request as after it.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(LINGER)
        // More of an answer is copied only when the client has taken what was.
        .h1_write_buffer_size(PART_BYTES)
        // A client that closes its side has left, so its request is dropped. One that closes only
        // its sending half looks the same and is not served.
        .h1_allow_half_closed(false)
        .graceful_shutdown_signal(move || wait(draining.clone()))
        .on_connect_ext(|stream: &RequestGate<T>, data| {
            data.insert(stream.activity());
        })
        .h1(application(&state));
    let refuse_head: RefuseHead = Rc::new(move |error| record::refuse_head(&state, error));
    fn_service(move |stream: T| {
        let stream = TimedStream::new(stream, timeouts.patience(), HTTP_1_BYTES);
        let gate = RequestGate::new(stream, timeouts.clone(), Rc::clone(&refuse_head));
        async move { Ok((gate, None)) }
    })
    .and_then(http)
}

/// A connection of which the handshake has chosen the protocol.
fn http_1_or_2(
    state: web::Data<AppState>,
    draining: GracefulShutdownSignal,
) -> impl ServiceFactory<Secured, Config = (), Response = (), Error = DispatchError, InitError = ()>
{
    fn_factory(move || {
        let http_1 = http_1(state.clone(), draining.clone()).new_service(());
        let app = application(&state).new_service(());
        let (state, draining) = (state.clone(), draining.clone());
        async move {
            let (http_1, app) = (Rc::new(http_1.await?), Rc::new(app.await?));
            let dates = ServiceConfig::default();
            let serve = move |stream: Secured| {
                let (http_1, app) = (Rc::clone(&http_1), Rc::clone(&app));
                let (dates, draining) = (dates.clone(), wait(draining.clone()));
                let state = state.clone();
                // In a box: actix has the future twice, and the handshake's in its place before.
                Box::pin(async move {
                    if stream.get_ref().1.alpn_protocol() != Some(HTTP_2) {
                        return http_1.call(stream).await;
                    }
                    let (all_streams, dates) = (&state.all_streams, &dates);
                    let common = Common { all_streams, dates, timeouts: timeouts(&state) };
                    let served = http_2::serve(stream, app, common, draining);
                    served.await.map_err(|error| {
                        tracing::debug!(%error, "a connection of HTTP/2 failed");
                        DispatchError::Io(io::Error::other(error))
                    })
                })
            };
            Ok(serve.into_service())
        }
    })
}

/// Resolves when the server drains.
async fn wait(draining: GracefulShutdownSignal) {
    draining.notified().await;
}
