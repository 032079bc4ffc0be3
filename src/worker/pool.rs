//! All workers: started together, replaced when they fail, ended together.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::batch::cost::{Times, fit};
use crate::clock::{Clock, Moment};
use crate::config::{OnStuck, WatchdogConfig};
use crate::engine::{Engine, EngineError};
use crate::limits::Workers;
use crate::scheduler::Scheduler;
use crate::worker::{End, Report, Worker};

/// How long the first replacement of a worker waits; each further one twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How often the pool looks up when nothing is reported.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// What the pool's thread tells the outside.
#[derive(Default)]
struct Outside {
    /// The result of the first opening of all workers.
    first: Mutex<Option<Result<(), EngineError>>>,
    told: Condvar,
}

/// Running workers and the thread that looks after them.
pub struct WorkerPool {
    scheduler: Scheduler,
    outside: Arc<Outside>,
    poisoned: watch::Receiver<Option<String>>,
    /// Zero when every thread has ended.
    threads: watch::Receiver<usize>,
}

/// The pool's own thread.
struct Keeper {
    engine: Arc<dyn Engine>,
    scheduler: Scheduler,
    clock: Arc<dyn Clock>,
    reports: Sender<Report>,
    outside: Arc<Outside>,
    poisoned: watch::Sender<Option<String>>,
    threads: watch::Sender<usize>,
    slots: Vec<Slot>,
    measured: Times,
    watchdog: WatchdogConfig,
}

/// One worker's place.
#[derive(Clone, Default)]
struct Slot {
    running: bool,
    ready: bool,
    /// Replacements since it was last ready.
    failures: u32,
    /// When the next thread is to be started.
    restart: Option<Moment>,
}

impl WorkerPool {
    /// Starts one thread for each worker; they open their sessions at the same time.
    pub fn start(
        engine: Arc<dyn Engine>,
        scheduler: Scheduler,
        clock: Arc<dyn Clock>,
        workers: Workers,
        watchdog: WatchdogConfig,
    ) -> Self {
        let (reports, inbox) = channel();
        let outside = Arc::new(Outside::default());
        let (poisoned_sender, poisoned) = watch::channel(None);
        let (threads_sender, threads) = watch::channel(workers.as_usize());
        let keeper = Keeper {
            engine,
            scheduler: scheduler.clone(),
            clock,
            reports,
            outside: Arc::clone(&outside),
            poisoned: poisoned_sender,
            threads: threads_sender,
            slots: vec![Slot::default(); workers.as_usize()],
            measured: Vec::new(),
            watchdog,
        };
        let spawned = thread::Builder::new()
            .name("duovec-pool".to_owned())
            .spawn(move || keeper.keep(&inbox));
        if let Err(error) = spawned {
            let reason = format!("cannot start a thread: {error}");
            *outside.first.lock() = Some(Err(EngineError::NotAvailable(reason)));
        }
        Self { scheduler, outside, poisoned, threads }
    }

    /// Blocks until every worker has warmed up, and gives the cost model to the scheduler.
    ///
    /// # Errors
    /// The first error of a worker's first opening; the pool is closed then.
    pub fn wait_ready(&self) -> Result<(), EngineError> {
        let mut first = self.outside.first.lock();
        loop {
            match &*first {
                Some(result) => return result.clone(),
                None => self.outside.told.wait(&mut first),
            }
        }
    }

    /// Resolves with the reason when no session of this process will work again, or one is stuck
    /// and the process is to end then.
    pub async fn failed(&self) -> String {
        let mut poisoned = self.poisoned.clone();
        match poisoned.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // The keeper has ended without a fault.
            Err(_) => std::future::pending().await,
        }
    }

    /// Closes the scheduler and waits for the threads; how many have not ended in time.
    pub async fn shutdown(&self, timeout: Duration) -> usize {
        self.scheduler.close();
        let mut threads = self.threads.clone();
        let _ = tokio::time::timeout(timeout, threads.wait_for(|&left| left == 0)).await;
        *threads.borrow_and_update()
    }
}

impl Keeper {
    fn keep(mut self, inbox: &Receiver<Report>) {
        for worker in 0..self.slots.len() {
            self.spawn(worker);
        }
        loop {
            match inbox.recv_timeout(self.patience()) {
                Ok(Report::Ready { worker, measured }) => self.ready(worker, measured),
                Ok(Report::Ended { worker, end }) => self.ended(worker, end),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let running = self.slots.iter().filter(|slot| slot.running).count();
            if self.scheduler.is_closed() {
                self.threads.send_replace(running);
                if running == 0 {
                    return;
                }
            } else {
                self.restart_due();
                self.give_up_stuck();
            }
        }
    }

    fn spawn(&mut self, worker: usize) {
        let thread = Worker {
            index: worker,
            engine: Arc::clone(&self.engine),
            scheduler: self.scheduler.clone(),
            clock: Arc::clone(&self.clock),
            reports: self.reports.clone(),
        };
        let name = format!("duovec-worker-{worker}");
        match thread::Builder::new().name(name).spawn(move || thread.run()) {
            Ok(_) => self.slots[worker].running = true,
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                self.ended(worker, End::NotOpened(EngineError::NotAvailable(reason)));
            }
        }
    }

    fn patience(&self) -> Duration {
        let now = self.clock.now();
        let due = self.slots.iter().filter_map(|slot| slot.restart).min();
        let look = self.stuck_after().map_or(IDLE_LOOK, |limit| IDLE_LOOK.min(limit / 4));
        due.map_or(look, |due| due.since(now).min(look))
    }

    fn stuck_after(&self) -> Option<Duration> {
        let millis = self.watchdog.stuck_after.get();
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// A thread cannot be ended from outside, so a worker that is stuck is not replaced: its
    /// session holds the device's memory.
    fn give_up_stuck(&mut self) {
        let Some(limit) = self.stuck_after() else { return };
        for worker in self.scheduler.give_up_stuck(limit) {
            let reason = format!("worker {worker} has run one batch for {} ms", limit.as_millis());
            tracing::error!(worker, reason, "a worker is stuck; its requests get 503");
            if self.watchdog.on_stuck == OnStuck::Exit {
                self.scheduler.close();
                self.poisoned.send_replace(Some(reason));
            }
        }
    }

    fn restart_due(&mut self) {
        let now = self.clock.now();
        for worker in 0..self.slots.len() {
            if self.slots[worker].restart.is_some_and(|due| due <= now) {
                self.slots[worker].restart = None;
                self.scheduler.worker_restarted();
                self.spawn(worker);
            }
        }
    }

    fn ready(&mut self, worker: usize, measured: Times) {
        let slot = &mut self.slots[worker];
        slot.ready = true;
        slot.failures = 0;
        // Workers warm up side by side, so the last one to be ready measured the least contention.
        self.measured = measured;
        if self.slots.iter().all(|slot| slot.ready) && self.outside.first.lock().is_none() {
            if let Some(fit) = fit(&self.measured) {
                self.scheduler.set_cost(fit);
            }
            self.tell_first(Ok(()));
        }
    }

    fn ended(&mut self, worker: usize, end: End) {
        self.slots[worker].running = false;
        self.slots[worker].ready = false;
        match end {
            End::Dismissed => {}
            End::Poisoned(reason) => {
                tracing::error!(worker, reason, "the device is lost for this process");
                self.scheduler.close();
                self.tell_first(Err(EngineError::ProcessPoisoned(reason.clone())));
                self.poisoned.send_replace(Some(reason));
            }
            End::NotOpened(error) if self.outside.first.lock().is_none() => {
                self.scheduler.close();
                self.tell_first(Err(error));
            }
            End::NotOpened(EngineError::ProcessPoisoned(reason)) => {
                self.ended(worker, End::Poisoned(reason));
            }
            End::NotOpened(error) => self.replace(worker, &error.to_string()),
            End::Failed(reason) => self.replace(worker, &reason),
        }
    }

    fn replace(&mut self, worker: usize, reason: &str) {
        let slot = &mut self.slots[worker];
        let wait = BACKOFF_MIN.saturating_mul(1 << slot.failures.min(20)).min(BACKOFF_MAX);
        slot.failures += 1;
        slot.restart = Some(self.clock.now() + wait);
        let wait_ms = wait.as_millis();
        tracing::error!(worker, reason, wait_ms, "a worker failed and will be replaced");
    }

    fn tell_first(&self, result: Result<(), EngineError>) {
        let mut first = self.outside.first.lock();
        if first.is_none() {
            *first = Some(result);
            self.outside.told.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
