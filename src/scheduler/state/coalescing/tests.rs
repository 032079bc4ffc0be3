//! Items of the same ids, event by event.

use super::super::tests::{LATER, NOTHING, ask, at, state};
use super::super::{Action, Event, Refusal};
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

    fn submit(self, state: &mut SchedulerState, now: Moment) -> Action {
        let Self { texts, vectors, priority, deadline } = self;
        let digests: Vec<Digest> = texts.iter().map(|&text| Digest(text)).collect();
        let tokens = vec![TOKENS; texts.len()];
        let event = Event::Submit {
            tokens: &tokens,
            contents: NOTHING,
            digests: &digests,
            vectors,
            priority: Some(priority),
            deadline,
            reserved: None,
        };
        state.handle(now, &event).remove(0)
    }

    /// The numbers of its items.
    fn accepted(self, state: &mut SchedulerState) -> std::ops::Range<Sequence> {
        match self.submit(state, at(0)) {
            Action::Accept { items } => items,
            other => panic!("{other:?}"),
        }
    }
}

/// The rows that a worker is told to run.
fn started(actions: &[Action]) -> Vec<Sequence> {
    let run = |action: &Action| match action {
        Action::Run { items, .. } => Some(items.iter().map(|(item, ())| *item).collect()),
        _ => None,
    };
    actions.iter().find_map(run).unwrap_or_default()
}

/// Ends the worker's batch; items that are answered, each with its row.
fn end(state: &mut SchedulerState, worker: usize) -> Vec<(usize, Sequence)> {
    answered(&state.handle(at(1), &Event::BatchDone { worker, failed: &[] }))
}

fn answered(actions: &[Action]) -> Vec<(usize, Sequence)> {
    let answer = |action: &Action| match action {
        Action::Answer { row, item, .. } => Some((*row, *item)),
        _ => None,
    };
    let mut answered: Vec<(usize, Sequence)> = actions.iter().filter_map(answer).collect();
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
    assert_eq!(started(&ask(&mut often, at(0))), [0]);
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
    assert_eq!(started(&ask(&mut state, at(0)))[0], query);
    let answered = end(&mut state, 0);
    assert!(answered.contains(&(0, query)) && answered.contains(&(0, 199)), "{answered:?}");
}

#[test]
fn a_bulk_item_does_not_hold_back_an_interactive_one_of_its_ids() {
    let mut state = state(1000, 1);
    let query = TextsRequest::interactive(&[7]).accepted(&mut state).start;
    let texts: Vec<u128> = (0..200).collect();
    TextsRequest::bulk(&texts).accepted(&mut state);
    assert_eq!(started(&ask(&mut state, at(0)))[0], query);
}

#[test]
fn the_next_item_leads_when_the_leader_leaves() {
    let mut state = state(100, 1);
    for _ in 0..3 {
        TextsRequest::interactive(&[7]).accepted(&mut state);
    }
    state.handle(at(0), &Event::Cancel { items: 0..1 });
    assert_eq!(state.queue_depth(), 1);
    assert_eq!(started(&ask(&mut state, at(0))), [1]);
    state.handle(at(0), &Event::Cancel { items: 1..2 });
    end(&mut state, 0);
    let counts = state.counts();
    assert_eq!((counts.replied, counts.cancelled), (1, 2));
}

#[test]
fn a_text_that_nobody_waits_for_any_more_leaves_the_queue() {
    let mut state = state(100, 1);
    TextsRequest::interactive(&[7, 7]).accepted(&mut state);
    TextsRequest::bulk(&[7]).accepted(&mut state);
    state.handle(at(0), &Event::Cancel { items: 2..3 });
    state.handle(at(0), &Event::Cancel { items: 0..2 });
    assert!(state.is_empty() && state.queue_depth() == 0);
    assert_eq!(ask(&mut state, at(0)), []);
}

#[test]
fn each_item_of_a_text_has_its_own_deadline() {
    let mut state = state(100, 1);
    TextsRequest { deadline: at(10), ..TextsRequest::interactive(&[7]) }.accepted(&mut state);
    TextsRequest::interactive(&[7]).accepted(&mut state);
    TextsRequest { deadline: at(10), ..TextsRequest::interactive(&[7]) }.accepted(&mut state);
    let actions = ask(&mut state, at(10));
    let expired = |item| Action::Expire { item, content: () };
    assert!(actions.contains(&expired(0)) && actions.contains(&expired(2)), "{actions:?}");
    assert_eq!(started(&actions), [1]);
    assert_eq!(end(&mut state, 0), [(0, 1)]);
}

#[test]
fn an_item_joins_a_run_that_ends_before_its_own_would() {
    let mut state = state(100, 2);
    TextsRequest::interactive(&[7]).accepted(&mut state);
    assert_eq!(started(&ask(&mut state, at(0))), [0]);
    assert_eq!(TextsRequest::bulk(&[7]).submit(&mut state, at(0)), Action::Accept { items: 1..2 });
    assert_eq!(state.queue_depth(), 0);
    // It gets its rows even when the one that began the run has left.
    state.handle(at(0), &Event::Cancel { items: 0..1 });
    assert!(end(&mut state, 0).contains(&(0, 1)));
    let counts = state.counts();
    assert_eq!((counts.replied, counts.cancelled, counts.coalesced), (1, 1, 1));
}

#[test]
fn an_item_runs_alone_when_a_long_run_with_its_ids_has_just_begun() {
    let mut state = state(100, 2);
    TextsRequest::bulk(&[1, 2, 3, 4, 5]).accepted(&mut state);
    assert_eq!(started(&ask(&mut state, at(0))).len(), 4);
    state.handle(at(0), &Event::AskForWork { worker: 1 });
    state.handle(at(0), &Event::BatchDone { worker: 1, failed: &[] });
    let query = TextsRequest::interactive(&[1]).accepted(&mut state).start;
    let own = state.handle(at(0), &Event::AskForWork { worker: 1 });
    assert_eq!(started(&own), [query]);
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
    for event in [Event::WorkerLost { worker: 0 }, Event::WorkerStuck { worker: 0 }] {
        let mut state = state(100, 1);
        TextsRequest::interactive(&[7, 7]).accepted(&mut state);
        ask(&mut state, at(0));
        TextsRequest::interactive(&[7]).accepted(&mut state);
        let abandoned = |item| Action::Abandon { item, content: () };
        assert_eq!(state.handle(at(0), &event), [abandoned(0), abandoned(1), abandoned(2)]);
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
    let failed = &[(0, Vectors::Sparse)];
    let actions = state.handle(at(1), &Event::BatchDone { worker: 0, failed });
    assert_eq!(answered(&actions).len(), 3);
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
    let refused = late(&[200]).submit(&mut state, at(0));
    assert!(matches!(refused, Action::Refuse(Refusal::Late { .. })), "{refused:?}");
    assert_eq!(late(&[0, 0]).accepted(&mut state).count(), 2);
    let refused = late(&[0]).submit(&mut state, at(0));
    assert!(matches!(refused, Action::Refuse(Refusal::Full { .. })), "{refused:?}");
}

#[test]
fn a_request_is_late_when_it_makes_more_bulk_texts_interactive_than_its_time_allows() {
    let mut state = state(1000, 1);
    let texts: Vec<u128> = (0..200).collect();
    TextsRequest::bulk(&texts).accepted(&mut state);
    ask(&mut state, at(0));
    let deadline = at(0) + state.predicted_wait(at(0)) / 2;
    let raised =
        TextsRequest { deadline, ..TextsRequest::interactive(&texts) }.submit(&mut state, at(0));
    assert!(matches!(raised, Action::Refuse(Refusal::Late { .. })), "{raised:?}");
    let few = TextsRequest { deadline, ..TextsRequest::interactive(&texts[..8]) };
    assert!(matches!(few.submit(&mut state, at(0)), Action::Accept { .. }));
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
    let refused =
        TextsRequest { deadline, ..TextsRequest::bulk(&distinct) }.submit(&mut state, at(0));
    assert!(matches!(refused, Action::Refuse(Refusal::Late { .. })), "{refused:?}");
    let repeated =
        TextsRequest { deadline, ..TextsRequest::bulk(&[9; 200]) }.submit(&mut state, at(0));
    assert!(matches!(repeated, Action::Accept { .. }), "{repeated:?}");
}

#[test]
fn a_check_shares_no_run() {
    let mut state = state(100, 1);
    TextsRequest::interactive(&[7]).accepted(&mut state);
    let check = Event::Check { worker: 0, tokens: TOKENS, content: &(), deadline: LATER };
    state.handle(at(0), &check);
    assert_eq!(started(&ask(&mut state, at(0))), [1]);
    assert_eq!(end(&mut state, 0), [(0, 1)]);
    assert_eq!(started(&ask(&mut state, at(1))), [0]);
}
