//! The only source of time: a real clock for the server, a manual one for tests and simulations.

use std::fmt;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A point in time: nanoseconds since the clock was made. Monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The clock's first moment.
    pub const START: Self = Self(0);

    /// The moment that is `nanos` after the clock was made.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Asked by the scheduler, the workers and the HTTP side, on any thread.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The current moment.
    fn now(&self) -> Moment;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub struct RealClock {
    origin: Instant,
}

impl RealClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Moment {
        Moment::START + self.origin.elapsed()
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.nanos.load(Ordering::SeqCst))
    }
}

/// The machine's time of day, for those outside; it may jump.
pub fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Seconds since the Unix epoch, for people to read; 0 when the machine's clock is before it.
pub fn unix_seconds() -> u64 {
    wall_time().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_only_when_told() {
        let clock = ManualClock::default();
        assert_eq!(clock.now(), Moment::START);
        clock.advance(Duration::from_millis(3));
        assert_eq!(clock.now().since(Moment::START), Duration::from_millis(3));
        assert_eq!(Moment::START.since(clock.now()), Duration::ZERO);
    }

    #[test]
    fn adding_too_much_stays_at_the_end_of_time() {
        let end = Moment::from_nanos(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Moment::START + Duration::MAX, end);
    }
}
