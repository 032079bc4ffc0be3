//! Batches that run for so long that they may never end: their requests are answered without them.

use std::time::Duration;

use super::Scheduler;
use super::state::Event;

impl Scheduler {
    /// Says that the process stood still for so long, up to now: no batch ran meanwhile.
    pub(crate) fn pass_over(&self, pause: Duration) {
        let now = self.0.clock.now();
        self.0.state.lock().pass_over(now, pause);
    }

    /// Answers the requests of batches that have run for `limit` or longer with `NoWorker`, and
    /// gives their workers, which get nothing to run until their batch ends after all.
    pub(crate) fn give_up_stuck(&self, limit: Duration) -> Vec<usize> {
        let mut state = self.0.state.lock();
        let now = self.0.clock.now();
        let stuck = state.overdue(now, limit);
        let mut actions = Vec::new();
        for &worker in &stuck {
            actions.append(&mut state.handle(now, &Event::WorkerStuck { worker }));
        }
        drop(state);
        self.0.incidents.batches_stuck.add(stuck.len() as u64);
        let (_, ended) = self.carry_out(actions);
        self.answer_ended(ended);
        stuck
    }
}
