//! Simulated load on the scheduler's state machine. `--nocapture` prints the figures that decisions
//! 0042, 0044 and 0048 quote.

mod lanes;
mod overload;
mod promise;
mod rig;
