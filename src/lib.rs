//! duovec: dense and sparse vectors of a text in one pass of one resident multilingual model.
//!
//! `ARCHITECTURE.md` has the layers and invariants; a module uses only modules of lower layers.

// 0: pure parts and what everything stands on
pub mod batch;
pub mod clock;
pub mod config;
pub mod dense;
pub mod limits;
pub mod sparse;
// 1: the model's files and the engines
pub mod engine;
pub mod package;
// 2: text to ids, items to workers
pub mod tokenize;
// 3: the application
pub mod health;
pub mod service;
