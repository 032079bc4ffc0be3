//! `duovec serve`: binds, loads, serves, drains. All wiring happens here.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, anyhow};
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

use crate::allocator;
use crate::descriptors;
use crate::health::Phase;
use crate::http::{self, Entrance};
use crate::metrics::memory;
use crate::progress::Progress;
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::service::{EmbeddingService, ResidentModel, Tuned};
use crate::shutdown::Signals;
use crate::supervisor;
use crate::worker::pool::{PoolConfig, WorkerPool};
use clock::{Clock, RealClock};
use model::package::ModelPackage;
use model::tokenize::OpenAiEncoding;
use settings::Config;

use super::load::{Chosen, Measuring, load, package};

/// How long answers that are ready may take to reach their clients at the end, at least.
const FLUSH: Duration = Duration::from_secs(2);

/// How long worker threads may take to end once nothing waits; they only drop their sessions.
const WORKER_EXIT: Duration = Duration::from_secs(10);
/// The same after a fault, when some may be stuck.
const WORKER_EXIT_FAILED: Duration = Duration::from_secs(1);

pub(super) fn serve(config: &Config) -> anyhow::Result<()> {
    let open_files_max = descriptors::raise_limit();
    tracing::debug!(open_files_max, "the limit of open files is raised");
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let service = Arc::new(EmbeddingService::new(config, Arc::clone(&clock)));
    // A wrong directory is said at once, before the port is taken.
    let package = package(config)?;
    service.announce(package.manifest());
    let entrance = open(config)?;
    http::block_on(run(config, package, service, clock, entrance))
}

fn open(config: &Config) -> anyhow::Result<Entrance> {
    let entrance = Entrance::open(config.address, &config.http)?;
    let bound = entrance.address().context("cannot read the address listened on")?;
    let (tls, api_keys) = (entrance.is_secure(), entrance.api_keys());
    tracing::info!(address = %bound, tls, api_keys, "listening; the model is being loaded");
    if api_keys == 0 && !bound.ip().to_canonical().is_loopback() {
        tracing::warn!(
            "no API key is set: everyone who reaches this address may use the server; \
             give keys with --api-key-file or DUOVEC_API_KEYS"
        );
    }
    Ok(entrance)
}

async fn run(
    config: &Config,
    package: ModelPackage,
    service: Arc<EmbeddingService>,
    clock: Arc<dyn Clock>,
    entrance: Entrance,
) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let (stop, stopped) = oneshot::channel();
    let drain_timeout = Duration::from_millis(config.drain_timeout.get());
    let shutdown = stopped.map(Result::unwrap_or_default);
    let http = config.http.clone();
    let server = http::serve(entrance, Arc::clone(&service), http, drain_timeout, shutdown);
    let mut parts = ProcessParts { server: tokio::task::spawn_local(server), pool: None };
    let (own, all) = (config.clone(), Arc::clone(&service));
    let mut loading = spawn_loader(own, package, all, Arc::clone(&clock))?;
    let asked = loop {
        tokio::select! {
            // A fault comes first: nobody is told that a server without a listener is ready.
            biased;
            fault = parts.fault() => break Err(fault),
            loaded = &mut loading, if parts.pool.is_none() => match loaded {
                Ok(Ok(started)) => {
                    parts.pool = Some(started);
                    supervisor::ready();
                    tokio::task::spawn_local(supervisor::keep_alive(Arc::clone(&service)));
                }
                Ok(Err(error)) => break Err(error),
                Err(_) => break Err(anyhow!("the thread that loads the model panicked")),
            },
            signal = signals.next() => break Ok(signal),
        }
    };
    // One for the whole end: made anew, it would take a signal for a repetition again.
    let mut again = pin!(signals.another());
    let mut left = None;
    let outcome = match asked {
        Ok(signal) => {
            supervisor::stopping();
            tokio::select! {
                biased;
                fault = parts.fault() => Err(fault),
                drained = drain(config, signal, &service, &*clock) => {
                    left = drained;
                    Ok(())
                }
                signal = &mut again => return Err(interrupted(signal)),
            }
        }
        Err(fault) => Err(fault),
    };
    let fault = outcome.as_ref().err().map(|error| format!("{error:#}"));
    if let Some(fault) = &fault {
        service.fail(fault.clone());
    }
    // Connections of clients that do not read are cut then.
    let _ = stop.send(left.unwrap_or_default().max(FLUSH));
    tokio::select! {
        ended = parts.close(&service, outcome) => ended?,
        signal = &mut again => return Err(fault.map_or_else(|| interrupted(signal), Error::msg)),
    }
    if left.is_some() {
        tracing::info!("nothing that was accepted is left");
    }
    Ok(())
}

fn interrupted(signal: &str) -> anyhow::Error {
    anyhow!("a second signal ({signal}) ended the drain")
}

/// The orderly end: first `/health` says no, then new requests are refused, then what was accepted
/// is answered. Gives what is left of the timeout, `None` when it passed with requests unanswered.
async fn drain(
    config: &Config,
    signal: &'static str,
    service: &EmbeddingService,
    clock: &dyn Clock,
) -> Option<Duration> {
    let (delay_ms, timeout_ms) = (config.drain_delay.get(), config.drain_timeout.get());
    if service.phase() == Phase::Ready && delay_ms > 0 {
        // Load balancers ask for health now and then; until they have, requests still come.
        service.leave_rotation();
        tracing::info!(signal, delay_ms, "not ready any more");
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
    }
    service.begin_drain();
    let (begin, timeout) = (clock.now(), Duration::from_millis(timeout_ms));
    tracing::info!(signal, timeout_ms, "draining: answering what was accepted");
    if tokio::time::timeout(timeout, service.drained()).await.is_err() {
        service.abandon();
        tracing::warn!("the drain timeout passed with requests unanswered");
        return None;
    }
    Some(timeout.saturating_sub(clock.now().since(begin)))
}

/// What must live as long as the process takes requests.
struct ProcessParts {
    /// The HTTP side's task.
    server: JoinHandle<io::Result<()>>,
    /// `None` until the model is loaded.
    pool: Option<WorkerPool>,
}

impl ProcessParts {
    /// Resolves when a part has ended that nobody asked to end.
    async fn fault(&mut self) -> anyhow::Error {
        let Self { server, pool } = self;
        let pool_failed = async {
            match pool {
                Some(pool) => pool.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = server => match http_ended(ended) {
                Ok(()) => anyhow!("the HTTP side ended before it was asked to"),
                Err(error) => error,
            },
            reason = pool_failed => pool_lost(&reason),
        }
    }

    /// Ends what is left: answers that are ready reach their clients, then the workers end. Gives
    /// back `outcome`, or the fault that came after it.
    async fn close(
        self,
        service: &EmbeddingService,
        mut outcome: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { server, pool } = self;
        // It is finished here when it was the fault.
        if outcome.is_ok() || !server.is_finished() {
            outcome = outcome.and(http_ended(server.await));
        }
        if service.phase() < Phase::Draining {
            service.begin_drain();
        }
        let Some(pool) = pool else { return outcome };
        let patience = if outcome.is_ok() { WORKER_EXIT } else { WORKER_EXIT_FAILED };
        let left = tokio::select! {
            biased;
            // A stuck worker will not end.
            _ = pool.failed(), if outcome.is_ok() => pool.shutdown(WORKER_EXIT_FAILED).await,
            left = pool.shutdown(patience) => left,
        };
        if left > 0 {
            tracing::warn!(workers = left, "worker threads did not end in time");
        }
        // The last requests of a drain may have been answered with 503, because the worker that
        // had them was lost: the pool is told so a moment later.
        match (outcome, pool.failed().now_or_never()) {
            (Ok(()), Some(reason)) => Err(pool_lost(&reason)),
            (outcome, _) => outcome,
        }
    }
}

/// Why the process ends when its workers cannot go on.
fn pool_lost(reason: &str) -> anyhow::Error {
    anyhow!("the model cannot be run any more: {reason}")
}

fn http_ended(ended: Result<io::Result<()>, JoinError>) -> anyhow::Result<()> {
    ended.context("the HTTP side panicked")?.context("the HTTP side failed")
}

/// Loads on a thread of its own, so that health is answered meanwhile.
fn spawn_loader(
    config: Config,
    package: ModelPackage,
    service: Arc<EmbeddingService>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<oneshot::Receiver<anyhow::Result<WorkerPool>>> {
    let (done, loading) = oneshot::channel();
    thread::Builder::new()
        .name("duovec-loader".to_owned())
        .spawn(move || {
            // The receiver is gone only when the process is ending already.
            let _ = done.send(start(&config, package, &service, clock));
        })
        .context("cannot start the thread that loads the model")?;
    Ok(loading)
}

/// Loads the model, opens the workers and makes the service ready.
fn start(
    config: &Config,
    package: ModelPackage,
    service: &EmbeddingService,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<WorkerPool> {
    let begin = clock.now();
    let progress = service.progress();
    let loaded = load(config, package, Measuring::Measure, &clock, &progress)?;
    if let Some(encoding) = OpenAiEncoding::of(config.token_input) {
        encoding.load();
    }
    let opened = clock.now();
    let (scheduler, pool) = open_workers(config, &loaded.chosen, progress, &clock)?;
    let now = clock.now();
    let figures = loaded.chosen.engine.figures();
    if !figures.is_empty() {
        let figures: Vec<_> = figures.iter().map(|(name, n)| format!("{name}={n}")).collect();
        tracing::info!(figures = figures.join(" "), "all sessions are warm");
    }
    let Chosen { engine, wider, split, max_batch_tokens, reason, measured, .. } = loaded.chosen;
    let info = engine.info().clone();
    let (warm_up, whole) = (now.since(opened), now.since(begin));
    let memory = memory().unwrap_or_default();
    let model = loaded.package.manifest().model_id.clone();
    service.install(ResidentModel {
        package: loaded.package,
        tokenizer: loaded.tokenizer,
        engine,
        engine_reason: reason,
        tuned: Tuned { optimize_for: config.engine.optimize_for, measured },
        max_batch_tokens,
        scheduler,
        warm_up,
    });
    allocator::make_no_more_huge_pages();
    // Only now: whoever waits for this line may send a request at once.
    tracing::info!(
        model,
        engine = info.kind.name(),
        precision = info.precision,
        device = info.device,
        workers = split.workers,
        threads_per_worker = info.threads_per_session,
        wider_lanes = ?wider.keys(),
        max_batch_tokens = max_batch_tokens.get(),
        resident_mib = mebibytes(memory.resident_bytes),
        peak_mib = mebibytes(memory.peak_bytes),
        warm_up_ms = millis(warm_up),
        load_ms = millis(whole),
        "ready"
    );
    Ok(pool)
}

/// Gives each worker its session, and waits until all have run what a start runs.
fn open_workers(
    config: &Config,
    chosen: &Chosen,
    progress: Arc<Progress>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(Scheduler, WorkerPool)> {
    let (lanes, wider) = (chosen.lanes.clone(), chosen.wider.clone());
    let scheduler_config = SchedulerConfig {
        queue_capacity: config.queue.capacity,
        lanes: lanes.clone(),
        cache_bytes: config.queue.cache_bytes,
        interactive_p99: config.queue.interactive_p99,
    };
    let scheduler = Scheduler::new(scheduler_config, chosen.shapes.clone(), Arc::clone(clock));
    let (watchdog, warm_up) = (config.watchdog, config.engine.warm_up);
    let pool_config = PoolConfig { lanes, wider, watchdog, warm_up, progress };
    let engine = Arc::clone(&chosen.engine);
    let pool = WorkerPool::start(engine, scheduler.clone(), Arc::clone(clock), pool_config);
    pool.wait_ready().context("a worker cannot be opened")?;
    Ok((scheduler, pool))
}

const fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
