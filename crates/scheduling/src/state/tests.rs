//! The state machine, step by step.

use super::*;
use crate::batch::cost::CostModel;
use crate::batch::plan::Shapes;
use settings::limits::{MaxBatchTokens, RETRY_AFTER_MAX};

mod announced;
mod long_texts;

pub(super) const LATER: Moment = Moment::from_nanos(u64::MAX);

/// The machine keeps nothing for the tests, as many items as there are.
pub(super) const NOTHING: &[()] = &[(); 10_000];

pub(super) fn at(milliseconds: u64) -> Moment {
    Moment::START + Duration::from_millis(milliseconds)
}

pub(super) fn state(capacity: usize, workers: usize) -> SchedulerState {
    let shapes = Shapes::on_cpu(512, MaxBatchTokens::DEFAULT);
    let mut state = SchedulerState::new(capacity, Lane::apart(workers), shapes);
    (0..workers).for_each(|worker| state.open_worker(worker));
    state
}

type Submitted = Result<Range<Sequence>, Refusal>;

fn submit(state: &mut SchedulerState, tokens: &[usize]) -> Submitted {
    state.submit(at(0), NewRequest::of(tokens, LATER), NOTHING)
}

fn submit_as(
    state: &mut SchedulerState,
    tokens: &[usize],
    priority: Priority,
    deadline: Moment,
) -> Submitted {
    let new = NewRequest { priority, ..NewRequest::of(tokens, deadline) };
    state.submit(at(0), new, NOTHING)
}

/// The items that worker 0 is given, in the order of their rows.
pub(super) fn ask(state: &mut SchedulerState, now: Moment) -> Vec<Sequence> {
    items_of(state.ask_for_work(now, 0))
}

pub(super) fn items_of(run: Option<Run>) -> Vec<Sequence> {
    run.map(|run| run.items.iter().map(|(item, ())| *item).collect()).unwrap_or_default()
}

/// When a request may come back that would be late.
fn late<A: std::fmt::Debug>(answer: Result<A, Refusal>) -> Duration {
    let Err(Refusal::Late { retry_after }) = answer else { panic!("{answer:?}") };
    retry_after
}

/// When a request may come back for which there is no place.
fn full<A: std::fmt::Debug>(answer: Result<A, Refusal>) -> Duration {
    let Err(Refusal::Full { retry_after }) = answer else { panic!("{answer:?}") };
    retry_after
}

/// The batch of worker 0 has run.
fn complete(state: &mut SchedulerState, now: Moment) {
    state.complete_batch(now, 0, &[], false);
}

#[test]
fn a_request_that_does_not_fit_is_refused_whole() {
    let mut state = state(3, 1);
    assert_eq!(submit(&mut state, &[5, 5]), Ok(0..2));
    let retry_after = full(submit(&mut state, &[5, 5]));
    assert!(retry_after > Duration::ZERO && retry_after <= state.predicted_wait(at(0)));
    assert_eq!(state.queue_depth(), 2);
    assert_eq!(submit(&mut state, &[5]), Ok(2..3));
}

#[test]
fn a_stuck_worker_is_no_capacity() {
    let mut state = state(1000, 2);
    submit(&mut state, &[100; 200]).expect("there is room");
    ask(&mut state, at(0));
    state.ask_for_work(at(0), 1);
    let both = state.predicted_wait(at(0));
    state.stop_stuck_worker(at(0), 0);
    let one = state.predicted_wait(at(0));
    assert!(one > both.mul_f64(1.8), "{one:?} {both:?}");
}

#[test]
fn the_predicted_wait_grows_with_queue_and_checks_and_shrinks_with_time() {
    let mut state = state(10_000, 1);
    assert_eq!(state.predicted_wait(at(0)), Duration::ZERO);
    submit(&mut state, &[100; 64]).expect("there is room");
    let some = state.predicted_wait(at(0));
    submit(&mut state, &[100; 640]).expect("there is room");
    let more = state.predicted_wait(at(0));
    assert!(more > some * 5, "{some:?} {more:?}");
    ask(&mut state, at(0));
    let before = state.predicted_wait(at(0));
    assert!(state.predicted_wait(at(20)) < before);
    // Checks are before a new request.
    let check = NewRequest::of(&[9], LATER);
    state.submit_check(at(0), 0, check, ()).expect("few wait");
    assert!(state.predicted_wait(at(0)) > before);
    assert_eq!(state.submit_check(at(0), 7, check, ()), Err(Refusal::NoWorker), "there is none");
}

#[test]
fn the_cost_model_is_corrected_by_what_batches_took() {
    let mut state = state(10_000, 1);
    submit(&mut state, &[100; 1000]).expect("there is room");
    let before = state.predicted_wait(at(0));
    let mut now = at(0);
    for _ in 0..40 {
        ask(&mut state, now);
        now = now + Duration::from_secs(1);
        complete(&mut state, now);
    }
    let correction = state.cost().correction();
    assert!(correction > 2.0, "{correction}");
    assert!(state.predicted_wait(now) > before / 2);
}

#[test]
fn refused_bulk_requests_do_not_put_off_refused_interactive_ones() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 200], Priority::Interactive, LATER).expect("there is room");
    let wait = state.predicted_wait(at(0));
    let refused = |state: &mut SchedulerState, priority| {
        late(submit_as(state, &[100; 20], priority, at(0) + wait))
    };
    let mut bulk = Duration::ZERO;
    (0..200).for_each(|_| bulk = refused(&mut state, Priority::Bulk));
    assert_eq!(bulk, RETRY_AFTER_MAX);
    assert!(refused(&mut state, Priority::Interactive) <= wait);
}

#[test]
fn the_example_at_the_head_of_admission_holds() {
    let mut state = state(1000, 1);
    let model = CostModel {
        floor_us: 0.0,
        fixed_us: 2000.0,
        per_token_us: 100.0,
        per_token_length_us: 0.0,
    };
    state.set_cost(0, Fit { model, median_error: 0.0 });
    submit_as(&mut state, &[100; 47], Priority::Bulk, LATER).expect("there is room");
    ask(&mut state, at(0));
    let now = at(0) + Duration::from_micros(36_800);
    let mut ask = |time_ms| {
        let new = NewRequest::of(&[100; 20], now + Duration::from_millis(time_ms));
        state.submit(now, NewRequest { priority: Priority::Bulk, ..new }, NOTHING)
    };
    for expected_us in [87_218, 502_843] {
        let retry_after = late(ask(600));
        assert!(retry_after.as_micros().abs_diff(expected_us) <= 1, "{retry_after:?}");
    }
    assert!(ask(688).is_ok());
}

#[test]
fn an_idle_worker_takes_a_request_whatever_is_predicted() {
    let mut state = state(10_000, 1);
    let accepted = submit_as(&mut state, &[500; 1000], Priority::Bulk, at(10));
    assert_eq!(accepted, Ok(0..1000));
}

#[test]
fn interactive_requests_are_not_refused_for_bulk_ones_that_wait() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 5000], Priority::Bulk, LATER).expect("there is room");
    late(submit_as(&mut state, &[9], Priority::Bulk, at(1000)));
    assert_eq!(submit_as(&mut state, &[9], Priority::Interactive, at(1000)), Ok(5000..5001));
    assert_eq!(state.queue_depth_of(Priority::Interactive), 1);
    assert_eq!(ask(&mut state, at(0))[0], 5000);
}

#[test]
fn a_large_request_lets_others_of_its_class_in_between() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 2000], Priority::Bulk, LATER).expect("there is room");
    submit_as(&mut state, &[100; 20], Priority::Bulk, LATER).expect("there is room");
    let mut now = at(0);
    while state.items.contains_key(&2019) {
        ask(&mut state, now);
        now = now + Duration::from_millis(50);
        complete(&mut state, now);
    }
    // The large request has as many items in between, and a batch.
    let ran = 2020 - state.items.len();
    assert!((40..=45).contains(&ran), "{ran}");
}
