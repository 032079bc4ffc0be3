//! Texts that are much longer than what was measured: attention grows with the square of the
//! length, and short texts hardly show it.

use super::*;

/// Time of a run on an encoder of 24 layers, one core: a text of 8,000 tokens takes 105 s.
const TRUE: CostModel =
    CostModel { floor_us: 0.0, fixed_us: 20_000.0, per_token_us: 1600.0, per_token_length_us: 1.4 };

/// A watchdog's `worker-stuck-ms`.
const LIMIT: Duration = Duration::from_secs(30);

fn bucket(length: usize) -> Bucket {
    Bucket { rows: 1, length }
}

/// One worker, whose short texts were measured: of 64 tokens at most, each a little differently
/// disturbed.
fn slow_state() -> SchedulerState {
    let shapes = Shapes::on_cpu(8192, MaxBatchTokens::nearest(256));
    let mut state = SchedulerState::new(100, Lane::apart(1), shapes);
    state.open_worker(0);
    let times = [(8, 1.15), (16, 1.1), (32, 1.0), (48, 0.95), (64, 0.9)];
    let time = |(length, noise): (usize, f64)| {
        (bucket(length), TRUE.predict(bucket(length)).mul_f64(noise))
    };
    state.measure(0, times.map(time).to_vec());
    state
}

fn needed(state: &SchedulerState, tokens: usize) -> Duration {
    state.least_time(&[tokens]).expect("it was measured")
}

/// A worker takes a text; the shape that runs.
fn begin(state: &mut SchedulerState, tokens: usize, start: Moment) -> Bucket {
    state.submit(start, NewRequest::of(&[tokens], LATER), NOTHING).expect("there is room");
    state.ask_for_work(start, 0).expect("it waits").bucket
}

/// Runs one text from `start`; its end, and whether it was given up before.
fn run(state: &mut SchedulerState, tokens: usize, start: Moment) -> (Moment, bool) {
    let time = TRUE.predict(begin(state, tokens, start));
    let seconds = 1..=time.as_secs();
    let looks = seconds.map(|second| start + Duration::from_secs(second));
    let stuck = looks.into_iter().find(|&now| !state.overdue(now, LIMIT).is_empty());
    if let Some(now) = stuck {
        state.stop_stuck_worker(now, 0);
    }
    complete(state, start + time);
    (start + time, stuck.is_some())
}

#[test]
fn one_long_run_teaches_what_the_next_one_takes() {
    let mut state = slow_state();
    let (end, stuck) = run(&mut state, 8000, at(0));
    assert!(!stuck, "its length is far beyond what was measured");
    // Short texts are predicted as before.
    for (tokens, runs, most) in [(8000, 8192, 0.1), (48, 48, 0.15)] {
        let ratio = needed(&state, tokens).as_secs_f64() / TRUE.predict(bucket(runs)).as_secs_f64();
        assert!((ratio - 1.0).abs() < most, "{tokens}: {ratio} of what it takes");
    }
    let (_, stuck) = run(&mut state, 8000, end);
    assert!(!stuck);
}

/// Runs one text from `start` that takes `factor` times what it should; its end.
fn run_disturbed(state: &mut SchedulerState, tokens: usize, start: Moment, factor: f64) -> Moment {
    let end = start + TRUE.predict(begin(state, tokens, start)).mul_f64(factor);
    complete(state, end);
    end
}

/// What becomes of a text that has `time`; one that is taken runs undisturbed.
fn offer(state: &mut SchedulerState, tokens: usize, now: Moment, time: Duration) -> bool {
    match state.submit(now, NewRequest::of(&[tokens], now + time), NOTHING) {
        Ok(_) => {
            let run = state.ask_for_work(now, 0).expect("it waits");
            complete(state, now + TRUE.predict(run.bucket));
            true
        }
        Err(Refusal::TooShort { needed }) => {
            assert!(needed > time, "{needed:?}");
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn one_disturbed_run_locks_no_length_out() {
    let mut state = slow_state();
    let true_time = TRUE.predict(bucket(2048));
    let mut now = run_disturbed(&mut state, 2000, at(0), 10.0);
    assert!(needed(&state, 2000) > true_time * 4, "{:?}", needed(&state, 2000));
    // Texts with twice the time that they take come every second.
    let mut refused = 0;
    while !offer(&mut state, 2000, now, true_time * 2) {
        now = now + Duration::from_secs(1);
        refused += 1;
        assert!(refused < 3600, "it is locked out");
    }
    let ratio = needed(&state, 2000).as_secs_f64() / true_time.as_secs_f64();
    assert!((ratio - 1.0).abs() < 0.2, "the shorter run counts: {ratio} of what it takes");
    assert!(offer(&mut state, 2000, now + true_time, true_time * 2));
}

/// Its times were measured beside a load: seven times what they are.
fn started_beside_a_load() -> SchedulerState {
    let mut state = slow_state();
    let time = |length| (bucket(length), TRUE.predict(bucket(length)) * 7);
    state.measure(0, [8, 16, 32, 48, 64].map(time).to_vec());
    state
}

#[test]
fn a_start_beside_a_load_locks_no_short_time_out() {
    // A large request may be the first one that is refused.
    for large in [None, Some(Duration::from_millis(1)), Some(Duration::from_secs(30))] {
        let mut state = started_beside_a_load();
        if let Some(time) = large {
            let new = NewRequest::of(&[48; 2048], at(0) + time);
            let refused = state.submit(at(0), new, NOTHING);
            assert!(matches!(refused, Err(Refusal::TooShort { .. })), "{refused:?}");
        }
        let time = TRUE.predict(bucket(48)) * 4;
        assert!(needed(&state, 48) > time, "{:?}", needed(&state, 48));
        // Texts with four times the time that they take come every second.
        let seconds = 0..3600;
        let taken = seconds.filter(|second| offer(&mut state, 48, at(second * 1000), time)).count();
        assert!(taken > 3000, "{large:?} {taken}");
    }
}

#[test]
fn a_large_try_is_followed_by_a_rest_for_what_it_could_run() {
    let (mut state, time) = (started_beside_a_load(), Duration::from_millis(1));
    let mut large = |now| state.submit(now, NewRequest::of(&[48; 90], now + time), NOTHING);
    let begin = (0..).map(|second| at(second * 1000)).find(|&now| large(now).is_ok());
    let begin = begin.expect("it is tried");
    // One batch runs, then the others have expired.
    let shape = state.ask_for_work(begin, 0).expect("it waits").bucket;
    let ran = TRUE.predict(shape);
    complete(&mut state, begin + ran);
    assert_eq!(state.ask_for_work(begin + ran, 0), None);
    let mut seconds = (1..).map(|second| begin + Duration::from_secs(second));
    let next = seconds.find(|&now| offer(&mut state, 48, now, time)).expect("it is tried");
    // It ran a seventh of what it seemed to need, and not the largest batch.
    let part = ran.as_secs_f64() * 7.0 / next.since(begin).as_secs_f64();
    assert!(part > 0.01 && part < 0.05, "{part} of the worker's time");
}

#[test]
fn a_try_without_places_takes_no_turn() {
    let mut state = started_beside_a_load();
    state.submit(at(0), NewRequest::of(&[48; 50], LATER), NOTHING).expect("there is room");
    let mut submit = |now, tokens: &[usize]| {
        state.submit(now, NewRequest::of(tokens, now + Duration::from_millis(1)), NOTHING)
    };
    let mut seconds = (0..3600).map(|second| at(second * 1000));
    let full = seconds.find(|&now| matches!(submit(now, &[48; 90]), Err(Refusal::Full { .. })));
    let taken = submit(full.expect("it is tried"), &[48]);
    assert!(taken.is_ok(), "{taken:?}");
}

#[test]
fn frequent_short_tries_leave_a_turn_to_a_long_one() {
    let (mut state, mut random) = (slow_state(), fastrand::Rng::with_seed(4));
    let mut now = run_disturbed(&mut state, 2000, at(0), 10.0);
    let (end, time) = (now + Duration::from_secs(3600), TRUE.predict(bucket(2048)) * 2);
    // Ten times a second comes a text with a fifth of the time that it takes.
    while random.u32(0..50) > 0 || !offer(&mut state, 2000, now, time) {
        offer(&mut state, 48, now, TRUE.predict(bucket(48)) / 5);
        now = now + Duration::from_millis(100);
        assert!(now < end, "its turn never comes");
    }
}

#[test]
fn a_text_that_takes_longer_than_its_time_is_tried_seldom() {
    let mut state = slow_state();
    let mut now = run_disturbed(&mut state, 8000, at(0), 1.0);
    let time = Duration::from_secs(30);
    let mut ran = Duration::ZERO;
    let begin = now;
    while now.since(begin) < Duration::from_secs(24 * 3600) {
        if offer(&mut state, 8000, now, time) {
            ran += TRUE.predict(bucket(8192));
            now = now + TRUE.predict(bucket(8192));
        }
        now = now + Duration::from_secs(10);
    }
    let part = ran.as_secs_f64() / now.since(begin).as_secs_f64();
    assert!(part > 0.0 && part < 0.06, "{part} of the worker's time");
}

#[test]
fn batches_that_faster_runs_follow_refuse_no_more_than_those_would() {
    let mut state = slow_state();
    let before = needed(&state, 60);
    let mut now = at(0);
    (0..200).for_each(|_| now = run_disturbed(&mut state, 60, now, 0.4));
    assert!(needed(&state, 60) < before.mul_f64(0.5), "the start was disturbed");
    (0..200).for_each(|_| now = run_disturbed(&mut state, 60, now, 4.0));
    assert_eq!(needed(&state, 60), before, "what disturbs them may be over");
}

#[test]
fn a_batch_that_was_given_up_or_ran_in_parts_teaches_nothing() {
    for (tokens, in_parts) in [(8000, false), (60, false), (8000, true), (60, true)] {
        let mut state = slow_state();
        begin(&mut state, tokens, at(0));
        let cost = *state.widths()[0].cost.model();
        if !in_parts {
            state.stop_stuck_worker(at(1000), 0);
        }
        state.complete_batch(at(300_000), 0, &[], in_parts);
        assert_eq!(*state.widths()[0].cost.model(), cost, "{tokens} {in_parts}");
        assert_eq!(state.live_and_busy(), (1, 0));
    }
}

#[test]
fn a_batch_of_a_measured_length_is_given_up_as_before() {
    let mut state = slow_state();
    begin(&mut state, 60, at(0));
    let look = |seconds| Moment::START + Duration::from_secs(seconds);
    assert!(state.overdue(look(29), LIMIT).is_empty());
    assert_eq!(state.overdue(look(31), LIMIT), [0]);
}

#[test]
fn times_that_a_load_disturbed_refuse_no_longer_text() {
    // The shortest shapes ran beside a load, and a text of 300 tokens when that had grown.
    let mut state = slow_state();
    let times = [(8, 620_000), (16, 640_000), (24, 655_000)];
    let time = |(length, us): (usize, u64)| (bucket(length), Duration::from_micros(us));
    state.measure(0, times.map(time).to_vec());
    begin(&mut state, 300, at(0));
    complete(&mut state, at(5000));
    let (needed, whole) = (needed(&state, 8000), TRUE.predict(bucket(8192)));
    assert!(needed < whole, "{needed:?}, where it takes {whole:?} undisturbed");
}
