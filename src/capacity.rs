//! How many servers a load needs, by simulation: the scheduler's own state machine and planner,
//! with run times from a cost model instead of an engine.
//!
//! Nothing here does I/O or reads a clock. The same load, servers and seed give the same figures.

pub(crate) mod fleet;
pub(crate) mod load;
pub mod server;
pub mod simulation;

#[cfg(test)]
mod tests;
