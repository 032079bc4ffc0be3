//! Workers as the machine knows them.

use std::collections::VecDeque;
use std::time::Duration;

use super::SchedulerState;
use crate::batch::Bucket;
use crate::batch::plan::Sequence;
use crate::clock::Moment;
use crate::limits::STUCK_FACTOR;

#[derive(Debug)]
pub(super) struct RunningBatch {
    pub(super) items: Vec<Sequence>,
    pub(super) started: Moment,
    pub(super) predicted_us: f64,
}

#[derive(Debug, Default)]
pub(super) struct WorkerState {
    pub(super) live: bool,
    /// Its batch runs for too long; it lives again when the batch ends after all.
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
    pub(crate) fn live_and_busy(&self) -> (usize, usize) {
        let live = self.workers.iter().filter(|worker| worker.live);
        let busy = live.clone().filter(|worker| worker.running.is_some());
        (live.count(), busy.count())
    }

    /// Measured over predicted time of the batches of late, of the worker's way.
    pub(super) fn correction_of(&self, worker: usize) -> f64 {
        let wide = self.wide.as_ref().filter(|wide| wide.worker == worker);
        wide.map_or(self.correction, |wide| wide.correction)
    }

    /// Predicted time of a run on a worker, without its correction.
    pub(super) fn predict_us(&self, worker: usize, bucket: Bucket) -> f64 {
        let wide = self.wide.as_ref().filter(|wide| wide.worker == worker);
        wide.and_then(|wide| wide.cost).unwrap_or(self.cost).predict_us(bucket)
    }

    /// Workers whose batch runs for too long.
    pub fn stuck(&self) -> usize {
        self.workers.iter().filter(|worker| worker.stuck).count()
    }

    /// Workers whose batch has run for `limit` or longer, and for several times what it should, and
    /// who are not known to be stuck.
    pub(crate) fn overdue(&self, now: Moment, limit: Duration) -> Vec<usize> {
        let is_overdue = |&worker: &usize| {
            self.workers[worker].running.as_ref().is_some_and(|run| {
                let due_us = run.predicted_us * self.correction_of(worker);
                let due = Duration::from_secs_f64(due_us / 1e6);
                now.since(run.started) >= limit.max(due.mul_f64(STUCK_FACTOR))
            })
        };
        (0..self.workers.len()).filter(is_overdue).collect()
    }
}
