//! All workers: they start together, are replaced when they fail, and end together.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::{Engine, EngineError};
use crate::progress::{Progress, StartStage};
use crate::scheduler::Scheduler;
use crate::worker::{Worker, WorkerEnd, WorkerEvent, panic_text, stood_still};
use clock::{Clock, Moment};
use scheduling::batch::cost::Times;
use scheduling::batch::warm_up::WarmUpPlan;
use scheduling::state::Lane;
use settings::limits::Workers;
use settings::{WarmUp, WatchdogConfig};

/// The wait before the first replacement of a worker. Each further wait is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How often the pool checks its workers when they report nothing.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often the log says how far the warm-up is.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How to run a pool.
#[derive(Clone)]
pub struct PoolConfig {
    /// The lane of each worker, narrow lanes first. Each worker is a thread with a session.
    pub lanes: Vec<Lane>,
    /// The same model for the workers of wider lanes, by width.
    pub wider: BTreeMap<usize, Arc<dyn Engine>>,
    /// What to do about batches that do not end.
    pub watchdog: WatchdogConfig,
    /// Which shapes to run before the first job.
    pub warm_up: WarmUp,
    /// Where the pool reports the progress of the warm-up.
    pub progress: Arc<Progress>,
}

impl PoolConfig {
    /// Defaults for workers that share no core.
    pub fn new(workers: Workers) -> Self {
        let (watchdog, warm_up) = (WatchdogConfig::default(), WarmUp::Common);
        let (lanes, wider) = (Lane::apart(workers.as_usize()), BTreeMap::new());
        Self { lanes, wider, watchdog, warm_up, progress: Arc::default() }
    }
}

/// What the pool's thread tells others.
struct PoolStatus {
    /// The result of the first opening of all workers.
    start_result: OnceLock<Result<(), EngineError>>,
    /// Why the pool cannot go on.
    failed: watch::Sender<Option<String>>,
    /// Running threads of workers; zero when all have ended.
    threads: watch::Sender<usize>,
}

/// Running workers and the thread that looks after them.
pub struct WorkerPool {
    scheduler: Scheduler,
    status: Arc<PoolStatus>,
}

/// The pool's own thread.
struct PoolThread {
    engine: Arc<dyn Engine>,
    scheduler: Scheduler,
    clock: Arc<dyn Clock>,
    events: Sender<WorkerEvent>,
    status: Arc<PoolStatus>,
    config: PoolConfig,
    plan: WarmUpPlan,
    slots: Vec<Slot>,
    /// What the warm-ups measured, by the width of lanes.
    measured: BTreeMap<usize, Times>,
    logged: Moment,
    /// When the thread last looked for stuck workers.
    looked: Moment,
}

/// The state of one worker.
#[derive(Clone, Default)]
struct Slot {
    running: bool,
    ready: bool,
    /// Since when the thread drops its session. It may hang in that.
    leaving: Option<Moment>,
    /// Its GPU is lost; it is not replaced.
    retired: bool,
    /// Shapes that the worker still has to run while it is idle.
    left: usize,
    /// Replacements since the worker last ran a batch.
    failures: u32,
    /// When to start the next thread.
    restart: Option<Moment>,
}

impl WorkerPool {
    /// Starts a thread for each worker. Workers of one width open their sessions at the same time.
    pub fn start(
        engine: Arc<dyn Engine>,
        scheduler: Scheduler,
        clock: Arc<dyn Clock>,
        config: PoolConfig,
    ) -> Self {
        let (events, inbox) = channel();
        let workers = config.lanes.len();
        let status = Arc::new(PoolStatus {
            start_result: OnceLock::new(),
            failed: watch::Sender::new(None),
            threads: watch::Sender::new(workers),
        });
        let pool_thread = PoolThread {
            plan: plan(&*engine, &scheduler, config.warm_up),
            engine,
            scheduler: scheduler.clone(),
            logged: clock.now(),
            looked: clock.now(),
            clock,
            events,
            status: Arc::clone(&status),
            slots: vec![Slot::default(); workers],
            measured: BTreeMap::new(),
            config,
        };
        let spawned = thread::Builder::new()
            .name("duovec-pool".to_owned())
            .spawn(move || pool_thread.run_supervised(&inbox));
        if let Err(error) = spawned {
            let reason = format!("cannot start a thread: {error}");
            let _ = status.start_result.set(Err(EngineError::NotAvailable(reason)));
        }
        Self { scheduler, status }
    }

    /// Blocks until every worker is warmed up, and gives the cost model to the scheduler.
    ///
    /// # Errors
    /// The first error or panic while a worker opens for the first time. The pool is closed then.
    pub fn wait_ready(&self) -> Result<(), EngineError> {
        self.status.start_result.wait().clone()
    }

    /// Resolves with the reason when the pool cannot go on: no session of this process will work
    /// again, or a worker is stuck and `--exit-on-stuck` is set, or the pool's own thread has
    /// ended.
    pub async fn failed(&self) -> String {
        let mut failed = self.status.failed.subscribe();
        let reason = failed.wait_for(Option::is_some).await.expect("its sender is in self");
        reason.clone().unwrap_or_default()
    }

    /// Closes the scheduler and waits for the threads. Returns how many have not ended in time.
    pub async fn shutdown(&self, timeout: Duration) -> usize {
        self.scheduler.close();
        let mut threads = self.status.threads.subscribe();
        let _ = tokio::time::timeout(timeout, threads.wait_for(|&left| left == 0)).await;
        *threads.borrow_and_update()
    }
}

impl PoolThread {
    /// The thread's whole life. Without the thread nobody would replace a worker or notice a stuck
    /// one, so the process cannot go on if the thread panics.
    fn run_supervised(self, inbox: &Receiver<WorkerEvent>) {
        let (scheduler, status) = (self.scheduler.clone(), Arc::clone(&self.status));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run(inbox))) {
            let panic = panic_text(&*panic);
            let reason = format!("the thread that looks after the workers panicked: {panic}");
            scheduler.close();
            let _ = status.start_result.set(Err(EngineError::NotAvailable(reason.clone())));
            status.failed.send_replace(Some(reason));
        }
    }

    fn run(mut self, inbox: &Receiver<WorkerEvent>) {
        let shapes = self.slots.len() * self.plan.first.len();
        self.config.progress.enter(StartStage::WarmUp, None, shapes, self.clock.now());
        self.spawn_next_width();
        loop {
            match inbox.recv_timeout(self.poll_timeout()) {
                Ok(WorkerEvent::Ready { worker, measured, left }) => {
                    self.slots[worker].left = left;
                    self.worker_ready(worker, measured);
                }
                Ok(WorkerEvent::Idled { worker, done }) => {
                    self.slots[worker].left -= done;
                    self.worker_idled(done);
                }
                Ok(WorkerEvent::Leaves { worker, has_run, end }) => {
                    self.slots[worker].leaving = Some(self.clock.now());
                    if has_run {
                        self.slots[worker].failures = 0;
                    }
                    self.worker_leaves(worker, end);
                }
                Ok(WorkerEvent::Ended { worker }) => {
                    let slot = &mut self.slots[worker];
                    (slot.running, slot.leaving) = (false, None);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let running = self.slots.iter().filter(|slot| slot.running).count();
            if self.scheduler.is_closed() {
                self.status.threads.send_replace(running);
                if running == 0 {
                    return;
                }
            } else {
                self.restart_due();
                self.give_up_stuck();
                self.log_progress();
            }
        }
    }

    fn spawn(&mut self, worker: usize) {
        let (mut plan, lanes) = (self.plan.clone(), &self.config.lanes);
        let width = lanes[worker].width;
        if worker > 0 && lanes[worker - 1].width == width {
            // One worker of this width measures the long shapes for all.
            plan.later.clear();
        }
        let thread = Worker {
            index: worker,
            is_replacement: !self.is_starting(),
            plan,
            progress: Arc::clone(&self.config.progress),
            engine: Arc::clone(self.config.wider.get(&width).unwrap_or(&self.engine)),
            scheduler: self.scheduler.clone(),
            clock: Arc::clone(&self.clock),
            events: self.events.clone(),
        };
        let name = format!("duovec-worker-{worker}");
        match thread::Builder::new().name(name).spawn(move || thread.run()) {
            Ok(_) => self.slots[worker].running = true,
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                self.worker_leaves(worker, WorkerEnd::NotOpened(EngineError::NotAvailable(reason)));
            }
        }
    }

    /// Starts the workers of the narrowest width that has none yet. Wider lanes share cores with
    /// narrower lanes, so their workers warm up after those of the narrower lanes.
    fn spawn_next_width(&mut self) {
        let is_new = |slot: &Slot| !slot.running && !slot.ready && !slot.retired;
        let Some(first) = self.slots.iter().position(is_new) else { return };
        let lanes = &self.config.lanes;
        let same = lanes[first..].iter().take_while(|lane| lane.width == lanes[first].width);
        for worker in first..first + same.count() {
            self.spawn(worker);
        }
    }

    fn poll_timeout(&self) -> Duration {
        let now = self.clock.now();
        let ended = self.slots.iter().filter(|slot| !slot.running);
        let due = ended.filter_map(|slot| slot.restart).min();
        due.map_or(self.look_interval(), |due| due.since(now).min(self.look_interval()))
    }

    fn look_interval(&self) -> Duration {
        self.stuck_after().map_or(POLL_INTERVAL, |limit| POLL_INTERVAL.min(limit / 4))
    }

    fn stuck_after(&self) -> Option<Duration> {
        let millis = self.config.watchdog.stuck_after.get();
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Gives up stuck workers. A thread cannot be ended from outside and its session holds the
    /// device's memory, so a stuck worker is not replaced.
    fn give_up_stuck(&mut self) {
        let Some(limit) = self.stuck_after() else { return };
        let interval = self.look_interval();
        if let Some(late) = stood_still(&mut self.looked, self.clock.now(), interval) {
            tracing::warn!(paused_ms = late.as_millis(), "this process stood still for some time");
            self.scheduler.pass_over(late);
            let leaving = self.slots.iter_mut().filter_map(|slot| slot.leaving.as_mut());
            leaving.for_each(|since| *since = *since + late);
        }
        let millis = limit.as_millis();
        for worker in self.scheduler.give_up_stuck(limit) {
            let reason = format!("worker {worker} has run one batch for {millis} ms or more");
            tracing::error!(worker, reason, "a worker is stuck; its requests get 503");
            self.end_if_wanted(reason);
        }
        let now = self.clock.now();
        for worker in 0..self.slots.len() {
            let slot = &mut self.slots[worker];
            // Nobody waits for the end of one that is not replaced.
            let hangs = |since: &mut Moment| !slot.retired && now.since(*since) >= limit;
            if slot.leaving.take_if(hangs).is_some() {
                let reason =
                    format!("worker {worker} has given its session back for {millis} ms or more");
                tracing::error!(worker, reason, "a worker is stuck; it cannot be replaced");
                self.end_if_wanted(reason);
            }
        }
    }

    /// Ends the process for a stuck worker if `--exit-on-stuck` says so.
    fn end_if_wanted(&self, reason: String) {
        if self.config.watchdog.exit_on_stuck {
            self.scheduler.close();
            self.status.failed.send_replace(Some(reason));
        }
    }

    fn restart_due(&mut self) {
        let now = self.clock.now();
        for worker in 0..self.slots.len() {
            let slot = &mut self.slots[worker];
            if !slot.running && slot.restart.is_some_and(|due| due <= now) {
                slot.restart = None;
                self.scheduler.worker_restarted();
                self.spawn(worker);
            }
        }
    }

    fn worker_ready(&mut self, worker: usize, measured: Times) {
        self.slots[worker].ready = true;
        if self.is_starting() {
            // Workers warm up at the same time, so the last worker to be ready measured the least
            // contention.
            self.measured.insert(self.config.lanes[worker].width, measured);
            self.go_on_starting();
        }
    }

    /// Starts the workers of the next width, or ends the start when all workers are ready.
    fn go_on_starting(&mut self) {
        if self.slots.iter().all(|slot| slot.ready || slot.retired || !slot.running) {
            self.spawn_next_width();
        }
        if self.slots.iter().all(|slot| slot.ready || slot.retired) {
            for (width, times) in std::mem::take(&mut self.measured) {
                let of_width = self.config.lanes.iter().position(|lane| lane.width == width);
                self.scheduler.measure(of_width.unwrap_or(0), times);
            }
            match self.left() {
                0 => self.config.progress.finish(),
                left => {
                    self.config.progress.enter(StartStage::WarmUpIdle, None, left, self.clock.now())
                }
            }
            let _ = self.status.start_result.set(Ok(()));
        }
    }

    /// An idle worker has run a shape, or passed shapes over.
    fn worker_idled(&self, done: usize) {
        (0..done).for_each(|_| self.config.progress.advance());
        if self.left() == 0 {
            tracing::info!("all remaining shapes are warmed up");
            self.config.progress.finish();
        }
    }

    fn left(&self) -> usize {
        self.slots.iter().map(|slot| slot.left).sum()
    }

    fn log_progress(&mut self) {
        let now = self.clock.now();
        if !self.is_starting() || now.since(self.logged) < LOG_INTERVAL {
            return;
        }
        self.logged = now;
        if let Some(step) = self.config.progress.step() {
            let elapsed_s = now.since(step.begun).as_secs();
            tracing::info!(shapes = step.total, done = step.done, elapsed_s, "warming up");
        }
    }

    /// Does what need not wait for the thread's end. Only a replacement must: the session before it
    /// holds the device's memory.
    fn worker_leaves(&mut self, worker: usize, end: WorkerEnd) {
        let slot = &mut self.slots[worker];
        slot.ready = false;
        if std::mem::take(&mut slot.left) > 0 && self.left() == 0 && !self.is_starting() {
            self.config.progress.finish();
        }
        match end {
            WorkerEnd::Dismissed => {}
            WorkerEnd::Retired(reason) | WorkerEnd::NotOpened(EngineError::GpuLost(reason)) => {
                self.retire(worker, &reason);
            }
            WorkerEnd::NotOpened(error) if self.is_starting() => self.end_start(error),
            // A worker that panics at the first try would panic at each try.
            WorkerEnd::Failed(reason) if self.is_starting() => {
                self.end_start(EngineError::SessionLost(reason));
            }
            WorkerEnd::Poisoned(reason)
            | WorkerEnd::NotOpened(EngineError::ProcessPoisoned(reason)) => {
                self.poisoned(worker, reason);
            }
            WorkerEnd::NotOpened(error) => self.replace(worker, &error.to_string()),
            WorkerEnd::Failed(reason) => self.replace(worker, &reason),
        }
    }

    fn poisoned(&self, worker: usize, reason: String) {
        tracing::error!(worker, reason, "this process can run nothing any more");
        self.scheduler.close();
        let _ = self.status.start_result.set(Err(EngineError::ProcessPoisoned(reason.clone())));
        self.status.failed.send_replace(Some(reason));
    }

    /// Does without a worker whose GPU is lost. If it is the last one, it gets another GPU.
    fn retire(&mut self, worker: usize, reason: &str) {
        self.slots[worker].retired = true;
        if self.slots.iter().all(|slot| slot.retired) {
            self.slots[worker].retired = false;
            return self.replace(worker, reason);
        }
        tracing::error!(worker, reason, "a worker has lost its GPU; the others serve");
        if self.is_starting() {
            self.go_on_starting();
        }
    }

    /// Whether the workers are still being opened for the first time.
    fn is_starting(&self) -> bool {
        self.status.start_result.get().is_none()
    }

    fn end_start(&self, error: EngineError) {
        self.scheduler.close();
        let _ = self.status.start_result.set(Err(error));
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

/// The shapes that each worker warms up: all of them if the engine compiles shapes.
fn plan(engine: &dyn Engine, scheduler: &Scheduler, choice: WarmUp) -> WarmUpPlan {
    let choice = match choice {
        WarmUp::Common if engine.compiles_shapes() => WarmUp::All,
        choice => choice,
    };
    WarmUpPlan::new(scheduler.shapes().prepared(), choice)
}

#[cfg(test)]
mod tests;
