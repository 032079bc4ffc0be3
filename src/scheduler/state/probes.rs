//! Checks of one worker's health: they pass what waits, but not so often that it starves.

use std::time::Duration;

use super::{Action, Item, Phase, Refusal, State};
use crate::batch::plan::Plan;

/// Checks that may wait for one worker: one runs at a time, a few more replace those that came too
/// late.
const PROBES_MAX: usize = 4;

/// Batches of a worker for each check that they let pass, so that checks cannot starve requests.
const BATCHES_A_PROBE: u32 = 7;

impl<T: Clone> State<T> {
    pub(super) fn probe(&mut self, worker: usize, item: Item<T>) -> Vec<Action<T>> {
        let closed = self.phase == Phase::Closed;
        let live = self.workers.get_mut(worker).filter(|worker| worker.live && !closed);
        let Some(state) = live else {
            return vec![Action::Refuse(Refusal::NoWorker)];
        };
        if state.probes.len() >= PROBES_MAX {
            return vec![Action::Refuse(Refusal::Full { retry_after: Duration::ZERO })];
        }
        let sequence = self.next;
        self.counts.accepted += 1;
        state.probes.push_back(sequence);
        self.insert(item);
        vec![Action::Accept { items: sequence..self.next }, Action::WakeAll]
    }

    /// The worker's next probe, unless it is the others' turn.
    pub(super) fn next_probe(&mut self, worker: usize) -> Option<Plan> {
        let state = &mut self.workers[worker];
        if state.owed_batches > 0 && !self.waiting.is_empty() {
            return None;
        }
        let probe = state.probes.pop_front()?;
        state.owed_batches = BATCHES_A_PROBE;
        let bucket = self.waiting.table().single(self.items[&probe].tokens);
        Some(Plan { bucket, items: vec![probe] })
    }

    /// Time of the probes that wait, for all workers together: as if all ran before a new item.
    pub(super) fn probes_us(&self) -> f64 {
        let probes = self.workers.iter().flat_map(|worker| &worker.probes);
        let each_us = probes.map(|probe| self.waiting.single_us(self.items[probe].tokens));
        each_us.sum::<f64>() * self.correction / self.sharing_workers()
    }
}
