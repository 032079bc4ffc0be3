//! The HTTP side: one listener, one table of routes, one form of error. The only entry to actix.
//!
//! A request is checked in this order, and the first failure is the answer: route and method, API
//! key, readiness, `x-request-timeout-ms`, `x-priority`, content type and encoding, announced size,
//! the service's door (a live worker, bytes in flight, the wait), JSON, fields in the order they
//! were sent, model, and then what the service refuses. Everything up to the door is decided before
//! the body is read.
//!
//! Bytes that are no request are answered before any of these checks (see `connection/gate`): 400
//! for a head that is malformed, 431 for one that is too large, 408 for one that comes too slowly.
//! The answers are in JSON, are recorded like all others, and close the connection. Their
//! `x-request-id` is always the server's. `Expect: 100-continue` is answered with 100 when the body
//! is wanted, so not before a refusal that the head decides.
//!
//! All other answers pass the layers of `app`.
//!
//! From the moment that health says no, every answer closes its connection. So does an answer that
//! comes before the end of its request's body, unless the rest is small and comes at once (see
//! `connection/unread`).

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::service::EmbeddingService;
use crate::traces::Traces;
use settings::HttpConfig;

mod app;
mod auth;
mod body;
mod connection;
mod cors;
mod embed;
mod endpoint;
mod entrance;
mod error;
mod headers;
mod health;
mod held;
mod model_name;
mod models;
mod nim;
pub(crate) mod offline;
mod openapi;
mod pages;
mod patience;
mod payload;
mod record;
mod reply;
mod request_id;
mod rerank;
mod route;
mod single;
mod state;
mod tei;
mod timeline;
mod tls;
mod tokenize;
mod unix_socket;
mod watched;

pub use auth::key_file::KeyFileError;
pub use entrance::{Entrance, EntranceError};
pub use tls::TlsError;
pub use unix_socket::UnixSocketError;

use connection::streams::AllStreams;
use state::AppState;

/// Serves at `entrance` until `shutdown` resolves; then takes no new connection, closes idle ones,
/// and returns when every request in flight is answered, or after `drain_timeout` (in whole
/// seconds, rounded up). Connections are cut after the time that `shutdown` gives, if that is less.
/// Then the last traces are exported, for some seconds at most. A request whose client leaves is
/// dropped, and with it what it queued.
///
/// Runs on the runtime of [`block_on`], and starts `config.threads` threads of its own.
///
/// # Errors
/// When the listener cannot be used, or the export of traces cannot begin.
pub async fn serve(
    entrance: Entrance,
    service: Arc<EmbeddingService>,
    config: HttpConfig,
    drain_timeout: Duration,
    shutdown: impl Future<Output = Duration>,
) -> io::Result<()> {
    let Entrance { listeners, keys, socket_file } = entrance;
    keys.watch_file()?;
    listeners.tls.iter().try_for_each(|tls| tls.watch_files())?;
    let clock = service.clock();
    let traces = Traces::start(&config.traces, Arc::clone(&clock))?.map(Arc::new);
    let ending = traces.clone();
    let (descriptions, parsing) = (Default::default(), Arc::new(Semaphore::new(1)));
    let (all_streams, crowded_metrics) = (AllStreams::default(), Default::default());
    let notable = Mutex::new((clock.now(), 0));
    let state = AppState {
        service,
        config,
        keys,
        clock,
        traces,
        descriptions,
        all_streams,
        crowded_metrics,
        notable,
        parsing,
    };
    let state = Data::new(state);
    let server = connection::server(listeners, &state, drain_timeout)?;
    let handle = server.handle();
    let mut server = Box::pin(server);
    let ended = tokio::select! {
        ended = &mut server => ended,
        flush_time = shutdown => {
            let stopped = async { tokio::join!(handle.stop(!drain_timeout.is_zero()), server).1 };
            tokio::time::timeout(flush_time, stopped).await.unwrap_or_else(|_| {
                tracing::warn!("connections were cut: their clients did not read or did not send");
                Ok(())
            })
        }
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
