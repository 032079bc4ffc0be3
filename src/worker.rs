//! One named thread with one session: opens it, warms it up, runs batches on it, drops it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::batch::cost::Times;
use crate::batch::warm_up::WarmUpPlan;
use crate::batch::{Batch, Bucket, Priority};
use crate::clock::Clock;
use crate::engine::{BatchOutput, Engine, EngineError, Session};
use crate::progress::Progress;
use crate::scheduler::{Job, JobItem, Scheduler, Work};

pub mod pool;
mod second_try;
pub(crate) mod tuning;
mod warm_up;

use warm_up::WarmedUp;

/// After this many failed runs in a row the session is not trusted any more.
const FAILURES_MAX: u32 = 3;

/// What a worker's thread tells the pool.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// The worker takes jobs; so many shapes are left for when it idles.
    Ready { worker: usize, measured: Times, left: usize },
    /// So many of them need no run any more; one was run, or they were passed over.
    Idled { worker: usize, done: usize },
    /// The thread has ended.
    Ended { worker: usize, end: WorkerEnd },
}

/// Why a worker's thread ended.
#[derive(Debug)]
pub(super) enum WorkerEnd {
    /// There is no more work.
    Dismissed,
    /// The session could not be opened or warmed up.
    NotOpened(EngineError),
    /// The session failed; another may work.
    Failed(String),
    /// No session of this process will work again.
    Poisoned(String),
}

/// What a worker's thread needs.
pub(super) struct Worker {
    pub index: usize,
    pub engine: Arc<dyn Engine>,
    pub scheduler: Scheduler,
    pub clock: Arc<dyn Clock>,
    pub(crate) plan: WarmUpPlan,
    pub(crate) progress: Arc<Progress>,
    pub(crate) events: Sender<WorkerEvent>,
}

impl Worker {
    /// The thread's whole life; its end is always reported.
    pub(crate) fn run(self) {
        let life = catch_unwind(AssertUnwindSafe(|| self.live()));
        let end = life
            .unwrap_or_else(|panic| WorkerEnd::Failed(format!("panic: {}", panic_text(&*panic))));
        self.scheduler.worker_lost(self.index);
        // The pool is gone only when the process is ending.
        let _ = self.events.send(WorkerEvent::Ended { worker: self.index, end });
    }

    fn live(&self) -> WorkerEnd {
        let mut session = match self.engine.open_session(self.scheduler.buckets()) {
            Ok(session) => session,
            Err(error) => return WorkerEnd::NotOpened(error),
        };
        let WarmedUp { measured, mut left } = match self.warm_up(&mut *session) {
            Ok(warmed_up) => warmed_up,
            Err(error) => return WorkerEnd::NotOpened(error),
        };
        session.warmed_up();
        self.scheduler.worker_opened(self.index);
        let ready = WorkerEvent::Ready { worker: self.index, measured, left: left.len() };
        let _ = self.events.send(ready);
        let mut failures = 0;
        while let Some(work) = self.scheduler.next_work(self.index, left.front().copied()) {
            let error = match work {
                Work::Run(job) => self.run_job(&mut *session, job),
                Work::WarmUp => self.warm_up_next(&mut *session, &mut left).err(),
            };
            failures = if error.is_some() { failures + 1 } else { 0 };
            if let Some(end) = error.and_then(|error| self.end_after(error, failures)) {
                return end;
            }
        }
        WorkerEnd::Dismissed
    }

    /// Runs a job and answers its requests; the error is that of the session.
    fn run_job(&self, session: &mut dyn Session, job: Job) -> Option<EngineError> {
        match run(session, job.bucket, &job.items) {
            Ok(output) => {
                let mut rows = second_try::rows(&job.items, &output);
                self.scheduler.record_run(&job, job.bucket, &job.items, output.times);
                self.rescue(session, &job.items, &mut rows);
                job.complete(rows);
                None
            }
            Err(EngineError::OutOfMemory(reason)) => {
                tracing::warn!(worker = self.index, reason, "a batch is run again in halves");
                let (rows, error) = self.run_halves(session, &job);
                job.complete(rows);
                error
            }
            Err(error) => {
                job.fail(&error.to_string());
                Some(error)
            }
        }
    }

    /// Whether the session is given up after this error, the last of `failures` in a row.
    fn end_after(&self, error: EngineError, failures: u32) -> Option<WorkerEnd> {
        let reason = error.to_string();
        match error {
            EngineError::ProcessPoisoned(_) => Some(WorkerEnd::Poisoned(reason)),
            EngineError::SessionLost(_)
            | EngineError::BadPackage(_)
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

/// Runs items as one batch; a panic of the session is an error of the session.
fn run<'s>(
    session: &'s mut dyn Session,
    bucket: Bucket,
    items: &[JobItem],
) -> Result<BatchOutput<'s>, EngineError> {
    let batch = batch(bucket, items)?;
    catch_panic(|| session.run(&batch))
}

fn batch(bucket: Bucket, items: &[JobItem]) -> Result<Batch, EngineError> {
    let ids = items.iter().map(|item| item.ids().clone()).collect();
    let priority = items.first().map_or(Priority::Bulk, JobItem::priority);
    Batch::new(bucket, ids)
        .map(|batch| batch.with_priority(priority))
        .map_err(|error| EngineError::Transient(format!("the plan does not fit: {error}")))
}

fn catch_panic<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(EngineError::SessionLost(format!("panic: {}", panic_text(&*panic))))
    })
}

/// What a panic was raised with.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests;
