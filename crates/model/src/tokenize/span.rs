//! Where tokens stand in a text.
//!
//! The tokenizer gives ids alone, and how long each token is in the normal form. The text is walked
//! a second time, only when somebody asks: each character of the normal form comes from some
//! characters of the text, and a token has those of all its characters.

use std::ops::Range;

/// A stretch of a text, in Unicode code points: `text[start:end]` in Python. It is empty for a
/// token that no character of the text has made, such as the mark of a word's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first code point.
    pub start: usize,
    /// Behind the last code point.
    pub end: usize,
}

impl Span {
    /// The same stretch, counted from `origin` on.
    pub(super) const fn since(self, origin: usize) -> Self {
        Self { start: self.start.saturating_sub(origin), end: self.end.saturating_sub(origin) }
    }
}

impl From<Range<usize>> for Span {
    fn from(Range { start, end }: Range<usize>) -> Self {
        Self { start, end }
    }
}

/// Puts characters of the normal form together to tokens.
pub(super) struct SpanCollector<'a> {
    /// Of the tokens that are still to come, in characters of the normal form.
    lengths: std::slice::Iter<'a, usize>,
    /// Characters that the current token still lacks.
    missing: usize,
    current: Option<Span>,
    spans: Vec<Span>,
}

impl<'a> SpanCollector<'a> {
    pub(super) fn new(lengths: &'a [usize]) -> Self {
        let spans = Vec::with_capacity(lengths.len());
        let mut lengths = lengths.iter();
        let missing = lengths.next().copied().unwrap_or(0);
        Self { lengths, missing, current: None, spans }
    }

    pub(super) fn take(&mut self, source: Range<usize>) {
        if self.is_full() {
            return;
        }
        let source = Span::from(source);
        self.current = Some(match self.current {
            Some(current) if current.start == current.end => source,
            Some(current) if source.start == source.end => current,
            Some(current) => Span { start: current.start, end: source.end },
            None => source,
        });
        self.missing -= 1;
        if self.missing == 0 {
            self.spans.extend(self.current.take());
            self.missing = self.lengths.next().copied().unwrap_or(0);
        }
    }

    /// Whether every token has its span.
    pub(super) const fn is_full(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn into_spans(self) -> Vec<Span> {
        self.spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_characters_that_made_it() {
        let mut collector = SpanCollector::new(&[3, 1, 2]);
        // `▁fi` of a ligature, `▁` of nothing, `ab` of two characters; then more than is asked for.
        for source in [0..0, 0..1, 0..1, 2..2, 2..3, 3..4, 4..5] {
            collector.take(source);
        }
        assert!(collector.is_full());
        let spans: Vec<_> = collector.into_spans().iter().map(|s| (s.start, s.end)).collect();
        assert_eq!(spans, [(0, 1), (2, 2), (2, 4)]);
    }

    #[test]
    fn no_tokens_have_no_spans() {
        let collector = SpanCollector::new(&[]);
        assert!(collector.is_full() && collector.into_spans().is_empty());
    }
}
