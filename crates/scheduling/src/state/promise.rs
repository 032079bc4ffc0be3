//! A promised time of interactive items, `interactive-p99-ms`: bulk items run as far as it allows.
//!
//! An interactive item waits until a batch that has begun is over. So a batch of bulk items takes a
//! part of the promised time at most. A bulk text that takes longer on its own leaves a narrow lane
//! free. Where it cannot, it waits until nothing else runs.
//!
//! The part follows what interactive items saw. Each that took longer than promised while bulk ran
//! makes it a twentieth smaller, each other one makes it a little larger: so that about one in 200
//! misses. What bulk items are owed of the workers' time they get all the same. When no interactive
//! item has come for `REST`, nothing is kept back for one: the first one behind a pause may miss.
//!
//! | 50 ms are promised | part | longest bulk batch |
//! |---|---|---|
//! | at the start | 1.00 | 50 ms |
//! | ten items missed it | 0.60 | 30 ms |
//! | 1,000 items kept it since | 0.70 | 35 ms |

use std::time::Duration;

use super::{RunningBatch, SchedulerState};
use crate::batch::Priority;
use clock::Moment;

/// Nothing is kept back before somebody had to wait.
const FIRST_PART: f64 = 1.0;
const PART_MIN: f64 = 0.02;

/// The part is multiplied with it by an item that missed the promise.
const MISSED_FACTOR: f64 = 0.95;

/// The part grows by it with an item that kept the promise.
const KEPT_STEP: f64 = 1e-4;

/// Without an interactive item for so long, bulk runs as it likes.
const REST: Duration = Duration::from_secs(10);

/// What was promised, and what follows for bulk items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    p99: Duration,
    /// Of the promised time, for a batch of bulk items.
    part: f64,
    /// When an interactive item came last; `None` before the first one.
    came: Option<Moment>,
    /// When a batch that bulk items led was last seen to run: at its end, or when an item expired.
    bulk_ran: Moment,
    /// Interactive items that kept the promise, and those that missed it.
    kept: u64,
    missed: u64,
}

impl Promise {
    /// Whether interactive items come.
    fn is_asked(&self, now: Moment) -> bool {
        self.came.is_some_and(|came| now.since(came) < REST)
    }
}

/// What became of the promise.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PromiseFigures {
    /// At most one in a hundred interactive items should take longer; zero without a promise.
    pub p99: Duration,
    /// Longest batch of bulk items that is started; zero without a promise.
    pub bulk_batch: Duration,
    /// Interactive items that were answered in this time.
    pub kept: u64,
    /// Those that took longer, or expired.
    pub missed: u64,
}

impl<T: Clone> SchedulerState<T> {
    /// Promises interactive items a time from their submission to their rows.
    pub fn set_promise(&mut self, p99: Duration) {
        let (came, bulk_ran) = (None, Moment::START);
        self.promise = Some(Promise { p99, part: FIRST_PART, came, bulk_ran, kept: 0, missed: 0 });
    }

    /// What became of the promise.
    pub fn promise(&self) -> PromiseFigures {
        let figures = |Promise { p99, part, kept, missed, .. }| PromiseFigures {
            p99,
            bulk_batch: p99.mul_f64(part),
            kept,
            missed,
        };
        self.promise.map(figures).unwrap_or_default()
    }

    /// An interactive item comes.
    pub(super) fn note_interactive(&mut self, now: Moment) {
        if let Some(promise) = &mut self.promise {
            promise.came = Some(now);
        }
    }

    /// The items of a batch that ran have their rows now.
    pub(super) fn note_times(&mut self, now: Moment, ran: &RunningBatch) {
        let is_bulk = self.is_led_by_bulk(ran);
        let Some(promise) = &mut self.promise else { return };
        if is_bulk {
            promise.bulk_ran = now;
        }
        let p99 = promise.p99;
        for (_, item) in &ran.items {
            let Some(item) = self.items.get(item) else { continue };
            // Also one whose client has left: its rows came when they came.
            if item.is_promised() {
                self.note_promise(item.turn, now.since(item.turn) <= p99);
            }
        }
    }

    /// An interactive item of this turn waited until its deadline. What held it up may still run.
    pub(super) fn note_expired(&mut self, now: Moment, turn: Moment) {
        let mut running = self.workers.iter().filter_map(|worker| worker.running.as_ref());
        let runs_bulk = running.any(|batch| self.is_led_by_bulk(batch));
        if let Some(promise) = self.promise.as_mut().filter(|_| runs_bulk) {
            promise.bulk_ran = now;
        }
        self.note_promise(turn, false);
    }

    fn is_led_by_bulk(&self, batch: &RunningBatch) -> bool {
        let first = batch.items.first().and_then(|(_, item)| self.items.get(item));
        first.is_some_and(|item| item.priority == Priority::Bulk)
    }

    /// The promise was kept for an interactive item of this turn, or it was not.
    fn note_promise(&mut self, turn: Moment, is_kept: bool) {
        let Some(promise) = &mut self.promise else { return };
        if is_kept {
            promise.kept += 1;
            promise.part = (promise.part + KEPT_STEP).min(1.0);
            return;
        }
        promise.missed += 1;
        if promise.bulk_ran > turn {
            promise.part = (promise.part * MISSED_FACTOR).max(PART_MIN);
        }
    }

    /// Longest predicted time of a bulk batch on the narrowest lanes, without a correction.
    pub(super) fn bulk_us(&self, now: Moment) -> f64 {
        let asked = self.promise.filter(|promise| promise.is_asked(now));
        asked.map_or(f64::INFINITY, |Promise { p99, part, .. }| {
            p99.as_secs_f64() * 1e6 * part / self.cost().correction()
        })
    }

    /// Whether nothing waits but bulk items, whose first text takes longer than that.
    pub(super) fn is_long_bulk(&self, now: Moment) -> bool {
        self.waiting.is_long_bulk(self.bulk_us(now))
    }
}
