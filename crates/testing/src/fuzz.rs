//! One loop for every fuzz target, and what damages its inputs.
//!
//! `DUOVEC_FUZZ_SECONDS` is the time of each target, which draws other numbers in each run then.
//! When it is not set a target runs for 2 s with the same numbers as always, so that a test of
//! unchanged code gives the same result. `DUOVEC_SEED` repeats one execution, the one that printed
//! it.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::Seeds;

/// An execution takes microseconds or milliseconds; one that takes longer than this counts as hung.
const SLOWEST: Duration = Duration::from_secs(10);

/// Calls `execute` with other random numbers each time, until the time is over.
///
/// # Panics
/// When `execute` panics or one call takes longer than 10 s; the seed is printed before.
pub fn run_for(name: &'static str, mut execute: impl FnMut(&mut Rng)) {
    let mut slowest = Duration::ZERO;
    for seed in Seeds::for_a_while(name) {
        let begin = Instant::now();
        execute(&mut Rng::with_seed(seed));
        let took = begin.elapsed();
        assert!(took < SLOWEST, "one execution took {took:?}");
        slowest = slowest.max(took);
    }
    println!("{name}: the slowest execution took {slowest:?}");
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
        let mut rng = Rng::with_seed(11);
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
