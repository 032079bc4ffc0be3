//! Tests on a clock that stands still while there is work, and jumps to the next timer when all
//! wait for one.

use std::future::Future;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Runs a test.
pub(super) fn run<F: Future>(test: F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), test)
}
