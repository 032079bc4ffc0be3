//! duovec: dense and sparse vectors of a text in one pass of one resident multilingual model.
//!
//! `ARCHITECTURE.md` has the layers and invariants; a module uses only modules of lower layers.

// What everything stands on, and the pure parts.
pub mod allocator;
mod locks;
pub mod metrics;
pub mod progress;
// The model's files, the engines that run it, text to ids.
pub mod engine;
pub mod traces;
// Items to workers.
pub mod scheduler;
pub mod worker;
// The application.
pub mod health;
pub mod service;
// A corpus in one run.
mod corpus;
// The HTTP side.
pub mod http;
// The process.
mod cli;
pub mod descriptors;
mod shutdown;
mod supervisor;
mod telemetry;

pub use cli::run;
pub use shutdown::end;
