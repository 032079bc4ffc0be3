//! Which shapes a worker runs before it is ready, and which while it idles.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::noting::Noting;
use crate::engine::EngineError;
use crate::progress::Progress;
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::worker::pool::{PoolConfig, WorkerPool};
use clock::Moment;
use scheduling::batch::plan::Shapes;
use scheduling::batch::{Bucket, TokenIds};
use settings::WarmUp;
use settings::limits::{COMMON_TIME, MaxBatchTokens, Workers};

/// A pool for texts of up to 8192 tokens.
struct Started {
    engine: Noting,
    progress: Arc<Progress>,
    scheduler: Scheduler,
    _pool: WorkerPool,
}

impl Started {
    /// Waits until it is ready.
    fn new(warm_up: WarmUp, token_time: Duration, compiles: bool, workers: u64) -> Self {
        let engine = Noting { token_time, compiles, ..Noting::new(&Arc::default()) };
        Self::of(engine, warm_up, workers)
    }

    fn of(engine: Noting, warm_up: WarmUp, workers: u64) -> Self {
        let clock = Arc::clone(&engine.clock);
        let workers = Workers::new(workers).expect("in range");
        let config = SchedulerConfig::new(workers);
        let scheduler = Scheduler::new(config, shapes(), clock.clone());
        let config = PoolConfig { warm_up, ..PoolConfig::new(workers) };
        let progress = Arc::clone(&config.progress);
        let shared = Arc::new(engine.clone());
        let pool = WorkerPool::start(shared, scheduler.clone(), clock, config);
        pool.wait_ready().expect("it opens");
        Self { engine, progress, scheduler, _pool: pool }
    }

    /// Shapes of the first worker that ran before it was ready, in their order.
    fn first(&self) -> Vec<Bucket> {
        self.engine.runs.lock().iter().map_while(|run| *run).collect()
    }

    /// Lengths of the shapes that ran after that, once all of them have. Time goes on for workers
    /// that wait for it.
    fn later(&self) -> Vec<usize> {
        let sessions = || self.engine.sessions.load(Ordering::SeqCst);
        let all = sessions();
        while self.progress.step().is_some() {
            assert_eq!(sessions(), all, "a worker was replaced");
            self.let_time_pass();
        }
        let runs = self.engine.runs.lock();
        let later = runs.iter().skip_while(|run| run.is_some()).flatten();
        later.map(|bucket| bucket.length).collect()
    }

    fn let_time_pass(&self) {
        self.engine.clock.advance(Duration::from_millis(10));
        // A check that is late already wakes the workers and is not run.
        let ids = TokenIds::new(&[0, 2]);
        let _ = self.scheduler.submit_check(0, ids, Moment::START);
        thread::yield_now();
    }
}

fn shapes() -> Shapes {
    Shapes::on_cpu(8192, MaxBatchTokens::DEFAULT)
}

/// Times of a run for each of its tokens.
const FAST: Duration = Duration::from_nanos(50);
const SLOW: Duration = Duration::from_millis(1);

#[test]
fn long_shapes_do_not_delay_the_start_and_follow_while_the_worker_idles() {
    let started = Started::new(WarmUp::Common, FAST, false, 1);
    let first = started.first();
    let longest = first.iter().map(|bucket| bucket.length).max();
    assert_eq!(longest, Some(512), "a run of 8192 tokens takes seconds");
    let common = shapes().prepared().to_vec().into_iter().filter(|bucket| bucket.length <= 512);
    assert!(common.into_iter().all(|bucket| first.contains(&bucket)));
    assert_eq!(started.later(), [1024, 2048, 4096, 8192]);
}

#[test]
fn only_one_worker_runs_the_long_shapes() {
    let started = Started::new(WarmUp::Common, FAST, false, 3);
    let long = started.later().into_iter().filter(|&length| length > 512).count();
    assert_eq!(long, 4);
}

#[test]
fn shapes_that_cannot_be_run_are_passed_over_and_the_worker_is_kept() {
    for error in [EngineError::OutOfMemory, EngineError::Transient] {
        let (token_time, memory_tokens) = (FAST, 3000);
        let engine = Noting { token_time, memory_tokens, error, ..Noting::new(&Arc::default()) };
        assert_eq!(Started::of(engine, WarmUp::Common, 1).later(), [1024, 2048]);
    }
}

#[test]
fn shapes_of_a_worker_that_has_lost_its_gpu_are_passed_over() {
    let (token_time, memory_tokens, error) = (FAST, 3000, EngineError::GpuLost);
    let engine = Noting { token_time, memory_tokens, error, ..Noting::new(&Arc::default()) };
    let later = Started::of(engine, WarmUp::Common, 2).later();
    assert!(later.ends_with(&[1024, 2048]), "{later:?}");
}

#[test]
fn a_replacement_does_not_run_the_shapes_that_may_have_ended_the_session_before_it() {
    let (token_time, memory_tokens, error) = (FAST, 3000, EngineError::SessionLost);
    let engine = Noting { token_time, memory_tokens, error, ..Noting::new(&Arc::default()) };
    let started = Started::of(engine, WarmUp::Common, 1);
    let workers = || started.scheduler.snapshot().workers;
    while workers().restarts == 0 || workers().live == 0 {
        started.let_time_pass();
    }
    for _ in 0..100 {
        started.let_time_pass();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((workers().live, workers().restarts), (1, 1));
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
