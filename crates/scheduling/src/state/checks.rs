//! Checks of one worker's health: they pass what waits, but not so often that it starves.

use std::ops::Range;
use std::time::Duration;

use super::{Item, NewRequest, QueuePhase, Refusal, SchedulerState};
use crate::batch::plan::{BatchPlan, Sequence};
use clock::Moment;

/// Checks that may wait for one worker: one runs at a time, a few more replace those that came too
/// late.
const CHECKS_MAX: usize = 4;

/// Batches of a worker for each check that they let pass, so that checks cannot starve requests.
const BATCHES_PER_CHECK: u32 = 7;

impl<T: Clone> SchedulerState<T> {
    /// Takes a request of one item for one worker, ahead of what waits as far as that does not
    /// starve.
    ///
    /// # Errors
    /// When the worker cannot run, or enough checks of it wait.
    pub fn submit_check(
        &mut self,
        now: Moment,
        worker: usize,
        new: NewRequest<'_>,
        content: T,
    ) -> Result<Range<Sequence>, Refusal> {
        let closed = self.phase == QueuePhase::Closed;
        let live = self.workers.get_mut(worker).filter(|worker| worker.live && !closed);
        let state = live.ok_or(Refusal::NoWorker)?;
        if state.checks.len() >= CHECKS_MAX {
            return Err(Refusal::Full { retry_after: Duration::ZERO });
        }
        state.checks.push_back(self.next);
        self.counts.accepted += 1;
        self.effects.woken.push(worker);
        let item = Item { is_check: true, digest: None, ..Item::of(new, 0, now, content) };
        let sequence = self.insert(item);
        Ok(sequence..self.next)
    }

    /// The worker's next check; `None` when it owes items that wait a batch, and may run them now.
    pub(super) fn next_check(&mut self, now: Moment, worker: usize) -> Option<BatchPlan> {
        let owes = self.workers[worker].owed_batches > 0 && !self.waiting.is_empty();
        if owes && self.may_start(now, worker) {
            return None;
        }
        let state = &mut self.workers[worker];
        let check = state.checks.pop_front()?;
        state.owed_batches = BATCHES_PER_CHECK;
        let bucket = self.waiting.shapes().row(self.items[&check].tokens);
        Some(BatchPlan { bucket, items: vec![check] })
    }

    /// Time of the checks that wait, for all workers together: as if all ran before a new item.
    pub(super) fn checks_us(&self) -> f64 {
        let checks = self.workers.iter().flat_map(|worker| &worker.checks);
        let each_us = checks.map(|check| self.waiting.single_us(self.items[check].tokens));
        each_us.sum::<f64>() * self.cost().correction() / self.narrow_lanes()
    }
}
