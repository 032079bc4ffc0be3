//! What a run has done so far; counted by its threads, shown by whoever wants to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one run. What earlier runs did is in `bytes` alone.
#[derive(Debug, Default)]
pub(crate) struct CorpusProgress {
    texts: AtomicU64,
    tokens: AtomicU64,
    padded_tokens: AtomicU64,
    /// Of the input, whose rows are embedded.
    bytes: AtomicU64,
    /// Of the whole input; 0 when it is not known.
    length: u64,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Done {
    pub(crate) texts: u64,
    pub(crate) tokens: u64,
    /// Tokens that were run, padding included.
    pub(crate) padded_tokens: u64,
    /// How much of the input is done, from 0 to 1; `None` when its length is not known.
    pub(crate) part: Option<f64>,
}

impl CorpusProgress {
    /// Of an input of so many bytes; 0 when it is not known.
    pub(crate) fn of(length: u64) -> Self {
        Self { length, ..Self::default() }
    }

    pub(super) fn ran(&self, texts: usize, tokens: usize, padded_tokens: usize, bytes: f64) {
        self.texts.fetch_add(texts as u64, Ordering::Relaxed);
        self.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
        self.padded_tokens.fetch_add(padded_tokens as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A window of an earlier run was passed over.
    pub(super) fn passed(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn done(&self) -> Done {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (length, bytes) = (self.length, read(&self.bytes));
        Done {
            texts: read(&self.texts),
            tokens: read(&self.tokens),
            padded_tokens: read(&self.padded_tokens),
            part: (length > 0).then(|| (bytes as f64 / length as f64).min(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_runs_did_is_done_and_no_text_of_this_run() {
        assert_eq!(CorpusProgress::of(0).done().part, None, "nobody knows how much there is");
        let progress = CorpusProgress::of(1000);
        progress.passed(600);
        progress.ran(3, 30, 40, 100.0);
        let done = progress.done();
        assert_eq!((done.texts, done.tokens, done.padded_tokens), (3, 30, 40));
        assert_eq!(done.part, Some(0.7));
    }
}
