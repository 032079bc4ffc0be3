//! Whole numbers with a range.

use std::fmt;

/// A whole number from `MIN` to `MAX`. `DEFAULT` is its value when nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN>(u64);

pub type DrainDelayMs = Bounded<0, 600_000, 500>;
pub type DrainTimeoutMs = Bounded<0, 3_600_000, 30_000>;
pub type Workers = Bounded<1, 256, 1>;
pub type ThreadsPerWorker = Bounded<1, 1024>;
pub type FakeRunMs = Bounded<0, 3_600_000, 0>;
pub type WorkersPerDevice = Bounded<1, 64>;
pub type GraphTokens = Bounded<0, 65_536, 4096>;
pub type WorkerStuckMs = Bounded<0, 3_600_000, 30_000>;
pub type QueueCapacity = Bounded<1, 1_048_576, 8192>;
pub type MaxBatchTokens = Bounded<8, 1_048_576, 512>;
pub type CacheBytes = Bounded<0, 1_099_511_627_776, 0>;
pub type InteractiveP99Ms = Bounded<0, 60_000, 0>;
pub type MaxInflightBytes = Bounded<65_536, 1_099_511_627_776, 268_435_456>;
pub type MaxItems = Bounded<1, 65_536, 2048>;
pub type MaxItemBytes = Bounded<1, 1_073_741_824, 1_048_576>;
pub type MaxBodyBytes = Bounded<1024, 1_073_741_824, 33_554_432>;
pub type RequestTimeoutMs = Bounded<1, 3_600_000, 30_000>;
pub type MaxRequestTimeoutMs = Bounded<1, 3_600_000, 300_000>;
pub type DeepHealthTimeoutMs = Bounded<1, 600_000, 5_000>;
pub type KeepAliveS = Bounded<1, 3600, 75>;
pub type HeadTimeoutMs = Bounded<1, 600_000, 10_000>;
pub type BodyTimeoutMs = Bounded<1, 3_600_000, 20_000>;
pub type WriteTimeoutMs = Bounded<1, 3_600_000, 30_000>;
pub type MinReadBytesPerS = Bounded<0, 1_073_741_824, 1024>;
pub type MaxConnections = Bounded<1, 1_048_576, 16_384>;
pub type HttpThreads = Bounded<1, 512>;

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> Bounded<MIN, MAX, DEFAULT> {
    /// Smallest value accepted.
    pub const MIN: u64 = MIN;
    /// Largest value accepted.
    pub const MAX: u64 = MAX;
    /// The value when nothing else is said.
    pub const DEFAULT: Self = {
        assert!(MIN <= DEFAULT && DEFAULT <= MAX, "the default is outside of the range");
        Self(DEFAULT)
    };

    /// `None` for a value outside `MIN..=MAX`.
    pub const fn new(value: u64) -> Option<Self> {
        if value < MIN || value > MAX { None } else { Some(Self(value)) }
    }

    /// The nearest value in `MIN..=MAX`.
    pub const fn nearest(value: u64) -> Self {
        if value < MIN {
            Self(MIN)
        } else if value > MAX {
            Self(MAX)
        } else {
            Self(value)
        }
    }

    /// The value, in the unit that the table of settings says.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The value as a length or a count in memory.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> Default for Bounded<MIN, MAX, DEFAULT> {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> fmt::Display
    for Bounded<MIN, MAX, DEFAULT>
{
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::MaxItems;

    #[test]
    fn values_outside_the_range_are_refused_or_moved_into_it() {
        let new = [0, 1, 65_536, 65_537].map(|n| MaxItems::new(n).map(MaxItems::get));
        assert_eq!(new, [None, Some(1), Some(65_536), None]);
        assert_eq!([0, 7, 65_537].map(|n| MaxItems::nearest(n).get()), [1, 7, 65_536]);
    }
}
