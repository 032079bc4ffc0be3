//! Windows of a text that is longer than the model takes.
//!
//! They overlap by the longest chunk, and by a quarter at least, so that a chunk of up to half a
//! window lies in one whole. Each chunk is pooled from the window in which it has most context on
//! its shorter side. A longer chunk, where no window holds it, has one of its own around it.

use std::ops::Range;

/// Which tokens of the text the model sees together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChunkWindows {
    /// Only those with chunks, in their order.
    pub(super) windows: Vec<Range<usize>>,
    /// Of each chunk.
    pub(super) of_chunks: Vec<usize>,
}

/// Windows of at most `size` tokens for chunks of a text of `tokens` tokens. A chunk that is longer
/// has the window of its start.
pub(super) fn plan(tokens: usize, size: usize, chunks: &[Range<usize>]) -> ChunkWindows {
    let longest = chunks.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    let step = (size - longest.clamp(size / 4, size / 2)).max(1);
    let last = tokens.saturating_sub(size);
    let regular = |number: usize| (number * step).min(last);
    let start_of = |chunk: &Range<usize>| {
        if chunk.len() >= size {
            return chunk.start;
        }
        // Those that may hold it: the regular ones around it, and one with the chunk in its middle.
        let first = chunk.end.saturating_sub(size).div_ceil(step);
        let around = (first..=chunk.start / step + 1).map(regular);
        let holds = |&start: &usize| start <= chunk.start && chunk.end <= start + size;
        let middle = chunk.start.saturating_sub((size - chunk.len()) / 2).min(last);
        let context = |&start: &usize| {
            let before = if start == 0 { usize::MAX } else { chunk.start - start };
            let behind = if start == last { usize::MAX } else { start + size - chunk.end };
            before.min(behind)
        };
        around.filter(holds).max_by_key(context).unwrap_or(middle)
    };
    let starts: Vec<usize> = chunks.iter().map(start_of).collect();
    let mut used = starts.clone();
    used.sort_unstable();
    used.dedup();
    let of = |start: &usize| used.binary_search(start).expect("it is one of them");
    let of_chunks = starts.iter().map(of).collect();
    let windows = used.iter().map(|&start| start..tokens.min(start + size)).collect();
    ChunkWindows { windows, of_chunks }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_text_is_one_window() {
        let windows = plan(20, 30, &[0..5, 15..20, 0..20]);
        assert_eq!(windows, ChunkWindows { windows: vec![0..20], of_chunks: vec![0, 0, 0] });
    }

    #[test]
    fn chunks_are_pooled_where_they_have_most_context() {
        // ChunkWindows 0..40, 30..70 and 60..100.
        let windows = plan(100, 40, &[0..10, 30..35, 33..38, 60..65, 62..67, 90..100]);
        assert_eq!(windows.windows, [0..40, 30..70, 60..100]);
        assert_eq!(windows.of_chunks, [0, 0, 1, 1, 1, 2]);
    }

    #[test]
    fn a_long_chunk_has_a_window_of_its_own() {
        let windows = plan(100, 40, &[0..20, 15..45, 50..95]);
        assert_eq!(windows.windows, [0..40, 10..50, 50..90]);
        assert_eq!(windows.of_chunks, [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_chunk_lies_in_its_window(
            tokens in 1_usize..400,
            size in 1_usize..90,
            places in prop::collection::vec((0_usize..400, 1_usize..120), 1..20),
        ) {
            let chunk = |(start, length): &(usize, usize)| {
                let start = start % tokens;
                start..tokens.min(start + length)
            };
            let chunks: Vec<Range<usize>> = places.iter().map(chunk).collect();
            let ChunkWindows { windows, of_chunks } = plan(tokens, size, &chunks);
            prop_assert_eq!(of_chunks.len(), chunks.len());
            prop_assert!(windows.windows(2).all(|pair| pair[0].start < pair[1].start));
            prop_assert!(windows.iter().all(|one| one.len() <= size && one.end <= tokens));
            for (chunk, window) in chunks.iter().zip(of_chunks) {
                let window = &windows[window];
                prop_assert!(window.start <= chunk.start);
                prop_assert!(chunk.end.min(chunk.start + size) <= window.end);
            }
        }
    }
}
