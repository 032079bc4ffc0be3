//! One loop for every fuzz target: it runs for a time, counts, and prints the seed of a failure.
//!
//! `DUOVEC_FUZZ_SECONDS` is the time of each target, which draws other numbers in each run then.
//! When it is not set a target runs for 2 s with the same numbers as always, so that a test of
//! unchanged code gives the same result. `DUOVEC_SEED` repeats one execution, the one that printed
//! it.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::variable;

const SECONDS: f64 = 2.0;
const USUAL_SEED: u64 = 11;

/// An execution takes microseconds or milliseconds; one that takes longer than this counts as hung.
const SLOWEST: Duration = Duration::from_secs(10);

/// Calls `execute` with other random numbers each time, until the time is over.
///
/// # Panics
/// When `execute` panics or one call takes longer than 10 s; the seed is printed before.
pub fn run_for(name: &str, mut execute: impl FnMut(&mut Rng)) {
    let mut run = |seed: u64| {
        let failure = Failure { name, seed };
        let begin = Instant::now();
        execute(&mut Rng::with_seed(seed));
        let took = begin.elapsed();
        assert!(took < SLOWEST, "one execution took {took:?}");
        drop(failure);
        took
    };
    if let Some(seed) = variable::<u64>("DUOVEC_SEED") {
        run(seed);
        return;
    }
    let asked = variable::<f64>("DUOVEC_FUZZ_SECONDS");
    let mut seeds = if asked.is_some() { Rng::new() } else { Rng::with_seed(USUAL_SEED) };
    let time = Duration::from_secs_f64(asked.unwrap_or(SECONDS));
    let begin = Instant::now();
    let (mut executions, mut slowest) = (0_u64, Duration::ZERO);
    while begin.elapsed() < time {
        slowest = slowest.max(run(seeds.u64(..)));
        executions += 1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{name}: {executions} executions in {seconds:.1} s, the slowest took {slowest:?}");
}

/// Tells how to repeat an execution when it panics.
struct Failure<'a> {
    name: &'a str,
    seed: u64,
}

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}: run the test again with DUOVEC_SEED={}", self.name, self.seed);
        }
    }
}

/// One of `choices`.
pub fn pick<'a, T: ?Sized>(rng: &mut Rng, choices: &[&'a T]) -> &'a T {
    choices[rng.usize(..choices.len())]
}

/// Changes bytes as a broken client or disk would: cut, overwritten, repeated, moved, flipped.
pub fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.usize(..=bytes.len());
    let until = rng.usize(at..=bytes.len()).min(at + 64);
    match rng.u8(..6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..until)),
        2 => {
            let again = bytes[at..until].to_vec();
            bytes.splice(at..at, again);
        }
        3 => bytes.insert(at, rng.u8(..)),
        4 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
        _ if at < bytes.len() => bytes[at] = rng.u8(..),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_failed_execution_fails_its_target() {
        let failed = catch_unwind(|| run_for("failing", |_| panic!("it fails")));
        assert!(failed.is_err());
    }

    #[test]
    fn damage_adds_few_bytes_and_mostly_changes_some() {
        let mut rng = Rng::with_seed(USUAL_SEED);
        let whole: Vec<u8> = (0..200).collect();
        let mut changed = 0;
        for _ in 0..1000 {
            let mut bytes = whole.clone();
            damage(&mut rng, &mut bytes);
            assert!(bytes.len() <= whole.len() + 64);
            changed += usize::from(bytes != whole);
        }
        assert!(changed > 800, "{changed} of 1000 were changed");
    }
}
