//! What it costs to sleep until a run's end: the same shapes waited for with the core kept, and
//! asleep.

use std::time::Duration;

use serde::Serialize;

use super::priorities::Quantiles;
use super::{Bench, Loaded, full_batch, warm_session};
use crate::batch::Bucket;
use crate::clock::core_time;

/// The least runs of each kind, whatever the time.
const RUNS_MIN: usize = 20;

/// A shape, waited for in both ways.
#[derive(Debug, Serialize)]
pub(super) struct WaitReport {
    pub(super) rows: usize,
    pub(super) length: usize,
    /// The thread asks again and again whether the run has ended.
    pub(super) awake: Waited,
    /// The thread is woken up. Such runs are also timed by CUDA's events, as long ones always are.
    pub(super) asleep: Waited,
}

/// Runs that were waited for in one way.
#[derive(Debug, Serialize)]
pub(super) struct Waited {
    #[serde(flatten)]
    pub(super) times: Quantiles,
    /// Which part of that time the thread had a core.
    pub(super) core_part: f64,
}

pub(super) fn print(reports: &[WaitReport]) {
    println!("   rows x length      wait    median ms       p99 ms    of a core");
    for one in reports {
        let shape = format!("{} x {}", one.rows, one.length);
        for (name, Waited { times, core_part }) in [("awake", &one.awake), ("asleep", &one.asleep)]
        {
            println!(
                "{shape:>16} {name:>9} {:>12.3} {:>12.3} {:>10.0} %",
                times.median_ms,
                times.p99_ms,
                core_part * 100.0
            );
        }
    }
}

impl Bench<'_> {
    pub(super) fn waits(&self, loaded: &Loaded) -> anyhow::Result<Vec<WaitReport>> {
        let engine = &*loaded.chosen.engine;
        let shapes = doubling(loaded.chosen.shapes.prepared());
        let mut session = warm_session(engine, &shapes)?;
        let mut reports = Vec::with_capacity(shapes.len());
        for bucket in shapes {
            let batch = full_batch(bucket)?;
            let (mut awake, mut asleep) = (TimedRuns::default(), TimedRuns::default());
            let begin = self.clock.now();
            while awake.seconds.len() < RUNS_MIN || self.clock.now().since(begin) < self.span {
                for (long_run, runs) in [(Duration::MAX, &mut awake), (Duration::ZERO, &mut asleep)]
                {
                    session.set_long_run(long_run);
                    let before = core_time();
                    runs.seconds.push(self.seconds(|| Ok(session.run(&batch)?))?.0);
                    runs.on_core += core_time().saturating_sub(before);
                }
            }
            let Bucket { rows, length } = bucket;
            let (awake, asleep) = (awake.waited(), asleep.waited());
            reports.push(WaitReport { rows, length, awake, asleep });
        }
        Ok(reports)
    }
}

/// What was measured of the runs of one kind.
#[derive(Default)]
struct TimedRuns {
    seconds: Vec<f64>,
    on_core: Duration,
}

impl TimedRuns {
    fn waited(self) -> Waited {
        let core_part = self.on_core.as_secs_f64() / self.seconds.iter().sum::<f64>();
        Waited { times: Quantiles::of(self.seconds), core_part }
    }
}

/// Buckets of about twice the tokens of the one before.
fn doubling(buckets: &[Bucket]) -> Vec<Bucket> {
    let mut by_tokens = buckets.to_vec();
    by_tokens.sort_unstable_by_key(|bucket| (bucket.tokens(), bucket.length));
    let mut chosen: Vec<Bucket> = Vec::new();
    for bucket in by_tokens {
        if chosen.last().is_none_or(|last| bucket.tokens() >= 2 * last.tokens()) {
            chosen.push(bucket);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_has_at_least_twice_the_tokens_of_the_one_before() {
        let bucket = |rows, length| Bucket { rows, length };
        let buckets = [bucket(4, 8), bucket(1, 8), bucket(1, 12), bucket(2, 8), bucket(3, 8)];
        assert_eq!(doubling(&buckets), [bucket(1, 8), bucket(2, 8), bucket(4, 8)]);
    }
}
