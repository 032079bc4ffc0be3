//! Which requests are taken, and when their items have their turns.

use std::time::Duration;

use super::{Phase, Refused, Running, State};
use crate::batch::Priority;
use crate::clock::Moment;
use crate::limits::TURNS_PART;

/// A request that asks to be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub tokens: &'a [usize],
    pub priority: Priority,
    pub deadline: Moment,
}

impl State {
    /// Time that a new item would wait before it runs, were it the last of the queue.
    pub fn predicted_wait(&self, now: Moment) -> Duration {
        if self.is_idle() {
            return Duration::ZERO;
        }
        let backlog_us = self.backlog_us(Priority::Interactive) + self.backlog_us(Priority::Bulk);
        micros(self.running_us(now) + backlog_us)
    }

    /// Refuses a request that does not fit.
    pub(super) fn admit(&self, now: Moment, new: Candidate<'_>) -> Result<(), Refused> {
        match self.phase {
            Phase::Draining => return Err(Refused::Draining),
            Phase::Closed => return Err(Refused::NoWorker),
            Phase::Open => {}
        }
        if self.items.len() + new.tokens.len() > self.config.capacity {
            return Err(Refused::Full { retry_after: self.predicted_wait(now) });
        }
        Ok(())
    }

    /// Turns of a request's items: when each would run were the workers the request's own. So a
    /// large request lets others in between, and those cannot hold it up beyond its time.
    pub(super) fn turns(&self, now: Moment, new: Candidate<'_>) -> Vec<Moment> {
        let last = now + new.deadline.since(now).mul_f64(TURNS_PART);
        let live = self.live_and_busy().0.max(1) as f64;
        let mut before_us = 0.0;
        let mut turn = |&tokens: &usize| {
            let turn = now + micros(before_us);
            before_us += self.waiting.item_us(tokens) * self.correction / live;
            turn.min(last)
        };
        new.tokens.iter().map(&mut turn).collect()
    }

    /// A worker can start at once, and nothing is before a new item.
    fn is_idle(&self) -> bool {
        let idle = self.workers.iter().any(|worker| worker.live && worker.running.is_none());
        idle && self.waiting.is_empty()
    }

    /// Time of what waits, for all workers together.
    fn backlog_us(&self, priority: Priority) -> f64 {
        let live = self.live_and_busy().0.max(1) as f64;
        self.waiting.backlog_us(priority) * self.correction / live
    }

    /// Time until the workers have run what they run, on average.
    fn running_us(&self, now: Moment) -> f64 {
        let left_us = |running: &Running| {
            let elapsed_us = now.since(running.started).as_secs_f64() * 1e6;
            (running.predicted_us * self.correction - elapsed_us).max(0.0)
        };
        let running = self.workers.iter().filter_map(|worker| worker.running.as_ref());
        running.map(left_us).sum::<f64>() / self.live_and_busy().0.max(1) as f64
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3) as u64)
}
