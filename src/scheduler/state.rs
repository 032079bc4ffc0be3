//! The scheduler as a pure state machine: an event and the time go in, actions come out.
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

use super::Refusal;
use crate::batch::cost::{Fit, Times};
use crate::batch::plan::{Sequence, Shapes, WaitingItem, WaitingItems};
use crate::batch::{Bucket, Priority, Vectors};
use crate::clock::Moment;

mod admission;
mod checks;
mod coalescing;
mod counts;
mod ending;
mod lanes;
mod starting;
mod workers;

use admission::{Admission, NewRequest};
pub use admission::{Announced, Reserved};
pub use coalescing::Digest;
use coalescing::{Groups, Rank, RowSource};
pub use counts::Counts;
use lanes::LaneTree;
pub use lanes::{Lane, WidthFigures};
use workers::{RunningBatch, WorkerState};

/// What the state machine is bounded by.
#[derive(Debug, Clone)]
pub struct StateConfig {
    /// Items waiting or running.
    pub capacity: usize,
    /// The lane of each worker, narrow ones first; at least one.
    pub lanes: Vec<Lane>,
}

/// What happened.
#[allow(missing_docs, reason = "each variant says what its fields are")]
#[derive(Debug, Clone)]
pub enum Event<'a, T = ()> {
    /// A request comes whose items are not known yet; it is refused, or it is not.
    Announce(Announced<'a>),
    /// The items of a request for which room is reserved will not come.
    Release(Reserved),
    /// A request with the token count, the content and the digest of each item, the vectors that it
    /// wants, and the room that was reserved for it, of its priority. Items without a digest share
    /// no run; without a priority the size decides.
    Submit {
        tokens: &'a [usize],
        contents: &'a [T],
        digests: &'a [Digest],
        vectors: Vectors,
        priority: Option<Priority>,
        deadline: Moment,
        reserved: Option<Reserved>,
    },
    /// An item for one worker, ahead of what waits as far as others are not starved.
    Check { worker: usize, tokens: usize, content: &'a T, deadline: Moment },
    /// Nobody wants the items of this range any more.
    Cancel { items: Range<Sequence> },
    /// A worker has a session and takes jobs.
    WorkerOpened { worker: usize },
    /// A worker has no session any more.
    WorkerLost { worker: usize },
    /// A worker has nothing to do.
    AskForWork { worker: usize },
    /// A worker that found nothing to do runs this shape; it is busy until `BatchDone`.
    WarmUp { worker: usize, bucket: Bucket },
    /// A worker's batch ran, or parts of it; the rows of `failed` do not have these vectors.
    BatchDone { worker: usize, failed: &'a [(usize, Vectors)] },
    /// The same of a batch that was run in parts, whose time says nothing of others.
    BatchDoneInParts { worker: usize, failed: &'a [(usize, Vectors)] },
    /// A worker's batch gave nothing.
    BatchFailed { worker: usize },
    /// A worker's batch runs for so long that it may never end.
    WorkerStuck { worker: usize },
    /// Nothing new is taken from now on.
    Drain,
    /// Nothing can run any more.
    Close,
}

/// What is to be done.
#[allow(missing_docs, reason = "each variant says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<T = ()> {
    /// The request is taken; these are its items.
    Accept {
        items: Range<Sequence>,
    },
    Refuse(Refusal),
    /// The request may be tokenized; this room is reserved for it.
    Reserve(Reserved),
    /// The worker that asked runs these, each in its row. They may be there for others too.
    Run {
        worker: usize,
        bucket: Bucket,
        /// Interactive when somebody waits for one of the items.
        priority: Priority,
        items: Vec<(Sequence, T)>,
    },
    /// The batch with the item has ended; the item gets what became of its row.
    Answer {
        row: usize,
        item: Sequence,
        content: T,
    },
    /// The item's deadline passed before it ran.
    Expire {
        item: Sequence,
        content: T,
    },
    /// No worker will give the item's rows any more.
    Abandon {
        item: Sequence,
        content: T,
    },
    /// This idle worker should ask for work.
    Wake {
        worker: usize,
    },
    /// Every idle worker should ask for work.
    WakeAll,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Nobody wants it, but it runs already.
    cancelled: bool,
    digest: Option<Digest>,
    vectors: Vectors,
    content: T,
}

impl<T> Item<T> {
    const fn rank(&self, sequence: Sequence) -> Rank {
        (self.priority, self.turn, sequence)
    }

    const fn waiting(&self, sequence: Sequence) -> WaitingItem {
        let &Self { tokens, priority, turn, .. } = self;
        WaitingItem { sequence, tokens, priority, turn }
    }
}

/// Everything the scheduler knows.
#[derive(Debug)]
pub struct SchedulerState<T = ()> {
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
    /// When a batch last began or ended.
    active: Moment,
}

impl<T: Clone> SchedulerState<T> {
    /// Nothing waits, no worker lives.
    pub fn new(config: StateConfig, shapes: Shapes) -> Self {
        let StateConfig { capacity, lanes } = config;
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
            active: Moment::START,
        }
    }

    /// Takes in what happened at `now` and says what is to be done.
    pub fn handle(&mut self, now: Moment, event: &Event<'_, T>) -> Vec<Action<T>> {
        match event {
            &Event::Announce(new) => self.announce(now, new),
            &Event::Release(reserved) => {
                self.release(reserved);
                Vec::new()
            }
            &Event::Submit { tokens, contents, digests, vectors, priority, deadline, reserved } => {
                let by_size = || Priority::of(tokens.len(), tokens.iter().sum());
                let priority = priority.unwrap_or_else(by_size);
                let new = NewRequest { tokens, digests, vectors, priority, deadline, reserved };
                self.submit(now, new, contents)
            }
            &Event::Check { worker, tokens, content, deadline } => self.queue_check(
                worker,
                Item {
                    tokens,
                    priority: Priority::Interactive,
                    turn: now,
                    deadline,
                    cancelled: false,
                    digest: None,
                    vectors: Vectors::Both,
                    content: content.clone(),
                },
            ),
            Event::Cancel { items } => self.cancel(items),
            Event::WorkerOpened { worker } => {
                self.workers[*worker].live = true;
                Vec::new()
            }
            Event::WorkerLost { worker } => self.lose_worker(now, *worker),
            Event::AskForWork { worker } => self.start_batch(now, *worker),
            Event::WarmUp { worker, bucket } => {
                let running = self.running_batch(now, *worker, *bucket, Vec::new());
                let state = &mut self.workers[*worker];
                (state.idle, state.told, state.running) = (false, false, Some(running));
                Vec::new()
            }
            Event::BatchDone { worker, failed } => self.complete_batch(now, *worker, failed, false),
            Event::BatchDoneInParts { worker, failed } => {
                self.complete_batch(now, *worker, failed, true)
            }
            Event::BatchFailed { worker } => self.fail_batch(*worker),
            Event::WorkerStuck { worker } => self.stop_stuck_worker(now, *worker),
            Event::Drain => {
                self.phase = self.phase.max_with(QueuePhase::Draining);
                Vec::new()
            }
            Event::Close => self.close(),
        }
    }

    /// Takes over a model that is known, of runs on the narrowest lanes.
    pub fn set_cost(&mut self, fit: Fit) {
        self.set_cost_of(0, fit);
    }

    /// Takes over a model that is known, of runs on all lanes of a worker's width.
    pub(crate) fn set_cost_of(&mut self, worker: usize, fit: Fit) {
        self.lanes.of_mut(worker).cost.set(fit);
        self.plan_with_cost();
    }

    /// Takes over what was measured of a worker, for all lanes of its width.
    pub(crate) fn measure(&mut self, worker: usize, times: Times) {
        self.lanes.of_mut(worker).cost.measure(times);
        self.plan_with_cost();
    }

    fn plan_with_cost(&mut self) {
        let model = *self.cost().model();
        self.waiting.set_cost(&model);
    }

    /// Predicted time of one run on a worker, once it rests on something that was measured.
    pub(super) fn predict(&self, worker: usize, bucket: Bucket) -> Option<Duration> {
        let cost = &self.lanes.of(worker).cost;
        cost.error().map(|_| Duration::from_secs_f64(cost.predict_us(bucket) / 1e6))
    }

    /// Since when no worker runs anything; `None` while one does.
    pub(super) fn quiet_since(&self) -> Option<Moment> {
        let runs = self.workers.iter().any(|worker| worker.running.is_some());
        (!runs).then_some(self.active)
    }

    /// Items that wait, checks left out.
    pub fn queue_depth(&self) -> usize {
        self.waiting.len()
    }

    /// Items of one priority that wait, checks left out.
    pub(crate) fn queue_depth_of(&self, priority: Priority) -> usize {
        self.waiting.len_of(priority)
    }

    /// Tokens that wait, without padding.
    pub const fn queue_tokens(&self) -> usize {
        self.waiting.tokens()
    }

    /// Longest item that can be run.
    pub(crate) fn max_length(&self) -> usize {
        self.waiting.shapes().max_length()
    }

    /// How many items ended how.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether nothing is taken or started any more. Batches may still run.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase == QueuePhase::Closed
    }

    fn submit(&mut self, now: Moment, new: NewRequest<'_>, contents: &[T]) -> Vec<Action<T>> {
        // What is late neither takes a place nor counts as work before this request.
        let expired = self.expire(now);
        self.note_request(now, new.tokens.len());
        if let Some(reserved) = new.reserved {
            self.release(reserved);
        }
        let sources = self.row_sources(now, new);
        let mut actions = match self.admit(now, new, &sources) {
            Ok(()) => vec![Action::Accept { items: self.accept(now, new, &sources, contents) }],
            Err(refused) => {
                self.counts.refused += 1;
                vec![Action::Refuse(refused)]
            }
        };
        let accepted = matches!(actions[0], Action::Accept { .. });
        actions.extend(expired);
        if accepted {
            actions.extend(self.wake_for_waiting(now));
        }
        actions
    }

    fn announce(&mut self, now: Moment, new: Announced<'_>) -> Vec<Action<T>> {
        let mut actions = self.expire(now);
        match self.admit_announced(now, new) {
            Ok(reserved) => actions.extend(reserved.map(Action::Reserve)),
            Err(refused) => {
                self.counts.refused += 1;
                actions.push(Action::Refuse(refused));
            }
        }
        actions
    }

    fn accept(
        &mut self,
        now: Moment,
        new: NewRequest<'_>,
        sources: &[RowSource],
        contents: &[T],
    ) -> Range<Sequence> {
        let NewRequest { tokens, digests, vectors, priority, deadline, .. } = new;
        let items = self.next..self.next + tokens.len() as u64;
        self.counts.accepted += tokens.len() as u64;
        let turns = self.turns(now, new, sources);
        for (place, turn) in turns.into_iter().enumerate() {
            let (tokens, content) = (tokens[place], contents[place].clone());
            let digest = digests.get(place).copied();
            let cancelled = false;
            let item =
                Item { tokens, priority, turn, deadline, cancelled, digest, vectors, content };
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
        if !self.dequeue(item, &found) {
            for worker in &mut self.workers {
                worker.checks.retain(|&check| check != item);
            }
        }
        Some(found.content)
    }

    fn cancel(&mut self, items: &Range<Sequence>) -> Vec<Action<T>> {
        for item in items.clone() {
            if self.remove_waiting(item).is_some() {
                self.counts.cancelled += 1;
            } else if let Some(item) = self.items.get_mut(&item) {
                item.cancelled = true;
            }
        }
        Vec::new()
    }

    fn abandon(&mut self, item: Sequence) -> Option<Action<T>> {
        let content = self.remove_waiting(item)?;
        self.counts.abandoned += 1;
        Some(Action::Abandon { item, content })
    }

    /// Ends waiting items whose deadline has passed, before they cost anything.
    fn expire(&mut self, now: Moment) -> Vec<Action<T>> {
        let mut actions = Vec::new();
        while let Some(&(_, item)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)
        {
            let content = self.remove_waiting(item).expect("an item with a deadline waits");
            self.counts.expired += 1;
            actions.push(Action::Expire { item, content });
        }
        actions
    }

    fn close(&mut self) -> Vec<Action<T>> {
        self.phase = QueuePhase::Closed;
        let mut waiting: Vec<Sequence> = self.deadlines.iter().map(|&(_, item)| item).collect();
        waiting.sort_unstable();
        let mut actions: Vec<Action<T>> =
            waiting.into_iter().filter_map(|item| self.abandon(item)).collect();
        actions.push(Action::WakeAll);
        actions
    }
}

impl QueuePhase {
    /// The later of two; a closed scheduler does not drain again.
    const fn max_with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Closed, _) | (_, Self::Closed) => Self::Closed,
            (Self::Draining, _) | (_, Self::Draining) => Self::Draining,
            (Self::Open, Self::Open) => Self::Open,
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
