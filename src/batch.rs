//! Token ids of a text, and batches of them that are padded to one length.

use std::ops::Deref;
use std::sync::Arc;

use thiserror::Error;

use crate::limits::{INTERACTIVE_ITEMS, INTERACTIVE_TOKENS};

pub mod cost;
pub(crate) mod packing;
pub mod plan;
pub(crate) mod warm_up;

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
    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.dense() && other.dense() || self.sparse() && other.sparse()
    }
}

/// Token ids of one text, special tokens included. Cheap to clone: the request keeps a copy for the
/// sparse selection while the batch runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenIds(Arc<[u32]>);

impl TokenIds {
    /// Copies `ids` once.
    pub fn new(ids: &[u32]) -> Self {
        Self(Arc::from(ids))
    }
}

impl Deref for TokenIds {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.0
    }
}

/// A shape that batches are padded to: `rows` texts, each padded to `length` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// Texts of the batch, padding rows included.
    pub rows: usize,
    /// Tokens of every row, padding tokens included.
    pub length: usize,
}

impl Bucket {
    /// Padded tokens: what the engine computes, whatever the texts are.
    pub const fn tokens(self) -> usize {
        self.rows * self.length
    }
}

/// The bucket of the fewest tokens that one text of `tokens` fits.
pub fn smallest_for(buckets: &[Bucket], tokens: usize) -> Option<Bucket> {
    let fits = buckets.iter().filter(|bucket| bucket.length >= tokens);
    fits.min_by_key(|bucket| (bucket.tokens(), bucket.length)).copied()
}

/// A batch that does not fit its bucket.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BatchError {
    #[error("a batch needs at least one item")]
    Empty,
    #[error("{items} items do not fit {rows} rows")]
    TooManyRows { items: usize, rows: usize },
    #[error("an item of {tokens} tokens does not fit a length of {length}")]
    TooLong { tokens: usize, length: usize },
}

/// Items that run together. `items.len() <= bucket.rows`, every item fits `bucket.length`.
#[derive(Debug, Clone)]
pub struct Batch {
    bucket: Bucket,
    items: Vec<TokenIds>,
    priority: Priority,
}

impl Batch {
    /// Checks that the items fit the bucket. Nobody waits for it, unless that is said.
    pub fn new(bucket: Bucket, items: Vec<TokenIds>) -> Result<Self, BatchError> {
        if items.is_empty() {
            return Err(BatchError::Empty);
        }
        if items.len() > bucket.rows {
            return Err(BatchError::TooManyRows { items: items.len(), rows: bucket.rows });
        }
        match items.iter().find(|item| item.len() > bucket.length) {
            Some(item) => Err(BatchError::TooLong { tokens: item.len(), length: bucket.length }),
            None => Ok(Self { bucket, items, priority: Priority::Bulk }),
        }
    }

    /// The same for requests of which the first in order has that priority.
    pub(crate) fn with_priority(self, priority: Priority) -> Self {
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

    /// The real rows, in the order of the output's rows.
    pub fn items(&self) -> &[TokenIds] {
        &self.items
    }

    /// Writes ids and mask as row-major `[rows, length]`, int32 or int64: every engine's layout.
    ///
    /// A padding row repeats `pad_token_id` with an empty mask; the graph answers it with zeros.
    ///
    /// # Panics
    /// When a slice is not `bucket.tokens()` long: the session allocated it for another bucket.
    #[cfg(any(test, feature = "openvino", feature = "tensorrt", feature = "tensorrt-rtx"))]
    pub(crate) fn fill<N: Copy + From<i32>>(
        &self,
        pad_token_id: u32,
        ids: &mut [N],
        mask: &mut [N],
    ) {
        let Bucket { rows, length } = self.bucket;
        assert!(ids.len() == rows * length && mask.len() == ids.len(), "buffers fit the bucket");
        ids.fill(pad_token_id.cast_signed().into());
        mask.fill(0.into());
        for (row, item) in self.items.iter().enumerate() {
            let start = row * length;
            for (slot, &id) in ids[start..start + item.len()].iter_mut().zip(item.iter()) {
                *slot = id.cast_signed().into();
            }
            mask[start..start + item.len()].fill(1.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_pads_rows_and_lengths() {
        let bucket = Bucket { rows: 3, length: 4 };
        let items = vec![TokenIds::new(&[0, 7, 2]), TokenIds::new(&[0, 2])];
        let batch = Batch::new(bucket, items).expect("two short items fit");
        let (mut ids, mut mask) = ([9; 12], [9; 12]);
        batch.fill(1, &mut ids, &mut mask);
        assert_eq!(ids, [0, 7, 2, 1, 0, 2, 1, 1, 1, 1, 1, 1]);
        assert_eq!(mask, [1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn items_that_do_not_fit_are_refused() {
        let bucket = Bucket { rows: 1, length: 2 };
        let short = TokenIds::new(&[0, 2]);
        let long = TokenIds::new(&[0, 5, 2]);
        assert_eq!(Batch::new(bucket, vec![]).err(), Some(BatchError::Empty));
        assert_eq!(
            Batch::new(bucket, vec![long]).err(),
            Some(BatchError::TooLong { tokens: 3, length: 2 })
        );
        assert_eq!(
            Batch::new(bucket, vec![short.clone(), short]).err(),
            Some(BatchError::TooManyRows { items: 2, rows: 1 })
        );
    }
}
