//! A promised time of single texts, step by step. `tests/load` has bulk requests that never end.

use super::*;
use crate::batch::Priority;
use crate::state::PromiseFigures;

#[test]
fn only_what_misses_the_promise_beside_bulk_cuts_bulk() {
    let at = |ms| Moment::START + Duration::from_millis(ms);
    let cases = [(false, 1000), (false, 200), (true, 1000), (true, 200)];
    for (beside_bulk, deadline) in cases {
        let mut state = idle(&[1], &[1]);
        state.set_promise(Duration::from_millis(10));
        if beside_bulk {
            let bulk = NewRequest { priority: Priority::Bulk, ..NewRequest::of(&[500], at(1000)) };
            state.submit(at(0), bulk, &[()]).expect("there is room");
            assert!(state.ask_for_work(at(0), 0).is_some());
        }
        let single = NewRequest::of(&[20], at(deadline));
        let single = state.submit(at(1), single, &[()]).expect("there is room");
        if deadline == 200 {
            // Its request times out while the batch runs, for longer than predicted.
            state.cancel(at(200), &single);
        }
        state.complete_batch(at(250), 0, &[], false);
        assert_eq!(state.ask_for_work(at(250), 0).is_some(), deadline > 250);
        state.complete_batch(at(260), 0, &[], false);
        let PromiseFigures { bulk_batch, kept, missed, .. } = state.promise();
        let longest_us = if beside_bulk { 9_500 } else { 10_000 };
        assert_eq!((bulk_batch.as_micros(), kept, missed), (longest_us, 0, 1), "{deadline}");
    }
}

/// Lanes that found nothing to do, behind a single text; 20 ms are promised.
fn promised(cores: usize) -> SchedulerState {
    let mut state = idle(&[cores], &[1, 2]);
    state.set_promise(Duration::from_millis(20));
    let single = of_request(&mut state, 1);
    let worker = state.lanes.all.iter().position(|lane| (*lane, 1) == single[0]);
    let worker = worker.expect("it has a lane");
    state.complete_batch(Moment::START, worker, &[], false);
    assert_eq!(ask(&mut state, worker), 0);
    state
}

/// What is started for a bulk text that takes 70 ms on one core.
fn of_long_bulk(state: &mut SchedulerState) -> Vec<(Lane, usize)> {
    let new = NewRequest::of(&[500], Moment::from_nanos(u64::MAX));
    let new = NewRequest { priority: Priority::Bulk, ..new };
    state.submit(Moment::START, new, &[()]).expect("there is room");
    let woken = state.take_effects().woken;
    started(state, woken)
}

#[test]
fn long_bulk_texts_leave_a_core_free_though_nothing_runs() {
    for (cores, lanes) in [(2, vec![lane(0, 1)]), (4, vec![lane(0, 2), lane(2, 1)])] {
        let mut state = promised(cores);
        for lane in lanes {
            assert_eq!(of_long_bulk(&mut state), [(lane, 1)]);
        }
        assert_eq!(of_long_bulk(&mut state), [], "it is held");
        assert_eq!(of_request(&mut state, 1), [(lane(cores - 1, 1), 1)]);
    }
}

#[test]
fn a_long_bulk_text_that_can_leave_no_core_free_runs_when_nothing_does() {
    for (cores, lost) in [(1, 0..0), (2, 1..2)] {
        let mut state = promised(cores);
        lost.for_each(|worker| state.lose_worker(Moment::START, worker));
        assert_eq!(of_long_bulk(&mut state), [(lane(0, 1), 1)]);
    }
}
