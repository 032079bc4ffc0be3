//! What random tests of all crates share: their seeds, and the loop of fuzz targets.
//!
//! `DUOVEC_FUZZ_SECONDS` is how long each such test runs, and `DUOVEC_SEED` repeats one run.

use std::env;
use std::str::FromStr;

mod fuzz;
mod seeds;

pub use fuzz::{damage, pick, run_for};
pub use seeds::Seeds;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let value = text.parse().ok();
    assert!(value.is_some(), "{name} is '{text}': set a number, or leave it out");
    value
}
