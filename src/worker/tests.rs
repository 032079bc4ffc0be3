//! Which shapes a worker runs before it is ready, and which while it idles.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::batch::plan::Shapes;
use crate::batch::{Batch, Bucket, TokenIds};
use crate::clock::{ManualClock, Moment};
use crate::config::WarmUp;
use crate::engine::fake::FakeEngine;
use crate::engine::{BatchOutput, Engine, EngineError, EngineInfo, Session};
use crate::limits::{COMMON_TIME, MaxBatchTokens, Workers};
use crate::progress::Progress;
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::worker::pool::{PoolConfig, WorkerPool};

/// Shapes in the order in which they ran; `None` is where the worker said that it is warm.
type RunLog = Arc<Mutex<Vec<Option<Bucket>>>>;

/// Time of a run for each of its padded tokens, by the clock of the test.
type TokenTime = Duration;

/// An engine that notes what its sessions run, and takes its time for it.
struct Noting {
    fake: FakeEngine,
    clock: Arc<ManualClock>,
    token_time: TokenTime,
    compiles: bool,
    runs: RunLog,
}

struct NotingSession {
    fake: Box<dyn Session>,
    clock: Arc<ManualClock>,
    token_time: TokenTime,
    runs: RunLog,
}

impl Engine for Noting {
    fn info(&self) -> &EngineInfo {
        self.fake.info()
    }

    fn compiles_shapes(&self) -> bool {
        self.compiles
    }

    fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
        Ok(Box::new(NotingSession {
            fake: self.fake.open_session(buckets)?,
            clock: Arc::clone(&self.clock),
            token_time: self.token_time,
            runs: Arc::clone(&self.runs),
        }))
    }
}

impl Session for NotingSession {
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        let bucket = batch.bucket();
        self.clock.advance(self.token_time * bucket.tokens() as u32);
        self.runs.lock().push(Some(bucket));
        self.fake.run(batch)
    }

    fn warmed_up(&mut self) {
        self.runs.lock().push(None);
    }
}

/// A pool for texts of up to 8192 tokens.
struct Started {
    runs: RunLog,
    clock: Arc<ManualClock>,
    progress: Arc<Progress>,
    scheduler: Scheduler,
    _pool: WorkerPool,
}

impl Started {
    /// Waits until it is ready.
    fn new(warm_up: WarmUp, token_time: TokenTime, compiles: bool, workers: u64) -> Self {
        let (runs, clock) = (RunLog::default(), Arc::new(ManualClock::default()));
        let engine = Arc::new(Noting {
            fake: FakeEngine::new(4),
            clock: Arc::clone(&clock),
            token_time,
            compiles,
            runs: Arc::clone(&runs),
        });
        let workers = Workers::new(workers).expect("in range");
        let config = SchedulerConfig::new(workers);
        let scheduler = Scheduler::new(config, shapes(), clock.clone());
        let config = PoolConfig { warm_up, ..PoolConfig::new(workers) };
        let progress = Arc::clone(&config.progress);
        let pool = WorkerPool::start(engine, scheduler.clone(), clock.clone(), config);
        pool.wait_ready().expect("it opens");
        Self { runs, clock, progress, scheduler, _pool: pool }
    }

    /// Shapes of the first worker that ran before it was ready, in their order.
    fn first(&self) -> Vec<Bucket> {
        self.runs.lock().iter().map_while(|run| *run).collect()
    }

    /// Lengths of the shapes that ran after that, once all of them have. Time goes on for workers
    /// that wait for it.
    fn later(&self) -> Vec<usize> {
        while self.progress.step().is_some() {
            self.clock.advance(Duration::from_millis(10));
            // A check that is late already wakes the workers and is not run.
            let ids = TokenIds::new(&[0, 2]);
            let _ = self.scheduler.submit_check(0, ids, Moment::START);
            thread::yield_now();
        }
        let runs = self.runs.lock();
        let later = runs.iter().skip_while(|run| run.is_some()).flatten();
        later.map(|bucket| bucket.length).collect()
    }
}

fn shapes() -> Shapes {
    Shapes::on_cpu(8192, MaxBatchTokens::DEFAULT)
}

const FAST: TokenTime = Duration::from_nanos(50);
const SLOW: TokenTime = Duration::from_millis(1);

#[test]
fn long_shapes_do_not_delay_the_start() {
    let first = Started::new(WarmUp::Common, FAST, false, 1).first();
    let longest = first.iter().map(|bucket| bucket.length).max();
    assert_eq!(longest, Some(512), "a run of 8192 tokens takes seconds");
    let common = shapes().prepared().to_vec().into_iter().filter(|bucket| bucket.length <= 512);
    assert!(common.into_iter().all(|bucket| first.contains(&bucket)));
}

#[test]
fn long_shapes_follow_while_the_worker_idles() {
    let started = Started::new(WarmUp::Common, FAST, false, 1);
    assert_eq!(started.later(), [1024, 2048, 4096, 8192]);
}

#[test]
fn only_one_worker_runs_the_long_shapes() {
    let started = Started::new(WarmUp::Common, FAST, false, 3);
    let long = started.later().into_iter().filter(|&length| length > 512).count();
    assert_eq!(long, 4);
}

#[test]
fn a_slow_model_is_ready_before_all_common_shapes_have_run() {
    let started = Started::new(WarmUp::Common, SLOW, false, 1);
    let tokens: usize = started.first().iter().map(|bucket| bucket.tokens()).sum();
    let most = COMMON_TIME.as_millis() as usize + MaxBatchTokens::DEFAULT.as_usize();
    assert!((2000..=most).contains(&tokens), "{tokens} tokens of 1 ms");
    // Shapes that take two seconds or more are not worth their run.
    let later = started.later();
    assert!(later.contains(&1024), "{later:?}");
    assert!(later.iter().all(|&length| length <= 2000), "{later:?}");
}

#[test]
fn all_shapes_come_first_when_asked_for_and_where_they_are_compiled() {
    for (warm_up, compiles) in [(WarmUp::All, false), (WarmUp::Common, true)] {
        let started = Started::new(warm_up, SLOW, compiles, 1);
        assert!(started.first().starts_with(shapes().prepared()), "{warm_up:?}");
        assert_eq!(started.progress.step(), None);
    }
}

#[test]
fn no_shape_is_run_when_none_is_asked_for() {
    let started = Started::new(WarmUp::None, FAST, true, 1);
    assert_eq!((started.first(), started.later()), (Vec::new(), Vec::new()));
}
