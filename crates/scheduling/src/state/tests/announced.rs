//! Requests that are asked before their items are known: by their heads, and by long texts that are
//! tokenized first.

use super::*;

/// A head.
fn announced(priority: Priority, time: Duration) -> Announced<'static> {
    let (tokens, tokenizing, has_come) = (&[512][..], Duration::ZERO, false);
    Announced { priority, tokens, deadline: at(0) + time, tokenizing, has_come }
}

/// What room a request gets by its head: none, unless it is refused.
type AnnounceAnswer = Result<Option<Reserved>, Refusal>;

fn announce(state: &mut SchedulerState, priority: Priority, time: Duration) -> AnnounceAnswer {
    state.announce(at(0), announced(priority, time))
}

#[test]
fn those_that_would_be_late_are_refused_each_told_a_later_time_by_head_or_items() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 200], Priority::Bulk, LATER).expect("there is room");
    let wait = state.predicted_wait(at(0));
    let ask = |state: &mut SchedulerState, time: Duration| {
        submit_as(state, &[100; 20], Priority::Bulk, at(0) + time)
    };
    assert!(ask(&mut state, wait * 2).is_ok());
    assert_eq!(announce(&mut state, Priority::Interactive, wait), Ok(None), "of its class");
    let mut told = Duration::ZERO;
    for _ in 0..3 {
        for retry_after in
            [late(announce(&mut state, Priority::Bulk, wait)), late(ask(&mut state, wait))]
        {
            assert!(retry_after > told && retry_after < wait * 2, "{retry_after:?} {told:?}");
            told = retry_after;
        }
    }
    assert_eq!(announce(&mut state, Priority::Bulk, wait * 2), Ok(None));
    assert!(ask(&mut state, wait * 2).is_ok());
    assert_eq!(state.queue_depth(), 240, "nothing waits of those that were refused");
}

#[test]
fn the_time_until_texts_are_tokenized_is_beside_the_wait_for_workers() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 100], Priority::Bulk, LATER).expect("there is room");
    let wait = state.predicted_wait(at(0));
    let mut announce = |tokenizing| {
        let new = announced(Priority::Bulk, wait * 2);
        state.announce(at(0), Announced { tokenizing, ..new })
    };
    assert_eq!(announce(wait), Ok(None), "one beside the other");
    late(announce(wait * 2));
}

#[test]
fn heads_hold_nobody_up_however_many_there_are() {
    let mut state = state(10, 1);
    for _ in 0..10_000 {
        assert_eq!(announce(&mut state, Priority::Interactive, Duration::from_secs(300)), Ok(None));
    }
    assert_eq!(state.wait_of(at(0), Priority::Bulk), Duration::ZERO);
    assert_eq!(submit(&mut state, &[5; 10]), Ok(0..10));
}

#[test]
fn heads_that_name_no_priority_put_nobody_off() {
    let mut state = state(1, 1);
    submit(&mut state, &[5]).expect("there is room");
    let refused = |state: &mut SchedulerState| {
        full(announce(state, Priority::Interactive, Duration::from_secs(30)))
    };
    let first = refused(&mut state);
    (0..1000).for_each(|_| assert_eq!(refused(&mut state), first));
    let query = full(submit_as(&mut state, &[5], Priority::Interactive, LATER));
    assert!(query <= first, "{query:?} {first:?}");
}

/// Asks for texts that are there and long enough to be tokenized elsewhere.
fn reserve(
    state: &mut SchedulerState,
    tokens: &[usize],
    time: Duration,
) -> Result<Reserved, Refusal> {
    let new = Announced { tokens, has_come: true, ..announced(Priority::Bulk, time) };
    Ok(state.announce(at(0), new)?.expect("texts that are there get room"))
}

#[test]
fn texts_that_are_tokenized_count_as_wait_until_they_come_or_never_will() {
    let mut state = state(10_000, 1);
    let room = reserve(&mut state, &[100; 200], Duration::from_secs(30));
    let room = room.expect("the worker is idle");
    let wait = state.wait_of(at(0), Priority::Bulk);
    assert!(wait > Duration::from_secs(1), "{wait:?}");
    assert_eq!(state.wait_of(at(0), Priority::Interactive), Duration::ZERO, "it goes first");
    late(reserve(&mut state, &[100; 20], wait));
    state.release(room);
    assert_eq!(state.wait_of(at(0), Priority::Bulk), Duration::ZERO);
    let room = reserve(&mut state, &[100; 20], wait).expect("nothing is before it");
    submit_as(&mut state, &[100; 1000], Priority::Bulk, LATER).expect("there is room");
    // Its items are not asked again: they may be more than they seemed.
    let (priority, reserved) = (Priority::Bulk, Some(room));
    let new = NewRequest { priority, reserved, ..NewRequest::of(&[500; 20], at(0) + wait) };
    assert_eq!(state.submit(at(0), new, NOTHING), Ok(1000..1020));
    assert_eq!((state.admission.reserved_items, state.admission.reserved_ns), (0, [0; 2]));
}

#[test]
fn what_was_promised_ends_with_the_longest_time_that_anyone_is_told() {
    let mut state = state(1, 1);
    submit(&mut state, &[5]).expect("there is room");
    let tokens = &[512; 10_000][..];
    let new = announced(Priority::Bulk, Duration::ZERO);
    let new = Announced { tokens, deadline: LATER, ..new };
    assert!(state.announce(at(0), new).is_err());
    let retry_after = full(state.announce(at(0) + RETRY_AFTER_MAX, new));
    assert!(retry_after < Duration::from_secs(1), "{retry_after:?}");
}
