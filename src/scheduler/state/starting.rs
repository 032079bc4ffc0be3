//! How batches start: what a worker gets when it asks for work.

use super::{Action, SchedulerState};
use crate::batch::Priority;
use crate::batch::plan::BatchPlan;
use crate::clock::Moment;

impl<T: Clone> SchedulerState<T> {
    /// Answers a worker that has nothing to do.
    pub(super) fn start_batch(&mut self, now: Moment, worker: usize) -> Vec<Action<T>> {
        let mut actions = self.expire(now);
        (self.workers[worker].idle, self.workers[worker].told) = (false, false);
        let plan = self.next_check(now, worker).or_else(|| self.next_batch(now, worker));
        let Some(BatchPlan { bucket, items }) = plan else {
            self.workers[worker].idle = true;
            // What waits is for lanes of another width.
            actions.extend(self.wake_for_waiting(now));
            return actions;
        };
        let (mut real, mut interactive) = (0, 0);
        let mut contents = Vec::with_capacity(items.len());
        let mut running = Vec::with_capacity(items.len());
        for (row, &sequence) in items.iter().enumerate() {
            let item = &self.items[&sequence];
            real += item.tokens;
            interactive += if item.priority == Priority::Interactive { item.tokens } else { 0 };
            contents.push((sequence, item.content.clone()));
            running.push((row, sequence));
            if let Some(digest) = item.digest {
                let followers = self.groups.start(digest, worker, row);
                running.extend(followers.map(|follower| (row, follower)));
            }
        }
        self.counts.coalesced += (running.len() - items.len()) as u64;
        for (_, sequence) in &running {
            self.deadlines.remove(&(self.items[sequence].deadline, *sequence));
        }
        self.counts.batches += 1;
        self.lanes.of_mut(worker).batches += 1;
        self.counts.tokens_real += real as u64;
        self.counts.tokens_padded += bucket.tokens() as u64;
        let part = interactive as f64 / real.max(1) as f64;
        self.admission.spend(now, self.lanes.of(worker).cost.predict_us(bucket) * part);
        self.workers[worker].running = Some(self.running_batch(now, worker, bucket, running));
        self.active = now;
        let priority = if interactive > 0 { Priority::Interactive } else { Priority::Bulk };
        actions.push(Action::Run { worker, bucket, priority, items: contents });
        actions.extend(self.wake_for_waiting(now));
        actions
    }

    fn next_batch(&mut self, now: Moment, worker: usize) -> Option<BatchPlan> {
        if self.waiting.is_empty() || !self.may_start(now, worker) {
            return None;
        }
        let plan = self.waiting.take_within(self.share(worker))?;
        let owed = &mut self.workers[worker].owed_batches;
        *owed = owed.saturating_sub(1);
        Some(plan)
    }
}
