//! Texts that are all known, in batches whose rows are nearly full.
//!
//! A queue never knows what comes next, so [`plan`](super::plan) chooses among what waits. A file
//! of texts is known whole: the longest come first, and shorter ones fill what they leave.

use super::Bucket;
use super::plan::{ROW_TOKENS, Shapes};
use super::rows::Rows;

/// A batch of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedBatch {
    /// The shape that runs.
    pub bucket: Bucket,
    /// Which of the texts, in the order in which they are put into the rows.
    pub items: Vec<usize>,
}

/// Packs texts of these lengths in the largest batches of `shapes`. The longest come first, so that
/// no worker ends with a long batch alone. The same lengths and shapes give the same batches.
///
/// `None` when a text is longer than every shape.
pub fn pack(lengths: &[usize], shapes: &Shapes) -> Option<Vec<PackedBatch>> {
    let mut left: Vec<usize> = (0..lengths.len()).collect();
    left.sort_by_key(|&text| std::cmp::Reverse(lengths[text]));
    let mut batches = Vec::new();
    while let Some(&longest) = left.first() {
        if lengths[longest] > shapes.max_length() {
            return None;
        }
        let bucket = largest(lengths[longest], shapes);
        let mut rows = Rows::new(bucket);
        let (mut items, mut after) = (Vec::new(), Vec::with_capacity(left.len()));
        for text in left {
            match rows.are_full() || rows.put(lengths[text]).is_none() {
                true => after.push(text),
                false => items.push(text),
            }
        }
        left = after;
        let packed: Vec<usize> = items.iter().map(|&text| lengths[text]).collect();
        batches.push(PackedBatch { bucket: shapes.smallest(&packed, bucket), items });
    }
    Some(batches)
}

/// The largest batch whose rows hold a text of so many tokens and are not much longer.
fn largest(tokens: usize, shapes: &Shapes) -> Bucket {
    let own = shapes.row(tokens);
    let length = own.length.max(ROW_TOKENS.min(shapes.max_length()));
    let alike = shapes.prepared().iter().filter(|shape| shape.length == length);
    alike.max_by_key(|shape| shape.rows).copied().unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::limits::MaxBatchTokens;

    fn shapes(max_tokens: u64) -> Shapes {
        Shapes::on_cpu(512, MaxBatchTokens::new(max_tokens).expect("in range"))
    }

    #[test]
    fn every_text_is_packed_once_and_fits() {
        let lengths: Vec<usize> = (0..300).map(|at| 2 + at * at % 511).collect();
        for max_tokens in [256, 512, 2048] {
            let mut seen = vec![0; lengths.len()];
            for PackedBatch { bucket, items } in pack(&lengths, &shapes(max_tokens)).expect("fit") {
                let mut rows = Rows::new(bucket);
                for text in items {
                    assert!(rows.put(lengths[text]).is_some(), "{bucket:?}");
                    seen[text] += 1;
                }
                assert!(bucket.rows == 1 || bucket.tokens() <= max_tokens as usize);
            }
            assert!(seen.iter().all(|&times| times == 1));
        }
    }

    #[test]
    fn rows_of_common_texts_are_nearly_full() {
        let lengths: Vec<usize> = (0..512).map(|at| 5 + at * 7919 % 90).collect();
        let batches = pack(&lengths, &shapes(512)).expect("they fit");
        let run: usize = batches.iter().map(|batch| batch.bucket.tokens()).sum();
        let real = lengths.iter().sum::<usize>() as f64 / run as f64;
        assert!(real > 0.97, "{real}");
    }

    #[test]
    fn a_text_beyond_every_shape_cannot_be_packed() {
        assert_eq!(pack(&[3, 513], &shapes(512)), None);
        assert_eq!(pack(&[], &shapes(512)), Some(Vec::new()));
    }
}
