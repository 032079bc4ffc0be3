//! Panics: no request may be left without an answer.

use parking_lot::Mutex;

use super::*;

/// Panics once when a thread of this name asks for the time.
#[derive(Debug, Default)]
struct Trap {
    clock: RealClock,
    armed_for: Mutex<Option<&'static str>>,
}

impl Trap {
    fn arm(&self, thread: &'static str) {
        *self.armed_for.lock() = Some(thread);
    }
}

impl Clock for Trap {
    fn now(&self) -> Moment {
        let mut armed_for = self.armed_for.lock();
        let current = thread::current();
        if armed_for.is_some_and(|name| current.name() == Some(name)) {
            *armed_for = None;
            panic!("the clock panics");
        }
        self.clock.now()
    }
}

/// One worker with this clock.
fn pool(clock: &Arc<Trap>, script: FakeScript) -> Arc<TestPool> {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    Arc::new(TestPool::starting(clock, 1, script, watchdog(false)))
}

/// What the start comes to; it must not last for ever.
async fn start(pool: &Arc<TestPool>) -> Result<(), EngineError> {
    let (sender, result) = tokio::sync::oneshot::channel();
    let pool = Arc::clone(pool);
    thread::spawn(move || sender.send(pool.workers.wait_ready()));
    within(result).await.expect("the start ends")
}

#[tokio::test]
async fn a_panic_before_the_workers_are_ready_ends_the_start() {
    let opening = FakeScript { panicking_opens: u64::MAX, ..FakeScript::default() };
    for (script, armed_for, told) in [
        (opening, None, "the opening panics"),
        (FakeScript::default(), Some("duovec-worker-0"), "the clock panics"),
        (FakeScript::default(), Some("duovec-pool"), "the clock panics"),
    ] {
        let clock = Arc::new(Trap { armed_for: Mutex::new(armed_for), ..Trap::default() });
        let error = start(&pool(&clock, script)).await.expect_err(told);
        assert!(error.to_string().contains(told), "{armed_for:?}: {error}");
    }
}

#[tokio::test]
async fn a_panic_of_the_pools_own_thread_is_told_to_its_owner() {
    let clock = Arc::new(Trap::default());
    let pool = pool(&clock, FakeScript::default());
    start(&pool).await.expect("the workers open");
    clock.arm("duovec-pool");
    assert!(within(pool.workers.failed()).await.contains("the clock panics"));
    assert_eq!(pool.submit(&[ids(1, 9)]).err(), Some(Refusal::NoWorker));
}

#[tokio::test]
async fn a_panic_after_a_run_answers_its_batch_and_replaces_the_worker() {
    let (gate, clock) = (Gate::closed(), Arc::new(Trap::default()));
    let pool = pool(&clock, gated(&gate));
    start(&pool).await.expect("the workers open");
    let ticket = pool.submit(&[ids(1, 9)]).expect("room");
    gate.wait_for_runs(1);
    clock.arm("duovec-worker-0");
    gate.open();
    assert_eq!(within(ticket).await, Err(RunError::NoWorker));
    pool.run(&[ids(2, 9)]).await.expect("a replacement runs it");
    let counts = pool.scheduler.snapshot().counts;
    assert_eq!((counts.failed, counts.replied), (1, 1));
}

#[tokio::test]
async fn a_run_that_panics_or_leaves_no_rows_answers_its_batch_and_its_worker_is_replaced() {
    for (fault, told) in [(ScriptedFault::Panic, Some("panic")), (ScriptedFault::NoRows, None)] {
        let pool = TestPool::new(1, faults([(0, fault)]));
        match (pool.run(&[ids(1, 9)]).await.expect_err("nothing comes of it"), told) {
            (RunError::EngineFailed(reason), Some(told)) => assert!(reason.contains(told)),
            (error, _) => assert_eq!((error, told), (RunError::NoWorker, None)),
        }
        assert_rows(&[ids(2, 9)], &pool.run(&[ids(2, 9)]).await.expect("the next one runs"));
        assert_eq!(pool.scheduler.snapshot().workers.restarts, 1);
    }
}
