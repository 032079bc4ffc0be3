//! Decides what runs next. The shapes of batches are here; `plan/waiting` chooses among the items
//! that wait.

use crate::batch::Bucket;
use crate::batch::rows::Rows;
use settings::limits::MaxBatchTokens;

mod waiting;

pub use waiting::Sequence;
pub(crate) use waiting::{BatchPlan, Rank, WaitingItems};

/// Tokens of the rows that texts share. Longer rows cost more for each token, since every token
/// attends to all of its row; shorter ones leave more of their end empty.
pub const ROW_TOKENS: usize = 128;

/// Lengths of a row on a processor that is as long as its texts: steps up to these lengths, and
/// beyond the last one. A step never adds more than a fifth to a text above 160 tokens.
const CPU_STEPS: [(usize, usize); 2] = [(ROW_TOKENS, 8), (512, 32)];
const CPU_LONG_STEP: usize = 128;

/// The longest rows of which a GPU runs several at a time: one longer row has work enough for it.
pub const SEVERAL_ROWS_TOKENS: usize = 4 * ROW_TOKENS;

/// Step of a lone row's length on a GPU, which takes about the same time for all of them.
const GPU_STEP: usize = 16;

/// The shapes of all batches: those that are prepared, and on a processor one row of any length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shapes {
    /// Ascending by length and rows; at least one.
    prepared: Vec<Bucket>,
    any_length: bool,
    /// Tokens of a batch of several texts, at most.
    max_tokens: usize,
}

impl Shapes {
    /// For a model of `max_length` tokens on a processor: one row of each length up to
    /// `ROW_TOKENS`, several rows of that length and of twice that length within `max_tokens`, and
    /// a few long rows. At most 30 with the default limits. A long text gets a row of its own
    /// length: its first run takes two milliseconds longer, which is little of it.
    pub fn on_cpu(max_length: usize, max_tokens: MaxBatchTokens) -> Self {
        let shared = ROW_TOKENS.min(max_length);
        let short = (1..).map(|step| step * CPU_STEPS[0].1).take_while(|&length| length < shared);
        let mut prepared: Vec<Bucket> = short.chain([shared]).map(one_row).collect();
        let doubled = (1..).map(|power| ROW_TOKENS << power);
        let long = [ROW_TOKENS * 3 / 2].into_iter().chain(doubled);
        prepared.extend(long.take_while(|&length| length < max_length).map(one_row));
        prepared.push(one_row(max_length));
        for length in [shared, 2 * ROW_TOKENS] {
            prepared.extend(powers_of_two(length, max_tokens));
        }
        let prepared = prepared.into_iter().filter(|shape| shape.length <= max_length).collect();
        Self::new(prepared, true).within(max_tokens.as_usize())
    }

    /// For a GPU, which compiles a shape or captures its graph before the shape is used: few
    /// shapes, and no other. At most 25 up to 8,192 tokens a text and a batch.
    pub fn on_gpu(max_length: usize, max_tokens: MaxBatchTokens) -> Self {
        let shared = ROW_TOKENS.min(max_length);
        let short = (1..).map(|step| step * GPU_STEP).take_while(|&length| length < shared);
        let mut prepared: Vec<Bucket> = short.chain([shared]).map(one_row).collect();
        prepared.extend(powers_of_two(shared, max_tokens));
        let long = (1..).map(|power| ROW_TOKENS << power).take_while(|&length| length < max_length);
        for length in long.chain([max_length]) {
            prepared.push(one_row(length));
            if length <= SEVERAL_ROWS_TOKENS {
                let rows = (max_tokens.as_usize() / length).max(1);
                prepared.push(Bucket { rows, length });
            }
        }
        Self::new(prepared, false).within(max_tokens.as_usize())
    }

    /// These shapes, in any order, and on a processor one row of any length up to the longest.
    pub fn new(mut prepared: Vec<Bucket>, any_length: bool) -> Self {
        prepared.sort_unstable_by_key(|shape| (shape.length, shape.rows));
        prepared.dedup();
        let several = prepared.iter().filter(|shape| shape.rows > 1);
        let tokens = several.map(|shape| shape.tokens()).max().unwrap_or(0);
        let longest = prepared.last().map_or(0, |shape| shape.length);
        let max_tokens = tokens.max(ROW_TOKENS.min(longest));
        Self { prepared, any_length, max_tokens }
    }

    /// Those of the prepared shapes that `supported` gives.
    #[must_use]
    pub fn only(self, supported: impl FnOnce(&[Bucket]) -> Vec<Bucket>) -> Self {
        let only = Self::new(supported(&self.prepared), self.any_length);
        Self { max_tokens: only.max_tokens.min(self.max_tokens), ..only }
    }

    /// Those of one row, and those of several rows with at most so many tokens.
    #[must_use]
    pub fn within(self, tokens: usize) -> Self {
        let fits = |shape: &Bucket| shape.rows == 1 || shape.tokens() <= tokens;
        let fitting = self.only(|all| all.iter().copied().filter(fits).collect());
        Self { max_tokens: fitting.max_tokens.min(tokens), ..fitting }
    }

    /// Those that are prepared before they are used, ascending by length and rows.
    pub fn prepared(&self) -> &[Bucket] {
        &self.prepared
    }

    /// Longest text that can be run; 0 without any shape.
    pub fn max_length(&self) -> usize {
        self.prepared.last().map_or(0, |shape| shape.length)
    }

    /// Tokens of a batch of several texts, at most.
    pub(crate) const fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// The shortest row that holds `tokens` tokens; the longest one for more.
    pub fn row(&self, tokens: usize) -> Bucket {
        let tokens = tokens.min(self.max_length());
        if self.any_length {
            let step = CPU_STEPS.iter().find(|(end, _)| tokens <= *end);
            let step = step.map_or(CPU_LONG_STEP, |(_, step)| *step);
            return one_row(tokens.max(1).next_multiple_of(step).min(self.max_length()));
        }
        let holding = self.prepared.iter().filter(|shape| shape.length >= tokens);
        let least = holding.min_by_key(|shape| (shape.tokens(), shape.length));
        *least.expect("there is a shape for the longest text")
    }

    /// The shape of the fewest tokens that holds texts of these lengths, put into it in their
    /// order; `within` when no smaller one does.
    pub fn smallest(&self, lengths: &[usize], within: Bucket) -> Bucket {
        let holds = |shape: &Bucket| {
            let mut rows = Rows::new(*shape);
            lengths.iter().all(|&tokens| rows.put(tokens).is_some())
        };
        let own = self.any_length.then(|| self.row(lengths.iter().sum()));
        let smaller = self.prepared.iter().copied().chain(own);
        let smaller = smaller.filter(|shape| shape.tokens() < within.tokens());
        smaller.filter(holds).min_by_key(|shape| (shape.tokens(), shape.length)).unwrap_or(within)
    }
}

const fn one_row(length: usize) -> Bucket {
    Bucket { rows: 1, length }
}

/// Two, four and more rows, and the most within `max_tokens`.
fn powers_of_two(length: usize, max_tokens: MaxBatchTokens) -> impl Iterator<Item = Bucket> {
    let most = max_tokens.as_usize() / length;
    let powers = (1..).map(|power| 1 << power).take_while(move |&rows| rows < most);
    powers.chain([most]).filter(|&rows| rows > 1).map(move |rows| Bucket { rows, length })
}

#[cfg(test)]
mod tests;
