//! How long the server waits for a client that takes or sends nothing, or next to nothing.
//!
//! A client begins with some time. Waiting for it uses the time up. Each byte that it moves gives
//! back as much of it as the byte would take at the least rate, up to what there was at first.
//! So a client that stops is cut after that time, one that is slower than the least rate later, and
//! one that is faster never, however it pauses within that time.
//!
//! What a client is waited for is held in memory, and its connection takes some. While less than
//! half of that memory is free, time passes faster, and the least rate is higher: see
//! [`Door::calm`]. So clients that hold the memory and do not move are cut before others are
//! refused for long.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::service::{Beside, Door};

/// So often the server looks at its memory in the time that a client has at first.
const LOOKS: u32 = 40;

/// A client that stops has so much time when no memory is free: a round trip around the world.
const LEAST_TIME: Duration = Duration::from_millis(250);

/// Bytes that a client must move in a second when no memory is free.
const CROWDED_PER_S: f64 = 256.0 * 1024.0;

/// How long a client may take.
#[derive(Debug, Clone)]
pub(super) struct Timeouts {
    /// Between two requests.
    pub(super) idle: Duration,
    /// From the first byte of a head to its last.
    pub(super) head: Duration,
    /// Without taking a byte of what waits for it.
    pub(super) write: Duration,
    /// Bytes that it takes in a second, at least, once that time is used up.
    pub(super) least_per_s: u64,
    /// What it is waited for counts there.
    pub(super) door: Arc<Door>,
}

impl Timeouts {
    /// With one who is about to be sent something.
    pub(super) fn patience(&self) -> Patience {
        Patience::new(self.write, self.least_per_s, Arc::clone(&self.door))
    }
}

/// The time that a client has.
pub(super) struct Patience {
    /// At first.
    most: Duration,
    /// When no memory is free.
    least: Duration,
    /// Zero when any byte gives all of the time back.
    least_per_s: u64,
    /// Of the memory that clients hold.
    door: Arc<Door>,
    left: Duration,
    /// While the client is waited for.
    wait: Option<Wait>,
}

/// A wait for a client.
struct Wait {
    /// What came before is taken off the time that is left.
    since: Instant,
    /// How fast time passed then.
    haste: f64,
    look: Pin<Box<Sleep>>,
}

impl Patience {
    pub(super) const fn new(most: Duration, least_per_s: u64, door: Arc<Door>) -> Self {
        Self { most, least: LEAST_TIME, least_per_s, door, left: most, wait: None }
    }

    /// With a client that has so much time at least, whatever memory is free.
    pub(super) fn of_at_least(self, least: Duration) -> Self {
        Self { least, ..self }
    }

    /// Counts what the client's connection takes in memory besides.
    pub(super) fn count_beside(&self, bytes: u64) -> Beside {
        self.door.count_beside(bytes)
    }

    /// Whether the client is waited for.
    pub(super) const fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// The client moved `bytes`, which may be none. So many `streams` share its least rate, but no
    /// memory.
    pub(super) fn moved(&mut self, bytes: usize, streams: usize) {
        if let Some(wait) = self.wait.take() {
            self.pass(&wait);
        }
        if self.left < self.most && bytes > 0 {
            let shared = self.least_per_s as f64 / streams as f64;
            let least_per_s = shared + (1.0 - self.door.calm()) * CROWDED_PER_S;
            let back = bytes as f64 / least_per_s * self.haste();
            let back = Duration::try_from_secs_f64(back);
            self.left = self.left.saturating_add(back.unwrap_or(self.most)).min(self.most);
        }
    }

    /// The client moves nothing now; ready when its time is used up.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let (haste, next_look) = (self.haste(), self.next_look());
            let begin = || Wait { since: now(), haste, look: Box::pin(sleep(next_look)) };
            let wait = self.wait.get_or_insert_with(begin);
            ready!(wait.look.as_mut().poll(context));
            if let Some(wait) = self.wait.take() {
                self.pass(&wait);
            }
            if self.left.is_zero() {
                return Poll::Ready(());
            }
        }
    }

    /// Takes the time of a wait off what is left. Memory that has become scarce since it was looked
    /// at is no reason to cut at once.
    fn pass(&mut self, wait: &Wait) {
        let passed = now().saturating_duration_since(wait.since);
        self.left = self.left.saturating_sub(passed.mul_f64(wait.haste.min(self.haste())));
    }

    /// How fast the client's time passes: once as fast as any while there is memory.
    fn haste(&self) -> f64 {
        let time = self.most.mul_f64(self.door.calm()).max(self.least.min(self.most));
        self.most.as_secs_f64() / time.as_secs_f64()
    }

    /// When the time that is left is looked at again: at its end, unless memory becomes scarce.
    fn next_look(&self) -> Duration {
        let left = self.left.div_f64(self.haste());
        (self.most / LOOKS).min(left).max(Duration::from_millis(1))
    }
}

/// By the clock of the timers.
fn now() -> Instant {
    sleep(Duration::ZERO).deadline()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::service::Permit;
    use settings::limits::{MaxInflightBytes, SMALL_REQUEST_BYTES};

    /// Takes all memory.
    fn fill(door: &Arc<Door>) -> Vec<Permit> {
        let small = || {
            let mut permit = door.enter(0).expect("it announces nothing");
            permit.hold(SMALL_REQUEST_BYTES).ok().map(|()| permit)
        };
        std::iter::from_fn(small).collect()
    }

    async fn is_at_its_end(patience: &mut Patience) -> bool {
        poll_fn(|context| Poll::Ready(patience.poll_end(context).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_before_memory_became_scarce_counts_as_long_as_it_was() {
        let door = Door::new(MaxInflightBytes::nearest(16 * SMALL_REQUEST_BYTES));
        let mut patience = Patience::new(Duration::from_secs(10), 0, Arc::clone(&door));
        assert!(!is_at_its_end(&mut patience).await);
        tokio::time::advance(Duration::from_millis(400)).await;
        let held = fill(&door);
        patience.moved(0, 1);
        assert_eq!(patience.left, Duration::from_millis(9_600));
        // Forty times as fast from now on.
        assert!(!is_at_its_end(&mut patience).await);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert!(is_at_its_end(&mut patience).await);
        drop(held);
    }
}
