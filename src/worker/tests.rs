//! Which shapes a worker has run before it is ready.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::plan::bucket_ladder;
use crate::batch::{Batch, Bucket};
use crate::clock::RealClock;
use crate::config::WatchdogConfig;
use crate::engine::fake::FakeEngine;
use crate::engine::{BatchOutput, Engine, EngineError, EngineInfo, Session};
use crate::limits::{MaxAgeMs, MaxBatchRows, MaxBatchTokens, QueueCapacity, Workers};
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::worker::pool::WorkerPool;

/// Shapes in the order in which they ran; `None` is where the worker said that it is warm.
type Runs = Arc<Mutex<Vec<Option<Bucket>>>>;

/// An engine that notes what its sessions run.
struct Noting {
    fake: FakeEngine,
    runs: Runs,
}

struct NotingSession {
    fake: Box<dyn Session>,
    runs: Runs,
}

impl Engine for Noting {
    fn info(&self) -> &EngineInfo {
        self.fake.info()
    }

    fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
        let (fake, runs) = (self.fake.open_session(buckets)?, Arc::clone(&self.runs));
        Ok(Box::new(NotingSession { fake, runs }))
    }
}

impl Session for NotingSession {
    fn run(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), EngineError> {
        self.runs.lock().push(Some(batch.bucket()));
        self.fake.run(batch, output)
    }

    fn warmed_up(&mut self) {
        self.runs.lock().push(None);
    }
}

/// Runs of one worker up to the moment when it is warm, for texts of up to 8192 tokens.
fn first_runs() -> Vec<Bucket> {
    let runs = Runs::default();
    let engine = Arc::new(Noting { fake: FakeEngine::new(4), runs: Arc::clone(&runs) });
    let workers = Workers::new(1).expect("in range");
    let config = SchedulerConfig {
        queue_capacity: QueueCapacity::DEFAULT,
        max_age: MaxAgeMs::DEFAULT,
        workers,
    };
    let clock = Arc::new(RealClock::new());
    let buckets = bucket_ladder(8192, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT);
    let scheduler = Scheduler::new(config, buckets, clock.clone());
    let pool = WorkerPool::start(engine, scheduler, clock, workers, WatchdogConfig::default());
    pool.wait_ready().expect("it opens");
    let runs = runs.lock();
    runs.iter().map_while(|run| *run).collect()
}

#[test]
fn long_shapes_do_not_delay_the_start() {
    let longest = first_runs().iter().map(|bucket| bucket.length).max();
    assert_eq!(longest, Some(512), "a run of 8192 tokens takes seconds");
}
