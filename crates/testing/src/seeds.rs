//! Seeds of tests with random events: the usual ones, or others for as long as asked, or one again.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::variable;

const USUAL_SECONDS: f64 = 2.0;
const USUAL_SEED: u64 = 11;

/// The seeds of one test. Prints the last one when the test panics.
pub struct Seeds {
    test: &'static str,
    seeds: Box<dyn Iterator<Item = u64>>,
    last: Option<u64>,
    runs: u64,
}

impl Seeds {
    /// `usual` when nothing else is asked for.
    pub fn new(test: &'static str, usual: impl Iterator<Item = u64> + 'static) -> Self {
        let one_again = variable("DUOVEC_SEED").map(std::iter::once);
        let seconds = variable("DUOVEC_FUZZ_SECONDS");
        let seeds: Box<dyn Iterator<Item = u64>> = match (one_again, seconds) {
            (Some(seed), _) => Box::new(seed),
            (None, Some(seconds)) => Box::new(drawn(Rng::new(), seconds)),
            (None, None) => Box::new(usual),
        };
        Self { test, seeds, last: None, runs: 0 }
    }

    /// As many as there is time for in 2 s, always the same ones, when nothing else is asked for.
    pub(crate) fn for_a_while(test: &'static str) -> Self {
        Self::new(test, drawn(Rng::with_seed(USUAL_SEED), USUAL_SECONDS))
    }
}

/// Random seeds until so many seconds are over.
fn drawn(mut random: Rng, seconds: f64) -> impl Iterator<Item = u64> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    std::iter::from_fn(move || (Instant::now() < until).then(|| random.u64(..)))
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.last = self.seeds.next();
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
