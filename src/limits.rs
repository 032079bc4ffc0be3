//! Bounded numbers: every limit of the server has a name, a unit, a range and a default here.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// A number that does not fit its limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitError {
    #[error("'{0}' is not a whole number")]
    NotANumber(String),
    #[error("{value} is outside {min} to {max} ({unit})")]
    OutOfRange { value: u64, min: u64, max: u64, unit: &'static str },
}

macro_rules! bounded {
    (
        $(#[$doc:meta])*
        $name:ident: $min:literal ..= $max:literal, $default:literal, $unit:literal
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Smallest value accepted.
            pub const MIN: u64 = $min;
            /// Largest value accepted.
            pub const MAX: u64 = $max;
            /// What is taken when nothing is configured.
            pub const DEFAULT: Self = Self($default);
            /// What the number counts.
            pub const UNIT: &'static str = $unit;

            /// Refuses a value outside `MIN..=MAX`.
            pub const fn new(value: u64) -> Result<Self, LimitError> {
                if value < Self::MIN || value > Self::MAX {
                    return Err(LimitError::OutOfRange {
                        value,
                        min: Self::MIN,
                        max: Self::MAX,
                        unit: Self::UNIT,
                    });
                }
                Ok(Self(value))
            }

            /// The value, in `UNIT`.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The value as a length or a count in memory.
            pub const fn as_usize(self) -> usize {
                self.0 as usize
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::DEFAULT
            }
        }

        impl FromStr for $name {
            type Err = LimitError;

            fn from_str(text: &str) -> Result<Self, LimitError> {
                let value = text
                    .trim()
                    .parse::<u64>()
                    .map_err(|_| LimitError::NotANumber(text.to_owned()))?;
                Self::new(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

bounded! {
    /// Items of one request; LangChain sends up to 1000, OpenAI's own limit is 2048.
    MaxItems: 1..=65_536, 2048, "items"
}
bounded! {
    /// Bytes of one request body, after decompression.
    MaxBodyBytes: 1024..=1_073_741_824, 33_554_432, "bytes"
}
bounded! {
    /// Bytes of one text, and of one list of token ids at four bytes each. The default is about
    /// 250,000 tokens; tokenizing it takes some 40 ms of one core.
    MaxItemBytes: 1..=1_073_741_824, 1_048_576, "bytes"
}
bounded! {
    /// Bytes of all request bodies that are held at once, unpacked.
    MaxInflightBytes: 65_536..=1_099_511_627_776, 268_435_456, "bytes"
}

/// Part of [`MaxInflightBytes`] that only small requests may use, so that large ones never turn a
/// single text away.
const INFLIGHT_RESERVE: u64 = 8;
/// A request of up to so many bytes is small in this sense: eight texts of 8 KiB each.
pub const SMALL_REQUEST_BYTES: u64 = 64 * 1024;

impl MaxInflightBytes {
    /// Bytes that requests above [`SMALL_REQUEST_BYTES`] may hold together.
    pub const fn largest_request(self) -> u64 {
        self.get() - self.get() / INFLIGHT_RESERVE
    }
}

bounded! {
    /// Time from the request's arrival until its answer must be ready.
    RequestTimeoutMs: 1..=3_600_000, 30_000, "milliseconds"
}
bounded! {
    /// The longest time that a client may ask for.
    MaxRequestTimeoutMs: 1..=3_600_000, 300_000, "milliseconds"
}
bounded! {
    /// Time that a deep health check may take on every worker.
    DeepHealthTimeoutMs: 1..=600_000, 5_000, "milliseconds"
}
bounded! {
    /// Time after SIGTERM in which health says no and requests are still taken.
    DrainDelayMs: 0..=600_000, 500, "milliseconds"
}
bounded! {
    /// Time after that in which what was accepted is still answered.
    DrainTimeoutMs: 0..=3_600_000, 30_000, "milliseconds"
}
bounded! {
    /// How long an idle connection stays open; longer than the 60 s of common load balancers.
    KeepAliveS: 1..=3600, 75, "seconds"
}
bounded! {
    /// Time from the first byte of a request's head to its last, and of a TLS handshake.
    HeadTimeoutMs: 1..=600_000, 10_000, "milliseconds"
}
bounded! {
    /// Time of an embedding request's body; the default lets 32 MiB come at 13 Mbit/s.
    BodyTimeoutMs: 1..=3_600_000, 20_000, "milliseconds"
}
bounded! {
    /// Time in which a client takes not one byte of its answer, until it is cut.
    WriteTimeoutMs: 1..=3_600_000, 30_000, "milliseconds"
}
bounded! {
    /// Open connections of all threads, rounded up to a multiple of the threads.
    MaxConnections: 1..=1_048_576, 16_384, "connections"
}
bounded! {
    /// Items that wait or run at once; further requests are refused with 429.
    QueueCapacity: 1..=1_048_576, 8192, "items"
}
bounded! {
    /// Padded tokens (rows × length) of one batch. The default is for engines that are not
    /// measured; see [`CPU_BATCH_TOKENS`] and [`GPU_BATCH_TOKENS`].
    MaxBatchTokens: 16..=1_048_576, 512, "tokens"
}
/// Padded tokens of a batch that are chosen from on a processor. On two cores throughput is flat
/// from about 256 and falls from 1500, where a batch no longer fits the cache.
pub const CPU_BATCH_TOKENS: [MaxBatchTokens; 4] =
    [MaxBatchTokens(256), MaxBatchTokens(512), MaxBatchTokens(1024), MaxBatchTokens(2048)];
/// The same on a GPU, where fewer leave arithmetic idle; a large model takes some ten milliseconds
/// for the most.
pub const GPU_BATCH_TOKENS: [MaxBatchTokens; 5] = [
    MaxBatchTokens(512),
    MaxBatchTokens(1024),
    MaxBatchTokens(2048),
    MaxBatchTokens(4096),
    MaxBatchTokens(8192),
];
/// Tokens of the single texts that are measured on a processor before it serves; batches have the
/// longer ones.
pub const CPU_PROBE_TOKENS: [usize; 2] = [32, 64];
/// Padded tokens of those batches: enough to tell a run's fixed cost from that of a token, and no
/// more, since a start should not take long.
pub const CPU_PROBE_BATCHES: [usize; 2] = [128, 512];
/// The same for a GPU; the largest batch stays within 64 rows.
pub const GPU_PROBE_TOKENS: [usize; 2] = [64, 128];
/// See [`GPU_PROBE_TOKENS`].
pub const GPU_PROBE_BATCHES: [usize; 3] = [512, 2048, 8192];

bounded! {
    /// Rows of one batch.
    MaxBatchRows: 1..=4096, 64, "rows"
}
bounded! {
    /// An item that has waited longer than this leads the next batch of its class, whatever its
    /// length.
    MaxAgeMs: 1..=600_000, 50, "milliseconds"
}
/// A request of at most so many items and tokens is interactive when it does not say: a question
/// with its variants, or one text; together they fit one batch of the CPU.
pub const INTERACTIVE_ITEMS: usize = 8;
/// See [`INTERACTIVE_ITEMS`].
pub const INTERACTIVE_TOKENS: usize = 512;
/// Part of the workers' time that bulk items get while interactive ones wait, at least.
pub const BULK_SHARE: f64 = 0.2;
/// Part of a request's time over which the turns of its items are spread, at most.
pub const TURNS_PART: f64 = 0.25;
/// The longest time that a refused request is told to wait.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

bounded! {
    /// Threads that parse, tokenize and serialize; actix-server panics over 512.
    HttpThreads: 1..=512, 2, "threads"
}
bounded! {
    /// Worker threads of each GPU, each with one stream: while one copies, another computes.
    WorkersPerDevice: 1..=64, 2, "workers"
}
bounded! {
    /// Buckets of at most so many padded tokens run from a captured CUDA graph; 0 captures none.
    /// A graph spares the time that launching a model's hundred kernels takes, which larger batches
    /// hide behind computing.
    GraphTokens: 0..=65_536, 1024, "tokens"
}
bounded! {
    /// Worker threads, each with one session.
    Workers: 1..=256, 1, "workers"
}
bounded! {
    /// A batch that runs for this long may never end; 0 waits for ever. The largest batch of the
    /// slowest model takes seconds.
    WorkerStuckMs: 0..=3_600_000, 30_000, "milliseconds"
}
bounded! {
    /// Processor threads of one session of the CPU engine.
    ThreadsPerWorker: 1..=1024, 1, "threads"
}

bounded! {
    /// Time of a run of the fake engine.
    FakeRunMs: 0..=3_600_000, 0, "milliseconds"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_the_range_are_refused_with_the_range() {
        let error = MaxItems::new(0).expect_err("zero items make no request");
        assert_eq!(error.to_string(), "0 is outside 1 to 65536 (items)");
        assert_eq!(MaxItems::new(65_536).map(MaxItems::get), Ok(65_536));
        assert!(MaxItems::new(65_537).is_err());
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        for text in ["", "-1", "1.5", "ten", "18446744073709551616"] {
            assert!(matches!(text.parse::<Workers>(), Err(LimitError::NotANumber(_))), "{text}");
        }
        assert_eq!(" 7 ".parse::<Workers>().map(Workers::get), Ok(7));
    }
}
