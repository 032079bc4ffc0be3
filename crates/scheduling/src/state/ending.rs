//! How batches end: they ran, they gave nothing, or their worker is gone.

use super::lanes::Width;
use super::{ItemAnswer, RunningBatch, SchedulerState, WorkerState};
use crate::batch::Vectors;
use clock::Moment;

/// How much the correction of a cost believes the newest batch.
const CORRECTION_WEIGHT: f64 = 0.05;

impl<T: Clone> SchedulerState<T> {
    /// A worker has a session and takes batches.
    pub fn open_worker(&mut self, worker: usize) {
        self.workers[worker].live = true;
    }

    /// A worker has no session any more. Ends what it runs and what only it could run.
    pub fn lose_worker(&mut self, now: Moment, worker: usize) {
        self.abandon_worker_items(worker);
        self.workers[worker] = WorkerState::default();
        self.wake_for_waiting(now);
    }

    /// A worker's batch runs for so long that it may never end. Ends what it runs and what only it
    /// could run. It is given nothing until its batch ends after all.
    pub fn stop_stuck_worker(&mut self, now: Moment, worker: usize) {
        let stuck = self.workers[worker].running.is_some();
        self.abandon_worker_items(worker);
        let state = &mut self.workers[worker];
        (state.live, state.stuck) = (false, stuck);
        self.wake_for_waiting(now);
    }

    fn abandon_worker_items(&mut self, worker: usize) {
        let ran = self.fail_batch(worker).into_iter();
        self.effects.abandoned.extend(ran.map(|ItemAnswer { item, content, .. }| (item, content)));
        let checks = std::mem::take(&mut self.workers[worker].checks);
        checks.into_iter().for_each(|item| self.abandon(item));
    }

    /// The batch with which it was stuck has ended after all. Its time says nothing of others.
    fn resume_stuck_worker(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        state.live |= std::mem::take(&mut state.stuck);
    }

    /// A worker's batch ran; the rows of `failed` do not have these vectors. The time of one that
    /// was run in parts says nothing of others.
    pub fn complete_batch(
        &mut self,
        now: Moment,
        worker: usize,
        failed: &[(usize, Vectors)],
        in_parts: bool,
    ) -> Vec<ItemAnswer<T>> {
        self.resume_stuck_worker(worker);
        let Some(running) = self.end(worker) else { return Vec::new() };
        self.active = now;
        if !in_parts {
            self.learn(now, worker, &running);
        }
        self.note_times(now, &running);
        self.answer(worker, running, |row, wanted| {
            failed.iter().any(|(failed, lost)| *failed == row && lost.overlaps(wanted))
        })
    }

    /// What a run took says what others will take. The first run of a shape takes a little longer,
    /// which says nothing of later ones.
    fn learn(&mut self, now: Moment, worker: usize, ran: &RunningBatch) {
        let took_us = now.since(ran.started).as_secs_f64() * 1e6;
        let Width { width, cost, .. } = self.lanes.of_mut(worker);
        if let Some(factor) = cost.learn(ran.bucket, took_us) {
            let width = *width;
            for other in self.lanes.widths.iter_mut().filter(|other| other.width != width) {
                other.cost.suppose(ran.bucket, factor);
            }
            self.plan_with_cost();
        } else if ran.predicted_us > 0.0 && !ran.items.is_empty() {
            cost.correct(took_us / ran.predicted_us, CORRECTION_WEIGHT);
        }
    }

    /// A worker's batch gave nothing.
    pub fn fail_batch(&mut self, worker: usize) -> Vec<ItemAnswer<T>> {
        self.resume_stuck_worker(worker);
        let Some(running) = self.end(worker) else { return Vec::new() };
        self.answer(worker, running, |_, _| true)
    }

    /// Ends the items of a batch. `has_failed` is asked with a row and the vectors wanted of it.
    fn answer(
        &mut self,
        worker: usize,
        running: RunningBatch,
        has_failed: impl Fn(usize, Vectors) -> bool,
    ) -> Vec<ItemAnswer<T>> {
        let mut answers = Vec::with_capacity(running.items.len());
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
            answers.push(ItemAnswer { row, item: sequence, content: item.content });
        }
        answers
    }
}
