//! A model as files: its package, verified whole before anything is loaded from it, and its
//! tokenizer.

pub mod package;
pub mod tokenize;
