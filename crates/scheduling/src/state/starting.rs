//! How batches start: what a worker gets when it asks for work.

use super::{Run, SchedulerState};
use crate::batch::plan::BatchPlan;
use crate::batch::{Bucket, Priority};
use clock::Moment;

impl<T: Clone> SchedulerState<T> {
    /// What a worker runs that has nothing to do; `None` when it is to wait until it is woken.
    pub fn ask_for_work(&mut self, now: Moment, worker: usize) -> Option<Run<T>> {
        self.expire(now);
        (self.workers[worker].idle, self.workers[worker].told) = (false, false);
        let plan = self.next_check(now, worker).or_else(|| self.next_batch(now, worker));
        self.workers[worker].idle = plan.is_none();
        let run = plan.map(|plan| self.start_batch(now, worker, plan));
        // What waits may be for other lanes.
        self.wake_for_waiting(now);
        run
    }

    /// A worker that found nothing to do runs this shape; it is busy until that has ended.
    pub fn warm_up(&mut self, now: Moment, worker: usize, bucket: Bucket) {
        let state = &mut self.workers[worker];
        (state.idle, state.told) = (false, false);
        self.begin(now, worker, bucket, Vec::new());
    }

    fn start_batch(&mut self, now: Moment, worker: usize, plan: BatchPlan) -> Run<T> {
        let BatchPlan { bucket, items } = plan;
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
        self.admission.spend(now, self.cost().predict_us(bucket) * part);
        self.begin(now, worker, bucket, running);
        self.active = now;
        let priority = if interactive > 0 { Priority::Interactive } else { Priority::Bulk };
        Run { bucket, priority, items: contents }
    }

    fn next_batch(&mut self, now: Moment, worker: usize) -> Option<BatchPlan> {
        if self.waiting.is_empty() || !self.may_start(now, worker) {
            return None;
        }
        let plan = self.waiting.take(self.share(worker), self.bulk_us(now))?;
        let owed = &mut self.workers[worker].owed_batches;
        *owed = owed.saturating_sub(1);
        Some(plan)
    }
}
