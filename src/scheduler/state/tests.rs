//! The state machine, event by event.

use super::*;
use crate::batch::cost::CostModel;
use crate::batch::plan::Shapes;
use crate::limits::{MaxBatchTokens, RETRY_AFTER_MAX};

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
    for worker in 0..workers {
        state.handle(at(0), &Event::WorkerOpened { worker });
    }
    state
}

fn submission(tokens: &[usize], priority: Option<Priority>, deadline: Moment) -> Event<'_> {
    let (digests, vectors) = (&[][..], Vectors::Both);
    let (contents, reserved) = (NOTHING, None);
    Event::Submit { tokens, contents, digests, vectors, priority, deadline, reserved }
}

fn submit(state: &mut SchedulerState, tokens: &[usize]) -> Vec<Action> {
    state.handle(at(0), &submission(tokens, None, LATER))
}

pub(super) fn ask(state: &mut SchedulerState, now: Moment) -> Vec<Action> {
    state.handle(now, &Event::AskForWork { worker: 0 })
}

#[test]
fn a_request_that_does_not_fit_is_refused_whole() {
    let mut state = state(3, 1);
    assert_eq!(submit(&mut state, &[5, 5]), [Action::Accept { items: 0..2 }]);
    let refused = submit(&mut state, &[5, 5]);
    let [Action::Refuse(Refusal::Full { retry_after })] = refused[..] else {
        panic!("{refused:?}")
    };
    assert!(retry_after > Duration::ZERO && retry_after <= state.predicted_wait(at(0)));
    assert_eq!(state.queue_depth(), 2);
    assert_eq!(submit(&mut state, &[5]), [Action::Accept { items: 2..3 }]);
}

#[test]
fn large_requests_leave_the_last_eighth_of_the_queue_to_small_ones() {
    let mut state = state(256, 1);
    assert_eq!(submit(&mut state, &[5; 200]), [Action::Accept { items: 0..200 }]);
    let refused = submit(&mut state, &[5; 30]);
    assert!(matches!(refused[..], [Action::Refuse(Refusal::Full { .. })]), "{refused:?}");
    assert_eq!(submit(&mut state, &[5; 24]), [Action::Accept { items: 200..224 }]);
    for place in (224..256).step_by(4) {
        assert_eq!(submit(&mut state, &[5; 4]), [Action::Accept { items: place..place + 4 }]);
    }
    assert!(matches!(submit(&mut state, &[5])[..], [Action::Refuse(Refusal::Full { .. })]));
}

#[test]
fn running_items_count_against_the_capacity() {
    let mut state = state(2, 1);
    submit(&mut state, &[5, 5]);
    let actions = ask(&mut state, at(0));
    assert!(matches!(&actions[..], [Action::Run { items, .. }] if items.len() == 2));
    assert!(matches!(submit(&mut state, &[5])[..], [Action::Refuse(Refusal::Full { .. })]));
    state.handle(at(1), &Event::BatchDone { worker: 0, failed: &[] });
    assert_eq!(submit(&mut state, &[5]), [Action::Accept { items: 2..3 }]);
    assert_eq!(state.counts().replied, 2);
}

#[test]
fn an_idle_worker_is_woken_and_only_then() {
    let mut state = state(10, 1);
    assert_eq!(submit(&mut state, &[5]), [Action::Accept { items: 0..1 }]);
    ask(&mut state, at(0));
    state.handle(at(1), &Event::BatchDone { worker: 0, failed: &[] });
    assert_eq!(ask(&mut state, at(1)), []);
    assert_eq!(
        submit(&mut state, &[5]),
        [Action::Accept { items: 1..2 }, Action::Wake { worker: 0 }]
    );
}

#[test]
fn an_expired_item_costs_nothing() {
    let mut state = state(10, 1);
    for (tokens, deadline) in [(&[5], at(10)), (&[6], at(11))] {
        state.handle(at(0), &submission(tokens, None, deadline));
    }
    let actions = ask(&mut state, at(10));
    assert_eq!(actions[0], Action::Expire { item: 0, content: () });
    assert!(matches!(&actions[1], Action::Run { items, .. } if items == &[(1, ())]));
    assert_eq!(state.counts().expired, 1);
}

#[test]
fn a_cancelled_request_frees_its_places_at_once() {
    let mut state = state(2, 1);
    submit(&mut state, &[5, 5]);
    state.handle(at(0), &Event::Cancel { items: 0..2 });
    assert!(state.is_empty());
    assert_eq!(submit(&mut state, &[5, 5]), [Action::Accept { items: 2..4 }]);
    assert_eq!(state.counts().cancelled, 2);
}

#[test]
fn a_running_item_that_is_cancelled_ends_with_its_batch() {
    let mut state = state(2, 1);
    submit(&mut state, &[5, 5]);
    ask(&mut state, at(0));
    state.handle(at(0), &Event::Cancel { items: 0..1 });
    assert!(!state.is_empty());
    state.handle(at(1), &Event::BatchDone { worker: 0, failed: &[(1, Vectors::Both)] });
    assert!(state.is_empty());
    let counts = state.counts();
    assert_eq!((counts.cancelled, counts.failed, counts.replied), (1, 1, 0));
}

#[test]
fn a_cancelled_item_of_a_lost_worker_counts_as_cancelled() {
    let mut state = state(2, 1);
    submit(&mut state, &[5, 5]);
    ask(&mut state, at(0));
    state.handle(at(0), &Event::Cancel { items: 0..1 });
    state.handle(at(1), &Event::WorkerLost { worker: 0 });
    let counts = state.counts();
    assert_eq!((counts.cancelled, counts.failed), (1, 1));
}

#[test]
fn a_batch_is_interactive_when_somebody_waits_for_it() {
    for wanted in [Priority::Bulk, Priority::Interactive] {
        let mut state = state(10, 1);
        submit_as(&mut state, &[16], Priority::Bulk, LATER);
        submit_as(&mut state, &[16], wanted, LATER);
        let run = ask(&mut state, at(0)).swap_remove(0);
        assert!(matches!(run, Action::Run { priority, .. } if priority == wanted), "{run:?}");
    }
}

#[test]
fn a_check_runs_on_its_worker_before_what_waits() {
    let mut state = state(10, 2);
    submit(&mut state, &[5; 8]);
    let check = Event::Check { worker: 1, tokens: 9, content: &(), deadline: LATER };
    assert_eq!(state.handle(at(0), &check), [Action::Accept { items: 8..9 }, Action::WakeAll]);
    let other = ask(&mut state, at(0));
    assert!(
        matches!(&other[..], [Action::Run { worker: 0, items, .. }] if !items.contains(&(8, ())))
    );
    let own = state.handle(at(0), &Event::AskForWork { worker: 1 });
    let bucket = Bucket { rows: 1, length: 16 };
    let priority = Priority::Interactive;
    assert_eq!(own, [Action::Run { worker: 1, bucket, priority, items: vec![(8, ())] }]);
}

fn check(state: &mut SchedulerState) -> Action {
    let event = Event::Check { worker: 0, tokens: 9, content: &(), deadline: LATER };
    state.handle(at(0), &event).swap_remove(0)
}

#[test]
fn checks_take_one_batch_in_eight_while_items_wait() {
    let mut state = state(10_000, 1);
    submit(&mut state, &[100; 1000]);
    let mut last = None;
    for batch in 0..100 {
        while matches!(check(&mut state), Action::Accept { .. }) {}
        let actions = ask(&mut state, at(0));
        let [Action::Run { items, .. }, ..] = &actions[..] else { panic!("{actions:?}") };
        if items[0].0 >= 1000 {
            assert!(last.is_none_or(|last| batch - last >= 8), "{batch} after {last:?}");
            last = Some(batch);
        }
        state.handle(at(0), &Event::BatchDone { worker: 0, failed: &[] });
    }
    assert_eq!(last, Some(96), "they are not forgotten either");
}

#[test]
fn checks_run_at_once_when_nothing_else_waits() {
    let mut state = state(10, 1);
    for _ in 0..3 {
        let Action::Accept { items } = check(&mut state) else { panic!("it lives") };
        assert!(matches!(&ask(&mut state, at(0))[..], [Action::Run { items: ran, .. }]
            if ran[..] == [(items.start, ())]));
        state.handle(at(0), &Event::BatchDone { worker: 0, failed: &[] });
    }
}

#[test]
fn few_checks_wait_for_a_worker_and_they_count_as_work() {
    let mut state = state(10_000, 1);
    submit(&mut state, &[100; 20]);
    ask(&mut state, at(0));
    let before = state.predicted_wait(at(0));
    let taken = (0..100).filter(|_| matches!(check(&mut state), Action::Accept { .. })).count();
    assert!((1..=4).contains(&taken), "{taken}");
    assert!(matches!(check(&mut state), Action::Refuse(Refusal::Full { .. })));
    assert!(state.predicted_wait(at(0)) > before, "they are before a new request");
}

#[test]
fn a_check_of_a_worker_without_a_session_is_refused() {
    let mut state = state(10, 1);
    let check = Event::Check { worker: 0, tokens: 9, content: &(), deadline: LATER };
    state.handle(at(0), &check);
    let lost = state.handle(at(0), &Event::WorkerLost { worker: 0 });
    assert_eq!(lost, [Action::Abandon { item: 0, content: () }]);
    assert_eq!(state.handle(at(0), &check), [Action::Refuse(Refusal::NoWorker)]);
    let unknown = Event::Check { worker: 7, tokens: 9, content: &(), deadline: LATER };
    assert_eq!(state.handle(at(0), &unknown), [Action::Refuse(Refusal::NoWorker)]);
    state.handle(at(0), &Event::WorkerOpened { worker: 0 });
    state.handle(at(0), &Event::Close);
    assert_eq!(state.handle(at(0), &check), [Action::Refuse(Refusal::NoWorker)]);
}

#[test]
fn without_a_live_worker_requests_are_refused_at_once_and_those_taken_stay() {
    let mut state = state(10, 1);
    submit(&mut state, &[5]);
    state.handle(at(0), &Event::WorkerLost { worker: 0 });
    assert_eq!(submit(&mut state, &[5]), [Action::Refuse(Refusal::NoWorker)]);
    state.handle(at(0), &Event::WorkerOpened { worker: 0 });
    assert_eq!(submit(&mut state, &[5]), [Action::Accept { items: 1..2 }]);
    let run = &ask(&mut state, at(0))[0];
    assert!(matches!(run, Action::Run { items, .. } if items == &[(0, ()), (1, ())]));
    state.handle(at(0), &Event::WorkerStuck { worker: 0 });
    assert_eq!(submit(&mut state, &[5]), [Action::Refuse(Refusal::NoWorker)]);
    state.handle(at(0), &Event::BatchFailed { worker: 0 });
    assert_eq!(submit(&mut state, &[5]), [Action::Accept { items: 2..3 }]);
}

#[test]
fn a_stuck_worker_is_no_capacity() {
    let mut state = state(1000, 2);
    submit(&mut state, &[100; 200]);
    ask(&mut state, at(0));
    state.handle(at(0), &Event::AskForWork { worker: 1 });
    let both = state.predicted_wait(at(0));
    state.handle(at(0), &Event::WorkerStuck { worker: 0 });
    let one = state.predicted_wait(at(0));
    assert!(one > both.mul_f64(1.8), "{one:?} {both:?}");
}

#[test]
fn draining_runs_what_waits_and_takes_nothing_new() {
    let mut state = state(10, 1);
    submit(&mut state, &[5]);
    state.handle(at(0), &Event::Drain);
    assert_eq!(submit(&mut state, &[5]), [Action::Refuse(Refusal::Draining)]);
    assert!(matches!(ask(&mut state, at(0))[..], [Action::Run { .. }]));
}

#[test]
fn closing_abandons_what_waits() {
    let mut state = state(10, 1);
    submit(&mut state, &[5, 6]);
    let closed = state.handle(at(0), &Event::Close);
    let abandoned = |item| Action::Abandon { item, content: () };
    let expected = [abandoned(0), abandoned(1), Action::WakeAll];
    assert_eq!(closed, expected);
    assert_eq!(submit(&mut state, &[5]), [Action::Refuse(Refusal::NoWorker)]);
    state.handle(at(0), &Event::Drain);
    assert!(state.is_closed());
}

#[test]
fn the_predicted_wait_grows_with_the_queue_and_shrinks_with_time() {
    let mut state = state(10_000, 1);
    assert_eq!(state.predicted_wait(at(0)), Duration::ZERO);
    submit(&mut state, &[100; 64]);
    let some = state.predicted_wait(at(0));
    submit(&mut state, &[100; 640]);
    let more = state.predicted_wait(at(0));
    assert!(more > some * 5, "{some:?} {more:?}");
    ask(&mut state, at(0));
    assert!(state.predicted_wait(at(20)) < state.predicted_wait(at(0)));
}

#[test]
fn the_cost_model_is_corrected_by_what_batches_took() {
    let mut state = state(10_000, 1);
    submit(&mut state, &[100; 1000]);
    let before = state.predicted_wait(at(0));
    let mut now = at(0);
    for _ in 0..40 {
        ask(&mut state, now);
        now = now + Duration::from_secs(1);
        state.handle(now, &Event::BatchDone { worker: 0, failed: &[] });
    }
    let correction = state.cost().correction();
    assert!(correction > 2.0, "{correction}");
    assert!(state.predicted_wait(now) > before / 2);
}

fn submit_as(
    state: &mut SchedulerState,
    tokens: &[usize],
    priority: Priority,
    deadline: Moment,
) -> Action {
    state.handle(at(0), &submission(tokens, Some(priority), deadline)).swap_remove(0)
}

#[test]
fn a_request_that_would_be_late_is_refused_and_later_ones_are_told_later() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 200], Priority::Bulk, LATER);
    let wait = state.predicted_wait(at(0));
    let ask = |state: &mut SchedulerState, time: Duration| {
        submit_as(state, &[100; 20], Priority::Bulk, at(0) + time)
    };
    assert!(matches!(ask(&mut state, wait * 2), Action::Accept { .. }));
    let mut told = Duration::ZERO;
    for _ in 0..5 {
        let Action::Refuse(Refusal::Late { retry_after }) = ask(&mut state, wait) else {
            panic!("it cannot be in time")
        };
        assert!(retry_after > told && retry_after < wait * 2, "{retry_after:?} {told:?}");
        told = retry_after;
    }
    assert!(matches!(ask(&mut state, wait * 2), Action::Accept { .. }));
}

#[test]
fn refused_bulk_requests_do_not_put_off_refused_interactive_ones() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 200], Priority::Interactive, LATER);
    let wait = state.predicted_wait(at(0));
    let refused = |state: &mut SchedulerState, priority| {
        let deadline = at(0) + wait;
        match submit_as(state, &[100; 20], priority, deadline) {
            Action::Refuse(Refusal::Late { retry_after }) => retry_after,
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
    state.set_cost(Fit { model, median_error: 0.0 });
    submit_as(&mut state, &[100; 47], Priority::Bulk, LATER);
    ask(&mut state, at(0));
    let now = at(0) + Duration::from_micros(36_800);
    let mut ask = |time_ms| {
        let deadline = now + Duration::from_millis(time_ms);
        state.handle(now, &submission(&[100; 20], Some(Priority::Bulk), deadline)).swap_remove(0)
    };
    for expected_us in [87_218, 502_843] {
        let Action::Refuse(Refusal::Late { retry_after }) = ask(600) else { panic!("it is late") };
        assert!(retry_after.as_micros().abs_diff(expected_us) <= 1, "{retry_after:?}");
    }
    assert!(matches!(ask(688), Action::Accept { .. }));
}

#[test]
fn an_idle_worker_takes_a_request_whatever_is_predicted() {
    let mut state = state(10_000, 1);
    let accepted = submit_as(&mut state, &[500; 1000], Priority::Bulk, at(10));
    assert_eq!(accepted, Action::Accept { items: 0..1000 });
}

#[test]
fn interactive_requests_are_not_refused_for_bulk_ones_that_wait() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 5000], Priority::Bulk, LATER);
    let late = submit_as(&mut state, &[9], Priority::Bulk, at(1000));
    assert!(matches!(late, Action::Refuse(Refusal::Late { .. })), "{late:?}");
    let taken = submit_as(&mut state, &[9], Priority::Interactive, at(1000));
    assert!(matches!(taken, Action::Accept { .. }), "{taken:?}");
    assert_eq!(state.queue_depth_of(Priority::Interactive), 1);
    assert!(matches!(&ask(&mut state, at(0))[0], Action::Run { items, .. } if items[0].0 == 5000));
}

#[test]
fn what_expired_makes_room_although_no_worker_asks() {
    let mut state = state(2, 1);
    let event = |deadline| submission(&[5, 5], None, deadline);
    state.handle(at(0), &event(at(10)));
    let actions = state.handle(at(10), &event(LATER));
    let [Action::Accept { items }, expired @ ..] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(items, &(2..4));
    assert_eq!(expired, [0, 1].map(|item| Action::Expire { item, content: () }));
    assert_eq!(state.queue_depth(), 2);
}

#[test]
fn a_large_request_lets_others_of_its_class_in_between() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 2000], Priority::Bulk, LATER);
    submit_as(&mut state, &[100; 20], Priority::Bulk, LATER);
    let mut now = at(0);
    while state.items.contains_key(&2019) {
        ask(&mut state, now);
        now = now + Duration::from_millis(50);
        state.handle(now, &Event::BatchDone { worker: 0, failed: &[] });
    }
    // The large request has as many items in between, and a batch.
    let ran = 2020 - state.items.len();
    assert!((40..=45).contains(&ran), "{ran}");
}
