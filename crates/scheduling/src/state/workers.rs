//! Workers as the machine knows them.

use std::collections::VecDeque;
use std::time::Duration;

use super::SchedulerState;
use crate::batch::Bucket;
use crate::batch::plan::Sequence;
use clock::Moment;
use settings::limits::STUCK_FACTOR;

#[derive(Debug)]
pub(super) struct RunningBatch {
    /// Those that get rows, each with its row; several may have the same. None when it warms up a
    /// shape, or when it was given up.
    pub(super) items: Vec<(usize, Sequence)>,
    pub(super) bucket: Bucket,
    /// When its newest run did.
    pub(super) started: Moment,
    /// How many times as long as a batch that run may take.
    pub(super) patience: u32,
    /// Without a correction.
    pub(super) predicted_us: f64,
}

#[derive(Debug, Default)]
pub(super) struct WorkerState {
    pub(super) live: bool,
    /// Its batch runs for too long; it lives again when that ends after all.
    pub(super) stuck: bool,
    /// It asked for work and found none.
    pub(super) idle: bool,
    /// It was woken since and has not asked again.
    pub(super) told: bool,
    pub(super) running: Option<RunningBatch>,
    pub(super) checks: VecDeque<Sequence>,
    /// Batches of other items that it runs before its next check while such items wait.
    pub(super) owed_batches: u32,
}

impl WorkerState {
    /// Whether it runs items, and not only a shape that is warmed up.
    pub(super) fn runs_items(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.items.is_empty())
    }
}

impl<T: Clone> SchedulerState<T> {
    /// Workers with a session, and those of them that run a batch.
    pub fn live_and_busy(&self) -> (usize, usize) {
        let live = self.workers.iter().filter(|worker| worker.live);
        let busy = live.clone().filter(|worker| worker.running.is_some());
        (live.count(), busy.count())
    }

    /// A worker starts a batch now.
    pub(super) fn begin(
        &mut self,
        now: Moment,
        worker: usize,
        bucket: Bucket,
        items: Vec<(usize, Sequence)>,
    ) {
        let predicted_us = self.lanes.of(worker).cost.model().predict_us(bucket);
        let batch = RunningBatch { items, bucket, started: now, patience: 1, predicted_us };
        if self.workers[worker].running.replace(batch).is_none() {
            self.lanes.take(worker);
        }
    }

    /// A part of a worker's batch runs again, which may take `patience` times as long as a batch.
    pub fn run_again(&mut self, now: Moment, worker: usize, patience: u32) {
        if let Some(running) = &mut self.workers[worker].running {
            (running.started, running.patience) = (now, patience);
        }
    }

    /// A worker's batch ends, if it runs one.
    pub(super) fn end(&mut self, worker: usize) -> Option<RunningBatch> {
        let batch = self.workers[worker].running.take()?;
        self.lanes.leave(worker);
        Some(batch)
    }

    /// Time that a worker's batch has left, in microseconds.
    pub(super) fn left_us(&self, now: Moment, worker: usize) -> f64 {
        let Some(running) = &self.workers[worker].running else { return 0.0 };
        let elapsed_us = now.since(running.started).as_secs_f64() * 1e6;
        (running.predicted_us * self.lanes.of(worker).cost.correction() - elapsed_us).max(0.0)
    }

    /// Workers whose batch runs for too long.
    pub fn stuck(&self) -> usize {
        self.workers.iter().filter(|worker| worker.stuck).count()
    }

    /// Counts no time for batches in which the whole process stood still, up to `now`.
    pub fn pass_over(&mut self, now: Moment, pause: Duration) {
        for running in self.workers.iter_mut().filter_map(|worker| worker.running.as_mut()) {
            running.started = now.min(running.started + pause);
        }
    }

    /// Workers whose batch has run for `limit` or longer, and for several times what it should take
    /// at most, and who are not known to be stuck. Each further run of a batch has its own time.
    pub fn overdue(&self, now: Moment, limit: Duration) -> Vec<usize> {
        let is_overdue = |&worker: &usize| {
            self.workers[worker].running.as_ref().is_some_and(|run| {
                let due =
                    Duration::from_secs_f64(self.lanes.of(worker).cost.most_us(run.bucket) / 1e6);
                now.since(run.started) >= limit.max(due.mul_f64(STUCK_FACTOR)) * run.patience
            })
        };
        (0..self.workers.len()).filter(is_overdue).collect()
    }
}
