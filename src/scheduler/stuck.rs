//! Batches that run for so long that they may never end: their requests are answered without them.

use std::time::Duration;

use super::state::Event;
use super::{Scheduler, give_up};

impl Scheduler {
    /// Answers the requests of batches that have run for `limit` or longer with `NoWorker`, and
    /// gives their workers, which get nothing to run until their batch ends after all.
    pub fn give_up_stuck(&self, limit: Duration) -> Vec<usize> {
        let mut locked = self.0.locked.lock();
        let now = self.0.clock.now();
        let stuck = locked.state.overdue(now, limit);
        let (mut ended, mut requests) = (Vec::new(), Vec::new());
        for &worker in &stuck {
            let actions = locked.state.handle(now, &Event::WorkerStuck { worker });
            ended.append(&mut self.carry_out(&mut locked, actions).1);
            requests.append(&mut locked.running[worker]);
        }
        drop(locked);
        if !stuck.is_empty() {
            self.0.incidents.batches_stuck.add(stuck.len() as u64);
            give_up(&requests);
            self.tell(ended);
            self.tell_empty();
        }
        stuck
    }
}
