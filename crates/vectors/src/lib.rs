//! What becomes of a model's output: rows to dense vectors, weights of tokens to lexical weights.

pub mod dense;
pub mod small;
pub mod sparse;
pub mod tokens;
