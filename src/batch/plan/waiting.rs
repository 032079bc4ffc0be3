//! Waiting items, and which of them run next.
//!
//! A plan is judged by its *waste*: its predicted time less what its items would cost if each
//! length class ran on its own. Padding and half-empty rows make it positive, sharing the fixed
//! cost of a run makes it negative. While no item of a priority is over its age bound, the least
//! waste wins; then the item of the earliest turn leads, whatever it wastes.
//!
//! Interactive items lead, unless bulk items are owed a batch: what they are owed grows by
//! `BULK_SHARE` of every batch they have to let pass. Rows that cost next to nothing are filled
//! with items of the other priority, longer ones too: on a GPU all rows up to some size. So nothing
//! starves, and an idle worker never waits.
//!
//! An example: interactive items of 15, 17 and 120 tokens wait, in this order, and a run takes 2 ms
//! and 0.1 ms for each padded token. The least waste is that of the first two together, so they
//! run. Then the third one is alone, and runs.
//!
//! | items | bucket | takes | on their own | waste |
//! |---|---|---|---|---|
//! | 15 | 1 × 16 | 3.6 ms | 3.6 ms | 0 |
//! | 15, 17 | 2 × 24 | 6.8 ms | 3.6 + 4.4 ms | −1.2 ms |
//! | 15, 120 | 2 × 128 | 27.6 ms | 3.6 + 14.8 ms | 9.2 ms |
//! | 15, 17, 120 | 3 × 128 | 40.4 ms | 3.6 + 4.4 + 14.8 ms | 17.6 ms |
//! | 120 | 1 × 128 | 14.8 ms | 14.8 ms | 0 |
//!
//! Were the third one bulk, each batch of the others would earn it a fifth of 6.8 ms. It leads once
//! it is owed four fifths of its own 14.8 ms, after nine such batches.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{BucketTable, LengthClass};
use crate::batch::cost::CostModel;
use crate::batch::{Bucket, Priority};
use crate::clock::Moment;
use crate::limits::BULK_SHARE;

/// A batch may take this much longer to run items of the other priority too.
const FILL_COST_MAX: f64 = 1.1;

/// Arrival number of an item: smaller is older, unique.
pub type Sequence = u64;

/// An item that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingItem {
    /// Its number.
    pub sequence: Sequence,
    /// Its tokens, special tokens included.
    pub tokens: usize,
    /// Of its request.
    pub priority: Priority,
    /// Items of one priority run in this order, as far as their lengths allow; its age counts from
    /// here.
    pub turn: Moment,
}

/// The next batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlan {
    /// The shape that runs.
    pub bucket: Bucket,
    /// At least one, at most `bucket.rows`; each fits `bucket.length`. The first one leads.
    pub items: Vec<Sequence>,
}

/// Waiting items by priority, length class and turn.
#[derive(Debug)]
pub struct WaitingItems {
    table: BucketTable,
    /// Predicted time of each bucket of the table, by class.
    costs_us: Vec<Vec<f64>>,
    interactive: Queue,
    bulk: Queue,
    /// Time of workers that bulk items are owed by interactive ones.
    owed_us: f64,
}

/// Order of items within a queue.
type Turn = (Moment, Sequence);

/// Items of one priority.
#[derive(Debug)]
struct Queue {
    /// Tokens of each item, by length class.
    by_class: Vec<BTreeMap<Turn, usize>>,
    items: usize,
    tokens: usize,
}

/// A batch under consideration: the lead, then the earliest of `class` and of shorter classes.
#[derive(Debug, Clone, Copy)]
struct BatchCandidate {
    lead: Turn,
    lead_class: usize,
    class: usize,
    items: usize,
    bucket: Bucket,
    cost_us: f64,
    waste_us: f64,
}

impl WaitingItems {
    /// Nothing waits.
    ///
    /// # Panics
    /// Without any bucket: an engine that can run nothing is a mistake of this crate.
    pub fn new(table: BucketTable, cost: &CostModel) -> Self {
        assert!(!table.classes.is_empty(), "an engine has at least one bucket");
        let (interactive, bulk) = (Queue::new(&table), Queue::new(&table));
        let costs_us = costs_us(&table, cost);
        Self { table, costs_us, interactive, bulk, owed_us: 0.0 }
    }

    /// Plans with another model from now on.
    pub fn set_cost(&mut self, cost: &CostModel) {
        self.costs_us = costs_us(&self.table, cost);
    }

    /// Items that wait.
    pub const fn len(&self) -> usize {
        self.interactive.items + self.bulk.items
    }

    /// Items of one priority that wait.
    pub(crate) const fn len_of(&self, priority: Priority) -> usize {
        self.queue(priority).items
    }

    /// Whether nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens that wait, without padding.
    pub const fn tokens(&self) -> usize {
        self.interactive.tokens + self.bulk.tokens
    }

    /// The shapes items are planned into.
    pub const fn table(&self) -> &BucketTable {
        &self.table
    }

    /// Adds an item; its sequence must be new.
    pub fn insert(&mut self, item: WaitingItem) {
        let class = self.table.class_of(item.tokens);
        let queue = self.queue_mut(item.priority);
        queue.by_class[class].insert((item.turn, item.sequence), item.tokens);
        queue.items += 1;
        queue.tokens += item.tokens;
    }

    /// Takes an item out; false when it does not wait.
    pub fn remove(&mut self, item: &WaitingItem) -> bool {
        let class = self.table.class_of(item.tokens);
        self.queue_mut(item.priority).remove((item.turn, item.sequence), class)
    }

    /// Predicted time to run everything of a priority, in microseconds.
    pub(crate) fn backlog_us(&self, priority: Priority) -> f64 {
        let waiting = &self.queue(priority).by_class;
        self.runs_us(|class| waiting[class].len(), |class, step| self.costs_us[class][step]).0
    }

    /// Predicted time to run everything, by the planner's costs or by others; and that of the
    /// largest batch that can be made of one class. In microseconds.
    pub(crate) fn work_us(&self, cost: Option<&CostModel>) -> (f64, f64) {
        let waiting = |class: usize| {
            [&self.interactive, &self.bulk].iter().map(|queue| queue.by_class[class].len()).sum()
        };
        let time_us = |class: usize, step: usize| {
            let LengthClass { length, ref rows } = self.table.classes[class];
            let bucket = Bucket { rows: rows[step], length };
            cost.map_or(self.costs_us[class][step], |cost| cost.predict_us(bucket))
        };
        self.runs_us(waiting, time_us)
    }

    /// Time of all runs and of the longest: each class on its own, but for what fills longer runs
    /// that take no more time for it. `waiting` tells the items of a class, `time_us` the time of a
    /// class with its rows at a place.
    fn runs_us(
        &self,
        waiting: impl Fn(usize) -> usize,
        time_us: impl Fn(usize, usize) -> f64,
    ) -> (f64, f64) {
        let (mut all_us, mut longest_us, mut free_rows) = (0.0, 0.0_f64, 0);
        for (place, class) in self.table.classes.iter().enumerate().rev() {
            let found = waiting(place);
            let items = found.saturating_sub(free_rows);
            free_rows -= found - items;
            if items == 0 {
                continue;
            }
            let (full, rest) = (items / class.max_rows(), items % class.max_rows());
            let full_us = if full > 0 { time_us(place, class.rows.len() - 1) } else { 0.0 };
            let rest_us = if rest > 0 { time_us(place, class.step(rest)) } else { 0.0 };
            all_us += full as f64 * full_us + rest_us;
            longest_us = longest_us.max(full_us.max(rest_us));
            if rest > 0 {
                let least_us = time_us(place, 0);
                let steps = class.rows.iter().enumerate();
                let as_least = steps.take_while(|(step, _)| time_us(place, *step) <= least_us);
                free_rows += as_least.last().map_or(0, |(_, &rows)| rows.saturating_sub(rest));
            }
        }
        (all_us, longest_us)
    }

    /// Predicted time of one full batch of each length that waits, in microseconds.
    pub(crate) fn round_us(&self, priority: Priority) -> f64 {
        let classes = self.costs_us.iter().zip(&self.queue(priority).by_class);
        let waiting = classes.filter(|(_, waiting)| !waiting.is_empty());
        waiting.filter_map(|(costs_us, _)| costs_us.last()).sum()
    }

    /// Predicted time of one item as part of a full batch, in microseconds.
    pub(crate) fn item_us(&self, tokens: usize) -> f64 {
        let class = self.table.class_of(tokens);
        let full_us = self.costs_us[class].last().expect("a class has a bucket");
        full_us / self.table.classes[class].max_rows() as f64
    }

    /// Predicted time of one item on its own, in microseconds.
    pub(crate) fn single_us(&self, tokens: usize) -> f64 {
        self.costs_us[self.table.class_of(tokens)][0]
    }

    /// Takes the next batch out; `None` when nothing waits.
    pub fn take(&mut self, now: Moment, max_age: Duration) -> Option<BatchPlan> {
        let interactive = self.best_candidate(&self.interactive, now, max_age);
        let bulk = self.best_candidate(&self.bulk, now, max_age);
        let (priority, candidate) = match (interactive, bulk) {
            (None, None) => return None,
            (Some(interactive), None) => {
                self.owed_us = 0.0;
                (Priority::Interactive, interactive)
            }
            (None, Some(bulk)) => {
                self.owed_us = (self.owed_us - bulk.cost_us).max(0.0);
                (Priority::Bulk, bulk)
            }
            (Some(_), Some(bulk)) if self.owed_us >= bulk.cost_us * (1.0 - BULK_SHARE) => {
                self.owed_us -= bulk.cost_us * (1.0 - BULK_SHARE);
                (Priority::Bulk, bulk)
            }
            (Some(interactive), Some(_)) => {
                self.owed_us += interactive.cost_us * BULK_SHARE;
                (Priority::Interactive, interactive)
            }
        };
        let BatchCandidate { lead, lead_class, class, .. } = candidate;
        let (filled_class, bucket) = self.with_fillers(priority, &candidate);
        let mut items = vec![lead.1];
        let (first, second) = match priority {
            Priority::Interactive => (&mut self.interactive, &mut self.bulk),
            Priority::Bulk => (&mut self.bulk, &mut self.interactive),
        };
        first.remove(lead, lead_class);
        first.draw(class, candidate.items, &mut items);
        second.draw(filled_class, bucket.rows, &mut items);
        Some(BatchPlan { bucket, items })
    }

    /// The candidate's bucket, or a larger one where items of the other priority fill it at next to
    /// no cost; with its class.
    fn with_fillers(&self, priority: Priority, candidate: &BatchCandidate) -> (usize, Bucket) {
        let other = match priority {
            Priority::Interactive => &self.bulk,
            Priority::Bulk => &self.interactive,
        };
        let most_us = candidate.cost_us * FILL_COST_MAX;
        let mut best = (candidate.class, candidate.bucket);
        let (mut filled, mut fillers) = (0, 0);
        for (class, shape) in self.table.classes.iter().enumerate() {
            fillers += other.by_class[class].len();
            if class < candidate.class {
                continue;
            }
            let within = self.costs_us[class].partition_point(|&cost_us| cost_us <= most_us);
            let Some(last) = within.checked_sub(1) else { break };
            let rows = shape.rows[shape.step(candidate.items + fillers).min(last)];
            let taken = rows.saturating_sub(candidate.items).min(fillers);
            if taken > filled {
                best = (class, Bucket { rows, length: shape.length });
                filled = taken;
            }
        }
        best
    }

    const fn queue(&self, priority: Priority) -> &Queue {
        match priority {
            Priority::Interactive => &self.interactive,
            Priority::Bulk => &self.bulk,
        }
    }

    const fn queue_mut(&mut self, priority: Priority) -> &mut Queue {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Bulk => &mut self.bulk,
        }
    }

    /// The batch that a queue would run next.
    fn best_candidate(
        &self,
        queue: &Queue,
        now: Moment,
        max_age: Duration,
    ) -> Option<BatchCandidate> {
        // Mostly the bulk items: the lengths of nothing are not looked through for each batch.
        if queue.items == 0 {
            return None;
        }
        let leads = queue.by_class.iter().enumerate();
        let leads =
            leads.filter_map(|(class, waiting)| Some((*waiting.first_key_value()?.0, class)));
        let (oldest, oldest_class) = leads.clone().min()?;
        let share_us = self.share_us(queue);
        if now.since(oldest.0) >= max_age {
            return Some(self.best_with_lead(queue, oldest, oldest_class, &share_us));
        }
        leads
            .map(|(lead, class)| self.best_with_lead(queue, lead, class, &share_us))
            .min_by(|a, b| a.waste_us.total_cmp(&b.waste_us).then(a.lead.cmp(&b.lead)))
    }

    /// For each class: what one of its items would cost if the class ran on its own.
    fn share_us(&self, queue: &Queue) -> Vec<f64> {
        let classes = self.table.classes.iter().zip(&self.costs_us).zip(&queue.by_class);
        classes
            .map(|((class, costs_us), waiting)| {
                let items = waiting.len().clamp(1, class.max_rows());
                costs_us[class.step(items)] / items as f64
            })
            .collect()
    }

    /// The least waste of all batches that contain `lead`: for each length at or above its own, and
    /// each number of rows.
    fn best_with_lead(
        &self,
        queue: &Queue,
        lead: Turn,
        lead_class: usize,
        share_us: &[f64],
    ) -> BatchCandidate {
        let mut best: Option<BatchCandidate> = None;
        for class in lead_class..self.table.classes.len() {
            if class > lead_class && queue.by_class[class].is_empty() {
                continue;
            }
            let shape = &self.table.classes[class];
            let mut others = DrawCounter::new(queue, lead_class, class);
            let mut saved_us = share_us[lead_class];
            let mut items = 1;
            for (&rows, &cost_us) in shape.rows.iter().zip(&self.costs_us[class]) {
                while let Some((source, drawn)) = others.next(rows - items) {
                    saved_us += drawn as f64 * share_us[source];
                    items += drawn;
                }
                let waste_us = cost_us - saved_us;
                let better = best.is_none_or(|best| {
                    waste_us < best.waste_us || (waste_us == best.waste_us && items > best.items)
                });
                if better {
                    let bucket = Bucket { rows, length: shape.length };
                    let candidate = BatchCandidate {
                        lead,
                        lead_class,
                        class,
                        items,
                        bucket,
                        cost_us,
                        waste_us,
                    };
                    best = Some(candidate);
                }
                if items < rows {
                    break;
                }
            }
        }
        best.expect("the lead alone is a candidate")
    }
}

impl Queue {
    fn new(table: &BucketTable) -> Self {
        let by_class = table.classes.iter().map(|_| BTreeMap::new()).collect();
        Self { by_class, items: 0, tokens: 0 }
    }

    fn remove(&mut self, turn: Turn, class: usize) -> bool {
        let Some(tokens) = self.by_class[class].remove(&turn) else { return false };
        self.items -= 1;
        self.tokens -= tokens;
        true
    }

    /// Takes out the earliest of a class, then of shorter ones, until there are `rows` items.
    fn draw(&mut self, class: usize, rows: usize, items: &mut Vec<Sequence>) {
        for waiting in self.by_class[..=class].iter_mut().rev() {
            while items.len() < rows {
                let Some((turn, tokens)) = waiting.pop_first() else { break };
                self.items -= 1;
                self.tokens -= tokens;
                items.push(turn.1);
            }
        }
    }
}

/// Counts what can be drawn besides the lead: of a class, then of shorter ones.
struct DrawCounter<'a> {
    queue: &'a Queue,
    lead_class: usize,
    source: usize,
    left: usize,
}

impl<'a> DrawCounter<'a> {
    fn new(queue: &'a Queue, lead_class: usize, class: usize) -> Self {
        let mut others = Self { queue, lead_class, source: class, left: 0 };
        others.left = others.of(class);
        others
    }

    fn of(&self, class: usize) -> usize {
        self.queue.by_class[class].len() - usize::from(class == self.lead_class)
    }

    /// The next class with its number of items, at most `room`; `None` without room or items.
    fn next(&mut self, room: usize) -> Option<(usize, usize)> {
        while self.left == 0 {
            self.source = self.source.checked_sub(1)?;
            self.left = self.of(self.source);
        }
        let drawn = self.left.min(room);
        self.left -= drawn;
        (drawn > 0).then_some((self.source, drawn))
    }
}

fn costs_us(table: &BucketTable, cost: &CostModel) -> Vec<Vec<f64>> {
    let of_class = |class: &LengthClass| {
        let buckets = class.rows.iter().map(|&rows| Bucket { rows, length: class.length });
        buckets.map(|bucket| cost.predict_us(bucket)).collect()
    };
    table.classes.iter().map(of_class).collect()
}
