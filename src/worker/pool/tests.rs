//! Workers, scheduler and the scripted engine together, on real threads.

use std::collections::HashMap;

use super::*;
use crate::engine::fake::{
    FakeEngine, FakeScript, Gate, ScriptedFault, expected_dense, expected_weights,
};
use crate::scheduler::{RunError, SchedulerConfig, Submission, Ticket};
use clock::RealClock;
use scheduling::Refusal;
use scheduling::batch::plan::Shapes;
use scheduling::batch::{TokenIds, Vectors};
use settings::limits::{MaxBatchTokens, WorkerStuckMs};
use testing::Seeds;
use vectors::ItemRows;

mod panics;
mod replacement;

const HIDDEN: usize = 16;
const PATIENCE: Duration = Duration::from_secs(20);

struct TestPool {
    scheduler: Scheduler,
    workers: WorkerPool,
    clock: Arc<dyn Clock>,
}

impl TestPool {
    /// One whose workers are ready.
    fn new(workers: u64, script: FakeScript) -> Self {
        Self::watched(workers, script, WatchdogConfig::default())
    }

    fn watched(workers: u64, script: FakeScript, watchdog: WatchdogConfig) -> Self {
        let pool = Self::starting(Arc::new(RealClock::new()), workers, script, watchdog);
        pool.workers.wait_ready().expect("the workers open");
        pool
    }

    fn starting(
        clock: Arc<dyn Clock>,
        workers: u64,
        script: FakeScript,
        watchdog: WatchdogConfig,
    ) -> Self {
        let shapes = Shapes::on_cpu(128, MaxBatchTokens::DEFAULT);
        let engine = Arc::new(FakeEngine::with_script(HIDDEN, script));
        let workers = Workers::new(workers).expect("in range");
        let scheduler = Scheduler::new(SchedulerConfig::new(workers), shapes, Arc::clone(&clock));
        let config = PoolConfig { watchdog, ..PoolConfig::new(workers) };
        let workers = WorkerPool::start(engine, scheduler.clone(), Arc::clone(&clock), config);
        Self { scheduler, workers, clock }
    }

    fn deadline(&self) -> Moment {
        self.clock.now() + PATIENCE
    }

    fn submit(&self, items: &[TokenIds]) -> Result<Ticket, Refusal> {
        let (items, vectors, deadline) = (items.to_vec(), Vectors::Both, self.deadline());
        self.scheduler.submit(Submission { items, vectors, priority: None, deadline })
    }

    /// Runs items as soon as a worker takes them: one that was lost may not have been replaced yet,
    /// or may not even be known to be lost.
    async fn run(&self, items: &[TokenIds]) -> Result<Vec<ItemRows>, RunError> {
        let answered = async {
            let ticket = loop {
                match self.submit(items) {
                    Err(Refusal::NoWorker) => tokio::time::sleep(REST).await,
                    taken => break taken.expect("there is room"),
                }
            };
            ticket.await
        };
        within(answered).await
    }
}

/// Nothing in these tests may hang.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends in time")
}

fn ids(seed: u64, tokens: usize) -> TokenIds {
    let mut random = fastrand::Rng::with_seed(seed);
    TokenIds::new(&(0..tokens).map(|_| random.u32(0..1000)).collect::<Vec<_>>())
}

fn assert_rows(items: &[TokenIds], rows: &[ItemRows]) {
    assert_eq!(items.len(), rows.len());
    for (ids, rows) in items.iter().zip(rows) {
        assert_eq!(rows.dense, expected_dense(ids, HIDDEN));
        assert_eq!(rows.weights, expected_weights(ids));
    }
}

fn faults(faults: impl IntoIterator<Item = (u64, ScriptedFault)>) -> FakeScript {
    FakeScript { faults: faults.into_iter().collect::<HashMap<_, _>>(), ..FakeScript::default() }
}

fn gated(gate: &Arc<Gate>) -> FakeScript {
    FakeScript { gate: Some(Arc::clone(gate)), ..FakeScript::default() }
}

#[tokio::test]
async fn a_session_is_kept_until_it_fails_three_times_in_a_row() {
    let fault = || ScriptedFault::Fail(EngineError::Transient("scripted".into()));
    let pool = TestPool::new(1, faults([(0, fault()), (1, fault()), (3, fault())]));
    for (seed, fails) in [(0, true), (1, true), (2, false), (3, true), (4, false)] {
        assert_eq!(pool.run(&[ids(seed, 9)]).await.is_err(), fails, "run {seed}");
    }
    assert_eq!(pool.scheduler.snapshot().workers.restarts, 0);
    let pool = TestPool::new(1, faults((0..3).map(|run| (run, fault()))));
    for seed in 0..3 {
        pool.run(&[ids(seed, 9)]).await.expect_err("scripted");
    }
    pool.run(&[ids(3, 9)]).await.expect("a replacement runs it");
    assert_eq!(pool.scheduler.snapshot().workers.restarts, 1);
}

#[tokio::test]
async fn a_poisoned_process_answers_everything_and_tells_its_owner() {
    let gate = Gate::closed();
    let poison = ScriptedFault::Fail(EngineError::ProcessPoisoned("scripted".into()));
    let script = FakeScript { gate: Some(Arc::clone(&gate)), ..faults([(0, poison)]) };
    let pool = TestPool::new(1, script);
    let running = pool.submit(&[ids(0, 9)]).expect("room");
    gate.wait_for_runs(1);
    let waiting = pool.submit(&[ids(1, 9)]).expect("room");
    gate.open();
    assert!(matches!(within(running).await, Err(RunError::EngineFailed(_))));
    assert_eq!(within(waiting).await, Err(RunError::NoWorker));
    assert_eq!(within(pool.workers.failed()).await, "scripted");
    assert_eq!(pool.submit(&[ids(2, 9)]).err(), Some(Refusal::NoWorker));
}

#[tokio::test]
async fn a_first_session_that_cannot_be_opened_ends_the_start() {
    let script = FakeScript { failing_opens: 1, ..FakeScript::default() };
    let clock = Arc::new(RealClock::new());
    let pool = TestPool::starting(clock, 2, script, WatchdogConfig::default());
    let error = pool.workers.wait_ready().expect_err("one cannot be opened");
    assert!(error.to_string().contains("cannot be opened"), "{error}");
    assert_eq!(pool.workers.shutdown(PATIENCE).await, 0);
}

#[tokio::test]
async fn a_check_passes_what_waits_and_reaches_its_worker() {
    let gate = Gate::closed();
    let pool = TestPool::new(1, gated(&gate));
    let bulk: Vec<Ticket> =
        (0..100).map(|seed| pool.submit(&[ids(seed, 128)]).expect("room")).collect();
    gate.wait_for_runs(1);
    let check = pool.scheduler.submit_check(0, ids(7, 5), pool.deadline()).expect("it lives");
    gate.permit(2);
    assert_rows(&[ids(7, 5)], &within(check).await.expect("it runs second"));
    gate.open();
    for ticket in bulk {
        within(ticket).await.expect("it runs");
    }
}

/// A first run that is held, so that `items` then share the second batch.
async fn run_together(script: FakeScript, items: &[TokenIds]) -> (TestPool, Vec<RunResult>) {
    let gate = Gate::closed();
    let pool = TestPool::new(1, FakeScript { gate: Some(Arc::clone(&gate)), ..script });
    let held = pool.submit(&[ids(0, 9)]).expect("room");
    gate.wait_for_runs(1);
    let tickets: Vec<Ticket> =
        items.iter().map(|ids| pool.submit(std::slice::from_ref(ids)).expect("room")).collect();
    gate.open();
    within(held).await.expect("it runs");
    let mut results = Vec::new();
    for ticket in tickets {
        results.push(within(ticket).await);
    }
    (pool, results)
}

type RunResult = Result<Vec<ItemRows>, RunError>;

fn out_of_memory() -> ScriptedFault {
    ScriptedFault::Fail(EngineError::OutOfMemory("scripted".into()))
}

#[tokio::test]
async fn an_item_that_does_not_fit_memory_fails_alone() {
    let items: Vec<TokenIds> = (1..9).map(|seed| ids(seed, 9)).collect();
    let runs = [1, 3, 4, 5, 6].map(|run| (run, out_of_memory()));
    let (pool, results) = run_together(faults(runs), &items).await;
    for (index, (ids, rows)) in items.iter().zip(results).enumerate() {
        match rows {
            Ok(rows) => assert_rows(std::slice::from_ref(ids), &rows),
            Err(RunError::EngineFailed(why)) => assert!(index == 4 && why.contains("memory")),
            Err(other) => panic!("item {index}: {other:?}"),
        }
    }
    let counts = pool.scheduler.snapshot().counts;
    assert_eq!((counts.failed, counts.batches), (1, 2), "the batch of halves counts once");
    assert_eq!(pool.scheduler.incidents().batches_split.get(), 4);
}

#[tokio::test]
async fn one_item_that_does_not_fit_memory_is_run_once_more() {
    let pool = TestPool::new(1, faults([0, 2, 3].map(|run| (run, out_of_memory()))));
    assert_rows(&[ids(1, 9)], &pool.run(&[ids(1, 9)]).await.expect("the second run"));
    let correction = || pool.scheduler.snapshot().widths[0].cost.correction().to_bits();
    let (before, _) = (correction(), pool.run(&[ids(2, 9)]).await.expect_err("twice is enough"));
    assert_eq!(correction(), before, "nothing was learnt");
    pool.run(&[ids(3, 9)]).await.expect("the session is kept");
    assert_eq!(pool.scheduler.snapshot().workers.restarts, 0);
}

#[tokio::test]
async fn a_session_that_is_lost_in_a_half_ends_the_other_half_too() {
    let items: Vec<TokenIds> = (1..5).map(|seed| ids(seed, 9)).collect();
    let lost = ScriptedFault::Fail(EngineError::SessionLost("scripted".into()));
    let (pool, results) = run_together(faults([(1, out_of_memory()), (2, lost)]), &items).await;
    assert!(results.iter().all(Result::is_err), "{results:?}");
    pool.run(&[ids(9, 9)]).await.expect("a replacement runs it");
    assert_eq!(pool.scheduler.snapshot().workers.restarts, 1);
}

#[tokio::test]
async fn a_row_that_is_not_finite_is_run_again_in_the_rescue_precision() {
    let items: Vec<TokenIds> = (1..4).map(|seed| ids(seed, 9)).collect();
    for rescues in [true, false] {
        let script = FakeScript { rescues, ..faults([(1, ScriptedFault::NotFinite)]) };
        let (pool, results) = run_together(script, &items).await;
        for (index, (ids, rows)) in items.iter().zip(results).enumerate() {
            match rows {
                Ok(rows) => assert_rows(std::slice::from_ref(ids), &rows),
                Err(error) => {
                    assert!(index == 0 && !rescues, "item {index}");
                    assert_eq!(error, RunError::NonFinite { item: 0 });
                }
            }
        }
        let incidents = pool.scheduler.incidents();
        assert_eq!(incidents.rows_not_finite.get(), 1);
        assert_eq!(incidents.rows_rescued.get(), u64::from(rescues));
    }
}

#[tokio::test]
async fn a_text_whose_run_alone_failed_may_be_sent_again() {
    // The first two share a row, and the first is lost for good.
    let items = [ids(1, 40), ids(2, 40), ids(3, 128)];
    let failed = |error: &EngineError| Err(RunError::EngineFailed(error.to_string()));
    let lost = Err(RunError::NonFinite { item: 0 });
    let scripted = || "scripted".to_owned();
    let errors = [
        (EngineError::Transient(scripted()), 0),
        (EngineError::OutOfMemory(scripted()), 0),
        (EngineError::SessionLost(scripted()), 1),
    ];
    for (run, (error, restarts)) in
        [2, 3].iter().flat_map(|&run| errors.clone().map(|of| (run, of)))
    {
        let script =
            faults([(1, ScriptedFault::NotFinite), (run, ScriptedFault::Fail(error.clone()))]);
        let (pool, results) = run_together(script, &items).await;
        // The first runs alone before the second. A session that is gone runs neither.
        let (first, second) = match (run, restarts) {
            (2, 0) => (failed(&error), Ok(())),
            (2, _) => (failed(&error), failed(&error)),
            _ => (lost.clone(), failed(&error)),
        };
        let ended: Vec<_> = results.iter().map(|rows| rows.as_ref().map(drop)).collect();
        assert_eq!(ended, [first.as_ref().map(drop), second.as_ref().map(drop), Ok(())]);
        let not_finite = pool.scheduler.incidents().rows_not_finite.get();
        assert_eq!(not_finite, u64::from(first == lost));
        pool.run(&[ids(9, 9)]).await.expect("a session runs it");
        assert_eq!(pool.scheduler.snapshot().workers.restarts, restarts);
    }
}

fn watchdog(exit_on_stuck: bool) -> WatchdogConfig {
    WatchdogConfig { stuck_after: WorkerStuckMs::new(1000).expect("in range"), exit_on_stuck }
}

#[tokio::test]
async fn a_stuck_batch_is_answered_and_its_worker_lives_again_when_it_ends() {
    let gate = Gate::closed();
    let pool = TestPool::watched(1, gated(&gate), watchdog(false));
    let stuck = pool.submit(&[ids(1, 9)]).expect("room");
    gate.wait_for_runs(1);
    let waiting = pool.submit(&[ids(3, 9)]).expect("room");
    assert_eq!(within(stuck).await, Err(RunError::NoWorker));
    let workers = pool.scheduler.snapshot().workers;
    assert_eq!((workers.live, workers.busy, workers.stuck), (0, 0, 1));
    assert_eq!(
        pool.scheduler.submit_check(0, ids(2, 9), pool.deadline()).err(),
        Some(Refusal::NoWorker)
    );
    assert_eq!(pool.submit(&[ids(2, 9)]).err(), Some(Refusal::NoWorker));
    gate.open();
    assert_rows(&[ids(3, 9)], &within(waiting).await.expect("it runs after all"));
    let snapshot = pool.scheduler.snapshot();
    assert_eq!((snapshot.workers.live, snapshot.workers.stuck), (1, 0));
    assert_eq!((snapshot.counts.replied, snapshot.counts.failed), (1, 1));
    assert_eq!(pool.scheduler.incidents().batches_stuck.get(), 1);
}

#[tokio::test]
async fn a_stuck_batch_ends_everything_when_the_process_is_to_end() {
    let gate = Gate::closed();
    let pool = TestPool::watched(1, gated(&gate), watchdog(true));
    let stuck = pool.submit(&[ids(1, 9)]).expect("room");
    gate.wait_for_runs(1);
    let waiting = pool.submit(&[ids(2, 9)]).expect("room");
    assert!(within(pool.workers.failed()).await.contains("worker 0 has run one batch"));
    assert_eq!(within(stuck).await, Err(RunError::NoWorker));
    assert_eq!(within(waiting).await, Err(RunError::NoWorker));
    assert_eq!(pool.workers.shutdown(Duration::ZERO).await, 1, "its thread hangs");
    gate.open();
}

/// How long a client that was refused rests.
const REST: Duration = Duration::from_millis(1);

/// Every fault at once, clients that leave and deadlines that pass, over three workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_ends_once_whatever_fails() {
    let random = fastrand::u64(..u64::MAX);
    for seed in Seeds::new("every_request_ends_once_whatever_fails", random..random + 1) {
        everything_fails(seed).await;
    }
}

async fn everything_fails(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut fault = |run: u64| {
        let fault = match random.u32(0..22) {
            0 => ScriptedFault::Panic,
            1 => ScriptedFault::Fail(EngineError::SessionLost("scripted".into())),
            2 => ScriptedFault::Fail(EngineError::Transient("scripted".into())),
            3 | 4 => out_of_memory(),
            5 | 6 => ScriptedFault::NotFinite,
            7 => ScriptedFault::NoRows,
            _ => return None,
        };
        Some((run, fault))
    };
    let pool = Arc::new(TestPool::new(3, faults((0..4000).filter_map(&mut fault))));
    let clients = (0..8).map(|client| {
        let (pool, mut random) = (Arc::clone(&pool), fastrand::Rng::with_seed(seed ^ client));
        tokio::spawn(async move {
            for _ in 0..100 {
                let items: Vec<TokenIds> = (0..random.usize(1..12))
                    .map(|_| ids(random.u64(..), random.usize(2..=128)))
                    .collect();
                let deadline = pool.clock.now() + Duration::from_millis(random.u64(0..2000));
                let (vectors, priority) = (Vectors::Both, None);
                let new = || Submission { items: items.clone(), vectors, priority, deadline };
                // A moment without a worker would use up the client's turns.
                let taken = loop {
                    match pool.scheduler.submit(new()) {
                        Err(Refusal::NoWorker) => tokio::time::sleep(REST).await,
                        taken => break taken,
                    }
                };
                let Ok(ticket) = taken else { continue };
                let leaves = random.u32(0..10) == 0;
                if !leaves && let Ok(rows) = within(ticket).await {
                    assert_rows(&items, &rows);
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("every answer came, and was right");
    }
    pool.scheduler.drain();
    within(pool.scheduler.drained()).await;
    let counts = pool.scheduler.snapshot().counts;
    assert_eq!(counts.ended(), counts.accepted, "{counts:?}");
    assert!(counts.replied > 0 && counts.failed > 0 && counts.cancelled > 0, "{counts:?}");
}
