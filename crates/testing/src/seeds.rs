//! Seeds of tests with random events: the usual ones, or others for as long as asked, or one again.
//!
//! `DUOVEC_FUZZ_SECONDS` is how long each such test runs. `DUOVEC_SEED` repeats one run, the one
//! that printed it.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::variable;

/// The seeds of one test. Prints the last one when the test panics.
pub struct Seeds {
    test: &'static str,
    usual: Range<u64>,
    /// Random seeds until then instead.
    until: Option<Instant>,
    last: Option<u64>,
    runs: u64,
}

impl Seeds {
    /// `usual` when nothing else is asked for.
    pub fn new(test: &'static str, usual: Range<u64>) -> Self {
        let one_again = variable::<u64>("DUOVEC_SEED");
        let seconds = variable::<f64>("DUOVEC_FUZZ_SECONDS").map(Duration::from_secs_f64);
        let until = seconds.map(|time| Instant::now() + time).filter(|_| one_again.is_none());
        let usual = one_again.map_or(usual, |seed| seed..seed.saturating_add(1));
        Self { test, usual, until, last: None, runs: 0 }
    }
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.last = match self.until {
            Some(until) => (Instant::now() < until).then(|| fastrand::u64(..)),
            None => self.usual.next(),
        };
        self.runs += u64::from(self.last.is_some());
        self.last
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        let (test, runs) = (self.test, self.runs);
        match self.last {
            Some(seed) if thread::panicking() => {
                eprintln!("{test}: run the test again with DUOVEC_SEED={seed}");
            }
            _ => println!("{test}: {runs} runs"),
        }
    }
}
