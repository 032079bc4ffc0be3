//! One named thread with one session: opens it, warms it up, runs batches on it, drops it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::engine::{Engine, EngineError};
use crate::progress::Progress;
use crate::scheduler::{Job, Scheduler, Work};
use clock::{Clock, Moment};
use scheduling::batch::cost::Times;
use scheduling::batch::warm_up::WarmUpPlan;
use scheduling::batch::{Priority, TokenIds};

pub mod pool;
pub(crate) mod runner;
pub(crate) mod tuning;
mod warm_up;

pub(crate) use runner::panic_text;
use runner::{RunNews, RunOutcome, Runner, catch_panic};
use warm_up::WarmedUp;
pub(crate) use warm_up::warm_up_batch;

/// After this many failed runs in a row the session is not trusted any more.
const FAILURES_MAX: u32 = 3;

/// For how long this process stood still before this look, which others come before by `interval`:
/// by `docker pause`, a frozen cgroup, or a stalled machine. What did not run cannot be stuck.
pub(crate) fn stood_still(
    looked: &mut Moment,
    now: Moment,
    interval: Duration,
) -> Option<Duration> {
    let late = now.since(std::mem::replace(looked, now)).saturating_sub(interval);
    (late > interval).then_some(late)
}

/// What the thread of a worker tells the pool.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// The worker takes jobs. `left` shapes remain for idle times.
    Ready { worker: usize, measured: Times, left: usize },
    /// `done` of these shapes need no more runs: one was run, or they were passed over.
    Idled { worker: usize, done: usize },
    /// The thread is about to drop its session, if it has one, and whether that ever ran a batch. A
    /// driver may never return from the drop.
    Leaves { worker: usize, has_run: bool, end: WorkerEnd },
    /// The thread has ended; it left before.
    Ended { worker: usize },
}

/// Why a worker's thread ended.
#[derive(Debug)]
pub(super) enum WorkerEnd {
    /// There is no more work.
    Dismissed,
    /// The session could not be opened or warmed up.
    NotOpened(EngineError),
    /// No session of this process will work again.
    Poisoned(String),
    /// The session failed; a new session may work.
    Failed(String),
    /// The session's GPU is lost, and other GPUs are left: another session would run on one that
    /// has its workers already.
    Retired(String),
}

/// What the thread of a worker needs.
pub(super) struct Worker {
    pub index: usize,
    /// Whether another session ran in its place before, and was lost.
    pub is_replacement: bool,
    pub engine: Arc<dyn Engine>,
    pub scheduler: Scheduler,
    pub clock: Arc<dyn Clock>,
    pub(crate) plan: WarmUpPlan,
    pub(crate) progress: Arc<Progress>,
    pub(crate) events: Sender<WorkerEvent>,
}

/// Tells the scheduler that a worker is lost, by its drop.
struct Lost<'a>(&'a Worker);

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.0.scheduler.worker_lost(self.0.index);
    }
}

impl Worker {
    /// The thread's whole life. Its end is always reported.
    pub(crate) fn run(self) {
        let (mut runner, mut has_run) = (None, false);
        let life = catch_unwind(AssertUnwindSafe(|| self.live(&mut runner, &mut has_run)));
        let end = life
            .unwrap_or_else(|panic| WorkerEnd::Failed(format!("panic: {}", panic_text(&*panic))));
        // The pool is gone only when the process is ending.
        let _ = self.events.send(WorkerEvent::Leaves { worker: self.index, has_run, end });
        // The panic of a drop is on standard error, and the session is gone in any case.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(runner)));
        let _ = self.events.send(WorkerEvent::Ended { worker: self.index });
    }

    /// The life until its end. It leaves its session in `kept`. `has_run` becomes true once a batch
    /// has run.
    fn live<'a>(&'a self, kept: &mut Option<Runner<'a>>, has_run: &mut bool) -> WorkerEnd {
        let shapes = self.scheduler.shapes();
        let session = match self.engine.open_session(shapes.prepared()) {
            Ok(session) => session,
            Err(error) => return WorkerEnd::NotOpened(error),
        };
        let (clock, incidents) = (Arc::clone(&self.clock), self.scheduler.incidents());
        let runner = Runner::new(session, self.index, shapes.clone(), clock, incidents);
        let runner = kept.insert(runner);
        let WarmedUp { measured, mut left } = match self.warm_up(&mut *runner.session) {
            Ok(warmed_up) => warmed_up,
            Err(error) => return WorkerEnd::NotOpened(error),
        };
        runner.session.warmed_up();
        // It is dropped before the session.
        let _lost = Lost(self);
        self.scheduler.worker_opened(self.index);
        let ready = WorkerEvent::Ready { worker: self.index, measured, left: left.len() };
        let _ = self.events.send(ready);
        let mut failures = 0;
        while let Some(work) = self.scheduler.next_work(self.index, left.front().copied()) {
            let error = match work {
                Work::Run(job) => {
                    let error = self.run_job(runner, job);
                    *has_run |= error.is_none();
                    error
                }
                Work::WarmUp => self.warm_up_next(&mut *runner.session, &mut left).err(),
            };
            failures = if error.is_some() { failures + 1 } else { 0 };
            if let Some(end) = error.and_then(|error| self.end_after(error, failures)) {
                return end;
            }
        }
        WorkerEnd::Dismissed
    }

    /// Runs a job and answers its requests. Returns the error of the session.
    fn run_job(&self, runner: &mut Runner<'_>, mut job: Job) -> Option<EngineError> {
        if let Err(error) = runner.session.check() {
            // No text is at fault: the job's drop answers that there is no worker.
            return Some(error);
        }
        let items: Vec<TokenIds> = job.items.iter().map(|item| item.ids.clone()).collect();
        let priority = job.items.first().map_or(Priority::Bulk, |item| item.priority);
        let tell = |news: RunNews<'_>| match news {
            RunNews::Ran(ran) => self.scheduler.record_run(ran),
            RunNews::Again(patience) => self.scheduler.run_again(self.index, patience),
        };
        let RunOutcome { rows, error, in_parts } = runner.run(job.bucket, priority, &items, &tell);
        job.in_parts = in_parts;
        match &error {
            // A batch without any row must not count in the cost model.
            Some(error) if rows.iter().all(Result::is_err) => job.fail(&error.to_string()),
            _ => job.complete(rows),
        }
        error
    }

    /// Whether to give up the session after this error, the last of `failures` in a row.
    fn end_after(&self, error: EngineError, failures: u32) -> Option<WorkerEnd> {
        let reason = error.to_string();
        match error {
            EngineError::ProcessPoisoned(_) => Some(WorkerEnd::Poisoned(reason)),
            EngineError::GpuLost(_) => Some(WorkerEnd::Retired(reason)),
            EngineError::SessionLost(_)
            | EngineError::BadPackage(_)
            | EngineError::PlanRefused { .. }
            | EngineError::NotAvailable(_) => Some(WorkerEnd::Failed(reason)),
            EngineError::Transient(_) | EngineError::OutOfMemory(_) if failures >= FAILURES_MAX => {
                Some(WorkerEnd::Failed(format!("{failures} runs in a row: {reason}")))
            }
            EngineError::Transient(_) | EngineError::OutOfMemory(_) => {
                tracing::warn!(worker = self.index, reason, "a batch failed");
                None
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod noting;
#[cfg(test)]
mod tests;
