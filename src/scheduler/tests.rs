//! The handle without threads: who answers a request when things go wrong.

use futures_util::FutureExt;

use super::job::{JobItem, only};
use super::*;
use crate::engine::fake::RowBuffers;
use clock::ManualClock;
use scheduling::Refusal;
use scheduling::batch::{Place, TokenIds, Vectors};
use vectors::ItemRows;

pub(super) const LATER: Moment = Moment::from_nanos(u64::MAX);

/// No worker lives yet.
pub(super) fn scheduler_of(workers: usize) -> Scheduler {
    scheduler_on(Lane::apart(workers), CacheBytes::DEFAULT)
}

/// The same on any lanes, and with room for rows.
pub(super) fn scheduler_on(lanes: Vec<Lane>, cache_bytes: CacheBytes) -> Scheduler {
    let shapes = vec![Bucket { rows: 1, length: 8 }, Bucket { rows: 4, length: 8 }];
    let shapes = Shapes::new(shapes, false);
    let config = SchedulerConfig { lanes, cache_bytes, ..SchedulerConfig::new(Workers::DEFAULT) };
    Scheduler::new(config, shapes, Arc::new(ManualClock::default()))
}

/// One worker that lives.
fn scheduler() -> Scheduler {
    let scheduler = scheduler_of(1);
    scheduler.worker_opened(0);
    scheduler
}

/// The same with a cache.
fn caching_scheduler() -> Scheduler {
    let scheduler = scheduler_on(Lane::apart(1), CacheBytes::nearest(1 << 20));
    scheduler.worker_opened(0);
    scheduler
}

fn submit(scheduler: &Scheduler, vectors: Vectors) -> Ticket {
    submit_texts(scheduler, vectors, &[7])
}

/// Texts of three ids each, with this one in the middle.
fn submit_texts(scheduler: &Scheduler, vectors: Vectors, ids: &[u32]) -> Ticket {
    let items = ids.iter().map(|&id| TokenIds::new(&[0, id, 2])).collect();
    let submission = Submission { items, vectors, priority: None, deadline: LATER };
    scheduler.submit(submission).expect("there is room")
}

/// Runs what waits; how many texts ran.
fn run_next(scheduler: &Scheduler, buffers: &RowBuffers) -> usize {
    let job = scheduler.next_job(0).expect("it waits");
    let output = buffers.output();
    let row = |(row, item): (usize, &JobItem)| Ok(TextRow::of(&output, in_row(row), &item.ids));
    let rows: Vec<RowOrError> = job.items.iter().enumerate().map(row).collect();
    let texts = rows.len();
    job.complete(rows);
    texts
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

/// The only text of a row.
pub(super) const fn in_row(row: usize) -> Place {
    Place { row, start: 0, segment: 0, span: 0, spans: 1 }
}

/// Four rows of four dense floats, of which the one of the row's number is one, and eight weights
/// of that number.
pub(super) fn buffers() -> RowBuffers {
    let mut buffers = RowBuffers::new(4, 0);
    buffers.resize(Bucket { rows: 4, length: 8 });
    let dense = buffers.dense.iter_mut().enumerate();
    dense.for_each(|(place, value)| *value = f32::from(u8::from(place / 4 == place % 4)));
    let weights = buffers.token_weights.iter_mut().enumerate();
    weights.for_each(|(place, value)| *value = (place / 8) as f32);
    buffers
}

/// What a request gets of a row of `buffers`.
pub(super) fn rows_of(row: f32, vectors: Vectors) -> ItemRows {
    let dense = (0..4_u8).map(|place| f32::from(u8::from(f32::from(place) == row))).collect();
    only(ItemRows { dense, weights: vec![row; 3], ..ItemRows::default() }, vectors)
}

#[test]
fn only_the_rows_that_are_wanted_must_be_finite() {
    let (mut bad_weight, mut bad_dense) = (buffers(), buffers());
    bad_weight.token_weights[1] = f32::NAN;
    bad_dense.dense[1] = f32::INFINITY;
    for (wanted, dense_fails, weight_fails) in
        [(Vectors::Dense, true, false), (Vectors::Sparse, false, true), (Vectors::Both, true, true)]
    {
        for (buffers, fails) in [(&bad_dense, dense_fails), (&bad_weight, weight_fails)] {
            let scheduler = scheduler();
            let ticket = submit(&scheduler, wanted);
            run_next(&scheduler, buffers);
            let expected = match fails {
                true => Err(RunError::NonFinite { item: 0 }),
                false => Ok(vec![rows_of(0.0, wanted)]),
            };
            assert_eq!(ticket.now_or_never(), Some(expected));
        }
    }
}

#[test]
fn requests_for_the_same_text_share_one_run_and_get_the_vectors_that_they_want() {
    let scheduler = scheduler();
    let wanted = [Vectors::Dense, Vectors::Sparse, Vectors::Both];
    let tickets = wanted.map(|vectors| submit(&scheduler, vectors));
    assert_eq!(run_next(&scheduler, &buffers()), 1);
    for (ticket, vectors) in tickets.into_iter().zip(wanted) {
        assert_eq!(ticket.now_or_never(), Some(Ok(vec![rows_of(0.0, vectors)])));
    }
    let counts = scheduler.snapshot().counts;
    assert_eq!((counts.accepted, counts.replied, counts.coalesced), (3, 3, 2));
    assert_eq!((counts.batches, counts.tokens_real), (1, 3));
}

#[test]
fn texts_that_a_request_repeats_run_once() {
    let scheduler = scheduler();
    let ticket = submit_texts(&scheduler, Vectors::Both, &[7, 8, 7, 9, 6, 8, 7]);
    assert_eq!(run_next(&scheduler, &buffers()), 4);
    let rows = [0.0, 1.0, 0.0, 2.0, 3.0, 1.0, 0.0].map(|row| rows_of(row, Vectors::Both));
    assert_eq!(ticket.now_or_never(), Some(Ok(rows.to_vec())));
}

#[test]
fn a_request_that_comes_during_a_run_of_its_text_shares_it() {
    let scheduler = scheduler();
    let first = submit(&scheduler, Vectors::Dense);
    let job = scheduler.next_job(0).expect("it waits");
    let second = submit(&scheduler, Vectors::Sparse);
    drop(first);
    assert_eq!(scheduler.snapshot().queue_depth, 0);
    let row = TextRow::of(&buffers().output(), in_row(0), &job.items[0].ids);
    job.complete(vec![Ok(row)]);
    assert_eq!(second.now_or_never(), Some(Ok(vec![rows_of(0.0, Vectors::Sparse)])));
    let counts = scheduler.snapshot().counts;
    assert_eq!((counts.replied, counts.cancelled, counts.batches), (1, 1, 1));
}

#[test]
fn a_failed_run_answers_all_that_share_it() {
    let scheduler = scheduler();
    let tickets = [(); 3].map(|()| submit(&scheduler, Vectors::Both));
    scheduler.next_job(0).expect("it waits").fail("scripted");
    for ticket in tickets {
        let expected = RunError::EngineFailed("scripted".to_owned());
        assert_eq!(ticket.now_or_never(), Some(Err(expected)));
    }
    assert_eq!(scheduler.snapshot().counts.failed, 3);
}

#[test]
fn a_text_that_ran_is_answered_from_the_cache_without_a_worker() {
    let scheduler = caching_scheduler();
    let first = submit(&scheduler, Vectors::Dense);
    assert_eq!(first.cache_use, Some(CacheUse::Miss));
    run_next(&scheduler, &buffers());
    assert_eq!(first.now_or_never(), Some(Ok(vec![rows_of(0.0, Vectors::Dense)])));
    scheduler.worker_lost(0);
    for vectors in [Vectors::Dense, Vectors::Sparse, Vectors::Both] {
        let mut again = submit_texts(&scheduler, vectors, &[7, 7]);
        assert_eq!(again.cache_use, Some(CacheUse::Hit));
        let rows = vec![rows_of(0.0, vectors); 2];
        assert_eq!((&mut again).now_or_never(), Some(Ok(rows)));
        assert_eq!(again.ran, None);
    }
    let Snapshot { counts, cache, .. } = scheduler.snapshot();
    assert_eq!((counts.accepted, counts.batches), (1, 1));
    assert_eq!((cache.hits, cache.misses, cache.entries), (6, 1, 1));
}

#[test]
fn only_texts_that_are_not_in_the_cache_run() {
    let scheduler = caching_scheduler();
    let _first = submit(&scheduler, Vectors::Both);
    run_next(&scheduler, &buffers());
    let ticket = submit_texts(&scheduler, Vectors::Both, &[8, 9, 7, 6, 5]);
    assert_eq!(ticket.cache_use, Some(CacheUse::Partial));
    assert_eq!(run_next(&scheduler, &buffers()), 4);
    let rows = [0.0, 1.0, 0.0, 2.0, 3.0].map(|row| rows_of(row, Vectors::Both));
    assert_eq!(ticket.now_or_never(), Some(Ok(rows.to_vec())));
}

#[test]
fn rows_that_a_later_run_would_not_give_are_not_kept() {
    let mut bad_weight = buffers();
    bad_weight.token_weights[1] = f32::NAN;
    for (buffers, rescued) in [(bad_weight, false), (buffers(), true)] {
        let scheduler = caching_scheduler();
        let ticket = submit(&scheduler, Vectors::Dense);
        let job = scheduler.next_job(0).expect("it waits");
        let row =
            TextRow { rescued, ..TextRow::of(&buffers.output(), in_row(0), &job.items[0].ids) };
        job.complete(vec![Ok(row)]);
        assert!(ticket.now_or_never().expect("it ran").is_ok(), "what it wants is finite");
        assert_eq!(scheduler.snapshot().cache.entries, 0);
    }
}

#[test]
fn a_check_runs_whatever_is_in_the_cache_and_leaves_nothing_there() {
    let scheduler = caching_scheduler();
    let _first = submit(&scheduler, Vectors::Both);
    run_next(&scheduler, &buffers());
    for id in [7, 8] {
        let check = scheduler.submit_check(0, TokenIds::new(&[0, id, 2]), LATER);
        let check = check.expect("the worker lives");
        assert_eq!(run_next(&scheduler, &buffers()), 1);
        assert!(check.now_or_never().expect("it ran").is_ok());
    }
    let CacheFigures { entries, hits, .. } = scheduler.snapshot().cache;
    assert_eq!((entries, hits), (1, 0));
}

#[test]
fn a_cached_text_is_answered_while_the_queue_is_full() {
    let scheduler = caching_scheduler();
    let _first = submit(&scheduler, Vectors::Both);
    run_next(&scheduler, &buffers());
    let capacity = QueueCapacity::DEFAULT.get() as u32;
    let others: Vec<u32> = (100..100 + capacity).collect();
    let _others = submit_texts(&scheduler, Vectors::Both, &others);
    let (vectors, priority, deadline) = (Vectors::Both, None, LATER);
    let request = |id| {
        let items = vec![TokenIds::new(&[0, id, 2])];
        scheduler.submit(Submission { items, vectors, priority, deadline })
    };
    assert!(matches!(request(8), Err(Refusal::Full { .. })));
    let rows = request(7).expect("it needs no place").now_or_never();
    assert_eq!(rows, Some(Ok(vec![rows_of(0.0, Vectors::Both)])));
}
