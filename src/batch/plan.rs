//! Decides what runs next. The shapes of batches are here; `plan/waiting` chooses among the items
//! that wait.

use std::collections::BTreeMap;

use crate::batch::Bucket;
use crate::limits::{MaxBatchRows, MaxBatchTokens};

mod gpu_ladder;
mod waiting;

pub use gpu_ladder::gpu_ladder;
pub use waiting::{BatchPlan, Sequence, WaitingItem, WaitingItems};

/// Rows that a batch may have; steps of at most a half waste at most a third of the rows.
const ROWS: [usize; 18] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024, 2048, 4096];

/// Every shape that a model of `max_length` tokens is run with on a CPU, ascending by length and
/// rows.
///
/// Lengths step by 8 to 96, by 16 to 192, by 32 to 256, by 64 to 1024, then by at most a sixteenth
/// of themselves. A batch stays within both
/// limits, but one row may always run; the most rows within them are always among the choices.
pub fn bucket_ladder(
    max_length: usize,
    max_tokens: MaxBatchTokens,
    max_rows: MaxBatchRows,
) -> Vec<Bucket> {
    with_rows(lengths(max_length), max_tokens, max_rows, |_| ROWS.into_iter())
}

/// Each length with those of its rows, which ascend, that are within both limits.
fn with_rows<Rows: Iterator<Item = usize>>(
    lengths: Vec<usize>,
    max_tokens: MaxBatchTokens,
    max_rows: MaxBatchRows,
    rows: impl Fn(usize) -> Rows,
) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    for length in lengths {
        let most = (max_tokens.as_usize() / length).clamp(1, max_rows.as_usize());
        let fewer = rows(length).take_while(|&rows| rows < most);
        buckets.extend(fewer.chain([most]).map(|rows| Bucket { rows, length }));
    }
    buckets
}

fn lengths(max_length: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut length = 8;
    while length < max_length {
        lengths.push(length);
        length += match length {
            ..96 => 8,
            96..192 => 16,
            192..256 => 32,
            // A sixteenth of the power of two below: 64 from 1024, 128 from 2048.
            _ => (1 << length.ilog2() >> 4).max(64),
        };
    }
    lengths.push(max_length);
    lengths
}

/// All buckets of one length.
#[derive(Debug, Clone)]
struct LengthClass {
    length: usize,
    /// Ascending.
    rows: Vec<usize>,
}

impl LengthClass {
    fn max_rows(&self) -> usize {
        *self.rows.last().expect("a class is made from at least one bucket")
    }

    /// Index of the smallest number of rows that holds `items`, or of the largest number.
    fn step(&self, items: usize) -> usize {
        self.rows.partition_point(|&rows| rows < items).min(self.rows.len() - 1)
    }
}

/// The engine's buckets by length.
#[derive(Debug, Clone)]
pub struct BucketTable {
    classes: Vec<LengthClass>,
}

impl BucketTable {
    /// Sorts the buckets; their order does not matter.
    pub fn new(buckets: &[Bucket]) -> Self {
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for bucket in buckets {
            by_length.entry(bucket.length).or_default().push(bucket.rows);
        }
        let class = |(length, mut rows): (usize, Vec<usize>)| {
            rows.sort_unstable();
            LengthClass { length, rows }
        };
        Self { classes: by_length.into_iter().map(class).collect() }
    }

    /// Longest item that can be run; 0 without any bucket.
    pub(crate) fn max_length(&self) -> usize {
        self.classes.last().map_or(0, |class| class.length)
    }

    /// The class of the shortest bucket that an item of `tokens` fits; the last for a longer one.
    fn class_of(&self, tokens: usize) -> usize {
        let class = self.classes.partition_point(|class| class.length < tokens);
        class.min(self.classes.len().saturating_sub(1))
    }

    /// The smallest bucket for one item.
    pub fn single(&self, tokens: usize) -> Bucket {
        self.smallest(1, tokens)
    }

    /// The smallest bucket for `items` items of at most `tokens` tokens; the one with the most rows
    /// when there are more items.
    pub fn smallest(&self, items: usize, tokens: usize) -> Bucket {
        let class = &self.classes[self.class_of(tokens)];
        Bucket { rows: class.rows[class.step(items)], length: class.length }
    }
}

#[cfg(test)]
mod tests;
