//! Requests that are asked before their items are known: by their heads, and by long texts that are
//! tokenized first.

use super::*;

/// A head.
fn announced(priority: Priority, time: Duration) -> Announced<'static> {
    let (tokens, tokenizing, has_come) = (&[512][..], Duration::ZERO, false);
    Announced { priority, tokens, deadline: at(0) + time, tokenizing, has_come }
}

fn announce(state: &mut SchedulerState, priority: Priority, time: Duration) -> Vec<Action> {
    state.handle(at(0), &Event::Announce(announced(priority, time)))
}

#[test]
fn a_request_is_refused_by_its_head_when_nothing_can_run_it() {
    let bulk = |state: &mut SchedulerState| announce(state, Priority::Bulk, Duration::from_secs(1));
    let mut state = state(10, 1);
    assert_eq!(bulk(&mut state), []);
    state.handle(at(0), &Event::WorkerLost { worker: 0 });
    assert_eq!(bulk(&mut state), [Action::Refuse(Refusal::NoWorker)]);
    state.handle(at(0), &Event::WorkerOpened { worker: 0 });
    state.handle(at(0), &Event::Drain);
    assert_eq!(bulk(&mut state), [Action::Refuse(Refusal::Draining)]);
    state.handle(at(0), &Event::Close);
    assert_eq!(bulk(&mut state), [Action::Refuse(Refusal::NoWorker)]);
    assert_eq!(state.counts().refused, 3);
}

#[test]
fn a_request_is_refused_by_its_head_when_every_place_is_taken() {
    let mut state = state(2, 1);
    submit(&mut state, &[5]);
    assert_eq!(announce(&mut state, Priority::Bulk, Duration::from_secs(1)), []);
    submit(&mut state, &[5]);
    let refused = announce(&mut state, Priority::Bulk, Duration::from_secs(1));
    assert!(matches!(refused[..], [Action::Refuse(Refusal::Full { .. })]), "{refused:?}");
}

#[test]
fn a_request_is_refused_by_its_head_when_the_wait_of_its_class_is_too_long() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 200], Priority::Bulk, LATER);
    let wait = state.predicted_wait(at(0));
    assert_eq!(announce(&mut state, Priority::Bulk, wait * 2), []);
    assert_eq!(announce(&mut state, Priority::Interactive, wait), []);
    let mut told = Duration::ZERO;
    for _ in 0..3 {
        let refused = announce(&mut state, Priority::Bulk, wait);
        let [Action::Refuse(Refusal::Late { retry_after })] = refused[..] else {
            panic!("{refused:?}")
        };
        assert!(retry_after > told, "{retry_after:?} {told:?}");
        told = retry_after;
    }
    let Action::Refuse(Refusal::Late { retry_after }) =
        submit_as(&mut state, &[100; 20], Priority::Bulk, at(0) + wait)
    else {
        panic!("it cannot be in time")
    };
    assert!(retry_after > told, "both halves promise behind each other");
    assert_eq!(state.queue_depth(), 200, "nothing of it waits");
}

#[test]
fn the_time_until_texts_are_tokenized_is_beside_the_wait_for_workers() {
    let mut state = state(10_000, 1);
    submit_as(&mut state, &[100; 100], Priority::Bulk, LATER);
    let wait = state.predicted_wait(at(0));
    let mut announce = |tokenizing| {
        let new = announced(Priority::Bulk, wait * 2);
        state.handle(at(0), &Event::Announce(Announced { tokenizing, ..new }))
    };
    assert_eq!(announce(wait), [], "one beside the other");
    let refused = announce(wait * 2);
    assert!(matches!(refused[..], [Action::Refuse(Refusal::Late { .. })]), "{refused:?}");
}

#[test]
fn heads_hold_nobody_up_however_many_there_are() {
    let mut state = state(10, 1);
    for _ in 0..10_000 {
        assert_eq!(announce(&mut state, Priority::Interactive, Duration::from_secs(300)), []);
    }
    assert_eq!(state.wait_of(at(0), Priority::Bulk), Duration::ZERO);
    assert_eq!(submit(&mut state, &[5; 10])[0], Action::Accept { items: 0..10 });
}

#[test]
fn heads_that_name_no_priority_put_nobody_off() {
    let mut state = state(1, 1);
    submit(&mut state, &[5]);
    let refused = |state: &mut SchedulerState| {
        let refused = announce(state, Priority::Interactive, Duration::from_secs(30));
        match refused[..] {
            [Action::Refuse(Refusal::Full { retry_after })] => retry_after,
            _ => panic!("the queue is full: {refused:?}"),
        }
    };
    let first = refused(&mut state);
    (0..1000).for_each(|_| assert_eq!(refused(&mut state), first));
    let query = state.handle(at(0), &submission(&[5], Some(Priority::Interactive), LATER));
    let [Action::Refuse(Refusal::Full { retry_after })] = query[..] else { panic!("{query:?}") };
    assert!(retry_after <= first, "{retry_after:?} {first:?}");
}

/// Asks for texts that are there and long enough to be tokenized elsewhere.
fn reserve(state: &mut SchedulerState, tokens: &[usize], time: Duration) -> Action {
    let new = Announced { tokens, has_come: true, ..announced(Priority::Bulk, time) };
    state.handle(at(0), &Event::Announce(new)).remove(0)
}

#[test]
fn texts_that_are_tokenized_count_as_wait_until_they_come_or_never_will() {
    let mut state = state(10_000, 1);
    let Action::Reserve(room) = reserve(&mut state, &[100; 200], Duration::from_secs(30)) else {
        panic!("the worker is idle")
    };
    let wait = state.wait_of(at(0), Priority::Bulk);
    assert!(wait > Duration::from_secs(1), "{wait:?}");
    assert_eq!(state.wait_of(at(0), Priority::Interactive), Duration::ZERO, "it goes first");
    let late = reserve(&mut state, &[100; 20], wait);
    assert!(matches!(late, Action::Refuse(Refusal::Late { .. })), "{late:?}");
    state.handle(at(0), &Event::Release(room));
    assert_eq!(state.wait_of(at(0), Priority::Bulk), Duration::ZERO);
    let Action::Reserve(room) = reserve(&mut state, &[100; 20], wait) else { panic!("{wait:?}") };
    // Its items are not asked again: they may be more than they seemed.
    let tokens = &[500; 20][..];
    let Event::Submit { contents, digests, vectors, .. } = submission(tokens, None, LATER) else {
        unreachable!("it is one")
    };
    let (priority, deadline, reserved) = (Some(Priority::Bulk), at(0) + wait, Some(room));
    submit_as(&mut state, &[100; 1000], Priority::Bulk, LATER);
    let event = Event::Submit { tokens, contents, digests, vectors, priority, deadline, reserved };
    assert_eq!(state.handle(at(0), &event)[0], Action::Accept { items: 1000..1020 });
    assert_eq!((state.admission.reserved_items, state.admission.reserved_ns), (0, [0; 2]));
}

#[test]
fn places_are_reserved_for_texts_that_are_tokenized() {
    let mut state = state(30, 1);
    let Action::Reserve(room) = reserve(&mut state, &[100; 20], Duration::from_secs(300)) else {
        panic!("there is room")
    };
    let full = submit(&mut state, &[5; 11]);
    assert!(matches!(full[..], [Action::Refuse(Refusal::Full { .. })]), "{full:?}");
    let full = reserve(&mut state, &[100; 11], Duration::from_secs(300));
    assert!(matches!(full, Action::Refuse(Refusal::Full { .. })), "{full:?}");
    state.handle(at(0), &Event::Release(room));
    assert_eq!(submit(&mut state, &[5; 30])[0], Action::Accept { items: 0..30 });
}

#[test]
fn what_was_promised_ends_with_the_longest_time_that_anyone_is_told() {
    let mut state = state(1, 1);
    submit(&mut state, &[5]);
    let tokens = &[512; 10_000][..];
    let new = announced(Priority::Bulk, Duration::ZERO);
    let event = Event::Announce(Announced { tokens, deadline: LATER, ..new });
    state.handle(at(0), &event);
    let minute = at(0) + RETRY_AFTER_MAX;
    let refused = state.handle(minute, &event);
    let [Action::Refuse(Refusal::Full { retry_after })] = refused[..] else {
        panic!("{refused:?}")
    };
    assert!(retry_after < Duration::from_secs(1), "{retry_after:?}");
}
