//! From listeners to requests: plain or secure connections, HTTP/1.1 or HTTP/2 on them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, Protocol};
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{
    IntoServiceFactory, ServiceFactory, ServiceFactoryExt, fn_service, map_config,
};
use actix_web::dev::AppConfig;
use actix_web::middleware::from_fn;
use actix_web::rt::net::{TcpStream, UnixStream};
use actix_web::rt::time::timeout;
use actix_web::{App, Error, HttpResponse, web};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::entrance::Doors;
use super::guarded::{Guarded, LINGER, Patience};
use super::tls::HTTP_2;
use super::{State, access, answer, cors};
use crate::config::HttpConfig;

/// Serves at `doors`, with `config.threads` threads, from the first time that the result is polled.
///
/// # Errors
/// When a listener cannot be used.
pub(super) fn server(
    doors: Doors,
    state: &web::Data<State>,
    drain_timeout: Duration,
) -> io::Result<Server> {
    let threads = state.config.threads.as_usize();
    let per_thread = state.config.max_connections.as_usize().div_ceil(threads);
    let builder = Server::build()
        .workers(threads)
        // Over it connections wait in the system's queue of the listener.
        .max_concurrent_connections(per_thread)
        .shutdown_timeout(drain_timeout.as_secs_f64().ceil() as u64)
        .disable_signals();
    let draining = builder.graceful_shutdown_signal();
    let Doors { tcp, unix, tls } = doors;
    let builder = match unix {
        None => builder,
        Some(unix) => {
            let (state, draining) = (state.clone(), draining.clone());
            builder.listen_uds("unix", unix, move || {
                fn_service(local).and_then(protocol(state.clone(), draining.clone()))
            })?
        }
    };
    let state = state.clone();
    let builder = match tls {
        None => builder.listen("tcp", tcp, move || {
            fn_service(plain).and_then(protocol(state.clone(), draining.clone()))
        }),
        Some(tls) => builder.listen("tls", tcp, move || {
            let acceptor = tls.acceptor();
            let time = head_timeout(&state.config);
            fn_service(move |stream| secure(acceptor.clone(), time, stream))
                .and_then(protocol(state.clone(), draining.clone()))
        }),
    };
    Ok(builder?.run())
}

/// A connection, what is spoken on it, and who opened it.
type Open<T> = (T, Protocol, Option<SocketAddr>);

async fn plain(stream: TcpStream) -> Result<Open<TcpStream>, DispatchError> {
    let peer = set_up(&stream);
    Ok((stream, Protocol::Http1, peer))
}

async fn local(stream: UnixStream) -> Result<Open<UnixStream>, DispatchError> {
    Ok((stream, Protocol::Http1, None))
}

async fn secure(
    acceptor: TlsAcceptor,
    time: Duration,
    stream: TcpStream,
) -> Result<Open<TlsStream<TcpStream>>, DispatchError> {
    let peer = set_up(&stream);
    let stream = match timeout(time, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // Scanners and plain HTTP do this all day.
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return Err(DispatchError::Io(error));
        }
        Err(_) => return Err(DispatchError::SlowRequestTimeout),
    };
    let protocol = match stream.get_ref().1.alpn_protocol() {
        Some(HTTP_2) => Protocol::Http2,
        _ => Protocol::Http1,
    };
    Ok((stream, protocol, peer))
}

fn set_up(stream: &TcpStream) -> Option<SocketAddr> {
    // An answer's last packet does not wait for the client's acknowledgement. A socket that refuses
    // has been closed already.
    let _ = stream.set_nodelay(true);
    stream.peer_addr().ok()
}

fn head_timeout(config: &HttpConfig) -> Duration {
    Duration::from_millis(config.head_timeout.get())
}

/// What happens on an opened connection.
fn protocol<T: AsyncRead + AsyncWrite + Unpin + 'static>(
    state: web::Data<State>,
    draining: GracefulShutdownSignal,
) -> impl ServiceFactory<Open<T>, Config = (), Response = (), Error = DispatchError, InitError = ()>
{
    let HttpConfig { keep_alive, write_timeout, cors_origins, .. } = &state.config;
    let keep_alive = Duration::from_secs(keep_alive.get());
    let patience = Patience {
        idle: keep_alive,
        head: head_timeout(&state.config),
        write: Duration::from_millis(write_timeout.get()),
    };
    let wait = move |draining: GracefulShutdownSignal| async move { draining.notified().await };
    let observed = state.clone();
    let app = App::new()
        .app_data(state.clone())
        .default_service(web::to(answer))
        .wrap(cors::layer(cors_origins))
        // The last layer is the outermost: preflights pass it too.
        .wrap(from_fn(move |request, next| access::observe(observed.clone(), request, next)))
        .into_factory()
        .map_err(|error: Error| -> HttpResponse { error.error_response() });
    let told = draining.clone();
    let http = HttpService::build()
        // Silence is timed by `Guarded`, before the first request as after it.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(LINGER)
        // A client that closes its side has left: its request is dropped. One that only half-closes
        // looks the same and is not served.
        .h1_allow_half_closed(false)
        .graceful_shutdown_signal(move || wait(told.clone()))
        .on_connect_ext(|stream: &Guarded<T>, data| {
            data.insert(stream.activity());
        })
        .finish(map_config(app, |()| AppConfig::default()));
    fn_service(move |(stream, protocol, peer): Open<T>| {
        let stream = Guarded::new(stream, protocol, patience, wait(draining.clone()));
        async move { Ok((stream, protocol, peer)) }
    })
    .and_then(http)
}
