//! The shapes of a GPU, which takes about the same time for all batches that are too small to fill
//! it: few shapes up to there, each with a graph of its own, and fine steps beyond.

use super::{ROWS, with_rows};
use crate::batch::Bucket;
use crate::limits::{MaxBatchRows, MaxBatchTokens};

/// Every shape that a model of `max_length` tokens is run with on a GPU whose time grows from
/// `knee` padded tokens on; ascending by length and rows.
///
/// Lengths step by 8 to 48 from 16 on, by 16 to 128, by 32 to 256, by 64 to 1024, then by at most a
/// sixteenth of themselves. Up to the knee rows are powers of four, and the most that stay within
/// it; beyond they step as on a CPU. So rows that fit below the knee are never padded over it.
pub fn gpu_ladder(
    max_length: usize,
    max_tokens: MaxBatchTokens,
    max_rows: MaxBatchRows,
    knee: usize,
) -> Vec<Bucket> {
    let rows = |length: usize| {
        let most_below = (knee / length).max(1);
        let below =
            (0..).map(|power| 4_usize.pow(power)).take_while(move |&rows| rows < most_below);
        let beyond = ROWS.into_iter().filter(move |&rows| rows > most_below);
        below.chain([most_below]).chain(beyond)
    };
    with_rows(lengths(max_length), max_tokens, max_rows, rows)
}

fn lengths(max_length: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut length = 16;
    while length < max_length {
        lengths.push(length);
        length += match length {
            ..48 => 8,
            48..128 => 16,
            128..256 => 32,
            _ => (1 << length.ilog2() >> 4).max(64),
        };
    }
    lengths.push(max_length);
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::plan::{BucketTable, bucket_ladder};

    fn tokens() -> MaxBatchTokens {
        MaxBatchTokens::new(8192).expect("in range")
    }

    fn ladder(max_length: usize, knee: usize) -> Vec<Bucket> {
        gpu_ladder(max_length, tokens(), MaxBatchRows::DEFAULT, knee)
    }

    #[test]
    fn there_are_few_shapes_up_to_the_knee() {
        let below = |ladder: &[Bucket]| ladder.iter().filter(|one| one.tokens() <= 1024).count();
        let cpu = bucket_ladder(512, tokens(), MaxBatchRows::DEFAULT);
        assert_eq!(below(&cpu), 150);
        assert_eq!(below(&ladder(512, 1024)), 53);
        assert_eq!(below(&ladder(8192, 1024)), 61);
    }

    #[test]
    fn a_batch_that_fits_below_the_knee_stays_there() {
        for knee in [64, 512, 2048] {
            let table = BucketTable::new(&ladder(512, knee));
            for length in 1..=512 {
                let padded = table.single(length).length;
                let most = (knee / padded).min(MaxBatchRows::DEFAULT.as_usize());
                for items in 1..=most {
                    let bucket = table.smallest(items, length);
                    assert!(bucket.rows >= items, "{items} x {length}: {bucket:?}");
                    assert!(bucket.tokens() <= knee, "{items} x {length}: {bucket:?}");
                }
            }
        }
    }

    #[test]
    fn beyond_the_knee_rows_step_as_on_a_cpu() {
        let rows = |ladder: Vec<Bucket>| -> Vec<usize> {
            let beyond = ladder.into_iter().filter(|one| one.length == 64 && one.tokens() > 1024);
            beyond.map(|bucket| bucket.rows).collect()
        };
        let cpu = rows(bucket_ladder(512, tokens(), MaxBatchRows::DEFAULT));
        assert_eq!(rows(ladder(512, 1024)), cpu);
        assert_eq!(cpu, [24, 32, 48, 64]);
    }

    #[test]
    fn the_longest_text_and_the_largest_batch_have_a_shape() {
        for max_length in [3, 16, 17, 512, 8192] {
            let ladder = ladder(max_length, 1024);
            assert_eq!(ladder.last().map(|bucket| bucket.length), Some(max_length));
            assert!(ladder.is_sorted_by_key(|bucket| (bucket.length, bucket.rows)));
            let single = ladder.iter().filter(|bucket| bucket.rows == 1).count();
            let lengths = ladder.chunk_by(|a, b| a.length == b.length).count();
            assert_eq!(single, lengths, "one text has a shape of each length");
        }
    }
}
