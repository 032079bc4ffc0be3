//! How batches end: they ran, they gave nothing, or their worker is gone.

use super::{Action, SchedulerState, WorkerState};
use crate::batch::plan::Sequence;
use crate::clock::Moment;

/// How much the running correction of the cost model believes the newest batch.
const CORRECTION_WEIGHT: f64 = 0.05;

/// The same for the wide worker, which runs fewer batches.
const WIDE_CORRECTION_WEIGHT: f64 = 0.3;

/// The correction stays within a factor of this.
const CORRECTION_MAX: f64 = 8.0;

impl<T: Clone> SchedulerState<T> {
    /// Ends what the worker runs and what only it could run.
    pub(super) fn lose_worker(&mut self, now: Moment, worker: usize) -> Vec<Action<T>> {
        let mut actions = self.abandon_worker_items(worker);
        self.workers[worker] = WorkerState::default();
        actions.extend(self.wake_for_waiting(now));
        actions
    }

    /// Ends what the worker runs and what only it could run. It is given nothing until its batch
    /// ends after all.
    pub(super) fn stop_stuck_worker(&mut self, now: Moment, worker: usize) -> Vec<Action<T>> {
        let mut actions = self.abandon_worker_items(worker);
        let state = &mut self.workers[worker];
        (state.live, state.stuck) = (false, true);
        actions.extend(self.wake_for_waiting(now));
        actions
    }

    fn abandon_worker_items(&mut self, worker: usize) -> Vec<Action<T>> {
        let running = self.fail_batch(worker).into_iter();
        let mut actions: Vec<Action<T>> =
            running.map(|(item, content)| Action::Abandon { item, content }).collect();
        let checks = std::mem::take(&mut self.workers[worker].checks);
        actions.extend(checks.into_iter().filter_map(|item| self.abandon(item)));
        actions
    }

    fn resume_stuck_worker(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        if std::mem::take(&mut state.stuck) {
            state.live = true;
        }
    }

    pub(super) fn complete_batch(
        &mut self,
        now: Moment,
        worker: usize,
        failed: &[Sequence],
    ) -> Vec<Action<T>> {
        self.resume_stuck_worker(worker);
        let Some(running) = self.workers[worker].running.take() else { return Vec::new() };
        self.active = now;
        let took_us = now.since(running.started).as_secs_f64() * 1e6;
        if running.predicted_us > 0.0 {
            let seen = (took_us / running.predicted_us).clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX);
            let wide = self.wide.as_mut().filter(|wide| wide.worker == worker);
            let (correction, weight) = match wide {
                Some(wide) => (&mut wide.correction, WIDE_CORRECTION_WEIGHT),
                None => (&mut self.correction, CORRECTION_WEIGHT),
            };
            *correction += weight * (seen - *correction);
        }
        for item in running.items {
            let Some(state) = self.items.remove(&item) else { continue };
            let counter = if state.cancelled {
                &mut self.counts.cancelled
            } else if failed.contains(&item) {
                &mut self.counts.failed
            } else {
                &mut self.counts.replied
            };
            *counter += 1;
        }
        Vec::new()
    }

    /// Ends the items of the worker's batch, which gave nothing.
    pub(super) fn fail_batch(&mut self, worker: usize) -> Vec<(Sequence, T)> {
        self.resume_stuck_worker(worker);
        let Some(running) = self.workers[worker].running.take() else { return Vec::new() };
        let mut ended = Vec::with_capacity(running.items.len());
        for sequence in running.items {
            let Some(item) = self.items.remove(&sequence) else { continue };
            let counter =
                if item.cancelled { &mut self.counts.cancelled } else { &mut self.counts.failed };
            *counter += 1;
            ended.push((sequence, item.content));
        }
        ended
    }
}
