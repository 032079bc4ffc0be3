//! Chooses the best way of running a model out of the measured ways. Pure.

use std::time::Duration;

use crate::engine::Split;
use scheduling::batch::Bucket;
use scheduling::batch::cost::CostModel;
use settings::OptimizeFor;
use settings::limits::MaxBatchTokens;

/// The measurements of a split.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The split itself.
    pub split: Split,
    /// The time of a short text on one worker while the others are idle.
    pub alone: Duration,
    /// The time of a batch while each worker runs one.
    pub cost: CostModel,
    /// Tokens of a text in the compared batches.
    pub length: usize,
    /// Padded tokens of the largest batch that fits memory, if the measurement met the limit.
    pub memory_tokens: Option<usize>,
}

/// The load at which splits are compared for latency, as a part of the best rate of all splits. A
/// server whose queries cannot wait is idle most of the time.
const LOAD: f64 = 0.25;

/// How much better than the goal's favourite another split must be. A smaller gain is noise, and a
/// server should run in the same way after each start.
const MARGIN: f64 = 0.1;

/// The smallest batch that reaches this part of the largest batch's rate is chosen: other texts
/// wait less for a small batch, and it is easier to fill. Shapes take turns while they are
/// measured, which takes small batches longer than it does under load.
const RATE_PART: f64 = 0.85;

impl Measured {
    /// Padded tokens per second of all workers, in batches of `batch_tokens`.
    pub(crate) fn tokens_per_s(&self, batch_tokens: usize) -> f64 {
        let rows = (batch_tokens / self.length).max(1);
        let bucket = Bucket { rows, length: self.length };
        let us = self.cost.predict_us(bucket).max(f64::MIN_POSITIVE);
        (bucket.tokens() * self.split.workers) as f64 / us * 1e6
    }

    /// The best of the budgets, which ascend; at least one.
    ///
    /// # Panics
    /// Without any budget.
    pub(crate) fn budget(&self, budgets: &[MaxBatchTokens]) -> MaxBatchTokens {
        let room = self.memory_tokens.unwrap_or(usize::MAX);
        let fits = |budget: &&MaxBatchTokens| budget.as_usize() <= room;
        let least = budgets.first().expect("there is at least one budget");
        let rate = |budget: &MaxBatchTokens| self.tokens_per_s(budget.as_usize());
        let most = budgets.iter().filter(fits).map(rate).fold(0.0, f64::max);
        let enough = |budget: &&MaxBatchTokens| rate(budget) >= most * RATE_PART;
        *budgets.iter().filter(fits).find(enough).unwrap_or(least)
    }

    /// How bad the split is; less is better. For latency it is the expected time of a short text at
    /// `load` tokens per second, waiting included, in seconds. For throughput it is the time of a
    /// token.
    fn badness(&self, rate: f64, goal: OptimizeFor, load: f64) -> f64 {
        match goal {
            OptimizeFor::Throughput => 1.0 / rate,
            OptimizeFor::Both | OptimizeFor::Latency if rate > load => {
                let part = load / rate;
                let workers = self.split.workers as f64;
                let wait = part.powf((2.0 * (workers + 1.0)).sqrt() - 1.0) / (1.0 - part) / workers;
                self.alone.as_secs_f64() * (1.0 + wait)
            }
            OptimizeFor::Both | OptimizeFor::Latency => f64::INFINITY,
        }
    }
}

/// The place of the best split among `measured`, which ascend by workers.
///
/// For latency it is the split whose short texts take the least time at a quarter of the best rate
/// of all splits, with the waiting time of one queue before several workers (M/M/c, in Sakasegawa's
/// approximation). The fewest workers are favoured. For throughput it is the split with the best
/// rate, and the most workers are favoured: under disturbances, threads that do not wait for each
/// other do better than a few quiet rounds show.
pub(crate) fn choose(
    measured: &[Measured],
    budgets: &[MaxBatchTokens],
    goal: OptimizeFor,
) -> usize {
    let rate = |one: &Measured| one.tokens_per_s(one.budget(budgets).as_usize());
    let rates: Vec<f64> = measured.iter().map(rate).collect();
    let load = rates.iter().copied().fold(0.0, f64::max) * LOAD;
    let badness = |place: usize| measured[place].badness(rates[place], goal, load);
    let better = |best: usize, place: usize| {
        if badness(place) < badness(best) * (1.0 - MARGIN) { place } else { best }
    };
    let places = 0..measured.len();
    let chosen = match goal {
        OptimizeFor::Both | OptimizeFor::Latency => places.reduce(better),
        OptimizeFor::Throughput => places.rev().reduce(better),
    };
    chosen.unwrap_or(0)
}

/// The splits of `cores` that are worth trying, ascending by workers. Each has at least twice the
/// workers of the one before.
pub(crate) fn splits(cores: usize) -> Vec<Split> {
    let mut found: Vec<Split> = Vec::new();
    for threads in (1..=cores).rev() {
        let workers = cores / threads;
        if found.last().is_none_or(|last| workers >= last.workers * 2) {
            found.push(Split { workers, threads });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use OptimizeFor::{Latency, Throughput};
    use settings::limits::CPU_BATCH_TOKENS;

    /// A split whose workers reach `tokens_per_s` together in very large batches.
    fn measured(workers: usize, alone_ms: u64, fixed_us: f64, tokens_per_s: f64) -> Measured {
        let per_token_us = workers as f64 / tokens_per_s * 1e6;
        Measured {
            split: Split { workers, threads: 1 },
            alone: Duration::from_millis(alone_ms),
            cost: CostModel { floor_us: 0.0, fixed_us, per_token_us, per_token_length_us: 0.0 },
            length: 64,
            memory_tokens: None,
        }
    }

    fn budget(measured: &Measured) -> u64 {
        measured.budget(&CPU_BATCH_TOKENS).get()
    }

    #[test]
    fn the_batch_is_the_smallest_that_is_nearly_as_fast_as_any() {
        // 118 us a token: the fixed part is a tenth of 127 tokens.
        let slow = measured(1, 5, 1500.0, 8500.0);
        assert_eq!(budget(&slow), 256);
        let fast = measured(1, 5, 1500.0, 100_000.0);
        assert_eq!(budget(&fast), 1024);
        let equal = measured(1, 5, 0.0, 8000.0);
        assert_eq!(budget(&equal), 256);
    }

    #[test]
    fn no_batch_is_larger_than_what_there_is_memory_for() {
        let mut fast = measured(1, 5, 1500.0, 100_000.0);
        fast.memory_tokens = Some(600);
        assert_eq!(budget(&fast), 512);
        fast.memory_tokens = Some(50);
        assert_eq!(budget(&fast), 256);
    }

    #[test]
    fn splits_are_chosen_for_the_goal() {
        let many = [
            measured(1, 3, 1000.0, 20_000.0),
            measured(2, 3, 1000.0, 32_000.0),
            measured(4, 5, 1000.0, 42_000.0),
            measured(16, 13, 1000.0, 52_000.0),
        ];
        // Measured on two cores: more texts, which take nearly twice as long alone.
        let two = [measured(1, 8, 1500.0, 8000.0), measured(2, 13, 1500.0, 9500.0)];
        // What may be noise changes nothing.
        let alike = [measured(1, 10, 1000.0, 8000.0), measured(2, 12, 1000.0, 8400.0)];
        // Of many, the first is as fast as any alone, but its queue would be long.
        for (found, latency, throughput) in [(&two[..], 0, 1), (&many, 1, 3), (&alike, 0, 1)] {
            let chosen = [Latency, Throughput].map(|goal| choose(found, &CPU_BATCH_TOKENS, goal));
            assert_eq!(chosen, [latency, throughput], "{} splits", found.len());
        }
    }

    #[test]
    fn cores_are_divided_in_halves_down_to_one_each() {
        let of = |cores| -> Vec<(usize, usize)> {
            splits(cores).iter().map(|split| (split.workers, split.threads)).collect()
        };
        assert_eq!(of(1), [(1, 1)]);
        assert_eq!(of(2), [(1, 2), (2, 1)]);
        assert_eq!(of(3), [(1, 3), (3, 1)]);
        assert_eq!(of(6), [(1, 6), (2, 3), (6, 1)]);
        assert_eq!(of(16), [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1)]);
    }
}
