//! The handle without threads: who answers a request when things go wrong.

use futures_util::FutureExt;

use super::*;
use crate::clock::ManualClock;
use crate::engine::Engine;
use crate::engine::fake::FakeEngine;

const LATER: Moment = Moment::from_nanos(u64::MAX);

/// One worker that lives.
fn scheduler() -> Scheduler {
    let buckets = vec![Bucket { rows: 1, length: 16 }, Bucket { rows: 4, length: 16 }];
    let config = SchedulerConfig {
        queue_capacity: QueueCapacity::DEFAULT,
        max_batch_tokens: MaxBatchTokens::DEFAULT,
        max_batch_rows: MaxBatchRows::DEFAULT,
        max_age: MaxAgeMs::DEFAULT,
        workers: Workers::DEFAULT,
    };
    let engine = FakeEngine::new(4, buckets);
    let scheduler = Scheduler::new(config, engine.info(), Arc::new(ManualClock::default()));
    scheduler.worker_opened(0);
    scheduler
}

fn submit(scheduler: &Scheduler, items: usize) -> Ticket {
    let items = vec![TokenIds::new(&[0, 7, 2]); items];
    let rows = WantedRows::Both;
    let submission = Submission { items, rows, priority: None, deadline: LATER };
    scheduler.submit(submission).expect("there is room")
}

#[test]
fn a_job_that_is_dropped_answers_its_requests() {
    let scheduler = scheduler();
    let ticket = submit(&scheduler, 1);
    drop(scheduler.next_job(0).expect("it waits"));
    assert_eq!(ticket.now_or_never(), Some(Err(RunError::NoWorker)));
    assert_eq!(scheduler.snapshot().counts.failed, 1);
    assert_eq!(scheduler.snapshot().workers.busy, 0);
}

#[test]
fn a_lost_worker_answers_what_it_ran() {
    let scheduler = scheduler();
    let ticket = submit(&scheduler, 1);
    let job = scheduler.next_job(0).expect("it waits");
    scheduler.worker_lost(0);
    assert_eq!(ticket.now_or_never(), Some(Err(RunError::NoWorker)));
    drop(job);
    assert_eq!(scheduler.snapshot().counts.failed, 1);
}
