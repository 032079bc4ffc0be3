//! Counters of faults, for `/health` and the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// One kind of incident; counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Faults of workers. A run without a fault touches none of these counters.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    /// Workers that were replaced.
    pub restarts: Counter,
    /// Batches that did not fit memory and were run again in halves.
    pub(crate) batches_split: Counter,
    /// Items whose row had NaN or infinity, rescued ones included.
    pub(crate) rows_not_finite: Counter,
    /// Items whose row was finite in the rescue precision.
    pub(crate) rows_rescued: Counter,
    /// Batches that ran for longer than `worker-stuck-ms`.
    pub(crate) batches_stuck: Counter,
}
