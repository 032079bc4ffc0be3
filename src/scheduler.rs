//! The bounded queue between requests and workers: a request submits items and gets a future, a
//! worker asks for work and gets a job.
//!
//! `scheduling::state` decides, and this module carries the decisions out. The table shows a
//! request of two texts whose client waits, and another one whose client disconnects:
//!
//! | called by | step of the state machine | its answer and effects | what the caller gets |
//! |---|---|---|---|
//! | the service: `submit` | `submit` | items 0..2; a worker is woken | a `Ticket` |
//! | worker 0: `next_work` | `ask_for_work` | a run of 0 and 1 | a `Job` |
//! | worker 0: `Job::complete` | `complete_batch` | answers of 0 and 1 | its ticket resolves |
//! | the service: `submit` | `submit` | items 2..4; the worker is busy | a `Ticket` |
//! | the ticket's drop | `cancel` 2..4 | | the items have left the queue |
//!
//! One lock guards the state machine and is held for microseconds. Waking workers and answering
//! requests happen outside of it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::allocator;
use crate::locks::{Condvar, Mutex};
use crate::metrics::{BatchFigures, Metrics, StageSums, StageTimes};
use clock::{Clock, Moment};
use scheduling::batch::cost::{Fit, Times};
use scheduling::batch::plan::{Sequence, Shapes};
use scheduling::batch::{Bucket, Priority};
use scheduling::state::{Counts, Effects, Lane, PromiseFigures, SchedulerState, Width};
use settings::limits::{CacheBytes, IDLE_RUN_MAX, InteractiveP99Ms, QueueCapacity, Workers};

mod cache;
mod incidents;
mod job;
mod submission;
mod ticket;

pub(crate) use cache::CacheFigures;
use cache::{Digester, RowCache};
pub(crate) use incidents::Incidents;
use job::QueuedItem;
pub(crate) use job::{Job, RowOrError, TextRow};
pub(crate) use submission::Reservation;
pub use submission::Submission;
pub(crate) use ticket::{CacheUse, RunSpan};
pub use ticket::{RunError, Ticket};

/// The limits of the queue, and the lanes.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    /// The most items that may wait or run.
    pub queue_capacity: QueueCapacity,
    /// The lane of each worker, narrow ones first; at least one.
    pub lanes: Vec<Lane>,
    /// Memory for rows of texts that ran earlier; 0 keeps none.
    pub cache_bytes: CacheBytes,
    /// Time that interactive items are promised; 0 promises none.
    pub interactive_p99: InteractiveP99Ms,
}

impl SchedulerConfig {
    /// Defaults for workers that share no core.
    pub fn new(workers: Workers) -> Self {
        let (queue_capacity, cache_bytes) = (QueueCapacity::DEFAULT, CacheBytes::DEFAULT);
        let (lanes, interactive_p99) = (Lane::apart(workers.as_usize()), InteractiveP99Ms::DEFAULT);
        Self { queue_capacity, lanes, cache_bytes, interactive_p99 }
    }
}

/// Workers by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Workers with a session that can run.
    pub live: usize,
    /// Workers configured.
    pub total: usize,
    /// Live workers that run a batch now.
    pub busy: usize,
    /// Workers whose batch runs for too long; they do not count as live.
    pub stuck: usize,
    /// Workers replaced since the start.
    pub restarts: u64,
}

/// The scheduler at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Items that wait.
    pub queue_depth: usize,
    /// Interactive items that wait.
    pub queue_interactive: usize,
    /// Bulk items that wait.
    pub queue_bulk: usize,
    /// Tokens of the items that wait, without padding.
    pub queue_tokens: usize,
    pub(crate) predicted_wait: Duration,
    /// Workers by state.
    pub workers: WorkerCounts,
    /// Lanes of each width, ascending; at least one.
    pub widths: Vec<Width>,
    /// How items ended, and what batches were made of.
    pub counts: Counts,
    /// How well the promise to interactive items is kept.
    pub promise: PromiseFigures,
    /// All zero without a cache.
    pub(crate) cache: CacheFigures,
    /// Mean of the timed batches.
    pub(crate) stages: StageTimes,
}

pub(crate) enum Work {
    Run(Job),
    /// The shape that the worker wanted to warm up. It reports the end with `warm_up_ended`.
    WarmUp,
}

/// How often a worker checks whether it may warm up a shape.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Inner {
    state: Mutex<SchedulerState<QueuedItem>>,
    shapes: Shapes,
    /// A condition for each worker.
    work: Vec<Condvar>,
    drained: Notify,
    clock: Arc<dyn Clock>,
    digester: Digester,
    /// Absent without `--cache-bytes`.
    cache: Option<RowCache>,
    incidents: Incidents,
    stages: Mutex<StageSums>,
    metrics: OnceLock<Arc<Metrics>>,
}

/// Shared by the HTTP side and the workers; cheap to clone.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<Inner>);

impl Scheduler {
    /// A scheduler that plans batches of `shapes`, which the engine supports. No worker lives yet.
    pub fn new(config: SchedulerConfig, shapes: Shapes, clock: Arc<dyn Clock>) -> Self {
        let SchedulerConfig { queue_capacity, lanes, cache_bytes, interactive_p99 } = config;
        let (capacity, workers) = (queue_capacity.as_usize(), lanes.len());
        let mut state = SchedulerState::new(capacity, lanes, shapes.clone());
        if interactive_p99.get() > 0 {
            state.set_promise(Duration::from_millis(interactive_p99.get()));
        }
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            shapes,
            work: (0..workers).map(|_| Condvar::new()).collect(),
            drained: Notify::new(),
            clock,
            digester: Digester::default(),
            cache: RowCache::new(cache_bytes),
            incidents: Incidents::default(),
            stages: Mutex::new(StageSums::default()),
            metrics: OnceLock::new(),
        }))
    }

    /// The queue, the workers, and the counts so far.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.0.clock.now();
        let state = self.0.state.lock();
        let (live, busy) = state.live_and_busy();
        let stuck = state.stuck();
        let restarts = self.0.incidents.restarts.get();
        Snapshot {
            queue_depth: state.queue_depth(),
            queue_interactive: state.queue_depth_of(Priority::Interactive),
            queue_bulk: state.queue_depth_of(Priority::Bulk),
            queue_tokens: state.queue_tokens(),
            predicted_wait: state.predicted_wait(now),
            workers: WorkerCounts { live, total: self.0.work.len(), busy, stuck, restarts },
            widths: state.widths().to_vec(),
            counts: state.counts(),
            promise: state.promise(),
            cache: self.0.cache.as_ref().map(RowCache::figures).unwrap_or_default(),
            stages: self.0.stages.lock().mean(),
        }
    }

    /// Replaces the cost model.
    pub fn set_cost(&self, fit: Fit) {
        self.0.state.lock().set_cost(0, fit);
    }

    /// Puts the times of a worker's warm-up into the cost model of all lanes of its width.
    pub(crate) fn measure(&self, worker: usize, times: Times) {
        self.0.state.lock().measure(worker, times);
    }

    /// Refuses new requests. Accepted ones still run, those whose texts are tokenized too.
    pub fn drain(&self) {
        self.step(|state, _| state.drain());
    }

    /// Resolves when no item waits, runs or is to come, and new requests are refused.
    pub(crate) async fn drained(&self) {
        loop {
            let drained = self.0.drained.notified();
            tokio::pin!(drained);
            // Registered before the check, so that the end of the last item cannot be missed.
            drained.as_mut().enable();
            if self.0.state.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Answers all waiting items with `NoWorker` and ends the workers.
    pub fn close(&self) {
        self.step(|state, _| state.close());
    }

    pub(super) fn cancel(&self, items: Range<Sequence>) {
        self.step(|state, now| state.cancel(now, &items));
    }

    /// The worker has a session and is warmed up.
    pub(crate) fn worker_opened(&self, worker: usize) {
        self.step(|state, _| state.open_worker(worker));
    }

    /// The worker has lost its session. Its job has ended already, unless its thread hangs.
    pub(crate) fn worker_lost(&self, worker: usize) {
        self.step(|state, now| state.lose_worker(now, worker));
    }

    pub(crate) fn worker_restarted(&self) {
        self.0.incidents.restarts.add(1);
    }

    /// Says that the whole process was paused for this long, up to now. No batch ran in that time.
    pub(crate) fn pass_over(&self, pause: Duration) {
        self.step(|state, now| state.pass_over(now, pause));
    }

    /// A part of the worker's batch runs again: from now on it has `patience` times a batch's time.
    pub(crate) fn run_again(&self, worker: usize, patience: u32) {
        self.step(|state, now| state.run_again(now, worker, patience));
    }

    /// Answers the requests of batches that have run for `limit` or longer with `NoWorker`. Returns
    /// the workers of these batches, which get nothing to run until their batch ends after all.
    pub(crate) fn give_up_stuck(&self, limit: Duration) -> Vec<usize> {
        self.step(|state, now| {
            let stuck = state.overdue(now, limit);
            stuck.iter().for_each(|&worker| state.stop_stuck_worker(now, worker));
            // Here, so that whoever is answered finds it counted.
            self.0.incidents.batches_stuck.add(stuck.len() as u64);
            stuck
        })
    }

    /// Records batches from now on; only the first call counts.
    pub(crate) fn set_metrics(&self, metrics: Arc<Metrics>) {
        let _ = self.0.metrics.set(metrics);
    }

    /// Records a run of all items of a job, or of a part of them.
    pub(crate) fn record_run(&self, ran: &BatchFigures) {
        self.0.stages.lock().add(ran.stages);
        if let Some(metrics) = self.0.metrics.get() {
            metrics.ran(ran);
        }
    }

    /// Whether the scheduler accepts and starts nothing more. Batches may still run.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.state.lock().is_closed()
    }

    /// Blocks a worker's thread until there is work; `None` when the scheduler has closed. The
    /// worker may warm up the shape `spare` once all workers have been idle for as long as that run
    /// will take. So a request that comes during the run waits no longer than the workers waited
    /// for a request.
    pub(crate) fn next_work(&self, worker: usize, spare: Option<Bucket>) -> Option<Work> {
        let mut state = self.0.state.lock();
        let asked = self.now();
        let mut now = asked;
        loop {
            if state.is_closed() {
                return None;
            }
            let run = state.ask_for_work(now, worker);
            let effects = state.take_effects();
            if run.is_some() || !effects.is_empty() {
                drop(state);
                self.carry_out(effects);
                if let Some(run) = run {
                    return Some(Work::Run(Job::new(self.clone(), worker, run)));
                }
                state = self.0.state.lock();
                now = self.now();
                continue;
            }
            let Some(bucket) = spare else {
                let began = now;
                self.0.work[worker].wait_for(&mut state, allocator::KEEP_FREED);
                now = self.now();
                if now.since(began) >= allocator::KEEP_FREED {
                    // Rows of answers are freed by other threads.
                    drop(state);
                    allocator::collect();
                    state = self.0.state.lock();
                }
                continue;
            };
            // While the cost is unknown, other workers are measuring it and must not be disturbed.
            let span = state.predict(worker, bucket).map(|time| time.min(IDLE_RUN_MAX));
            let left = match (span, state.quiet_since()) {
                (Some(span), Some(quiet)) => span.saturating_sub(now.since(quiet.max(asked))),
                _ => LOOK_INTERVAL,
            };
            if left.is_zero() {
                state.warm_up(now, worker, bucket);
                return Some(Work::WarmUp);
            }
            self.0.work[worker].wait_for(&mut state, left);
            now = self.now();
        }
    }

    /// The job of a worker that warms nothing up.
    #[cfg(test)]
    fn next_job(&self, worker: usize) -> Option<Job> {
        self.next_work(worker, None).and_then(|work| match work {
            Work::Run(job) => Some(job),
            Work::WarmUp => None,
        })
    }

    /// The worker's warm-up of a shape is over. `ran` says whether the shape was run.
    pub(crate) fn warm_up_ended(&self, worker: usize, ran: bool) {
        self.step(|state, now| match ran {
            true => state.complete_batch(now, worker, &[], false),
            false => state.fail_batch(worker),
        });
    }

    /// Predicted time of one run on a worker; `None` before anything was measured.
    pub(crate) fn predict(&self, worker: usize, bucket: Bucket) -> Option<Duration> {
        self.0.state.lock().predict(worker, bucket)
    }

    pub(crate) fn has_cache(&self) -> bool {
        self.0.cache.is_some()
    }

    /// The shapes that batches have.
    pub fn shapes(&self) -> &Shapes {
        &self.0.shapes
    }

    pub(crate) fn incidents(&self) -> &Incidents {
        &self.0.incidents
    }

    /// Runs one step of the state machine, and then the effects that it asks for.
    fn step<R>(&self, step: impl FnOnce(&mut SchedulerState<QueuedItem>, Moment) -> R) -> R {
        let mut state = self.0.state.lock();
        let answer = step(&mut state, self.now());
        let (effects, drained) = (state.take_effects(), state.is_drained());
        drop(state);
        self.carry_out(effects);
        if drained {
            self.0.drained.notify_waiters();
        }
        answer
    }

    fn carry_out(&self, effects: Effects<QueuedItem>) {
        let Effects { expired, abandoned, woken } = effects;
        for (_, item) in expired {
            item.pending.fail(RunError::Expired);
        }
        for (_, item) in abandoned {
            item.pending.fail(RunError::NoWorker);
        }
        for worker in woken {
            self.0.work[worker].notify_one();
        }
    }

    fn now(&self) -> Moment {
        self.0.clock.now()
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
