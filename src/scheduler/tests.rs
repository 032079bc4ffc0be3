//! The handle without threads: who answers a request when things go wrong.

use futures_util::FutureExt;

use super::*;
use crate::clock::ManualClock;
use crate::engine::BatchOutput;

pub(super) const LATER: Moment = Moment::from_nanos(u64::MAX);

/// No worker lives yet.
pub(super) fn scheduler_of(workers: usize) -> Scheduler {
    scheduler_with(workers, false)
}

/// The same with a wide worker besides.
pub(super) fn scheduler_with(workers: usize, wide: bool) -> Scheduler {
    let buckets = vec![Bucket { rows: 1, length: 16 }, Bucket { rows: 4, length: 16 }];
    let workers = Workers::new(workers as u64).expect("in range");
    let config = SchedulerConfig { wide, ..SchedulerConfig::new(workers) };
    Scheduler::new(config, buckets, Arc::new(ManualClock::default()))
}

/// One worker that lives.
fn scheduler() -> Scheduler {
    let scheduler = scheduler_of(1);
    scheduler.worker_opened(0);
    scheduler
}

fn submit(scheduler: &Scheduler, vectors: Vectors) -> Ticket {
    let items = vec![TokenIds::new(&[0, 7, 2])];
    let submission = Submission { items, vectors, priority: None, deadline: LATER };
    scheduler.submit(submission).expect("there is room")
}

#[test]
fn a_job_that_is_dropped_answers_its_requests() {
    let scheduler = scheduler();
    let ticket = submit(&scheduler, Vectors::Both);
    drop(scheduler.next_job(0).expect("it waits"));
    assert_eq!(ticket.now_or_never(), Some(Err(RunError::NoWorker)));
    assert_eq!(scheduler.snapshot().counts.failed, 1);
    assert_eq!(scheduler.snapshot().workers.busy, 0);
}

#[test]
fn a_lost_worker_answers_what_it_ran() {
    let scheduler = scheduler();
    let ticket = submit(&scheduler, Vectors::Both);
    let job = scheduler.next_job(0).expect("it waits");
    scheduler.worker_lost(0);
    assert_eq!(ticket.now_or_never(), Some(Err(RunError::NoWorker)));
    drop(job);
    assert_eq!(scheduler.snapshot().counts.failed, 1);
}

/// One row of four dense floats and sixteen weights.
fn output() -> BatchOutput {
    let mut output = BatchOutput::default();
    output.resize(Bucket { rows: 1, length: 16 }, 4);
    output
}

#[test]
fn only_the_rows_that_are_wanted_must_be_finite() {
    let (mut bad_weight, mut bad_dense) = (output(), output());
    bad_weight.token_weights[1] = f32::NAN;
    bad_dense.dense[1] = f32::INFINITY;
    for (wanted, dense_fails, weight_fails) in
        [(Vectors::Dense, true, false), (Vectors::Sparse, false, true), (Vectors::Both, true, true)]
    {
        let scheduler = scheduler();
        let _ticket = submit(&scheduler, wanted);
        let job = scheduler.next_job(0).expect("it waits");
        let fails = |output| job.items[0].rows(output, 0) == Err(RunError::NonFinite { item: 0 });
        assert_eq!((fails(&bad_dense), fails(&bad_weight)), (dense_fails, weight_fails));
    }
}
