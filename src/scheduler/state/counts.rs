//! What became of items, and what batches were made of.

/// How many items ended how, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub accepted: u64,
    pub replied: u64,
    pub failed: u64,
    pub expired: u64,
    pub cancelled: u64,
    pub abandoned: u64,
    /// Requests that were not taken.
    pub refused: u64,
    pub batches: u64,
    pub tokens_real: u64,
    pub tokens_padded: u64,
}

impl Counts {
    /// Items that have ended.
    pub const fn ended(&self) -> u64 {
        self.replied + self.failed + self.expired + self.cancelled + self.abandoned
    }
}
