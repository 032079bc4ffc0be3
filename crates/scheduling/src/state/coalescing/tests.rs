//! Items of the same ids, step by step.

use std::ops::Range;

use super::super::Refusal;
use super::super::tests::{LATER, NOTHING, ask, at, items_of, state, with_nothing};
use super::*;
use crate::batch::Vectors;

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
fn items_of_the_same_ids_are_one_text_of_the_queue() {
    let (mut once, mut often) = (state(100, 1), state(100, 1));
    TextsRequest::bulk(&[7]).accepted(&mut once);
    TextsRequest::bulk(&[7, 7, 7]).accepted(&mut often);
    TextsRequest::bulk(&[7]).accepted(&mut often);
    for state in [&once, &often] {
        assert_eq!((state.queue_depth(), state.queue_tokens()), (1, TOKENS));
    }
    assert_eq!(once.predicted_wait(at(0)), often.predicted_wait(at(0)));
    assert_eq!(ask(&mut often, at(0)), [0]);
    assert_eq!(end(&mut often, 0), [(0, 0), (0, 1), (0, 2), (0, 3)]);
    let counts = often.counts();
    assert_eq!((counts.replied, counts.coalesced), (4, 3));
    assert_eq!(counts.tokens_real, TOKENS as u64);
    assert!(often.is_empty());
}

#[test]
fn an_interactive_item_takes_bulk_items_of_its_ids_with_it() {
    let mut state = state(1000, 1);
    let texts: Vec<u128> = (0..200).collect();
    TextsRequest::bulk(&texts).accepted(&mut state);
    let query = TextsRequest::interactive(&[199]).accepted(&mut state).start;
    assert_eq!(state.queue_depth_of(Priority::Interactive), 1);
    assert_eq!(state.queue_depth(), 200, "the bulk item left the queue of its priority");
    assert_eq!(ask(&mut state, at(0))[0], query);
    let answered = end(&mut state, 0);
    assert!(answered.contains(&(0, query)) && answered.contains(&(0, 199)), "{answered:?}");
}

#[test]
fn a_bulk_item_does_not_hold_back_an_interactive_one_of_its_ids() {
    let mut state = state(1000, 1);
    let query = TextsRequest::interactive(&[7]).accepted(&mut state).start;
    let texts: Vec<u128> = (0..200).collect();
    TextsRequest::bulk(&texts).accepted(&mut state);
    assert_eq!(ask(&mut state, at(0))[0], query);
}

#[test]
fn the_next_item_leads_when_the_leader_leaves() {
    let mut state = state(100, 1);
    for _ in 0..3 {
        TextsRequest::interactive(&[7]).accepted(&mut state);
    }
    state.cancel(&(0..1));
    assert_eq!(state.queue_depth(), 1);
    assert_eq!(ask(&mut state, at(0)), [1]);
    state.cancel(&(1..2));
    end(&mut state, 0);
    let counts = state.counts();
    assert_eq!((counts.replied, counts.cancelled), (1, 2));
}

#[test]
fn a_text_that_nobody_waits_for_any_more_leaves_the_queue() {
    let mut state = state(100, 1);
    TextsRequest::interactive(&[7, 7]).accepted(&mut state);
    TextsRequest::bulk(&[7]).accepted(&mut state);
    state.cancel(&(2..3));
    state.cancel(&(0..2));
    assert!(state.is_empty() && state.queue_depth() == 0);
    assert!(ask(&mut state, at(0)).is_empty());
}

#[test]
fn each_item_of_a_text_has_its_own_deadline() {
    let mut state = state(100, 1);
    TextsRequest { deadline: at(10), ..TextsRequest::interactive(&[7]) }.accepted(&mut state);
    TextsRequest::interactive(&[7]).accepted(&mut state);
    TextsRequest { deadline: at(10), ..TextsRequest::interactive(&[7]) }.accepted(&mut state);
    assert_eq!(ask(&mut state, at(10)), [1]);
    assert_eq!(state.take_effects().expired, with_nothing(&[0, 2]));
    assert_eq!(end(&mut state, 0), [(0, 1)]);
}

#[test]
fn an_item_joins_a_run_that_ends_before_its_own_would() {
    let mut state = state(100, 2);
    TextsRequest::interactive(&[7]).accepted(&mut state);
    assert_eq!(ask(&mut state, at(0)), [0]);
    assert_eq!(TextsRequest::bulk(&[7]).accepted(&mut state), 1..2);
    assert_eq!(state.queue_depth(), 0);
    // It gets its rows even when the one that began the run has left.
    state.cancel(&(0..1));
    assert!(end(&mut state, 0).contains(&(0, 1)));
    let counts = state.counts();
    assert_eq!((counts.replied, counts.cancelled, counts.coalesced), (1, 1, 1));
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
fn a_lost_worker_ends_all_that_share_its_rows() {
    for end in [SchedulerState::lose_worker, SchedulerState::stop_stuck_worker] {
        let mut state = state(100, 1);
        TextsRequest::interactive(&[7, 7]).accepted(&mut state);
        ask(&mut state, at(0));
        TextsRequest::interactive(&[7]).accepted(&mut state);
        end(&mut state, at(0), 0);
        assert_eq!(state.take_effects().abandoned, with_nothing(&[0, 1, 2]));
        assert!(state.is_empty());
    }
}

#[test]
fn only_items_that_want_the_lost_vectors_fail() {
    let mut state = state(100, 1);
    for vectors in [Vectors::Dense, Vectors::Sparse, Vectors::Both] {
        TextsRequest { vectors, ..TextsRequest::interactive(&[7]) }.accepted(&mut state);
    }
    ask(&mut state, at(0));
    let answers = state.complete_batch(at(1), 0, &[(0, Vectors::Sparse)], false);
    assert_eq!(answers.len(), 3);
    let counts = state.counts();
    assert_eq!((counts.replied, counts.failed), (1, 2));
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

#[test]
fn a_check_shares_no_run() {
    let mut state = state(100, 1);
    TextsRequest::interactive(&[7]).accepted(&mut state);
    let check = NewRequest::of(&[TOKENS], LATER);
    state.submit_check(at(0), 0, check, ()).expect("it lives");
    assert_eq!(ask(&mut state, at(0)), [1]);
    assert_eq!(end(&mut state, 0), [(0, 1)]);
    assert_eq!(ask(&mut state, at(1)), [0]);
}
