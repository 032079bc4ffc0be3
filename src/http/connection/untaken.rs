//! Answers on HTTP/2 whose clients give them no room, of all connections together.
//!
//! A refusal is made for nothing and takes some kilobytes while it waits, so a client may not have
//! as many of them as it has streams on all its connections. Beyond [`UNTAKEN_MAX`] in all, each
//! connection has a few: about the memory that a connection takes anyway.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers that may wait, of all connections together: some 60 MB of refusals.
pub(super) const UNTAKEN_MAX: usize = 8192;

/// Those that each connection may have whatever others do.
pub(super) const UNTAKEN_OWN: usize = 8;

static UNTAKEN: AtomicUsize = AtomicUsize::new(0);

/// An answer that waits.
pub(super) struct Untaken<'a> {
    own: &'a Cell<usize>,
}

impl<'a> Untaken<'a> {
    /// Counts one answer more; `own` are those of its connection. `None` when there are too many.
    pub(super) fn count(own: &'a Cell<usize>) -> Option<Self> {
        if own.get() >= UNTAKEN_OWN && UNTAKEN.load(Ordering::Relaxed) >= UNTAKEN_MAX {
            return None;
        }
        UNTAKEN.fetch_add(1, Ordering::Relaxed);
        own.set(own.get() + 1);
        Some(Self { own })
    }
}

impl Drop for Untaken<'_> {
    fn drop(&mut self) {
        UNTAKEN.fetch_sub(1, Ordering::Relaxed);
        self.own.set(self.own.get() - 1);
    }
}
