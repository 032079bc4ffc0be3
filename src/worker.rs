//! One named thread with one session: opens it, warms it up, runs batches on it, drops it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::batch::cost::{SAMPLE_RUNS, Times, keep_shortest, sample};
use crate::batch::{Batch, Bucket, TokenIds};
use crate::clock::Clock;
use crate::engine::{BatchOutput, Engine, EngineError, Session};
use crate::scheduler::{JobItem, Scheduler};

pub mod pool;
mod second_try;
pub mod tuning;

/// After this many failed runs in a row the session is not trusted any more.
const FAILURES_MAX: u32 = 3;

/// Ids of warm-up texts: the special tokens, which every vocabulary has.
const WARM_UP_IDS: u32 = 4;

/// What a worker's thread tells the pool.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// Every bucket has run; the times are of runs that compiled nothing.
    Ready { worker: usize, measured: Times },
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
        let mut output = BatchOutput::default();
        let mut session = match self.engine.open_session(self.scheduler.buckets()) {
            Ok(session) => session,
            Err(error) => return WorkerEnd::NotOpened(error),
        };
        let measured = match self.warm_up(&mut *session, &mut output) {
            Ok(measured) => measured,
            Err(error) => return WorkerEnd::NotOpened(error),
        };
        self.scheduler.worker_opened(self.index);
        let _ = self.events.send(WorkerEvent::Ready { worker: self.index, measured });
        let mut failures = 0;
        while let Some(job) = self.scheduler.next_job(self.index) {
            let error = match run(&mut *session, job.bucket, &job.items, &mut output) {
                Ok(()) => {
                    self.scheduler.record_run(&job, job.bucket, &job.items, output.times);
                    let mut rows = second_try::rows(&job.items, &output);
                    self.rescue(&mut *session, &job.items, &mut rows);
                    job.complete(rows);
                    None
                }
                Err(EngineError::OutOfMemory(reason)) => {
                    tracing::warn!(worker = self.index, reason, "a batch is run again in halves");
                    let (rows, error) = self.run_halves(&mut *session, &job, &mut output);
                    job.complete(rows);
                    error
                }
                Err(error) => {
                    job.fail(&error.to_string());
                    Some(error)
                }
            };
            failures = if error.is_some() { failures + 1 } else { 0 };
            if let Some(end) = error.and_then(|error| self.end_after(error, failures)) {
                return end;
            }
        }
        WorkerEnd::Dismissed
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

    /// Runs every bucket, so that nothing is compiled in a request; then measures some of them.
    fn warm_up(
        &self,
        session: &mut dyn Session,
        output: &mut BatchOutput,
    ) -> Result<Times, EngineError> {
        let buckets = self.scheduler.buckets();
        self.time(buckets, session, output)?;
        session.warmed_up();
        let sample = sample(buckets);
        let mut best = self.time(&sample, session, output)?;
        for _ in 1..SAMPLE_RUNS {
            keep_shortest(&mut best, &self.time(&sample, session, output)?);
        }
        Ok(best)
    }

    fn time(
        &self,
        buckets: &[Bucket],
        session: &mut dyn Session,
        output: &mut BatchOutput,
    ) -> Result<Times, EngineError> {
        let mut measured = Vec::with_capacity(buckets.len());
        for &bucket in buckets {
            if self.scheduler.is_closed() {
                break;
            }
            let batch = warm_up_batch(bucket)?;
            let start = self.clock.now();
            session.run(&batch, output)?;
            measured.push((bucket, self.clock.now().since(start)));
        }
        Ok(measured)
    }
}

fn warm_up_batch(bucket: Bucket) -> Result<Batch, EngineError> {
    let ids: Vec<u32> = (0..WARM_UP_IDS).cycle().take(bucket.length).collect();
    Batch::new(bucket, vec![TokenIds::new(&ids); bucket.rows])
        .map_err(|error| EngineError::BadPackage(format!("a bucket cannot be filled: {error}")))
}

/// Runs items as one batch; a panic of the session is an error of the session.
fn run(
    session: &mut dyn Session,
    bucket: Bucket,
    items: &[JobItem],
    output: &mut BatchOutput,
) -> Result<(), EngineError> {
    let batch = batch(bucket, items)?;
    catch_panic(|| session.run(&batch, output))
}

fn batch(bucket: Bucket, items: &[JobItem]) -> Result<Batch, EngineError> {
    let ids = items.iter().map(|item| item.ids().clone()).collect();
    Batch::new(bucket, ids)
        .map_err(|error| EngineError::Transient(format!("the plan does not fit: {error}")))
}

fn catch_panic(run: impl FnOnce() -> Result<(), EngineError>) -> Result<(), EngineError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(EngineError::SessionLost(format!("panic: {}", panic_text(&*panic))))
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests;
