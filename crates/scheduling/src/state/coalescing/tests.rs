//! Items of the same ids, step by step.

use std::ops::Range;

use super::super::Refusal;
use super::super::tests::{LATER, NOTHING, ask, at, items_of, state};
use super::*;
use crate::batch::{Priority, Vectors};

/// Tokens of every text of these tests.
const TOKENS: usize = 60;

/// A request for the texts of these numbers.
#[derive(Clone, Copy)]
struct TextsRequest<'a> {
    texts: &'a [u128],
    vectors: Vectors,
    priority: Priority,
    deadline: Moment,
}

impl<'a> TextsRequest<'a> {
    fn interactive(texts: &'a [u128]) -> Self {
        let (vectors, priority) = (Vectors::Both, Priority::Interactive);
        Self { texts, vectors, priority, deadline: LATER }
    }

    fn bulk(texts: &'a [u128]) -> Self {
        Self { priority: Priority::Bulk, ..Self::interactive(texts) }
    }

    fn submit(self, state: &mut SchedulerState) -> Result<Range<Sequence>, Refusal> {
        let Self { texts, vectors, priority, deadline } = self;
        let digests: Vec<Digest> = texts.iter().map(|&text| Digest(text)).collect();
        let tokens = vec![TOKENS; texts.len()];
        let new = NewRequest::of(&tokens, deadline);
        state.submit(at(0), NewRequest { digests: &digests, vectors, priority, ..new }, NOTHING)
    }

    /// The numbers of its items.
    fn accepted(self, state: &mut SchedulerState) -> Range<Sequence> {
        self.submit(state).expect("there is room")
    }
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
    TextsRequest::bulk(&[1, 2, 3, 4, 5]).accepted(&mut state);
    assert_eq!(ask(&mut state, at(0)).len(), 4);
    state.ask_for_work(at(0), 1);
    state.complete_batch(at(0), 1, &[], false);
    let query = TextsRequest::interactive(&[1]).accepted(&mut state).start;
    assert_eq!(items_of(state.ask_for_work(at(0), 1)), [query]);
    // Another one shares the shorter run, whichever ends first.
    let next = TextsRequest::interactive(&[1]).accepted(&mut state).start;
    assert_eq!(end(&mut state, 0).len(), 4);
    assert_eq!(end(&mut state, 1), [(0, query), (0, next)]);
    assert!(state.is_empty());
    assert_eq!(TextsRequest::interactive(&[1]).accepted(&mut state).start, next + 1);
    assert_eq!(state.queue_depth(), 1, "nothing of it runs any more");
}

#[test]
fn a_request_that_adds_no_run_is_taken_while_there_is_room() {
    let mut state = state(202, 1);
    let texts: Vec<u128> = (0..200).collect();
    TextsRequest::bulk(&texts).accepted(&mut state);
    let deadline = at(0) + state.predicted_wait(at(0)) / 2;
    let late = |texts| TextsRequest { deadline, ..TextsRequest::bulk(texts) };
    let refused = late(&[200]).submit(&mut state);
    assert!(matches!(refused, Err(Refusal::Late { .. })), "{refused:?}");
    assert_eq!(late(&[0, 0]).accepted(&mut state).count(), 2);
    let refused = late(&[0]).submit(&mut state);
    assert!(matches!(refused, Err(Refusal::Full { .. })), "{refused:?}");
}

#[test]
fn a_request_is_late_when_it_makes_more_bulk_texts_interactive_than_its_time_allows() {
    let mut state = state(1000, 1);
    let texts: Vec<u128> = (0..200).collect();
    TextsRequest::bulk(&texts).accepted(&mut state);
    ask(&mut state, at(0));
    let deadline = at(0) + state.predicted_wait(at(0)) / 2;
    let raised = TextsRequest { deadline, ..TextsRequest::interactive(&texts) };
    let refused = raised.submit(&mut state);
    assert!(matches!(refused, Err(Refusal::Late { .. })), "{refused:?}");
    TextsRequest { texts: &texts[..8], ..raised }.accepted(&mut state);
}

#[test]
fn a_repeated_text_counts_once_in_the_time_of_its_request() {
    let mut state = state(1000, 1);
    ask(&mut state, at(0));
    TextsRequest::bulk(&[1]).accepted(&mut state);
    ask(&mut state, at(0));
    let own = state.own_time(&[TOKENS; 200]);
    let deadline = at(0) + own / 2;
    let distinct: Vec<u128> = (100..300).collect();
    let refused = TextsRequest { deadline, ..TextsRequest::bulk(&distinct) }.submit(&mut state);
    assert!(matches!(refused, Err(Refusal::Late { .. })), "{refused:?}");
    TextsRequest { deadline, ..TextsRequest::bulk(&[9; 200]) }.accepted(&mut state);
}
