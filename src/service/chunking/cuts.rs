//! Where a text is cut.

use std::ops::Range;

use icu_segmenter::SentenceSegmenter;
use icu_segmenter::options::SentenceBreakInvariantOptions;

use super::{ChunkBy, ChunkFault};
use model::tokenize::Span;

/// A chunk of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its characters.
    pub(super) span: Span,
    /// Its tokens, of those of the text itself.
    pub(super) tokens: Range<usize>,
}

/// The chunks of the text at `input`, at most `most`, whose tokens stand at `places`. A text
/// without tokens is one chunk, unless the request says where its chunks are.
pub(super) fn cut(
    by: &ChunkBy,
    (input, text): (usize, &str),
    places: &[Span],
    most: usize,
) -> Result<Vec<Cut>, ChunkFault> {
    let few = |count: usize| if count > most { Err(ChunkFault::TooMany { most }) } else { Ok(()) };
    let runs = match by {
        ChunkBy::Spans(lists) => {
            let spans = lists.get(input).map_or(&[][..], |spans| spans);
            few(spans.len())?;
            return given(text, places, spans);
        }
        _ if places.is_empty() => {
            let span = Span { start: 0, end: text.chars().count() };
            return Ok(vec![Cut { span, tokens: 0..0 }]);
        }
        &ChunkBy::Tokens { size, overlap } => {
            let step = size - overlap;
            few(1 + places.len().saturating_sub(size).div_ceil(step))?;
            by_tokens(places.len(), size, step)
        }
        ChunkBy::Sentences { size } => by_sentences(text, places, *size),
    };
    few(runs.len())?;
    let of = |tokens: Range<usize>| {
        let (start, end) = (places[tokens.start].start, places[tokens.end - 1].end);
        Cut { span: Span { start, end }, tokens }
    };
    Ok(runs.into_iter().map(of).collect())
}

/// The last one may be shorter.
fn by_tokens(tokens: usize, size: usize, step: usize) -> Vec<Range<usize>> {
    let further = tokens.saturating_sub(size).div_ceil(step);
    (0..=further).map(|number| number * step..tokens.min(number * step + size)).collect()
}

/// Whole sentences, as many as have `size` tokens together; a longer one is cut into such pieces.
fn by_sentences(text: &str, places: &[Span], size: usize) -> Vec<Range<usize>> {
    let (mut runs, mut start, mut end) = (Vec::new(), 0, 0);
    for sentence_end in sentence_ends(text, places) {
        if end > start && sentence_end - start > size {
            runs.push(start..end);
            start = end;
        }
        while sentence_end - start > size {
            runs.push(start..start + size);
            start += size;
        }
        end = sentence_end;
    }
    if end > start {
        runs.push(start..end);
    }
    runs
}

/// How many tokens begin before the end of each sentence.
fn sentence_ends(text: &str, places: &[Span]) -> Vec<usize> {
    let segmenter = SentenceSegmenter::new(SentenceBreakInvariantOptions::default());
    let (mut byte, mut characters, mut tokens) = (0, 0, 0);
    let end = |end: usize| {
        characters += text[byte..end].chars().count();
        byte = end;
        let left = &places[tokens..];
        tokens += left.iter().take_while(|place| place.start < characters).count();
        tokens
    };
    segmenter.segment_str(text).map(end).collect()
}

/// Where the client says. A token on a border belongs to both of its sides.
fn given(text: &str, places: &[Span], spans: &[Span]) -> Result<Vec<Cut>, ChunkFault> {
    let characters = text.chars().count();
    let of = |(chunk, &span): (usize, &Span)| {
        if span.start >= span.end || span.end > characters {
            return Err(ChunkFault::Span { chunk, span, characters });
        }
        // An empty token marks the start of the word behind it.
        let is_before = |place: &Span| {
            place.end < span.start || place.end == span.start && place.start < place.end
        };
        let first = places.partition_point(is_before);
        let end = places.partition_point(|place| place.start < span.end);
        Ok(Cut { span, tokens: first..end.max(first) })
    };
    spans.iter().enumerate().map(of).collect()
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words of a text, as a tokenizer would place them.
    fn words(text: &str) -> Vec<Span> {
        let (mut places, mut start) = (Vec::new(), 0);
        for word in text.split(' ') {
            let end = start + word.chars().count();
            if end > start {
                places.push(Span { start, end });
            }
            start = end + 1;
        }
        places
    }

    fn runs(by: &ChunkBy, text: &str) -> Vec<Range<usize>> {
        let cuts = cut(by, (0, text), &words(text), 100).expect("it can be cut");
        cuts.into_iter().map(|cut| cut.tokens).collect()
    }

    #[test]
    fn chunks_by_tokens_go_on_behind_the_overlap() {
        let by = |size, overlap| ChunkBy::Tokens { size, overlap };
        let text = "a b c d e f g";
        assert_eq!(runs(&by(3, 0), text), [0..3, 3..6, 6..7]);
        assert_eq!(runs(&by(3, 1), text), [0..3, 2..5, 4..7]);
        assert_eq!(runs(&by(3, 2), "a b c d"), [0..3, 1..4]);
        assert_eq!(runs(&by(7, 6), text), [0..7]);
        assert_eq!(runs(&by(9, 0), text), [0..7]);
        let few = cut(&by(1, 0), (0, text), &words(text), 6);
        assert_eq!(few, Err(ChunkFault::TooMany { most: 6 }));
    }

    #[test]
    fn sentences_are_joined_and_long_ones_are_cut() {
        let text = "One two. Three! Four five six? Seven. 八 九。 十 十一。";
        let by = |size| ChunkBy::Sentences { size };
        assert_eq!(runs(&by(3), text), [0..3, 3..6, 6..9, 9..11]);
        assert_eq!(runs(&by(2), text), [0..2, 2..3, 3..5, 5..7, 7..9, 9..11]);
        assert_eq!(runs(&by(100), text), [0..11]);
        let cuts = cut(&by(3), (0, text), &words(text), 100).expect("it can be cut");
        assert_eq!(cuts[1].span, Span { start: 16, end: 30 });
    }

    #[test]
    fn a_text_without_tokens_is_one_chunk() {
        let cuts = cut(&ChunkBy::Sentences { size: 5 }, (0, " \n "), &[], 9).expect("legal");
        assert_eq!(cuts, [Cut { span: Span { start: 0, end: 3 }, tokens: 0..0 }]);
    }

    #[test]
    fn spans_have_the_tokens_that_they_touch() {
        let places = [(0, 3), (3, 5), (6, 6), (6, 8), (9, 12)];
        let places = places.map(|(start, end)| Span { start, end });
        let tokens = |start, end| {
            let by = ChunkBy::Spans(vec![vec![Span { start, end }]]);
            let cuts = cut(&by, (0, "abcde fg hij"), &places, 9).expect("it is within");
            cuts[0].tokens.clone()
        };
        assert_eq!(tokens(0, 3), 0..1);
        assert_eq!(tokens(2, 4), 0..2);
        assert_eq!(tokens(3, 6), 1..2);
        assert_eq!(tokens(6, 8), 2..4, "the mark of the word's start too");
        assert_eq!(tokens(5, 6), 2..2);
        assert_eq!(tokens(0, 12), 0..5);
        for (start, end) in [(3, 3), (4, 3), (0, 13), (13, 14)] {
            let span = Span { start, end };
            let refused = cut(&ChunkBy::Spans(vec![vec![span]]), (0, "abcde fg hij"), &places, 9);
            assert_eq!(refused, Err(ChunkFault::Span { chunk: 0, span, characters: 12 }));
        }
    }

    proptest! {
        #[test]
        fn chunks_of_sentences_have_each_token_once(text in "[ab.!?。 ]{0,80}", size in 1_usize..9) {
            let places = words(&text);
            let runs = by_sentences(&text, &places, size);
            prop_assert!(runs.iter().all(|run| run.len() <= size && !run.is_empty()));
            let tokens: Vec<usize> = runs.into_iter().flatten().collect();
            prop_assert_eq!(tokens, (0..places.len()).collect::<Vec<_>>());
        }
    }
}
