//! A text as it runs: its token ids, and which of them each of its dense vectors is made of.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::rows::TEXT_MIN;

/// Token ids of one text, special tokens included. Cheap to clone: the request keeps a copy for the
/// sparse selection while the batch runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenIds {
    ids: Arc<[u32]>,
    /// Runs of tokens, each with a dense vector of its own; `None` for one of the whole text.
    parts: Option<Arc<[Range<usize>]>>,
    /// Whether the vectors of its tokens are wanted too, each of which takes kilobytes.
    token_vectors: bool,
}

impl TokenIds {
    /// Copies `ids` once. The text has one dense vector.
    pub fn new(ids: &[u32]) -> Self {
        Self { ids: Arc::from(ids), parts: None, token_vectors: false }
    }

    /// The same text with a dense vector for each of `parts`, which may overlap.
    ///
    /// # Panics
    /// Without parts, or with one that is empty or ends behind the text.
    #[must_use]
    pub fn with_parts(self, parts: &[Range<usize>]) -> Self {
        let is_within = |part: &Range<usize>| part.start < part.end && part.end <= self.ids.len();
        assert!(!parts.is_empty() && parts.iter().all(is_within), "parts have tokens of the text");
        Self { parts: Some(Arc::from(parts)), ..self }
    }

    /// The same text whose tokens' vectors are wanted too. It shares no run with one without them.
    #[must_use]
    pub fn with_token_vectors(self) -> Self {
        Self { token_vectors: true, ..self }
    }

    /// Whether the vectors of its tokens are wanted too.
    pub const fn wants_token_vectors(&self) -> bool {
        self.token_vectors
    }

    /// The parts that have a vector each; `None` when the whole text has one.
    pub(crate) fn parts(&self) -> Option<&[Range<usize>]> {
        self.parts.as_deref()
    }

    /// Its spans, in the order of its dense vectors.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        let count = self.parts().map_or(1, <[_]>::len);
        (0..count).map(|span| self.parts().map_or(0..self.ids.len(), |parts| parts[span].clone()))
    }

    /// Tokens of a row that it takes: its own, and enough for its dense vectors.
    pub fn room(&self) -> usize {
        self.ids.len().max(self.parts().map_or(0, <[_]>::len) * TEXT_MIN)
    }
}

impl Deref for TokenIds {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_room_for_its_tokens_and_its_vectors() {
        let text = TokenIds::new(&[7; 20]);
        assert_eq!((text.room(), text.spans().len()), (20, 1));
        assert_eq!(text.spans().next(), Some(0..20));
        let two = text.clone().with_parts(&[1..9, 5..19]);
        let spans: Vec<_> = two.spans().collect();
        assert_eq!((two.room(), spans), (20, vec![1..9, 5..19]));
        assert_ne!(two, text);
        assert_ne!(text.clone().with_token_vectors(), text);
        assert_eq!(text.with_parts(&[1..2, 2..3, 3..4]).room(), 24);
        assert_eq!(TokenIds::new(&[0, 2]).room(), 2);
    }
}
