//! When a session that failed is replaced.

use super::*;

#[tokio::test]
async fn a_worker_whose_gpu_is_lost_is_not_replaced_while_others_live() {
    let lost = || ScriptedFault::Fail(EngineError::GpuLost("scripted".into()));
    let pool = TestPool::new(2, faults([(0, lost()), (2, lost())]));
    pool.run(&[ids(1, 9)]).await.expect_err("its GPU is lost");
    pool.run(&[ids(2, 9)]).await.expect("the other worker runs it");
    // The answer comes before the worker has left.
    let end = std::time::Instant::now() + PATIENCE;
    while pool.scheduler.snapshot().workers.live > 1 {
        assert!(std::time::Instant::now() < end, "the worker of the lost GPU stays");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let workers = pool.scheduler.snapshot().workers;
    assert_eq!((workers.live, workers.total, workers.restarts), (1, 2, 0));
    // The last one gets a session on a GPU that is left.
    pool.run(&[ids(3, 9)]).await.expect_err("its GPU is lost");
    pool.run(&[ids(4, 9)]).await.expect("a replacement runs it");
    assert_eq!(pool.scheduler.snapshot().workers.restarts, 1);
    assert_eq!(pool.workers.shutdown(PATIENCE).await, 0);
}

/// It opens and warms up, so that only its batches show that it is of no use.
#[tokio::test]
async fn a_session_that_runs_nothing_is_replaced_ever_later_until_one_runs() {
    let lost = || ScriptedFault::Fail(EngineError::SessionLost("scripted".into()));
    let again = 7;
    let pool = TestPool::new(1, faults((0..5).chain([again]).map(|run| (run, lost()))));
    let begin = pool.clock.now();
    for seed in 0..5 {
        pool.run(&[ids(seed, 9)]).await.expect_err("its session is lost");
    }
    pool.run(&[ids(5, 9)]).await.expect("the sixth session runs");
    // 10, 20, 40, 80 and 160 ms.
    assert!(pool.clock.now().since(begin) >= 31 * BACKOFF_MIN);
    for seed in 6..again {
        pool.run(&[ids(seed, 9)]).await.expect("it runs");
    }
    pool.run(&[ids(again, 9)]).await.expect_err("its session is lost");
    let begin = pool.clock.now();
    pool.run(&[ids(again + 1, 9)]).await.expect("another one runs");
    assert!(pool.clock.now().since(begin) < 32 * BACKOFF_MIN, "it began anew");
}

#[tokio::test]
async fn a_worker_is_lost_before_its_session_is_dropped_which_may_never_end() {
    let fail = |error: fn(String) -> EngineError| ScriptedFault::Fail(error("scripted".to_owned()));
    let poison = fail(EngineError::ProcessPoisoned);
    // One without rows panics.
    for fault in [fail(EngineError::SessionLost), ScriptedFault::NoRows, poison.clone()] {
        let (drops, is_poison) = (Gate::closed(), fault == poison);
        let script = FakeScript { drops: Some(Arc::clone(&drops)), ..faults([(0, fault)]) };
        let pool = TestPool::new(1, script);
        pool.run(&[ids(1, 9)]).await.expect_err("its session is lost");
        drops.wait_for_runs(1);
        assert_eq!(pool.scheduler.snapshot().workers.live, 0);
        assert_eq!(pool.submit(&[ids(2, 9)]).err(), Some(Refusal::NoWorker));
        if is_poison {
            assert_eq!(within(pool.workers.failed()).await, "scripted");
        }
        drops.open();
    }
}

#[tokio::test]
async fn a_warm_up_that_fails_is_told_before_its_session_is_dropped_which_may_never_end() {
    let fail = |error: fn(String) -> EngineError| error("scripted".to_owned());
    for error in [EngineError::SessionLost, EngineError::ProcessPoisoned, EngineError::GpuLost] {
        let (drops, failing_warm_up) = (Gate::closed(), Some(fail(error)));
        let script = FakeScript { drops: Some(drops.clone()), failing_warm_up, ..faults([]) };
        let clock = Arc::new(RealClock::new());
        let pool = TestPool::starting(clock, 2, script, WatchdogConfig::default());
        let started = pool.workers.wait_ready();
        drops.wait_for_runs(1);
        if fail(error) == EngineError::GpuLost("scripted".to_owned()) {
            started.expect("the other worker serves");
            pool.run(&[ids(1, 9)]).await.expect("it runs");
        } else {
            assert_eq!(started.expect_err("it ends the start"), fail(error));
        }
        drops.open();
    }
}

#[tokio::test]
async fn a_session_whose_drop_never_ends_ends_the_process_that_is_to_end() {
    let lost = ScriptedFault::Fail(EngineError::SessionLost("scripted".into()));
    let drops = Gate::closed();
    let script = FakeScript { drops: Some(Arc::clone(&drops)), ..faults([(0, lost)]) };
    let pool = TestPool::watched(1, script, watchdog(true));
    pool.run(&[ids(1, 9)]).await.expect_err("its session is lost");
    assert!(within(pool.workers.failed()).await.contains("has given its session back"));
    assert_eq!(pool.workers.shutdown(Duration::ZERO).await, 1, "its thread hangs");
    drops.open();
}
