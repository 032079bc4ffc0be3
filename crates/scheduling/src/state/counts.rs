//! What became of items, and what batches were made of.

/// How many items ended how, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items that were taken.
    pub accepted: u64,
    /// Items whose rows went to their request.
    pub replied: u64,
    /// Items whose run gave no rows.
    pub failed: u64,
    /// Items whose deadline passed before they ran.
    pub expired: u64,
    /// Items that nobody wanted any more.
    pub cancelled: u64,
    /// Items that no worker could run.
    pub abandoned: u64,
    /// Items that share the run of another one.
    pub coalesced: u64,
    /// Requests that were not taken.
    pub refused: u64,
    /// Batches that were started.
    pub batches: u64,
    /// Tokens of their items.
    pub tokens_real: u64,
    /// Tokens of their buckets.
    pub tokens_padded: u64,
}

impl Counts {
    /// Items that have ended.
    pub const fn ended(&self) -> u64 {
        self.replied + self.failed + self.expired + self.cancelled + self.abandoned
    }
}
