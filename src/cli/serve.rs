//! `duovec serve`: binds, loads, serves, drains. All wiring happens here.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::{oneshot, watch};

use crate::clock::{Clock, RealClock};
use crate::config::Config;
use crate::health::Phase;
use crate::http::{self, Entrance};
use crate::package::ModelPackage;
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::service::{EmbeddingService, Resident, ServiceOptions};
use crate::shutdown::Signals;
use crate::telemetry;
use crate::worker::pool::WorkerPool;

use super::load::{Chosen, load};

/// How long worker threads may take to end once nothing waits; they only drop their sessions.
const WORKER_EXIT: Duration = Duration::from_secs(10);

/// Serves until a signal or a fault ends the process.
///
/// # Errors
/// Everything that ends the process with a non-zero exit code.
pub(super) fn serve(config: &Config) -> anyhow::Result<()> {
    telemetry::init(&config.log);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let options = ServiceOptions {
        model_aliases: config.model_aliases.clone(),
        token_input: config.token_input,
    };
    let service = Arc::new(EmbeddingService::new(options, Arc::clone(&clock)));
    // A wrong directory is said at once, before the port is taken.
    service.announce(ModelPackage::read_manifest(&config.package)?.manifest());
    let entrance = open(config)?;
    http::block_on(run(config, service, clock, entrance))
}

fn open(config: &Config) -> anyhow::Result<Entrance> {
    let entrance = Entrance::open(config.address, &config.http)?;
    let bound = entrance.address().context("cannot read the address listened on")?;
    let tls = entrance.is_secure();
    tracing::info!(address = %bound, tls, "listening; the model is being loaded");
    Ok(entrance)
}

async fn run(
    config: &Config,
    service: Arc<EmbeddingService>,
    clock: Arc<dyn Clock>,
    entrance: Entrance,
) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let (stop, mut stopped) = watch::channel(false);
    let drain_timeout = Duration::from_millis(config.drain_timeout.get());
    let shutdown = async move {
        let _ = stopped.wait_for(|&stop| stop).await;
    };
    let http = config.http.clone();
    let server = http::serve(entrance, Arc::clone(&service), http, drain_timeout, shutdown);
    let server = tokio::task::spawn_local(server);
    let mut loading = spawn_loader(config.clone(), Arc::clone(&service), clock)?;
    let mut pool = None;
    let outcome = loop {
        tokio::select! {
            loaded = &mut loading, if pool.is_none() => match loaded {
                Ok(Ok(started)) => pool = Some(started),
                Ok(Err(error)) => break Err(error),
                Err(_) => break Err(anyhow!("the thread that loads the model panicked")),
            },
            reason = failure(pool.as_ref()) => {
                service.fail(reason.clone());
                break Err(anyhow!("the device was lost: {reason}"));
            }
            signal = signals.next() => {
                match drain(&service, signal, drain_timeout, &mut signals).await {
                    Drained::Waited => break Ok(()),
                    Drained::Interrupted(again) => {
                        return Err(anyhow!("a second signal ({again}) ended the drain"));
                    }
                }
            }
        }
    };
    if let Err(error) = &outcome {
        service.fail(format!("{error:#}"));
    }
    let _ = stop.send(true);
    server.await.context("the HTTP side panicked")?.context("the HTTP side failed")?;
    close(&service, pool).await;
    outcome
}

/// Resolves when the pool cannot go on; never without a pool.
async fn failure(pool: Option<&WorkerPool>) -> String {
    match pool {
        Some(pool) => pool.failed().await,
        None => std::future::pending().await,
    }
}

/// Loads on a thread of its own, so that health is answered meanwhile.
fn spawn_loader(
    config: Config,
    service: Arc<EmbeddingService>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<oneshot::Receiver<anyhow::Result<WorkerPool>>> {
    let (done, loading) = oneshot::channel();
    thread::Builder::new()
        .name("duovec-loader".to_owned())
        .spawn(move || {
            // The receiver is gone only when the process is ending already.
            let _ = done.send(start(&config, &service, clock));
        })
        .context("cannot start the thread that loads the model")?;
    Ok(loading)
}

fn start(
    config: &Config,
    service: &EmbeddingService,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<WorkerPool> {
    let begin = clock.now();
    let loaded = load(config, &clock)?;
    let Chosen { engine, workers, max_batch_tokens, reason } = loaded.chosen;
    let info = engine.info().clone();
    let scheduler_config = SchedulerConfig {
        queue_capacity: config.queue.capacity,
        max_batch_tokens,
        max_batch_rows: config.queue.max_batch_rows,
        max_age: config.queue.max_age,
        workers,
    };
    let scheduler = Scheduler::new(scheduler_config, &info, Arc::clone(&clock));
    let opened = clock.now();
    let pool =
        WorkerPool::start(Arc::clone(&engine), scheduler.clone(), Arc::clone(&clock), workers);
    pool.wait_ready().context("a worker cannot be opened")?;
    let now = clock.now();
    let (warm_up, whole) = (now.since(opened), now.since(begin));
    let model = loaded.package.manifest().model_id.clone();
    service.install(Resident {
        package: loaded.package,
        tokenizer: loaded.tokenizer,
        engine,
        engine_reason: reason,
        max_batch_tokens,
        scheduler,
        warm_up,
    });
    // Only now: whoever waits for this line may send a request at once.
    tracing::info!(
        model,
        engine = info.kind.name(),
        precision = info.precision,
        device = info.device,
        workers = workers.get(),
        threads_per_worker = info.threads_per_session,
        buckets = info.buckets.len(),
        warm_up_ms = millis(warm_up),
        load_ms = millis(whole),
        "ready"
    );
    Ok(pool)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How a drain ended.
enum Drained {
    /// Everything is answered, or the time is over.
    Waited,
    /// By another signal, whose name this is.
    Interrupted(&'static str),
}

/// Answers what was accepted, for at most `timeout`; a second signal ends the wait.
async fn drain(
    service: &EmbeddingService,
    signal: &'static str,
    timeout: Duration,
    signals: &mut Signals,
) -> Drained {
    tracing::info!(signal, timeout_ms = millis(timeout), "draining: answering what was accepted");
    service.begin_drain();
    tokio::select! {
        done = tokio::time::timeout(timeout, service.drained()) => match done {
            Ok(()) => tracing::info!("everything that was accepted is answered"),
            Err(_) => tracing::warn!("the drain timeout passed with requests unanswered"),
        },
        again = signals.next() => return Drained::Interrupted(again),
    }
    Drained::Waited
}

async fn close(service: &EmbeddingService, pool: Option<WorkerPool>) {
    if service.phase() < Phase::Draining {
        service.begin_drain();
    }
    if let Some(pool) = pool {
        let left = pool.shutdown(WORKER_EXIT).await;
        if left > 0 {
            tracing::warn!(workers = left, "worker threads did not end in time");
        }
    }
}
