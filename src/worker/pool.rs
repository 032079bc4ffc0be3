//! All workers: started together, replaced when they fail, ended together.

use std::panic::{AssertUnwindSafe, catch_unwind};
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
use crate::worker::{End, Report, Worker, said};

/// How long the first replacement of a worker waits; each further one twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How often the pool looks up when nothing is reported.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// What the pool's thread tells the outside.
struct Outside {
    /// The result of the first opening of all workers.
    first: Mutex<Option<Result<(), EngineError>>>,
    told: Condvar,
    /// Why the pool cannot go on.
    failed: watch::Sender<Option<String>>,
    /// Workers' threads; zero when all have ended.
    threads: watch::Sender<usize>,
}

/// Running workers and the thread that looks after them.
pub struct WorkerPool {
    scheduler: Scheduler,
    outside: Arc<Outside>,
}

/// The pool's own thread.
struct Keeper {
    engine: Arc<dyn Engine>,
    scheduler: Scheduler,
    clock: Arc<dyn Clock>,
    reports: Sender<Report>,
    outside: Arc<Outside>,
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
        let outside = Arc::new(Outside {
            first: Mutex::new(None),
            told: Condvar::new(),
            failed: watch::Sender::new(None),
            threads: watch::Sender::new(workers.as_usize()),
        });
        let keeper = Keeper {
            engine,
            scheduler: scheduler.clone(),
            clock,
            reports,
            outside: Arc::clone(&outside),
            slots: vec![Slot::default(); workers.as_usize()],
            measured: Vec::new(),
            watchdog,
        };
        let spawned = thread::Builder::new()
            .name("duovec-pool".to_owned())
            .spawn(move || keeper.keep_supervised(&inbox));
        if let Err(error) = spawned {
            let reason = format!("cannot start a thread: {error}");
            outside.tell_first(Err(EngineError::NotAvailable(reason)));
        }
        Self { scheduler, outside }
    }

    /// Blocks until every worker has warmed up, and gives the cost model to the scheduler.
    ///
    /// # Errors
    /// The first error or panic of a worker's first opening; the pool is closed then.
    pub fn wait_ready(&self) -> Result<(), EngineError> {
        let mut first = self.outside.first.lock();
        loop {
            match &*first {
                Some(result) => return result.clone(),
                None => self.outside.told.wait(&mut first),
            }
        }
    }

    /// Resolves with the reason when the pool cannot go on: no session of this process will work
    /// again, one is stuck and the process is to end then, or nobody looks after the workers.
    pub async fn failed(&self) -> String {
        let mut failed = self.outside.failed.subscribe();
        let reason = failed.wait_for(Option::is_some).await.expect("its sender is in self");
        reason.clone().unwrap_or_default()
    }

    /// Closes the scheduler and waits for the threads; how many have not ended in time.
    pub async fn shutdown(&self, timeout: Duration) -> usize {
        self.scheduler.close();
        let mut threads = self.outside.threads.subscribe();
        let _ = tokio::time::timeout(timeout, threads.wait_for(|&left| left == 0)).await;
        *threads.borrow_and_update()
    }
}

impl Outside {
    fn tell_first(&self, result: Result<(), EngineError>) {
        let mut first = self.first.lock();
        if first.is_none() {
            *first = Some(result);
            self.told.notify_all();
        }
    }

    /// Whether the workers are still being opened for the first time.
    fn is_starting(&self) -> bool {
        self.first.lock().is_none()
    }
}

impl Keeper {
    /// The thread's whole life. Without it nobody would replace a worker or see that one is stuck,
    /// so the process cannot go on when it panics.
    fn keep_supervised(self, inbox: &Receiver<Report>) {
        let (scheduler, outside) = (self.scheduler.clone(), Arc::clone(&self.outside));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.keep(inbox))) {
            let panic = said(&*panic);
            let reason = format!("the thread that looks after the workers panicked: {panic}");
            scheduler.close();
            outside.tell_first(Err(EngineError::NotAvailable(reason.clone())));
            outside.failed.send_replace(Some(reason));
        }
    }

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
                self.outside.threads.send_replace(running);
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
                self.outside.failed.send_replace(Some(reason));
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
        if self.slots.iter().all(|slot| slot.ready) && self.outside.is_starting() {
            if let Some(fit) = fit(&self.measured) {
                self.scheduler.set_cost(fit);
            }
            self.outside.tell_first(Ok(()));
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
                self.outside.tell_first(Err(EngineError::ProcessPoisoned(reason.clone())));
                self.outside.failed.send_replace(Some(reason));
            }
            End::NotOpened(error) if self.outside.is_starting() => self.end_start(error),
            // What panics at the first try would do so at each one.
            End::Failed(reason) if self.outside.is_starting() => {
                self.end_start(EngineError::SessionLost(reason));
            }
            End::NotOpened(EngineError::ProcessPoisoned(reason)) => {
                self.ended(worker, End::Poisoned(reason));
            }
            End::NotOpened(error) => self.replace(worker, &error.to_string()),
            End::Failed(reason) => self.replace(worker, &reason),
        }
    }

    fn end_start(&self, error: EngineError) {
        self.scheduler.close();
        self.outside.tell_first(Err(error));
    }

    fn replace(&mut self, worker: usize, reason: &str) {
        let slot = &mut self.slots[worker];
        let wait = BACKOFF_MIN.saturating_mul(1 << slot.failures.min(20)).min(BACKOFF_MAX);
        slot.failures += 1;
        slot.restart = Some(self.clock.now() + wait);
        let wait_ms = wait.as_millis();
        tracing::error!(worker, reason, wait_ms, "a worker failed and will be replaced");
    }
}

#[cfg(test)]
mod tests;
