//! Lanes: the workers of a run, each behind a scheduler of its own.
//!
//! A scheduler is given one batch at a time and runs it whole, so what shares a batch depends on
//! the texts alone. The last bits of a vector depend on the batch that it ran in: so a run that is
//! started again gives the same bytes, with any number of workers.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_executor::block_on;
use futures_util::future::join_all;
use tokio::runtime::Builder;

use super::error::CorpusError;
use crate::batch::cost::{CostModel, Fit};
use crate::batch::{Bucket, Priority, TokenIds, Vectors};
use crate::clock::Clock;
use crate::config::{WarmUp, WatchdogConfig};
use crate::engine::{Engine, EngineError};
use crate::limits::{MaxAgeMs, QueueCapacity, Workers};
use crate::scheduler::{ItemRows, Refusal, RunError, Scheduler, SchedulerConfig, Submission};
use crate::worker::pool::{PoolConfig, WorkerPool};

/// With it one batch for all items is always the cheapest plan.
const ONE_BATCH: CostModel =
    CostModel { floor_us: 0.0, fixed_us: 1e6, per_token_us: 1e-3, per_token_length_us: 0.0 };

/// How long a batch may wait and run; the watchdog ends what hangs long before.
const BATCH_TIME: Duration = Duration::from_secs(3600);
/// How long a lost worker may take to be replaced.
const REPLACEMENT_TIME: Duration = Duration::from_secs(60);
/// How often a lost worker is looked for.
const REPLACEMENT_POLL: Duration = Duration::from_millis(20);
/// When so many texts in a row give no rows, the engine is at fault and not the texts.
const FAILURES_MAX: usize = 100;
/// How long the threads may take to end.
const END_TIME: Duration = Duration::from_secs(10);

/// A worker and its scheduler.
pub(super) struct Lane {
    scheduler: Scheduler,
    pool: WorkerPool,
    clock: Arc<dyn Clock>,
    vectors: Vectors,
    /// Texts in a row that gave no rows.
    failures: usize,
}

/// How lanes are opened.
pub(super) struct LaneOptions {
    pub(super) workers: usize,
    pub(super) watchdog: WatchdogConfig,
    pub(super) vectors: Vectors,
}

/// The rows of a text, or why it has none.
pub(super) type RowsOrReason = Result<ItemRows, String>;

impl Lane {
    /// Opens all sessions side by side.
    ///
    /// # Errors
    /// The first of a worker that cannot be opened.
    pub(super) fn open(
        engine: &Arc<dyn Engine>,
        buckets: &[Bucket],
        clock: &Arc<dyn Clock>,
        options: &LaneOptions,
    ) -> Result<Vec<Self>, EngineError> {
        let config = SchedulerConfig {
            queue_capacity: QueueCapacity::nearest(QueueCapacity::MAX),
            max_age: MaxAgeMs::nearest(MaxAgeMs::MAX),
            ..SchedulerConfig::new(Workers::nearest(1))
        };
        // A shape is run sooner or later.
        let warm_up = if engine.compiles_shapes() { WarmUp::All } else { WarmUp::None };
        let pool_config =
            PoolConfig { watchdog: options.watchdog, warm_up, ..PoolConfig::new(config.workers) };
        let start = |_| {
            let scheduler = Scheduler::new(config, buckets.to_vec(), Arc::clone(clock));
            let (engine, shared) = (Arc::clone(engine), scheduler.clone());
            let pool = WorkerPool::start(engine, shared, Arc::clone(clock), pool_config.clone());
            let (clock, vectors) = (Arc::clone(clock), options.vectors);
            Self { scheduler, pool, clock, vectors, failures: 0 }
        };
        let lanes: Vec<Self> = (0..options.workers).map(start).collect();
        for lane in &lanes {
            lane.pool.wait_ready()?;
            lane.scheduler.set_cost(Fit { model: ONE_BATCH, median_error: 0.0 });
        }
        Ok(lanes)
    }

    /// Runs items as one batch. When it fails, each is run alone, so that one text does not take
    /// the others with it.
    ///
    /// # Errors
    /// When no text can be run any more.
    pub(super) fn run(&mut self, items: &[TokenIds]) -> Result<Vec<RowsOrReason>, CorpusError> {
        match self.run_batch(items)? {
            Ok(rows) => {
                self.failures = 0;
                Ok(rows.into_iter().map(Ok).collect())
            }
            Err(_) if items.len() > 1 => {
                let one = |item| Ok(self.run(std::slice::from_ref(item))?.remove(0));
                items.iter().map(one).collect()
            }
            Err(error) => {
                self.failures += 1;
                let reason = match error {
                    RunError::NonFinite { .. } => "the model returned NaN or infinity".to_owned(),
                    other => other.to_string(),
                };
                if self.failures >= FAILURES_MAX {
                    return Err(CorpusError::Engine(reason));
                }
                Ok(vec![Err(reason)])
            }
        }
    }

    fn run_batch(
        &self,
        items: &[TokenIds],
    ) -> Result<Result<Vec<ItemRows>, RunError>, CorpusError> {
        let begin = self.clock.now();
        loop {
            let submission = Submission {
                items: items.to_vec(),
                vectors: self.vectors,
                priority: Some(Priority::Bulk),
                deadline: self.clock.now() + BATCH_TIME,
            };
            match self.scheduler.submit(submission) {
                Ok(ticket) => return Ok(block_on(ticket)),
                Err(Refusal::NoWorker)
                    if !self.scheduler.is_closed()
                        && self.clock.now().since(begin) < REPLACEMENT_TIME =>
                {
                    thread::sleep(REPLACEMENT_POLL);
                }
                Err(refusal) => return Err(CorpusError::Engine(refusal.to_string())),
            }
        }
    }
}

/// Ends the workers. One that hangs is left to the end of the process.
pub(super) fn close(lanes: Vec<Lane>) {
    let runtime = Builder::new_current_thread().enable_time().build();
    // Without timers nobody waits: the process is about to end.
    let Ok(runtime) = runtime else { return };
    runtime.block_on(join_all(lanes.iter().map(|lane| lane.pool.shutdown(END_TIME))));
}

#[cfg(test)]
mod tests;
