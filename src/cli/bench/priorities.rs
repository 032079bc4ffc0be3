//! How long a short text takes beside large batches: on a stream like theirs, and on an urgent one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use anyhow::anyhow;
use serde::Serialize;

use super::{Bench, Loaded, full_batch, warm_session};
use crate::batch::{Bucket, Priority};
use crate::engine::{Engine, Session};

/// Tokens of the short text.
const SHORT_TOKENS: usize = 32;

/// The least runs of each kind, whatever the time.
const RUNS_MIN: usize = 20;

/// Times of a short text.
#[derive(Debug, Serialize)]
pub(super) struct PriorityReport {
    /// While no other session runs.
    pub(super) alone: Quantiles,
    /// While another session runs the largest batches, as one more of these.
    pub(super) usual: Quantiles,
    /// The same, as somebody's who waits.
    pub(super) urgent: Quantiles,
}

/// Milliseconds of a run.
#[derive(Debug, Serialize)]
pub(super) struct Quantiles {
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
}

impl PriorityReport {
    pub(super) fn print(&self) {
        println!("a short text   median ms       p99 ms");
        for (name, seen) in
            [("alone", &self.alone), ("usual", &self.usual), ("urgent", &self.urgent)]
        {
            println!("{name:<12} {:>11.3} {:>12.3}", seen.median_ms, seen.p99_ms);
        }
    }
}

impl Bench<'_> {
    pub(super) fn priorities(&self, loaded: &Loaded) -> anyhow::Result<PriorityReport> {
        let engine = &*loaded.chosen.engine;
        let shapes = &loaded.chosen.shapes;
        let short = shapes.row(SHORT_TOKENS);
        let large = shapes.prepared().iter().max_by_key(|bucket| bucket.tokens()).copied();
        let large = large.unwrap_or(short);
        let mut session = warm_session(engine, &[short])?;
        let mut runs = |priorities: &[Priority]| self.short_runs(&mut *session, short, priorities);
        let alone = runs(&[Priority::Bulk])?;
        let stop = AtomicBool::new(false);
        let beside = thread::scope(|scope| {
            let (tell, ready) = channel::<()>();
            let busy = scope.spawn(|| run_until(engine, large, &stop, move || drop(tell)));
            // An error either way: the other thread drops its end when it is warm, or has failed.
            let _ = ready.recv();
            let beside = runs(&[Priority::Bulk, Priority::Interactive]);
            stop.store(true, Ordering::Relaxed);
            busy.join().map_err(|_| anyhow!("the thread with the large batches panicked"))??;
            beside
        })?;
        let quantiles = |runs: &[Vec<f64>], place: usize| Quantiles::of(runs[place].clone());
        Ok(PriorityReport {
            alone: quantiles(&alone, 0),
            usual: quantiles(&beside, 0),
            urgent: quantiles(&beside, 1),
        })
    }

    /// Seconds of runs of each priority in turn, until the time is over.
    fn short_runs(
        &self,
        session: &mut dyn Session,
        bucket: Bucket,
        priorities: &[Priority],
    ) -> anyhow::Result<Vec<Vec<f64>>> {
        let mut seconds = vec![Vec::new(); priorities.len()];
        let begin = self.clock.now();
        while seconds[0].len() < RUNS_MIN || self.clock.now().since(begin) < self.span {
            for (&priority, seconds) in priorities.iter().zip(&mut seconds) {
                let batch = full_batch(bucket)?.with_priority(priority);
                seconds.push(self.seconds(|| Ok(session.run(&batch)?))?.0);
            }
        }
        Ok(seconds)
    }
}

impl Quantiles {
    pub(super) fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |part: usize| seconds[(seconds.len() * part / 100).min(seconds.len() - 1)] * 1e3;
        Self { median_ms: at(50), p99_ms: at(99) }
    }
}

/// Runs full batches on a session of its own until it is told to stop.
fn run_until(
    engine: &dyn Engine,
    bucket: Bucket,
    stop: &AtomicBool,
    warm: impl FnOnce(),
) -> anyhow::Result<()> {
    let mut session = warm_session(engine, &[bucket])?;
    let batch = full_batch(bucket)?;
    warm();
    while !stop.load(Ordering::Relaxed) {
        session.run(&batch)?;
    }
    Ok(())
}
