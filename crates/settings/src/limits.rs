//! What bounds the server: the numbers that can be set, whose ranges and defaults are in the table
//! of settings, and those that cannot.

use std::time::Duration;

pub use crate::numbers::*;

/// A request of up to so many bytes is small, and may use the part of [`MaxInflightBytes`] that is
/// kept for such requests: eight texts of 8 KiB each.
pub const SMALL_REQUEST_BYTES: u64 = 64 * 1024;

/// Padded tokens of a batch that are chosen from on a processor. On two cores throughput is flat
/// from about 256 and falls from 1500, where a batch no longer fits the cache.
pub const CPU_BATCH_TOKENS: [MaxBatchTokens; 4] = [
    MaxBatchTokens::nearest(256),
    MaxBatchTokens::nearest(512),
    MaxBatchTokens::nearest(1024),
    MaxBatchTokens::nearest(2048),
];
/// The same on a GPU, where fewer leave arithmetic idle; a large model takes some ten milliseconds
/// for the most.
pub const GPU_BATCH_TOKENS: [MaxBatchTokens; 5] = [
    MaxBatchTokens::nearest(512),
    MaxBatchTokens::nearest(1024),
    MaxBatchTokens::nearest(2048),
    MaxBatchTokens::nearest(4096),
    MaxBatchTokens::nearest(8192),
];
/// Tokens of the single texts that are measured on a processor before it serves; batches have the
/// longer ones.
pub const CPU_WORKLOAD_TOKENS: [usize; 2] = [32, 64];
/// Padded tokens of those batches: enough to tell a run's fixed cost from that of a token, and no
/// more, since a start should not take long.
pub const CPU_WORKLOAD_BATCHES: [usize; 2] = [128, 512];
/// The same for a GPU; the largest batch stays within 64 rows.
pub const GPU_WORKLOAD_TOKENS: [usize; 2] = [64, 128];
/// See [`GPU_WORKLOAD_TOKENS`]. So many show from which size on the time grows.
pub const GPU_WORKLOAD_BATCHES: [usize; 7] = [512, 1024, 1536, 2048, 3072, 4096, 8192];

/// Workers of each GPU that are tried before it serves, ascending. While one copies or hands back
/// rows, another computes; more than a few only wait for each other.
pub const GPU_WORKERS: [u64; 3] = [1, 2, 4];

/// Lanes of a width are held when a short text is done so many times as fast by them as by the next
/// narrower ones that are held: each width takes memory, and time at the start. The least gain that
/// is more than noise: a width that is left out is missed by each lone text until the next start.
pub const WIDTH_GAIN_MIN: f64 = 1.1;
/// A width that seems not to pay is measured so many times; the shortest time counts.
pub const WIDTH_TRIES: usize = 5;
/// A time is disturbed when threads waited for so much of the time of the lane's cores.
pub const WIDTH_WAIT_PART: f64 = 0.05;
/// Before a width is opened, so many times the memory that the last one took must be there.
pub const WIDTH_MEMORY_TIMES: u64 = 2;

/// Texts of up to so many tokens are common: their shapes are warmed up before the server is ready.
pub const COMMON_LENGTH: usize = 512;
/// How long a worker's common shapes may hold up the start. A shape that is met later costs its
/// first run some milliseconds; only a slow model has so many slow shapes, whose runs take longer
/// than that anyway.
pub const COMMON_TIME: Duration = Duration::from_secs(8);
/// The longest run with which a worker that idles warms up a shape: a request may come meanwhile.
pub const IDLE_RUN_MAX: Duration = Duration::from_secs(2);
/// A batch is stuck when it has run for so many times its predicted time, and no sooner than
/// `worker-stuck-ms`: one text of thousands of tokens takes a large model half a minute.
pub const STUCK_FACTOR: f64 = 4.0;
/// A text that runs again in the rescue precision has so many times a batch's time: the CPU runs it
/// for a GPU. It has that also for each text before it, since all workers have one such model.
pub const RESCUE_FACTOR: u32 = 20;

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
