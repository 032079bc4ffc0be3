//! What is measured of an engine whose runs take what they should.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::*;
use crate::worker::noting::Noting;
use settings::limits::MaxBatchTokens;

/// Microseconds of a run.
const FIXED_US: u64 = 1000;
const TOKEN_US: u64 = 10;

fn timed(memory_tokens: usize) -> Noting {
    let run_time = Duration::from_micros(FIXED_US);
    let token_time = Duration::from_micros(TOKEN_US);
    Noting { run_time, token_time, memory_tokens, ..Noting::new(&Arc::default()) }
}

fn measure(engine: &Noting, workers: usize) -> Result<Measured, EngineError> {
    measure_batches(engine, &[128, 512], workers)
}

fn measure_batches(
    engine: &Noting,
    batches: &[usize],
    workers: usize,
) -> Result<Measured, EngineError> {
    let tokens = MaxBatchTokens::new(4096).expect("in range");
    let shapes = Shapes::on_cpu(512, tokens);
    let workload = Workload { batches: batches.to_vec(), lengths: [32, 64] };
    workload.measure(engine, &shapes, Split { workers, threads: 1 }, &*engine.clock)
}

#[test]
fn times_and_cost_are_those_of_the_engine() {
    let measured = measure(&timed(usize::MAX), 1).expect("it runs");
    // A text of 32 tokens takes 1.32 ms, one of 64 takes 1.64 ms.
    assert_eq!(measured.alone, Duration::from_micros(1480));
    assert!((measured.cost.fixed_us - FIXED_US as f64).abs() < 1.0, "{:?}", measured.cost);
    let expected = 1024.0 / (FIXED_US + 1024 * TOKEN_US) as f64 * 1e6;
    assert!((measured.tokens_per_s(1024) / expected - 1.0).abs() < 1e-3);
    assert_eq!(measured.memory_tokens, None);
}

#[test]
fn all_workers_run_at_once_and_one_alone() {
    let engine = timed(usize::MAX);
    measure(&engine, 3).expect("it runs");
    assert_eq!(engine.sessions.load(Ordering::SeqCst), 3);
    let runs = engine.runs.lock();
    let of =
        |rows, length| runs.iter().filter(|run| **run == Some(Bucket { rows, length })).count();
    // Each of the three workers has its own batch; single texts are run by one, too.
    for rows in [1, 4] {
        assert_eq!(of(rows, 128) % 3, 0);
        assert!(of(rows, 128) > 3 * ROUNDS_MIN);
    }
    assert!(of(1, 32) > ROUNDS_MIN && of(1, 64) > ROUNDS_MIN);
    assert_eq!(of(1, 512), 0);
}

#[test]
fn batches_that_do_not_fit_are_passed_over() {
    let measured = measure(&timed(300), 2).expect("smaller ones run");
    assert_eq!(measured.memory_tokens, Some(128));
}

#[test]
fn a_session_that_cannot_be_opened_is_an_error() {
    let error = measure(&timed(0), 2).expect_err("there is no memory");
    assert_eq!(error, EngineError::OutOfMemory("no session fits".to_owned()));
}

#[test]
fn a_batch_between_two_shapes_takes_the_smaller_one() {
    let engine = timed(usize::MAX);
    measure_batches(&engine, &[300], 1).expect("it runs");
    let mut runs: Vec<Bucket> = engine.runs.lock().iter().copied().flatten().collect();
    runs.sort_unstable();
    runs.dedup();
    let rows = |rows, length| Bucket { rows, length };
    assert_eq!(runs, [rows(1, 32), rows(1, 64), rows(1, 128), rows(2, 128)]);
}

#[test]
fn the_thread_of_a_text_alone_lives_until_its_waits_are_read() {
    let engine = timed(usize::MAX);
    let shapes = Shapes::on_cpu(512, MaxBatchTokens::DEFAULT);
    let workload = Workload { batches: Vec::new(), lengths: [32, 64] };
    // A session has a share of the engine until its thread drops it.
    let owners = || Arc::strong_count(&engine.runs);
    let alone = workload.alone(&engine, &shapes, &*engine.clock, owners);
    assert_eq!(alone, Ok((Duration::from_micros(1480), 2)));
}
