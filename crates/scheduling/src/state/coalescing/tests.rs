//! Items of the same ids, step by step.

use std::ops::Range;

use super::super::Refusal;
use super::super::tests::{LATER, NOTHING, ask, at, items_of, state};
use super::*;
use crate::batch::Priority;

/// Tokens of every text of these tests.
const TOKENS: usize = 60;

/// A request for the texts of these numbers.
fn submit(
    state: &mut SchedulerState,
    priority: Priority,
    deadline: Moment,
    texts: &[u128],
) -> Result<Range<Sequence>, Refusal> {
    let digests: Vec<Digest> = texts.iter().copied().map(Digest).collect();
    let tokens = vec![TOKENS; texts.len()];
    let new = NewRequest { digests: &digests, priority, ..NewRequest::of(&tokens, deadline) };
    state.submit(at(0), new, NOTHING)
}

/// Ends the worker's batch; items that are answered, each with its row.
fn end(state: &mut SchedulerState, worker: usize) -> Vec<(usize, Sequence)> {
    let answers = state.complete_batch(at(1), worker, &[], false);
    let mut answered: Vec<_> = answers.iter().map(|answer| (answer.row, answer.item)).collect();
    answered.sort_unstable();
    answered
}

#[test]
fn an_item_runs_alone_when_a_long_run_with_its_ids_has_just_begun() {
    let mut state = state(100, 2);
    let first_of = |state: &mut SchedulerState, priority, texts: &[u128]| {
        submit(state, priority, LATER, texts).expect("there is room").start
    };
    first_of(&mut state, Priority::Bulk, &[1, 2, 3, 4, 5]);
    assert_eq!(ask(&mut state, at(0)).len(), 4);
    state.ask_for_work(at(0), 1);
    state.complete_batch(at(0), 1, &[], false);
    let query = first_of(&mut state, Priority::Interactive, &[1]);
    assert_eq!(items_of(state.ask_for_work(at(0), 1)), [query]);
    // Another one shares the shorter run, whichever ends first.
    let next = first_of(&mut state, Priority::Interactive, &[1]);
    assert_eq!(end(&mut state, 0).len(), 4);
    assert_eq!(end(&mut state, 1), [(0, query), (0, next)]);
    assert!(state.is_empty());
    assert_eq!(first_of(&mut state, Priority::Interactive, &[1]), next + 1);
    assert_eq!(state.queue_depth(), 1, "nothing of it runs any more");
}

#[test]
fn a_request_is_late_by_the_runs_that_it_adds() {
    let numbers = |numbers: Range<u128>| -> Vec<u128> { numbers.collect() };
    // Two hundred bulk texts wait for the only worker. The time is a part of their wait.
    for (part, priority, texts, is_late) in [
        (0.5, Priority::Bulk, vec![200], true),
        (0.5, Priority::Bulk, vec![150, 150], false),
        // Bulk texts become interactive work.
        (0.5, Priority::Interactive, numbers(0..200), true),
        (0.5, Priority::Interactive, numbers(0..8), false),
        (2.0, Priority::Bulk, numbers(200..700), true),
        (2.0, Priority::Bulk, vec![200; 500], false),
    ] {
        let mut state = state(1000, 1);
        submit(&mut state, Priority::Bulk, LATER, &numbers(0..200)).expect("there is room");
        ask(&mut state, at(0));
        let deadline = at(0) + state.predicted_wait(at(0)).mul_f64(part);
        let answer = submit(&mut state, priority, deadline, &texts);
        let late = matches!(answer, Err(Refusal::Late { .. }));
        assert!(late == is_late && answer.is_ok() != is_late, "{part} {texts:?}: {answer:?}");
    }
}
