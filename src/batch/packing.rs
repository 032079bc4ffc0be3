//! Texts that are all known, sorted by length, in batches that waste little.
//!
//! A queue never knows what comes next, so [`plan`](super::plan) chooses among what waits. A file
//! of texts is known whole: neighbours in length share a batch, and each batch is full.

use std::ops::Range;

use super::Bucket;

/// A batch of neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackedBatch {
    /// The shape that runs.
    pub bucket: Bucket,
    /// Which of the sorted texts.
    pub items: Range<usize>,
}

/// Packs texts of these lengths, which ascend, in batches of at most `budget` padded tokens; a text
/// that is longer alone is a batch of its own. The longest come first, so that no worker ends with
/// a long batch alone. The same lengths, buckets and budget give the same batches.
///
/// `None` when a text is longer than every bucket.
pub(crate) fn pack(
    lengths: &[usize],
    buckets: &[Bucket],
    budget: usize,
) -> Option<Vec<PackedBatch>> {
    let fits = |bucket: &&Bucket, length: usize| {
        bucket.length >= length && (bucket.rows == 1 || bucket.tokens() <= budget)
    };
    let mut batches = Vec::new();
    let mut end = lengths.len();
    while end > 0 {
        let longest = lengths[end - 1];
        let fitting = buckets.iter().filter(|bucket| fits(bucket, longest));
        let length = fitting.clone().map(|bucket| bucket.length).min();
        let of_length = fitting.filter(|bucket| Some(bucket.length) == length);
        // The fewest rows that hold what is left, or the most there are.
        let best = of_length.min_by_key(|bucket| (bucket.rows < end, bucket.rows.abs_diff(end)));
        let bucket = *best?;
        let start = end.saturating_sub(bucket.rows);
        batches.push(PackedBatch { bucket, items: start..end });
        end = start;
    }
    Some(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::plan::bucket_ladder;
    use crate::limits::{MaxBatchRows, MaxBatchTokens};

    fn buckets() -> Vec<Bucket> {
        let tokens = MaxBatchTokens::new(2048).expect("in range");
        bucket_ladder(512, tokens, MaxBatchRows::DEFAULT)
    }

    #[test]
    fn every_text_is_packed_once_within_the_budget() {
        let mut lengths: Vec<usize> = (0..300).map(|at| 2 + at * at % 511).collect();
        lengths.sort_unstable();
        for budget in [256, 512, 2048] {
            let batches = pack(&lengths, &buckets(), budget).expect("they fit");
            let mut end = lengths.len();
            for PackedBatch { bucket, items } in batches {
                assert_eq!(items.end, end, "each text is in one batch");
                assert!(items.len() <= bucket.rows && lengths[items.end - 1] <= bucket.length);
                assert!(bucket.rows == 1 || bucket.tokens() <= budget);
                end = items.start;
            }
            assert_eq!(end, 0);
        }
    }

    #[test]
    fn equal_lengths_are_packed_without_padding() {
        let batches = pack(&[16; 64], &buckets(), 512).expect("they fit");
        assert!(batches.iter().all(|batch| batch.items.len() == batch.bucket.rows));
        assert_eq!(batches.len(), 2);
    }

    #[test]
    fn a_text_beyond_every_bucket_cannot_be_packed() {
        assert_eq!(pack(&[3, 513], &buckets(), 512), None);
        assert_eq!(pack(&[], &buckets(), 512), Some(Vec::new()));
    }
}
