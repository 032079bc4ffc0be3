//! How long a client may take nothing, or next to nothing, of what waits for it.
//!
//! A client begins with some time. Waiting for it uses the time up. Each byte that it takes gives
//! back as much of it as the byte would take at the least rate, up to what there was at first.
//! So a client that stops is cut after that time, one that is slower than the least rate later, and
//! one that is faster never, however it pauses within that time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Between two requests.
    pub(super) idle: Duration,
    /// From the first byte of a head to its last.
    pub(super) head: Duration,
    /// Without taking a byte of what waits for it.
    pub(super) write: Duration,
    /// Bytes that it takes in a second, at least, once that time is used up.
    pub(super) least_per_s: u64,
}

impl Timeouts {
    /// For one who is about to be sent something.
    pub(super) fn patience(&self) -> Patience {
        Patience::new(self.write, self.least_per_s)
    }
}

/// The time that a client has.
pub(super) struct Patience {
    /// At first.
    most: Duration,
    /// Zero when any byte gives all of the time back.
    least_per_s: u64,
    left: Duration,
    /// Runs while the client is waited for.
    wait: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(super) const fn new(most: Duration, least_per_s: u64) -> Self {
        Self { most, least_per_s, left: most, wait: None }
    }

    /// Whether the client is waited for.
    pub(super) const fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// The client took `bytes`, which may be none.
    pub(super) fn took(&mut self, bytes: usize) {
        if let Some(wait) = self.wait.take() {
            self.left = wait.deadline().saturating_duration_since(now());
        }
        if self.left < self.most && bytes > 0 {
            let nanos = (bytes as u64).saturating_mul(1_000_000_000).checked_div(self.least_per_s);
            let back = nanos.map_or(self.most, Duration::from_nanos);
            self.left = self.left.saturating_add(back).min(self.most);
        }
    }

    /// The client takes nothing now; ready when its time is used up.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let left = self.left;
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(left)));
        wait.as_mut().poll(context)
    }
}

/// By the clock of the timers.
fn now() -> Instant {
    sleep(Duration::ZERO).deadline()
}
