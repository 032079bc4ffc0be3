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
//! While some of the others run, what waits is left to them, unless it is done much sooner when all
//! of them end first.
//!
//! What batches took of late corrects the prediction of each way on its own: a way that suffers
//! more from what else the machine does is chosen less often. A way that is not chosen would never
//! be corrected: when its cost was measured beside a load that has gone, it would seem slow for
//! ever. So it is tried for a batch now and then, as often as the time that this loses allows.

use std::time::Duration;

use super::{Action, SchedulerState};
use crate::batch::cost::RunCost;
use crate::clock::Moment;

/// The wide worker must be better by so much: threads that do not wait for each other bear
/// disturbances that no prediction knows.
const WIDE_PART_MAX: f64 = 0.9;

/// The same while others run: they end one after the other, so a core has nothing to do meanwhile.
const WIDE_PART_MAX_AFTER_OTHERS: f64 = 0.75;

/// How much the newest request counts among those of late.
const CROWD_WEIGHT: f64 = 0.2;

/// What was found before a request is forgotten over about this time.
const CROWD_SPAN: Duration = Duration::from_secs(1);

/// More than so many others for each worker decide nothing more.
const CROWD_MAX: f64 = 2.0;

/// Part of the time that trying the other way may lose.
const TRY_PART: f64 = 0.01;

/// The same for the first tries: the start may have measured anything.
const FIRST_TRY_PART: f64 = 0.1;
const FIRST_TRIES: u32 = 4;

/// A try loses so much of its batch's time at least: equal ways need not be tried often.
const TRY_LOSS_MIN: f64 = 0.1;

/// How much the corrections of the two ways believe the newest batch; the wide worker runs fewer.
const CORRECTION_WEIGHT: f64 = 0.05;
const WIDE_CORRECTION_WEIGHT: f64 = 0.3;

/// How much both believe a try, since what they knew is old.
const TRY_CORRECTION_WEIGHT: f64 = 0.5;

/// The wide worker. It is the last one.
#[derive(Debug)]
pub(super) struct Wide {
    pub(super) worker: usize,
    /// It runs nothing before that was measured, unless no other worker lives.
    pub(super) cost: RunCost,
    /// Batches that it ran.
    pub(super) batches: u64,
    tries: Tries,
    /// How many others a request found before it, on average of late.
    crowd: f64,
    updated: Moment,
}

/// When the way that is not chosen is tried.
#[derive(Debug, Default)]
struct Tries {
    /// A batch of the way that is not chosen runs.
    runs: bool,
    /// How many there were.
    count: u32,
    /// Time of batches since the other way last ran.
    since_us: f64,
    /// Whether the last batch was the wide worker's.
    was_wide: bool,
}

/// Who may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Nobody,
    Wide,
    Others,
}

/// When what waits, and what follows it, is done on the wide worker and on the others, in
/// microseconds.
#[derive(Debug, Clone, Copy)]
struct Forecast {
    wide_us: f64,
    others_us: f64,
    /// The largest batch of what waits, both ways.
    batch_us: [f64; 2],
}

impl Forecast {
    fn better(&self) -> Way {
        let is_wide = self.wide_us < self.others_us * WIDE_PART_MAX;
        if is_wide { Way::Wide } else { Way::Others }
    }

    /// Time that a batch of the other way loses.
    fn loss_us(&self) -> f64 {
        let [wide_us, others_us] = self.batch_us;
        let (better_us, worse_us, batch_us) = match self.better() {
            Way::Wide => (self.wide_us, self.others_us, wide_us),
            Way::Others | Way::Nobody => (self.others_us, self.wide_us, others_us),
        };
        (worse_us / better_us.max(f64::MIN_POSITIVE) - 1.0).max(TRY_LOSS_MIN) * batch_us
    }
}

impl Tries {
    fn is_due(&self, forecast: &Forecast) -> bool {
        let part = if self.count < FIRST_TRIES { FIRST_TRY_PART } else { TRY_PART };
        forecast.loss_us() <= self.since_us * part
    }
}

impl Wide {
    pub(super) fn new(worker: usize) -> Self {
        let (cost, updated) = (RunCost::new(), Moment::START);
        Self { worker, cost, batches: 0, tries: Tries::default(), crowd: 0.0, updated }
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

    /// A worker is about to start a batch of what waits.
    pub(super) fn note_start(&mut self, now: Moment, worker: usize) {
        let is_free = !self.others_run();
        let better = self.forecast(now).map(|forecast| forecast.better());
        let Some(wide) = &mut self.wide else { return };
        let is_wide = worker == wide.worker;
        let tries = &mut wide.tries;
        if is_wide != tries.was_wide {
            (tries.was_wide, tries.since_us) = (is_wide, 0.0);
        }
        if is_free {
            let is_try = better.is_some_and(|better| is_wide != (better == Way::Wide));
            tries.runs = is_try;
            tries.count += u32::from(is_try);
        }
        wide.batches += u64::from(is_wide);
    }

    /// How much the correction of its way believes a batch that has ended after `took_us`.
    pub(super) fn weigh(&mut self, worker: usize, took_us: f64) -> f64 {
        let beside = self.workers.iter().filter(|worker| worker.running.is_some()).count();
        let Some(wide) = &mut self.wide else { return CORRECTION_WEIGHT };
        wide.tries.since_us += took_us / (beside + 1) as f64;
        match (std::mem::take(&mut wide.tries.runs), worker == wide.worker) {
            (true, _) => TRY_CORRECTION_WEIGHT,
            (false, true) => WIDE_CORRECTION_WEIGHT,
            (false, false) => CORRECTION_WEIGHT,
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
        match (self.runs(wide.worker), self.others_run(), self.forecast(now)) {
            (true, ..) => Way::Nobody,
            (false, true, Some(forecast)) if self.is_worth_an_end(now, &forecast) => Way::Nobody,
            (false, true, _) => Way::Others,
            (false, false, Some(forecast)) => {
                match (forecast.better(), wide.tries.is_due(&forecast)) {
                    (Way::Wide, false) | (Way::Others, true) => Way::Wide,
                    _ => Way::Others,
                }
            }
            (false, false, None) if self.others_live() => Way::Others,
            (false, false, None) => Way::Wide,
        }
    }

    /// What waits, predicted both ways; `None` when there is no choice, or the wide worker was not
    /// measured.
    fn forecast(&self, now: Moment) -> Option<Forecast> {
        let wide = self.wide.as_ref().filter(|wide| wide.cost.error().is_some())?;
        if !self.workers[wide.worker].live || !self.others_live() {
            return None;
        }
        let (requests, workers) = (1.0 + wide.crowd(now), self.sharing_workers());
        let (wide_all_us, wide_batch_us) = self.waiting.work_us(wide.cost.model());
        let (all_us, batch_us) = self.waiting.work_us(self.cost.model());
        let (wide_part, part) = (wide.cost.correction(), self.cost.correction());
        Some(Forecast {
            wide_us: wide_all_us * requests * wide_part,
            others_us: (all_us * requests / workers).max(batch_us) * part,
            batch_us: [wide_batch_us * wide_part, batch_us * part],
        })
    }

    /// Whether the workers that run are to end before anything else starts, since all cores do what
    /// waits so much sooner then.
    fn is_worth_an_end(&self, now: Moment, forecast: &Forecast) -> bool {
        let is_try = self.wide.as_ref().is_some_and(|wide| wide.tries.runs);
        let left_us = (0..self.others()).map(|worker| self.left_us(now, worker));
        let wide_us = forecast.wide_us + left_us.fold(0.0, f64::max);
        !is_try && wide_us < forecast.others_us * WIDE_PART_MAX_AFTER_OTHERS
    }

    fn runs(&self, worker: usize) -> bool {
        self.workers[worker].running.is_some()
    }

    fn others_live(&self) -> bool {
        self.workers[..self.others()].iter().any(|worker| worker.live)
    }

    fn others_run(&self) -> bool {
        (0..self.others()).any(|worker| self.runs(worker))
    }
}

#[cfg(test)]
mod tests;
