//! The scheduler as a pure state machine: its methods are told what happened and when, answer, and
//! note what else is to be done as [`Effects`].
//!
//! An item is accepted once and ends once: replied, failed, expired, cancelled or abandoned. Items
//! of one request have consecutive numbers, so a request is a range. A number is never used again,
//! so a request that comes late to cancel its items cannot meet those of another one.
//!
//! Everything about an item is in one record, `Item`, from its acceptance to its end. `T` is what
//! the caller keeps with it: the token ids and where the rows go in the server, nothing in tests.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::Refusal;
use crate::batch::cost::{Fit, Times};
use crate::batch::plan::{Rank, Sequence, Shapes, WaitingItems};
use crate::batch::{Bucket, Priority, Vectors};
use clock::Moment;

mod admission;
mod checks;
mod coalescing;
mod counts;
mod ending;
mod lanes;
mod promise;
mod starting;
mod workers;

use admission::Admission;
pub use admission::{Announced, NewRequest, Reserved};
pub use coalescing::Digest;
use coalescing::{Groups, RowSource};
pub use counts::Counts;
use lanes::LaneTree;
pub use lanes::{Lane, Width};
use promise::Promise;
pub use promise::PromiseFigures;
use workers::{RunningBatch, WorkerState};

/// A batch that a worker runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<T = ()> {
    /// Its shape.
    pub bucket: Bucket,
    /// Interactive when somebody waits for one of the items.
    pub priority: Priority,
    /// In the order of the batch's rows. Items of the same token ids get the rows of one of them.
    pub items: Vec<(Sequence, T)>,
}

/// An item whose batch has ended: what became of its row is its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemAnswer<T = ()> {
    /// Its row in the batch.
    pub row: usize,
    /// Its number.
    pub item: Sequence,
    /// What the caller keeps with it.
    pub content: T,
}

/// What the steps since the last look have to be followed by. The caller sees to it, outside of its
/// lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects<T = ()> {
    /// Items whose deadline passed before they ran.
    pub expired: Vec<(Sequence, T)>,
    /// Items whose rows no worker will give any more.
    pub abandoned: Vec<(Sequence, T)>,
    /// Workers that should ask for work.
    pub woken: Vec<usize>,
}

impl<T> Effects<T> {
    const NONE: Self = Self { expired: Vec::new(), abandoned: Vec::new(), woken: Vec::new() };

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.expired.is_empty() && self.abandoned.is_empty() && self.woken.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueuePhase {
    Open,
    Draining,
    Closed,
}

/// An item that waits or runs.
#[derive(Debug)]
struct Item<T> {
    tokens: usize,
    priority: Priority,
    turn: Moment,
    deadline: Moment,
    /// Of one worker's health.
    is_check: bool,
    /// Nobody wants it, but it runs already.
    cancelled: bool,
    digest: Option<Digest>,
    vectors: Vectors,
    content: T,
}

impl<T> Item<T> {
    /// One of a request that comes now.
    fn of(new: NewRequest<'_>, place: usize, turn: Moment, content: T) -> Self {
        let NewRequest { tokens, digests, vectors, priority, deadline, .. } = new;
        let (tokens, digest) = (tokens[place], digests.get(place).copied());
        let (is_check, cancelled) = (false, false);
        Self { tokens, priority, turn, deadline, is_check, cancelled, digest, vectors, content }
    }

    const fn rank(&self, sequence: Sequence) -> Rank {
        (self.priority, self.turn, sequence)
    }

    /// Whether it is promised a time. A check waits for its own worker, whatever others leave free.
    const fn is_promised(&self) -> bool {
        matches!(self.priority, Priority::Interactive) && !self.is_check
    }
}

/// Everything the scheduler knows.
#[derive(Debug)]
pub struct SchedulerState<T = ()> {
    /// Items that may wait or run.
    capacity: usize,
    items: FxHashMap<Sequence, Item<T>>,
    /// The order in which waiting items run, those that follow others and checks left out.
    waiting: WaitingItems,
    groups: Groups,
    /// The order in which waiting items expire, checks included.
    deadlines: BTreeSet<(Moment, Sequence)>,
    workers: Vec<WorkerState>,
    lanes: LaneTree,
    next: Sequence,
    phase: QueuePhase,
    admission: Admission,
    counts: Counts,
    promise: Option<Promise>,
    effects: Effects<T>,
    /// When a batch last began or ended.
    active: Moment,
}

impl<T: Clone> SchedulerState<T> {
    /// Nothing waits, no worker lives. At most `capacity` items wait or run. Each worker has one of
    /// the `lanes`, of which there is at least one; narrow ones come first.
    pub fn new(capacity: usize, lanes: Vec<Lane>, shapes: Shapes) -> Self {
        let (workers, lanes) = (lanes.len(), LaneTree::new(lanes));
        Self {
            capacity,
            waiting: WaitingItems::new(shapes, lanes.of(0).cost.model()),
            groups: Groups::default(),
            items: FxHashMap::default(),
            deadlines: BTreeSet::new(),
            workers: (0..workers).map(|_| WorkerState::default()).collect(),
            lanes,
            next: 0,
            phase: QueuePhase::Open,
            admission: Admission::default(),
            counts: Counts::default(),
            promise: None,
            effects: Effects::NONE,
            active: Moment::START,
        }
    }

    /// What is to be done since the last look.
    pub fn take_effects(&mut self) -> Effects<T> {
        std::mem::replace(&mut self.effects, Effects::NONE)
    }

    /// Takes the items of a request, each with what the caller keeps with it; gives their numbers.
    ///
    /// # Errors
    /// When they do not fit, would be late, or nothing can run them. None of them is taken.
    pub fn submit(
        &mut self,
        now: Moment,
        new: NewRequest<'_>,
        contents: &[T],
    ) -> Result<Range<Sequence>, Refusal> {
        // What is late neither takes a place nor counts as work before this request.
        self.expire(now);
        self.note_request(now, new.tokens.len());
        if let Some(reserved) = new.reserved {
            self.release(reserved);
        }
        let sources = self.row_sources(now, new);
        self.admit(now, new, &sources).inspect_err(|_| self.counts.refused += 1)?;
        let items = self.accept(now, new, &sources, contents);
        self.wake_for_waiting(now);
        Ok(items)
    }

    /// Takes nothing new from now on, but for that which has room.
    pub fn drain(&mut self) {
        self.phase = self.phase.max(QueuePhase::Draining);
    }

    /// Ends what waits; nothing is taken or started any more.
    pub fn close(&mut self) {
        self.phase = QueuePhase::Closed;
        let mut waiting: Vec<Sequence> = self.deadlines.iter().map(|&(_, item)| item).collect();
        waiting.sort_unstable();
        waiting.into_iter().for_each(|item| self.abandon(item));
        self.effects.woken.extend(0..self.workers.len());
    }

    /// Nobody wants these items any more. Those that run end with their batch. One that waits at
    /// its deadline has expired, although its request may be the first to notice.
    pub fn cancel(&mut self, now: Moment, items: &Range<Sequence>) {
        self.expire(now);
        for item in items.clone() {
            if self.remove_waiting(item).is_some() {
                self.counts.cancelled += 1;
            } else if let Some(item) = self.items.get_mut(&item) {
                item.cancelled = true;
            }
        }
    }

    /// Takes over a model that is known, of runs on all lanes of a worker's width.
    pub fn set_cost(&mut self, worker: usize, fit: Fit) {
        self.lanes.of_mut(worker).cost.set(fit);
        self.plan_with_cost();
    }

    /// Takes over what was measured of a worker, for all lanes of its width.
    pub fn measure(&mut self, worker: usize, times: Times) {
        self.lanes.of_mut(worker).cost.measure(times);
        self.plan_with_cost();
    }

    fn plan_with_cost(&mut self) {
        let model = *self.cost().model();
        self.waiting.set_cost(&model);
    }

    /// Predicted time of one run on a worker, once it rests on something that was measured.
    pub fn predict(&self, worker: usize, bucket: Bucket) -> Option<Duration> {
        let cost = &self.lanes.of(worker).cost;
        cost.error().map(|_| Duration::from_secs_f64(cost.predict_us(bucket) / 1e6))
    }

    /// Since when no worker runs anything; `None` while one does.
    pub fn quiet_since(&self) -> Option<Moment> {
        let runs = self.workers.iter().any(|worker| worker.running.is_some());
        (!runs).then_some(self.active)
    }

    /// Items that wait, checks left out.
    pub fn queue_depth(&self) -> usize {
        self.waiting.len()
    }

    /// Items of one priority that wait, checks left out.
    pub fn queue_depth_of(&self, priority: Priority) -> usize {
        self.waiting.len_of(priority)
    }

    /// Tokens that wait, without padding.
    pub fn queue_tokens(&self) -> usize {
        self.waiting.tokens()
    }

    /// Longest item that can be run.
    pub fn max_length(&self) -> usize {
        self.waiting.shapes().max_length()
    }

    /// How many items ended how.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether nothing waits, nothing runs, and nothing more is taken.
    pub fn is_drained(&self) -> bool {
        let is_last = self.phase != QueuePhase::Open && self.admission.reserved_items == 0;
        is_last && self.is_empty()
    }

    /// Whether nothing is taken or started any more. Batches may still run.
    pub fn is_closed(&self) -> bool {
        self.phase == QueuePhase::Closed
    }

    fn accept(
        &mut self,
        now: Moment,
        new: NewRequest<'_>,
        sources: &[RowSource],
        contents: &[T],
    ) -> Range<Sequence> {
        let NewRequest { tokens, priority, .. } = new;
        let items = self.next..self.next + tokens.len() as u64;
        self.counts.accepted += tokens.len() as u64;
        if priority == Priority::Interactive {
            self.note_interactive(now);
        }
        let turns = self.turns(now, new, sources);
        for (place, turn) in turns.into_iter().enumerate() {
            let item = Item::of(new, place, turn, contents[place].clone());
            match sources[place] {
                RowSource::Running { worker, row } => self.join_run(item, worker, row),
                RowSource::NewRun | RowSource::Group => {
                    let sequence = self.insert(item);
                    self.enqueue(sequence);
                }
            }
        }
        items
    }

    /// Numbers an item that waits, in `waiting` or among a worker's checks.
    fn insert(&mut self, item: Item<T>) -> Sequence {
        let sequence = self.next;
        self.deadlines.insert((item.deadline, sequence));
        self.items.insert(sequence, item);
        self.next += 1;
        sequence
    }

    /// Takes out an item that waits; `None` when it runs or has ended.
    fn remove_waiting(&mut self, item: Sequence) -> Option<T> {
        let found = self.items.get(&item)?;
        if !self.deadlines.remove(&(found.deadline, item)) {
            return None;
        }
        let found = self.items.remove(&item)?;
        if found.is_check {
            let workers = self.workers.iter_mut();
            workers.for_each(|worker| worker.checks.retain(|&check| check != item));
        } else {
            self.dequeue(item, &found);
        }
        Some(found.content)
    }

    fn abandon(&mut self, item: Sequence) {
        if let Some(content) = self.remove_waiting(item) {
            self.counts.abandoned += 1;
            self.effects.abandoned.push((item, content));
        }
    }

    /// Ends waiting items whose deadline has passed, before they cost anything.
    fn expire(&mut self, now: Moment) {
        while let Some(&(_, item)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)
        {
            let found = &self.items[&item];
            let (turn, is_promised) = (found.turn, found.is_promised());
            if is_promised {
                self.note_expired(now, turn);
            }
            let content = self.remove_waiting(item).expect("an item with a deadline waits");
            self.counts.expired += 1;
            self.effects.expired.push((item, content));
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
