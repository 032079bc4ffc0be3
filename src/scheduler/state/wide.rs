//! Which way the next batch is run: by the wide worker, whose session has all cores, or by the
//! others, which have a part of them each.
//!
//! Both have the same cores, so the wide worker starts only while no other runs, and no other
//! starts while it runs. When nothing runs, what waits is predicted both ways. A text that is alone
//! is done sooner by all cores. Many texts are done sooner by workers that do not wait for each
//! other, each with a batch of its own. So are texts that others follow soon: how many those are is
//! taken from what the requests of late found before them.
//!
//! An example: two workers with one core each, and the wide one with both. A text takes 13 ms on
//! one core and 8 ms on two.
//!
//! | what waits | others of late | the wide worker | the others | who runs |
//! |---|---|---|---|---|
//! | one text | 0 | 8 ms | 13 ms | the wide worker |
//! | one text | 1 | 8 ms, and 8 ms for the one that follows | 13 ms, both at once | the others |
//! | 32 texts | 0 | 110 ms | 110 ms on each of two | the others |
//!
//! What batches took of late corrects the prediction of each way on its own: a way that suffers
//! more from what else the machine does is chosen less often. So that it is chosen again when that
//! is over, and when its cost was measured beside a load that has gone, the wide worker gets one in
//! some texts that are alone whatever is predicted.

use std::time::Duration;

use super::{Action, SchedulerState};
use crate::batch::cost::RunCost;
use crate::clock::Moment;

/// The wide worker must be better by so much: threads that do not wait for each other bear
/// disturbances that no prediction knows.
const WIDE_PART_MAX: f64 = 0.9;

/// How much the newest request counts among those of late.
const CROWD_WEIGHT: f64 = 0.2;

/// What was found before a request is forgotten over about this time.
const CROWD_SPAN: Duration = Duration::from_secs(1);

/// More than so many others for each worker decide nothing more.
const CROWD_MAX: f64 = 2.0;

/// After so many texts that were alone and ran elsewhere, the wide worker gets one.
const TRY_AFTER: u32 = 16;

/// The wide worker. It is the last one.
#[derive(Debug)]
pub(super) struct Wide {
    pub(super) worker: usize,
    /// It runs nothing before that was measured, unless no other worker lives.
    pub(super) cost: RunCost,
    /// Batches that it ran.
    pub(super) batches: u64,
    /// Texts that were alone and ran elsewhere since its last batch.
    untried: u32,
    /// How many others a request found before it, on average of late.
    crowd: f64,
    updated: Moment,
}

/// Who may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Nobody,
    Wide,
    Others,
}

impl Wide {
    pub(super) fn new(worker: usize) -> Self {
        let (cost, updated) = (RunCost::new(), Moment::START);
        Self { worker, cost, batches: 0, untried: 0, crowd: 0.0, updated }
    }

    fn crowd(&self, now: Moment) -> f64 {
        let spans = now.since(self.updated).as_secs_f64() / CROWD_SPAN.as_secs_f64();
        self.crowd * (-spans).exp()
    }
}

impl<T: Clone> SchedulerState<T> {
    /// Workers but the wide one.
    pub(super) fn others(&self) -> usize {
        self.workers.len() - usize::from(self.wide.is_some())
    }

    /// A request comes and finds others before it, or does not.
    pub(super) fn note_crowd(&mut self, now: Moment) {
        let running = self.workers.iter().filter(|worker| worker.runs_items()).count();
        let most = CROWD_MAX * self.others() as f64;
        let found = ((running + self.waiting.len()) as f64).min(most);
        if let Some(wide) = &mut self.wide {
            let crowd = wide.crowd(now);
            wide.crowd = crowd + CROWD_WEIGHT * (found - crowd);
            wide.updated = now;
        }
    }

    /// A worker starts a batch of so many items.
    pub(super) fn note_start(&mut self, worker: usize, items: usize) {
        let is_alone = items == 1 && self.waiting.is_empty() && !self.others_run();
        let Some(wide) = &mut self.wide else { return };
        if worker == wide.worker {
            wide.batches += 1;
            wide.untried = 0;
        } else if is_alone {
            wide.untried += 1;
        }
    }

    /// Whether the worker may run what waits now.
    pub(super) fn may_start(&self, now: Moment, worker: usize) -> bool {
        match (&self.wide, self.way(now)) {
            (None, _) => true,
            (Some(_), Way::Nobody) => false,
            (Some(wide), Way::Wide) => worker == wide.worker,
            (Some(wide), Way::Others) => worker != wide.worker,
        }
    }

    /// Wakes one worker that may run what waits. While one is on its way already there is none: it
    /// wakes the next one when it leaves something.
    pub(super) fn wake_for_waiting(&mut self, now: Moment) -> Option<Action<T>> {
        if self.waiting.is_empty() || self.workers.iter().any(|worker| worker.told) {
            return None;
        }
        let others = self.others();
        let range = match (&self.wide, self.way(now)) {
            (None, _) | (Some(_), Way::Others) => 0..others,
            (Some(wide), Way::Wide) => wide.worker..wide.worker + 1,
            (Some(_), Way::Nobody) => return None,
        };
        let idle = |&worker: &usize| self.workers[worker].live && self.workers[worker].idle;
        let worker = range.into_iter().find(idle)?;
        let state = &mut self.workers[worker];
        (state.idle, state.told) = (false, true);
        Some(Action::Wake { worker })
    }

    /// Whether a worker can start at once.
    pub(super) fn can_start(&self) -> bool {
        let idle = |worker: usize| {
            let state = &self.workers[worker];
            state.live && state.running.is_none() && state.checks.is_empty()
        };
        let wide_runs = self.wide.as_ref().is_some_and(|wide| self.runs(wide.worker));
        let one_of_others = (0..self.others()).any(idle);
        let wide_idles = self.wide.as_ref().is_some_and(|wide| idle(wide.worker));
        !wide_runs && (one_of_others || wide_idles && !self.others_run())
    }

    fn way(&self, now: Moment) -> Way {
        let Some(wide) = &self.wide else { return Way::Others };
        let wide_lives = self.workers[wide.worker].live;
        let others_live = self.workers[..wide.worker].iter().any(|worker| worker.live);
        match (self.runs(wide.worker), self.others_run()) {
            (true, _) => Way::Nobody,
            (false, true) => Way::Others,
            (false, false) if wide_lives && (!others_live || self.is_wide_better(now)) => Way::Wide,
            (false, false) => Way::Others,
        }
    }

    /// Whether what waits, and what follows it, is done sooner on the wide worker.
    fn is_wide_better(&self, now: Moment) -> bool {
        let Some(wide) = &self.wide else { return false };
        if wide.cost.error().is_none() {
            return false;
        }
        if wide.untried >= TRY_AFTER && self.waiting.len() == 1 {
            return true;
        }
        let (crowd, workers) = (wide.crowd(now), self.sharing_workers());
        let (all_us, largest_us) = self.waiting.work_us(None);
        let (wide_us, _) = self.waiting.work_us(Some(wide.cost.model()));
        let others_us = (all_us / workers).max(largest_us) * self.cost.correction();
        let more_than_workers = (crowd + 1.0 - workers).max(0.0);
        wide_us * wide.cost.correction() * (1.0 + crowd)
            < others_us * (1.0 + more_than_workers / workers) * WIDE_PART_MAX
    }

    fn runs(&self, worker: usize) -> bool {
        self.workers[worker].running.is_some()
    }

    fn others_run(&self) -> bool {
        (0..self.others()).any(|worker| self.runs(worker))
    }
}

#[cfg(test)]
mod tests;
