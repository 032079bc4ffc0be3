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
    let mut state = SchedulerState::new(
        StateConfig { capacity, lanes: Lane::apart(workers) },
        Shapes::on_cpu(512, MaxBatchTokens::DEFAULT),
    );
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

fn check(state: &mut SchedulerState, worker: usize) -> Submitted {
    state.submit_check(at(0), worker, NewRequest::of(&[9], LATER), ())
}

/// The items that worker 0 is given, in the order of their rows.
pub(super) fn ask(state: &mut SchedulerState, now: Moment) -> Vec<Sequence> {
    items_of(state.ask_for_work(now, 0))
}

pub(super) fn items_of(run: Option<Run>) -> Vec<Sequence> {
    run.map(|run| run.items.iter().map(|(item, ())| *item).collect()).unwrap_or_default()
}

/// The batch of worker 0 has run.
fn complete(state: &mut SchedulerState, now: Moment) {
    state.complete_batch(now, 0, &[], false);
}

/// Items and what the caller keeps with them.
pub(super) fn with_nothing(items: &[Sequence]) -> Vec<(Sequence, ())> {
    items.iter().map(|&item| (item, ())).collect()
}

#[test]
fn a_request_that_does_not_fit_is_refused_whole() {
    let mut state = state(3, 1);
    assert_eq!(submit(&mut state, &[5, 5]), Ok(0..2));
    let refused = submit(&mut state, &[5, 5]);
    let Err(Refusal::Full { retry_after }) = refused else { panic!("{refused:?}") };
    assert!(retry_after > Duration::ZERO && retry_after <= state.predicted_wait(at(0)));
    assert_eq!(state.queue_depth(), 2);
    assert_eq!(submit(&mut state, &[5]), Ok(2..3));
}

#[test]
fn large_requests_leave_the_last_eighth_of_the_queue_to_small_ones() {
    let mut state = state(256, 1);
    assert_eq!(submit(&mut state, &[5; 200]), Ok(0..200));
    let refused = submit(&mut state, &[5; 30]);
    assert!(matches!(refused, Err(Refusal::Full { .. })), "{refused:?}");
    assert_eq!(submit(&mut state, &[5; 24]), Ok(200..224));
    for place in (224..256).step_by(4) {
        assert_eq!(submit(&mut state, &[5; 4]), Ok(place..place + 4));
    }
    assert!(matches!(submit(&mut state, &[5]), Err(Refusal::Full { .. })));
}

#[test]
fn an_idle_worker_is_woken_and_only_then() {
    let mut state = state(10, 1);
    submit(&mut state, &[5]).expect("there is room");
    ask(&mut state, at(0));
    complete(&mut state, at(1));
    assert!(ask(&mut state, at(1)).is_empty());
    assert_eq!(state.take_effects(), Effects::NONE);
    submit(&mut state, &[5]).expect("there is room");
    assert_eq!(state.take_effects(), Effects { woken: vec![0], ..Effects::NONE });
}

#[test]
fn a_check_runs_on_its_worker_before_what_waits() {
    let mut state = state(10, 2);
    submit(&mut state, &[5; 8]).expect("there is room");
    assert_eq!(check(&mut state, 1), Ok(8..9));
    assert_eq!(state.take_effects().woken, [1]);
    let other = ask(&mut state, at(0));
    assert!(!other.is_empty() && !other.contains(&8), "{other:?}");
    let bucket = Bucket { rows: 1, length: 16 };
    let run = Run { bucket, priority: Priority::Interactive, items: vec![(8, ())] };
    assert_eq!(state.ask_for_work(at(0), 1), Some(run));
}

#[test]
fn checks_take_one_batch_in_eight_while_items_wait() {
    let mut state = state(10_000, 1);
    submit(&mut state, &[100; 1000]).expect("there is room");
    let mut last = None;
    for batch in 0..100 {
        while check(&mut state, 0).is_ok() {}
        if ask(&mut state, at(0))[0] >= 1000 {
            assert!(last.is_none_or(|last| batch - last >= 8), "{batch} after {last:?}");
            last = Some(batch);
        }
        complete(&mut state, at(0));
    }
    assert_eq!(last, Some(96), "they are not forgotten either");
}

#[test]
fn few_checks_wait_for_a_worker_and_they_count_as_work() {
    let mut state = state(10_000, 1);
    submit(&mut state, &[100; 20]).expect("there is room");
    ask(&mut state, at(0));
    let before = state.predicted_wait(at(0));
    let taken = (0..100).filter(|_| check(&mut state, 0).is_ok()).count();
    assert!((1..=4).contains(&taken), "{taken}");
    assert!(matches!(check(&mut state, 0), Err(Refusal::Full { .. })));
    assert!(state.predicted_wait(at(0)) > before, "they are before a new request");
}

#[test]
fn a_check_of_a_worker_without_a_session_is_refused() {
    let mut state = state(10, 1);
    assert_eq!(check(&mut state, 0), Ok(0..1));
    state.lose_worker(at(0), 0);
    assert_eq!(state.take_effects().abandoned, [(0, ())]);
    assert_eq!(check(&mut state, 0), Err(Refusal::NoWorker));
    assert_eq!(check(&mut state, 7), Err(Refusal::NoWorker), "there is none");
    state.open_worker(0);
    state.close();
    assert_eq!(check(&mut state, 0), Err(Refusal::NoWorker));
}

#[test]
fn without_a_live_worker_requests_are_refused_at_once_and_those_taken_stay() {
    let mut state = state(10, 1);
    submit(&mut state, &[5]).expect("there is room");
    state.lose_worker(at(0), 0);
    assert_eq!(submit(&mut state, &[5]), Err(Refusal::NoWorker));
    state.open_worker(0);
    assert_eq!(submit(&mut state, &[5]), Ok(1..2));
    assert_eq!(ask(&mut state, at(0)), [0, 1]);
    state.stop_stuck_worker(at(0), 0);
    assert_eq!(submit(&mut state, &[5]), Err(Refusal::NoWorker));
    state.fail_batch(0);
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
fn closing_abandons_what_waits() {
    let mut state = state(10, 1);
    submit(&mut state, &[5, 6]).expect("there is room");
    state.close();
    let (abandoned, woken) = (with_nothing(&[0, 1]), vec![0]);
    assert_eq!(state.take_effects(), Effects { abandoned, woken, ..Effects::NONE });
    assert_eq!(submit(&mut state, &[5]), Err(Refusal::NoWorker));
    state.drain();
    assert!(state.is_closed());
}

#[test]
fn the_predicted_wait_grows_with_the_queue_and_shrinks_with_time() {
    let mut state = state(10_000, 1);
    assert_eq!(state.predicted_wait(at(0)), Duration::ZERO);
    submit(&mut state, &[100; 64]).expect("there is room");
    let some = state.predicted_wait(at(0));
    submit(&mut state, &[100; 640]).expect("there is room");
    let more = state.predicted_wait(at(0));
    assert!(more > some * 5, "{some:?} {more:?}");
    ask(&mut state, at(0));
    assert!(state.predicted_wait(at(20)) < state.predicted_wait(at(0)));
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
fn a_request_that_would_be_late_is_refused_and_later_ones_are_told_later() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 200], Priority::Bulk, LATER).expect("there is room");
    let wait = state.predicted_wait(at(0));
    let ask = |state: &mut SchedulerState, time: Duration| {
        submit_as(state, &[100; 20], Priority::Bulk, at(0) + time)
    };
    assert!(ask(&mut state, wait * 2).is_ok());
    let mut told = Duration::ZERO;
    for _ in 0..5 {
        let Err(Refusal::Late { retry_after }) = ask(&mut state, wait) else {
            panic!("it cannot be in time")
        };
        assert!(retry_after > told && retry_after < wait * 2, "{retry_after:?} {told:?}");
        told = retry_after;
    }
    assert!(ask(&mut state, wait * 2).is_ok());
}

#[test]
fn refused_bulk_requests_do_not_put_off_refused_interactive_ones() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 200], Priority::Interactive, LATER).expect("there is room");
    let wait = state.predicted_wait(at(0));
    let refused = |state: &mut SchedulerState, priority| {
        let deadline = at(0) + wait;
        match submit_as(state, &[100; 20], priority, deadline) {
            Err(Refusal::Late { retry_after }) => retry_after,
            taken => panic!("it cannot be in time: {taken:?}"),
        }
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
        let Err(Refusal::Late { retry_after }) = ask(600) else { panic!("it is late") };
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
    let late = submit_as(&mut state, &[9], Priority::Bulk, at(1000));
    assert!(matches!(late, Err(Refusal::Late { .. })), "{late:?}");
    assert_eq!(submit_as(&mut state, &[9], Priority::Interactive, at(1000)), Ok(5000..5001));
    assert_eq!(state.queue_depth_of(Priority::Interactive), 1);
    assert_eq!(ask(&mut state, at(0))[0], 5000);
}

#[test]
fn what_expired_makes_room_although_no_worker_asks() {
    let mut state = state(2, 1);
    let mut submit = |now, deadline| {
        state.submit(now, NewRequest::of(&[5, 5], deadline), NOTHING).expect("there is room")
    };
    submit(at(0), at(10));
    assert_eq!(submit(at(10), LATER), 2..4);
    assert_eq!(state.take_effects().expired, with_nothing(&[0, 1]));
    assert_eq!(state.queue_depth(), 2);
}

#[test]
fn who_leaves_at_the_deadline_of_what_waits_was_late() {
    let mut state = state(10, 1);
    let mut submit = |deadline| {
        state.submit(at(0), NewRequest::of(&[5], deadline), NOTHING).expect("there is room")
    };
    let (late, gone) = (submit(at(10)), submit(at(11)));
    for items in [late, gone] {
        state.cancel(at(10), &items);
    }
    assert_eq!(state.take_effects().expired, with_nothing(&[0]));
    assert_eq!((state.counts().expired, state.counts().cancelled), (1, 1));
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
