//! Waiting items, and which of them run next.
//!
//! Items of one priority run in the order of their turns. The first one leads: it runs in any case.
//! Of the shapes that hold it, the one of the least predicted time for each token of a text runs,
//! filled with the items that follow. An item that does not fit what is left lets later ones by: it
//! leads a batch soon, and nobody waits longer for what would have been empty.
//!
//! Interactive items lead, unless bulk items are owed a batch: what they are owed grows by
//! `BULK_SHARE` of every batch they have to let pass. What a batch has left is filled with items of
//! the other priority. So nothing starves, and an idle worker never waits.
//!
//! An example: items of 20, 100, 30 and 90 tokens wait, in this order. A run takes 2 ms, 0.1 ms for
//! each token, and 0.05 us for each pair of tokens of a row.
//!
//! | shape | holds | takes | for each token of a text |
//! |---|---|---|---|
//! | 1 × 24 | 20 | 4.4 ms | 221 us |
//! | 1 × 128 | 20, 100 | 15.6 ms | 130 us |
//! | 2 × 128 | 20, 100 and 30, 90 | 29.2 ms | **122 us** |
//! | 1 × 256 | all four | 30.9 ms | 129 us |
//! | 4 × 128 | all four | 56.5 ms | 235 us |

use std::collections::BTreeMap;

use super::{ROW_TOKENS, Shapes};
use crate::batch::cost::CostModel;
use crate::batch::rows::{Rows, TEXT_MIN};
use crate::batch::{Bucket, Priority};
use clock::Moment;
use settings::limits::BULK_SHARE;

/// So many items that do not fit a batch are passed over to fill it.
pub(super) const PASSED_MAX: usize = 32;

/// Arrival number of an item: smaller is older, unique.
pub type Sequence = u64;

/// Where an item stands in the queue: its request's priority, its turn within that, its number.
pub(crate) type Rank = (Priority, Moment, Sequence);

/// The next batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchPlan {
    /// The shape that runs.
    pub(crate) bucket: Bucket,
    /// At least one. Put into the rows in this order, they fit. The first one leads.
    pub(crate) items: Vec<Sequence>,
}

/// Waiting items by priority and turn.
#[derive(Debug)]
pub(crate) struct WaitingItems {
    shapes: Shapes,
    cost: CostModel,
    /// The prepared shapes within the batch's tokens with their predicted time, which ascends.
    by_cost: Vec<(Bucket, f64)>,
    /// Least time of a token in rows that short texts share.
    shared_token_us: f64,
    /// By priority.
    queues: [Queue; 2],
    /// Time of workers that bulk items are owed by interactive ones.
    owed_us: f64,
}

/// Items of one priority.
#[derive(Debug, Default)]
struct Queue {
    /// Tokens of a row that each item takes, special tokens included.
    items: BTreeMap<Rank, usize>,
    tokens: usize,
    /// Predicted time of all items, each as a part of a full batch. Whole nanoseconds, so that what
    /// was added can be taken away.
    ns: u64,
}

/// A batch under consideration.
#[derive(Debug)]
struct Candidate {
    bucket: Bucket,
    cost_us: f64,
    rows: Rows,
    items: Vec<(Rank, usize)>,
    /// Time for each token of a text.
    token_us: f64,
}

impl WaitingItems {
    /// Nothing waits.
    pub(crate) fn new(shapes: Shapes, cost: &CostModel) -> Self {
        let mut waiting = Self {
            shapes,
            cost: *cost,
            by_cost: Vec::new(),
            shared_token_us: 0.0,
            queues: Default::default(),
            owed_us: 0.0,
        };
        waiting.set_cost(cost);
        waiting
    }

    /// Plans with these costs from now on.
    pub(crate) fn set_cost(&mut self, cost: &CostModel) {
        self.cost = *cost;
        let most = self.shapes.max_tokens();
        let within = self.shapes.prepared().iter().filter(|shape| shape.tokens() <= most);
        self.by_cost = within.map(|&shape| (shape, cost.predict_us(shape))).collect();
        self.by_cost.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.tokens().cmp(&b.0.tokens())));
        let shortest = self.shapes.row(1);
        let shared = self.by_cost.iter().filter(|(shape, _)| shape.length <= ROW_TOKENS);
        let token_us = shared.map(|(shape, us)| us / shape.tokens() as f64);
        let alone_us = cost.predict_us(shortest) / shortest.tokens() as f64;
        self.shared_token_us = token_us.fold(alone_us, f64::min);
        let ns = |queue: &Queue| queue.items.values().map(|&tokens| self.item_ns(tokens)).sum();
        let ns = self.queues.each_ref().map(ns);
        self.queues.iter_mut().zip(ns).for_each(|(queue, ns)| queue.ns = ns);
    }

    /// How many items wait.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(|queue| queue.items.len()).sum()
    }

    /// How many items of a priority wait.
    pub(crate) fn len_of(&self, priority: Priority) -> usize {
        self.queue(priority).items.len()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens of the texts that wait.
    pub(crate) fn tokens(&self) -> usize {
        self.queues.iter().map(|queue| queue.tokens).sum()
    }

    /// The shapes that items are planned into.
    pub(crate) const fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    /// Adds an item of so many tokens; its number must be new.
    pub(crate) fn insert(&mut self, rank: Rank, tokens: usize) {
        let ns = self.item_ns(tokens);
        let queue = self.queue_mut(rank.0);
        queue.items.insert(rank, tokens);
        queue.tokens += tokens;
        queue.ns += ns;
    }

    /// Takes an item out, if it waits.
    pub(crate) fn remove(&mut self, rank: Rank) {
        let Some(tokens) = self.queue_mut(rank.0).items.remove(&rank) else { return };
        let ns = self.item_ns(tokens);
        let queue = self.queue_mut(rank.0);
        queue.tokens -= tokens;
        queue.ns -= ns;
    }

    /// Predicted time to run everything of a priority, in microseconds.
    pub(crate) fn backlog_us(&self, priority: Priority) -> f64 {
        let queue = self.queue(priority);
        match queue.tokens {
            0 => 0.0,
            tokens => {
                let least = tokens.min(ROW_TOKENS.min(self.shapes.max_tokens()));
                (queue.ns as f64 / 1e3).max(self.single_us(least))
            }
        }
    }

    /// Predicted time of a batch of so many tokens, in microseconds; no limit when a batch has
    /// fewer, or all that waits.
    fn limit_us(&self, tokens: usize) -> f64 {
        let length = ROW_TOKENS.min(self.shapes.max_length());
        match tokens {
            tokens if tokens >= self.shapes.max_tokens().min(self.tokens()) => f64::INFINITY,
            tokens if tokens <= length => self.cost.predict_us(self.shapes.row(tokens)),
            tokens => self.cost.predict_us(Bucket { rows: tokens.div_ceil(length), length }),
        }
    }

    /// Predicted time of a full batch, in microseconds.
    pub(crate) fn full_us(&self) -> f64 {
        self.shared_token_us * self.shapes.max_tokens() as f64
    }

    /// Predicted time of one item as a part of a full batch, in microseconds.
    pub(crate) fn item_us(&self, tokens: usize) -> f64 {
        if tokens <= ROW_TOKENS {
            let shared_us = self.shared_token_us * tokens.max(TEXT_MIN) as f64;
            // A batch may hold one text only.
            return shared_us.min(self.single_us(tokens));
        }
        let own = self.shapes.row(tokens);
        let longer = self.by_cost.iter().filter(|(shape, _)| shape.length == own.length);
        let rows = longer.map(|(shape, us)| us / shape.rows as f64);
        let row_us = rows.fold(self.cost.predict_us(own) / own.rows as f64, f64::min);
        // What a text of more than half a row leaves is for shorter texts.
        row_us * tokens as f64 / own.length as f64
    }

    fn item_ns(&self, tokens: usize) -> u64 {
        (self.item_us(tokens) * 1e3) as u64
    }

    /// Predicted time of one item on its own, in microseconds.
    pub(crate) fn single_us(&self, tokens: usize) -> f64 {
        self.cost.predict_us(self.shapes.row(tokens))
    }

    /// Whether nothing waits but bulk items, whose first text takes longer than `bulk_us` and than
    /// what they are owed.
    pub(crate) fn is_long_bulk(&self, bulk_us: f64) -> bool {
        let is_too_long = |(_, &tokens): (&Rank, &usize)| {
            let own_us = self.single_us(tokens);
            own_us > bulk_us && self.owed_us < own_us * (1.0 - BULK_SHARE)
        };
        let [interactive, bulk] = &self.queues;
        interactive.items.is_empty() && bulk.items.first_key_value().is_some_and(is_too_long)
    }

    /// Takes the next batch out; `None` when nothing waits. It takes no longer than a batch of so
    /// many tokens, or than the text that leads it: what it leaves is run by others meanwhile. One
    /// that bulk items lead has no longer predicted time than `bulk_us`, unless its first text has.
    pub(crate) fn take(&mut self, tokens: usize, bulk_us: f64) -> Option<BatchPlan> {
        let interactive = self.best(Priority::Interactive, tokens, f64::INFINITY);
        let bulk = self.best(Priority::Bulk, tokens, bulk_us);
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
        let Candidate { bucket, mut rows, mut items, .. } = candidate;
        items.extend(self.queue(priority.other()).draw(&mut rows));
        items.iter().for_each(|&(rank, _)| self.remove(rank));
        let items = items.into_iter().map(|((_, _, sequence), _)| sequence).collect();
        Some(BatchPlan { bucket, items })
    }

    /// The batch that a priority would run next within these limits.
    fn best(&self, priority: Priority, tokens: usize, most_us: f64) -> Option<Candidate> {
        let queue = self.queue(priority);
        let (_, &lead) = queue.items.first_key_value()?;
        let wants_room = !self.queue(priority.other()).items.is_empty();
        let own = self.shapes.row(lead);
        let own_us = self.cost.predict_us(own);
        let limit_us = self.limit_us(tokens).min(most_us).max(own_us);
        let mut best = Candidate::of(queue, own, own_us);
        if self.shapes.any_length {
            let all = queue.tokens.min(tokens).min(self.shapes.max_tokens()).max(lead);
            let long = self.shapes.row(all);
            let long_us = self.cost.predict_us(long);
            if long_us <= limit_us {
                best.consider(queue, (long, long_us), wants_room);
            }
        }
        for &shape in self.by_cost.iter().filter(|(shape, _)| shape.length >= lead) {
            let (_, cost_us) = shape;
            // Those that follow take longer still, and hold no more than all that waits.
            if cost_us > limit_us || cost_us / queue.tokens as f64 > best.token_us {
                break;
            }
            best.consider(queue, shape, wants_room);
        }
        Some(best)
    }

    const fn queue(&self, priority: Priority) -> &Queue {
        &self.queues[priority as usize]
    }

    const fn queue_mut(&mut self, priority: Priority) -> &mut Queue {
        &mut self.queues[priority as usize]
    }
}

impl Candidate {
    /// The items of `queue` that fit a shape, at least one.
    fn of(queue: &Queue, bucket: Bucket, cost_us: f64) -> Self {
        let mut rows = Rows::new(bucket);
        let items = queue.draw(&mut rows);
        let tokens: usize = items.iter().map(|(_, tokens)| tokens).sum();
        Self { bucket, cost_us, rows, items, token_us: cost_us / tokens as f64 }
    }

    /// Becomes the batch of this shape if that is better.
    fn consider(&mut self, queue: &Queue, (bucket, cost_us): (Bucket, f64), wants_room: bool) {
        // Rows that cost nothing are for the other priority.
        let has_more_room = wants_room && bucket.tokens() > self.bucket.tokens();
        let is_better =
            |token_us| token_us < self.token_us || token_us == self.token_us && has_more_room;
        // Were all of its rows full.
        let most = queue.tokens.min(bucket.tokens());
        if is_better(cost_us / most as f64) {
            let found = Self::of(queue, bucket, cost_us);
            if is_better(found.token_us) {
                *self = found;
            }
        }
    }
}

impl Queue {
    /// The items that fit what `rows` have left, in their order, with their tokens.
    fn draw(&self, rows: &mut Rows) -> Vec<(Rank, usize)> {
        let (mut drawn, mut passed) = (Vec::new(), 0);
        for (&rank, &tokens) in &self.items {
            if passed > PASSED_MAX || rows.are_full() {
                break;
            }
            match rows.put(tokens) {
                Some(_) => drawn.push((rank, tokens)),
                None => passed += 1,
            }
        }
        drawn
    }
}
