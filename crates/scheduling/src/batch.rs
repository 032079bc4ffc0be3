//! Token ids of a text, and batches of them: rows of one length, each with several texts.

use std::ops::Range;

use serde::Deserialize;
use thiserror::Error;

pub use rows::Place;
use rows::{Rows, TEXT_MIN};
use settings::limits::{INTERACTIVE_ITEMS, INTERACTIVE_TOKENS};
pub use token_ids::TokenIds;

pub mod cost;
pub mod packing;
pub mod plan;
mod rows;
mod token_ids;
pub mod warm_up;

/// Which requests go first. Interactive items do; bulk items have a guaranteed share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for the answer.
    Interactive,
    /// There is much to do, and nobody waits for a single text: throughput counts.
    Bulk,
}

impl Priority {
    /// The priority of a request that does not name one: interactive when it is small.
    pub const fn of(items: usize, tokens: usize) -> Self {
        if items <= INTERACTIVE_ITEMS && tokens <= INTERACTIVE_TOKENS {
            Self::Interactive
        } else {
            Self::Bulk
        }
    }

    /// The other one of the two.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Interactive => Self::Bulk,
            Self::Bulk => Self::Interactive,
        }
    }
}

/// Which vectors are wanted; one pass of the model gives both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vectors {
    /// A dense vector alone.
    Dense,
    /// A sparse vector alone.
    Sparse,
    /// Both, of the same run.
    Both,
}

impl Vectors {
    /// Whether dense rows are wanted.
    pub const fn dense(self) -> bool {
        matches!(self, Self::Dense | Self::Both)
    }

    /// Whether sparse vectors, and for them token weights, are wanted.
    pub const fn sparse(self) -> bool {
        matches!(self, Self::Sparse | Self::Both)
    }

    /// Whether something belongs to both.
    pub const fn overlaps(self, other: Self) -> bool {
        self.dense() && other.dense() || self.sparse() && other.sparse()
    }
}

/// Which tokens of a whole text its dense vector is made of. That of a part of a text is made of
/// all tokens of the part, since no token stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The first one.
    Cls,
    /// All of them, each counting alike.
    Mean,
    /// The last one.
    Last,
}

impl Pooling {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Cls, Self::Mean, Self::Last];

    /// The word of the manifest and of the exporter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Mean => "mean",
            Self::Last => "last",
        }
    }

    /// The tokens of a text of so many tokens that its vector is made of.
    pub const fn tokens(self, length: usize) -> Range<usize> {
        match self {
            Self::Cls => 0..1,
            Self::Mean => 0..length,
            Self::Last => length - 1..length,
        }
    }
}

/// A batch's shape: `rows`, each of `length` tokens. Several texts share a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// Rows, those without a text included.
    pub rows: usize,
    /// Tokens of every row, those of no text included.
    pub length: usize,
}

impl Bucket {
    /// Tokens of all rows: what the engine computes, whatever the texts are.
    pub const fn tokens(self) -> usize {
        self.rows * self.length
    }

    /// Dense vectors that each row gives. The length alone says it, so that batches of one shape
    /// are alike for the engine.
    pub const fn spans(self) -> usize {
        if self.length < TEXT_MIN { 1 } else { self.length / TEXT_MIN }
    }
}

/// A batch that does not fit its bucket.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BatchError {
    #[error("a batch needs at least one item")]
    Empty,
    #[error("{items} items do not fit {rows} rows of {length} tokens")]
    TooMany { items: usize, rows: usize, length: usize },
    #[error("an item that takes {tokens} tokens does not fit a row of {length}")]
    TooLong { tokens: usize, length: usize },
}

/// Items that run together. No row has more tokens than its length.
#[derive(Debug, Clone)]
pub struct Batch {
    bucket: Bucket,
    items: Vec<TokenIds>,
    places: Vec<Place>,
    priority: Priority,
}

/// The inputs of a graph, row-major: `[rows, length]` each, and `[rows, spans, length]`.
#[derive(Debug)]
pub struct GraphInputs<'a> {
    /// The padding id where no text is.
    pub input_ids: &'a mut [i32],
    /// Place of a token in its text, from 0; 0 where no text is.
    pub positions: &'a mut [i32],
    /// Which text of its row a token belongs to, from 0; -1 where no text is.
    pub segments: &'a mut [i32],
    /// How much each token counts in each dense vector of its row.
    pub span_weights: &'a mut [f32],
}

impl Batch {
    /// Puts each item, in their order, into the first row that has room for it. Nobody waits for
    /// the batch, unless that is said.
    pub fn new(bucket: Bucket, items: Vec<TokenIds>) -> Result<Self, BatchError> {
        let Bucket { rows, length } = bucket;
        if items.is_empty() {
            return Err(BatchError::Empty);
        }
        if let Some(item) = items.iter().find(|item| item.room() > length) {
            return Err(BatchError::TooLong { tokens: item.room(), length });
        }
        let mut room = Rows::new(bucket);
        let places: Option<Vec<Place>> = items.iter().map(|item| room.put_text(item)).collect();
        let places = places.ok_or(BatchError::TooMany { items: items.len(), rows, length })?;
        Ok(Self { bucket, items, places, priority: Priority::Bulk })
    }

    /// Puts as many of `items` into the rows as there is room for.
    ///
    /// # Errors
    /// As [`Batch::new`], when the first one does not fit.
    pub fn filled(bucket: Bucket, mut items: Vec<TokenIds>) -> Result<Self, BatchError> {
        let mut room = Rows::new(bucket);
        let fitting = items.iter().take_while(|item| room.put_text(item).is_some()).count();
        items.truncate(fitting.max(1));
        Self::new(bucket, items)
    }

    /// The same for requests of which the first in order has that priority.
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Interactive when somebody waits for one of its items. A device that runs several batches
    /// begins with those.
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// The shape that runs.
    pub const fn bucket(&self) -> Bucket {
        self.bucket
    }

    /// The texts, in the order in which they were given.
    pub fn items(&self) -> &[TokenIds] {
        &self.items
    }

    /// Where each item lies.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether the vectors of some text's tokens are wanted.
    pub fn wants_token_vectors(&self) -> bool {
        self.items.iter().any(TokenIds::wants_token_vectors)
    }

    /// Whether the item has a row of its own.
    pub fn is_alone(&self, item: usize) -> bool {
        let row = self.places[item].row;
        self.places.iter().filter(|place| place.row == row).count() == 1
    }

    /// Writes all inputs.
    ///
    /// # Panics
    /// When a slice has another size than the bucket says: the session allocated it for another.
    pub fn fill(&self, pooling: Pooling, pad_token_id: u32, inputs: GraphInputs<'_>) {
        let GraphInputs { input_ids, positions, segments, span_weights } = inputs;
        let (tokens, length, spans) =
            (self.bucket.tokens(), self.bucket.length, self.bucket.spans());
        assert!([&*input_ids, &*positions, &*segments].map(<[i32]>::len) == [tokens; 3]);
        assert!(span_weights.len() == tokens * spans, "buffers fit the bucket");
        input_ids.fill(pad_token_id.cast_signed());
        positions.fill(0);
        segments.fill(-1);
        span_weights.fill(0.0);
        for (item, place) in self.items.iter().zip(&self.places) {
            let start = place.row * length + place.start;
            let range = start..start + item.len();
            for (slot, &id) in input_ids[range.clone()].iter_mut().zip(item.iter()) {
                *slot = id.cast_signed();
            }
            for (slot, position) in positions[range.clone()].iter_mut().zip(0..) {
                *slot = position;
            }
            segments[range].fill(i32::try_from(place.segment).unwrap_or(i32::MAX));
            for (number, part) in (place.span..).zip(item.spans()) {
                let span = if item.parts().is_some() { part } else { pooling.tokens(item.len()) };
                let start = (place.row * spans + number) * length + place.start;
                let weights = &mut span_weights[start + span.start..start + span.end];
                weights.fill((span.len() as f32).recip());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The integers and the weights of a batch of these items.
    fn filled(pooling: Pooling, bucket: Bucket, items: Vec<TokenIds>) -> ([Vec<i32>; 3], Vec<f32>) {
        let batch = Batch::new(bucket, items).expect("the items fit");
        let mut integers = [0; 3].map(|_| vec![9; bucket.tokens()]);
        let mut span_weights = vec![9.0; bucket.tokens() * bucket.spans()];
        let [input_ids, positions, segments] = &mut integers;
        let span_weights_of = &mut span_weights;
        let inputs = GraphInputs { input_ids, positions, segments, span_weights: span_weights_of };
        batch.fill(pooling, 1, inputs);
        (integers, span_weights)
    }

    #[test]
    fn texts_are_told_apart_in_their_row() {
        let bucket = Bucket { rows: 1, length: 16 };
        let ([ids, positions, segments], weights) =
            filled(Pooling::Mean, bucket, [&[0, 7, 8, 2][..], &[0, 2]].map(TokenIds::new).into());
        assert_eq!(ids[..7], [0, 7, 8, 2, 0, 2, 1]);
        assert_eq!(positions[..7], [0, 1, 2, 3, 0, 1, 0]);
        assert_eq!(segments[..7], [0, 0, 0, 0, 1, 1, -1]);
        assert_eq!(weights[..5], [0.25, 0.25, 0.25, 0.25, 0.0]);
        assert_eq!(weights[16 + 3..16 + 7], [0.0, 0.5, 0.5, 0.0]);
        assert!(segments[6..].iter().all(|&segment| segment == -1));
    }

    #[test]
    fn one_token_stands_for_its_text_with_cls_and_last_pooling() {
        let bucket = Bucket { rows: 2, length: 16 };
        for (pooling, tokens) in
            [(Pooling::Cls, [0, 16 + 8, 32]), (Pooling::Last, [7, 16 + 10, 32 + 8])]
        {
            let items = [8, 9, 3].map(|length| TokenIds::new(&vec![5; length]));
            let (_, weights) = filled(pooling, bucket, items.into());
            let ones: Vec<usize> = (0..64).filter(|&place| weights[place] == 1.0).collect();
            assert_eq!((ones, weights.iter().sum()), (tokens.to_vec(), 3.0), "{pooling:?}");
        }
    }

    #[test]
    fn each_part_of_a_text_counts_its_own_tokens_whatever_the_pooling() {
        let bucket = Bucket { rows: 1, length: 32 };
        let parted = TokenIds::new(&[5; 6]).with_parts(&[1..3, 2..5]);
        for pooling in Pooling::ALL {
            let items = vec![TokenIds::new(&[6]), parted.clone(), TokenIds::new(&[7])];
            let ([_, positions, segments], weights) = filled(pooling, bucket, items);
            assert_eq!(positions[..9], [0, 0, 1, 2, 3, 4, 5, 0, 0]);
            assert_eq!(segments[..9], [0, 1, 1, 1, 1, 1, 1, 2, -1]);
            let third = 3.0_f32.recip();
            assert_eq!(weights[32..][..8], [0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
            assert_eq!(weights[64..][..8], [0.0, 0.0, 0.0, third, third, third, 0.0, 0.0]);
            assert_eq!(weights[96..][7], 1.0);
        }
    }

    #[test]
    fn items_that_do_not_fit_are_refused() {
        let bucket = Bucket { rows: 1, length: 16 };
        let item = |tokens| TokenIds::new(&vec![0; tokens]);
        assert_eq!(Batch::new(bucket, vec![]).err(), Some(BatchError::Empty));
        assert_eq!(
            Batch::new(bucket, vec![item(17)]).err(),
            Some(BatchError::TooLong { tokens: 17, length: 16 })
        );
        let parts = item(5).with_parts(&[0..1, 1..2, 2..3]);
        assert_eq!(
            Batch::new(bucket, vec![parts]).err(),
            Some(BatchError::TooLong { tokens: 24, length: 16 })
        );
        let short = vec![item(2); 3];
        let refused = Some(BatchError::TooMany { items: 3, rows: 1, length: 16 });
        assert_eq!(Batch::new(bucket, short).err(), refused);
    }
}
