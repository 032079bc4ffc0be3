//! What becomes of a model's output: rows to dense vectors, weights of tokens to lexical weights.

pub mod dense;
pub mod small;
pub mod sparse;
pub mod tokens;

/// Rows of one text that ran; those that were not wanted are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ItemRows {
    /// `hidden_size` floats for each of the text's dense vectors.
    pub dense: Vec<f32>,
    /// One float for each of the text's tokens, or for each of `words`.
    pub weights: Vec<f32>,
    /// The words that have weights, of a model that weighs any words.
    pub words: Vec<u32>,
    /// The vectors of the text's tokens, one behind the other.
    pub token_vectors: Vec<f32>,
}
