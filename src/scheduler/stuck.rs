//! Batches that run for so long that they may never end. Their requests are answered before that.

use std::time::Duration;

use super::Scheduler;

impl Scheduler {
    /// Says that the whole process was paused for this long, up to now. No batch ran in that time.
    pub(crate) fn pass_over(&self, pause: Duration) {
        self.step(|state, now| state.pass_over(now, pause));
    }

    /// Answers the requests of batches that have run for `limit` or longer with `NoWorker`. Returns
    /// the workers of these batches, which get nothing to run until their batch ends after all.
    pub(crate) fn give_up_stuck(&self, limit: Duration) -> Vec<usize> {
        self.step(|state, now| {
            let stuck = state.overdue(now, limit);
            stuck.iter().for_each(|&worker| state.stop_stuck_worker(now, worker));
            // Here, so that whoever is answered finds it counted.
            self.0.incidents.batches_stuck.add(stuck.len() as u64);
            stuck
        })
    }
}
