//! What is to run next: batches of token ids, and the state machine that plans them.
//!
//! Nothing here does I/O, starts a thread, reads a clock or can block.

pub mod batch;
mod refusal;
pub mod state;

pub use refusal::Refusal;
