//! How batches end: they ran, they gave nothing, or their worker is gone.

use super::lanes::Width;
use super::{Action, RunningBatch, SchedulerState, WorkerState};
use crate::batch::Vectors;
use crate::clock::Moment;

/// How much the correction of a cost believes the newest batch.
const CORRECTION_WEIGHT: f64 = 0.05;

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
        let stuck = self.workers[worker].running.is_some();
        let mut actions = self.abandon_worker_items(worker);
        let state = &mut self.workers[worker];
        (state.live, state.stuck) = (false, stuck);
        actions.extend(self.wake_for_waiting(now));
        actions
    }

    fn abandon_worker_items(&mut self, worker: usize) -> Vec<Action<T>> {
        let abandon = |action| match action {
            Action::Answer { item, content, .. } => Action::Abandon { item, content },
            other => other,
        };
        let mut actions: Vec<Action<T>> =
            self.fail_batch(worker).into_iter().map(abandon).collect();
        let checks = std::mem::take(&mut self.workers[worker].checks);
        actions.extend(checks.into_iter().filter_map(|item| self.abandon(item)));
        actions
    }

    /// The batch with which it was stuck has ended after all. Its time says nothing of others.
    fn resume_stuck_worker(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        state.live |= std::mem::take(&mut state.stuck);
    }

    pub(super) fn complete_batch(
        &mut self,
        now: Moment,
        worker: usize,
        failed: &[(usize, Vectors)],
        in_parts: bool,
    ) -> Vec<Action<T>> {
        self.resume_stuck_worker(worker);
        let Some(running) = self.workers[worker].running.take() else { return Vec::new() };
        self.active = now;
        if !in_parts {
            self.learn(now, worker, &running);
        }
        self.answer(worker, running, |row, wanted| {
            failed.iter().any(|(failed, lost)| *failed == row && lost.overlaps(wanted))
        })
    }

    /// What a run took says what others will take. The first run of a shape takes a little longer,
    /// which says nothing of later ones.
    fn learn(&mut self, now: Moment, worker: usize, ran: &RunningBatch) {
        let took_us = now.since(ran.started).as_secs_f64() * 1e6;
        let Width { width, cost, .. } = self.lanes.of_mut(worker);
        if cost.is_news(ran.bucket, took_us) {
            let factor = cost.learn(ran.bucket, took_us);
            let width = *width;
            for other in self.lanes.widths.iter_mut().filter(|other| other.width != width) {
                other.cost.suppose(ran.bucket, factor);
            }
            self.plan_with_cost();
        } else if ran.predicted_us > 0.0 && !ran.items.is_empty() {
            cost.correct(took_us / ran.predicted_us, CORRECTION_WEIGHT);
        }
    }

    /// Ends the items of the worker's batch, which gave nothing.
    pub(super) fn fail_batch(&mut self, worker: usize) -> Vec<Action<T>> {
        self.resume_stuck_worker(worker);
        let Some(running) = self.workers[worker].running.take() else { return Vec::new() };
        self.answer(worker, running, |_, _| true)
    }

    /// Ends the items of a batch. `has_failed` is asked with a row and the vectors wanted of it.
    fn answer(
        &mut self,
        worker: usize,
        running: RunningBatch,
        has_failed: impl Fn(usize, Vectors) -> bool,
    ) -> Vec<Action<T>> {
        let mut actions = Vec::with_capacity(running.items.len());
        for (row, sequence) in running.items {
            let Some(item) = self.items.remove(&sequence) else { continue };
            if let Some(digest) = item.digest {
                self.groups.end(digest, worker);
            }
            let counter = if item.cancelled {
                &mut self.counts.cancelled
            } else if has_failed(row, item.vectors) {
                &mut self.counts.failed
            } else {
                &mut self.counts.replied
            };
            *counter += 1;
            actions.push(Action::Answer { row, item: sequence, content: item.content });
        }
        actions
    }
}
