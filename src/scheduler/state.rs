//! The scheduler as a pure state machine: an event and the time go in, actions come out.
//!
//! An item is accepted once and ends once: replied, failed, expired, cancelled or abandoned. Items
//! of one request have consecutive numbers, so a request is a range.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::batch::cost::{CostModel, Fit};
use crate::batch::plan::{BucketTable, Plan, Sequence, WaitingItem, WaitingItems};
use crate::batch::{Bucket, Priority};
use crate::clock::Moment;

mod admission;
mod counts;
mod ending;
mod probes;

pub use admission::Announced;
use admission::{Admission, Candidate};
pub use counts::Counts;

/// What the state machine is bounded by.
#[derive(Debug, Clone, Copy)]
pub struct StateConfig {
    /// Items waiting or running.
    pub capacity: usize,
    /// After this wait an item leads the next batch.
    pub max_age: Duration,
    pub workers: usize,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// A request comes whose items are not known yet; it is refused or it is not.
    Announce(Announced),
    /// A request with the token counts of its items; without a priority its size decides.
    Submit { tokens: &'a [usize], priority: Option<Priority>, deadline: Moment },
    /// An item for one worker, ahead of what waits as far as others are not starved.
    Probe { worker: usize, tokens: usize, deadline: Moment },
    /// Nobody wants the items of this range any more.
    Cancel { items: Range<Sequence> },
    /// A worker has a session that is warmed up.
    WorkerOpened { worker: usize },
    /// A worker has no session any more.
    WorkerLost { worker: usize },
    /// A worker has nothing to do.
    AskForWork { worker: usize },
    /// A worker's batch ran, or parts of it; the items of `failed` have no rows to be used.
    BatchDone { worker: usize, failed: &'a [Sequence] },
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The request is taken; these are its items.
    Accept {
        items: Range<Sequence>,
    },
    Refuse(Refused),
    /// The worker that asked runs these.
    Run {
        worker: usize,
        bucket: Bucket,
        items: Vec<Sequence>,
    },
    /// The item's deadline passed before it ran.
    Expire {
        item: Sequence,
    },
    /// The item cannot be run any more.
    Abandon {
        item: Sequence,
    },
    /// An idle worker should ask for work.
    WakeOne,
    /// Every idle worker should ask for work.
    WakeAll,
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for so many items before this time.
    Full {
        retry_after: Duration,
    },
    /// The answer would not be ready in time; it would be after this time.
    Late {
        retry_after: Duration,
    },
    Draining,
    /// No worker lives, or the named one does not.
    NoWorker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Draining,
    Closed,
}

#[derive(Debug)]
struct ItemState {
    tokens: usize,
    priority: Priority,
    turn: Moment,
    deadline: Moment,
    /// Nobody wants it, but it runs already.
    cancelled: bool,
}

impl ItemState {
    const fn waiting(&self, sequence: Sequence) -> WaitingItem {
        let Self { tokens, priority, turn, .. } = *self;
        WaitingItem { sequence, tokens, priority, turn }
    }
}

#[derive(Debug)]
struct Running {
    items: Vec<Sequence>,
    started: Moment,
    predicted_us: f64,
}

#[derive(Debug, Default)]
struct WorkerState {
    live: bool,
    /// Its batch runs for too long; it lives again when the batch ends after all.
    stuck: bool,
    /// It asked for work and found none.
    idle: bool,
    running: Option<Running>,
    probes: VecDeque<Sequence>,
    /// Batches of other items that it runs before its next probe while such items wait.
    owed_batches: u32,
}

/// Everything the scheduler knows.
#[derive(Debug)]
pub struct State {
    config: StateConfig,
    waiting: WaitingItems,
    items: HashMap<Sequence, ItemState>,
    /// Deadlines of waiting items, probes included.
    deadlines: BTreeSet<(Moment, Sequence)>,
    workers: Vec<WorkerState>,
    next: Sequence,
    phase: Phase,
    cost: CostModel,
    cost_error: Option<f64>,
    correction: f64,
    admission: Admission,
    counts: Counts,
}

impl State {
    /// Nothing waits, no worker lives.
    pub fn new(config: StateConfig, table: BucketTable) -> Self {
        let cost = CostModel::default();
        Self {
            config,
            waiting: WaitingItems::new(table, &cost),
            items: HashMap::new(),
            deadlines: BTreeSet::new(),
            workers: (0..config.workers).map(|_| WorkerState::default()).collect(),
            next: 0,
            phase: Phase::Open,
            cost,
            cost_error: None,
            correction: 1.0,
            admission: Admission::default(),
            counts: Counts::default(),
        }
    }

    /// Takes in what happened at `now` and says what is to be done.
    pub fn handle(&mut self, now: Moment, event: &Event<'_>) -> Vec<Action> {
        match event {
            &Event::Announce(new) => self.announced(now, new),
            Event::Submit { tokens, priority, deadline } => {
                let by_size = || Priority::of(tokens.len(), tokens.iter().sum());
                let priority = priority.unwrap_or_else(by_size);
                self.submit(now, Candidate { tokens, priority, deadline: *deadline })
            }
            Event::Probe { worker, tokens, deadline } => {
                self.probe(now, *worker, *tokens, *deadline)
            }
            Event::Cancel { items } => self.cancel(items),
            Event::WorkerOpened { worker } => {
                self.workers[*worker].live = true;
                Vec::new()
            }
            Event::WorkerLost { worker } => self.lose(*worker),
            Event::AskForWork { worker } => self.ask(now, *worker),
            Event::BatchDone { worker, failed } => self.done(now, *worker, failed),
            Event::BatchFailed { worker } => self.failed(*worker),
            Event::WorkerStuck { worker } => self.stick(*worker),
            Event::Drain => {
                self.phase = self.phase.max_with(Phase::Draining);
                Vec::new()
            }
            Event::Close => self.close(),
        }
    }

    /// Takes over a model that was fitted to measurements.
    pub fn set_cost(&mut self, fit: Fit) {
        self.cost = fit.model;
        self.waiting.set_cost(&fit.model);
        self.cost_error = Some(fit.median_error);
        self.correction = 1.0;
    }

    /// The cost model, its median error when it was fitted, and its running correction.
    pub const fn cost(&self) -> (CostModel, Option<f64>, f64) {
        (self.cost, self.cost_error, self.correction)
    }

    /// Items that wait, probes left out.
    pub fn queue_depth(&self) -> usize {
        self.waiting.len()
    }

    /// Items of one priority that wait, probes left out.
    pub fn queue_depth_of(&self, priority: Priority) -> usize {
        self.waiting.len_of(priority)
    }

    /// Tokens that wait, without padding.
    pub const fn queue_tokens(&self) -> usize {
        self.waiting.tokens()
    }

    /// Longest item that can be run.
    pub fn max_length(&self) -> usize {
        self.waiting.table().max_length()
    }

    /// The smallest bucket for `items` items of at most `tokens` tokens.
    pub fn bucket(&self, items: usize, tokens: usize) -> Bucket {
        self.waiting.table().smallest(items, tokens)
    }

    /// How many items ended how.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Workers with a session, and those of them that run a batch.
    pub fn live_and_busy(&self) -> (usize, usize) {
        let live = self.workers.iter().filter(|worker| worker.live);
        let busy = live.clone().filter(|worker| worker.running.is_some());
        (live.count(), busy.count())
    }

    /// Workers whose batch runs for too long.
    pub fn stuck(&self) -> usize {
        self.workers.iter().filter(|worker| worker.stuck).count()
    }

    /// Workers whose batch has run for `limit` or longer and who are not known to be stuck.
    pub fn overdue(&self, now: Moment, limit: Duration) -> Vec<usize> {
        let started = |worker: &WorkerState| worker.running.as_ref().map(|run| run.started);
        let overdue = |&worker: &usize| {
            started(&self.workers[worker]).is_some_and(|started| now.since(started) >= limit)
        };
        (0..self.workers.len()).filter(overdue).collect()
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether everything is over for good: closed, and nothing waits or runs.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    fn submit(&mut self, now: Moment, new: Candidate<'_>) -> Vec<Action> {
        // What is late neither takes a place nor counts as work before this request.
        let expired = self.expire(now);
        let mut actions = match self.admit(now, new) {
            Ok(()) => vec![Action::Accept { items: self.enter(now, new) }],
            Err(refused) => {
                self.counts.refused += 1;
                vec![Action::Refuse(refused)]
            }
        };
        let accepted = matches!(actions[0], Action::Accept { .. });
        actions.extend(expired);
        actions.extend(self.wake().filter(|_| accepted));
        actions
    }

    fn announced(&mut self, now: Moment, new: Announced) -> Vec<Action> {
        let mut actions = self.expire(now);
        if let Err(refused) = self.announce(now, new) {
            self.counts.refused += 1;
            actions.push(Action::Refuse(refused));
        }
        actions
    }

    fn enter(&mut self, now: Moment, new: Candidate<'_>) -> Range<Sequence> {
        let Candidate { tokens, priority, deadline } = new;
        let items = self.next..self.next + tokens.len() as u64;
        self.next = items.end;
        self.counts.accepted += tokens.len() as u64;
        let turns = self.turns(now, new);
        for ((item, &tokens), turn) in items.clone().zip(tokens).zip(turns) {
            let state = ItemState { tokens, priority, turn, deadline, cancelled: false };
            self.waiting.insert(state.waiting(item));
            self.deadlines.insert((deadline, item));
            self.items.insert(item, state);
        }
        items
    }

    fn cancel(&mut self, items: &Range<Sequence>) -> Vec<Action> {
        for item in items.clone() {
            if self.leave_queue(item) {
                self.items.remove(&item);
                self.counts.cancelled += 1;
            } else if let Some(state) = self.items.get_mut(&item) {
                state.cancelled = true;
            }
        }
        Vec::new()
    }

    /// Takes an item out of where it waits; false when it runs or has ended.
    fn leave_queue(&mut self, item: Sequence) -> bool {
        let Some(state) = self.items.get(&item) else { return false };
        if !self.deadlines.remove(&(state.deadline, item)) {
            return false;
        }
        if !self.waiting.remove(&state.waiting(item)) {
            for worker in &mut self.workers {
                worker.probes.retain(|&probe| probe != item);
            }
        }
        true
    }

    fn abandon(&mut self, item: Sequence) -> Option<Action> {
        let state = self.items.remove(&item)?;
        self.deadlines.remove(&(state.deadline, item));
        self.waiting.remove(&state.waiting(item));
        self.counts.abandoned += 1;
        Some(Action::Abandon { item })
    }

    fn ask(&mut self, now: Moment, worker: usize) -> Vec<Action> {
        let mut actions = self.expire(now);
        self.workers[worker].idle = false;
        let plan = self.next_probe(worker).or_else(|| self.next_batch(now, worker));
        let Some(Plan { bucket, items }) = plan else {
            self.workers[worker].idle = true;
            return actions;
        };
        let (mut real, mut interactive) = (0, 0);
        for item in &items {
            let state = &self.items[item];
            real += state.tokens;
            interactive += if state.priority == Priority::Interactive { state.tokens } else { 0 };
            self.deadlines.remove(&(state.deadline, *item));
        }
        self.counts.batches += 1;
        self.counts.tokens_real += real as u64;
        self.counts.tokens_padded += bucket.tokens() as u64;
        let predicted_us = self.cost.predict_us(bucket);
        let part = interactive as f64 / real.max(1) as f64;
        self.admission.spend(now, predicted_us * self.correction * part);
        let running = Running { items: items.clone(), started: now, predicted_us };
        self.workers[worker].running = Some(running);
        actions.push(Action::Run { worker, bucket, items });
        if !self.waiting.is_empty() {
            actions.extend(self.wake());
        }
        actions
    }

    fn next_batch(&mut self, now: Moment, worker: usize) -> Option<Plan> {
        let plan = self.waiting.take(now, self.config.max_age)?;
        let owed = &mut self.workers[worker].owed_batches;
        *owed = owed.saturating_sub(1);
        Some(plan)
    }

    /// Ends waiting items whose deadline has passed, before they cost anything.
    fn expire(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(&(deadline, item)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.leave_queue(item);
            self.items.remove(&item);
            self.counts.expired += 1;
            actions.push(Action::Expire { item });
        }
        actions
    }

    fn close(&mut self) -> Vec<Action> {
        self.phase = Phase::Closed;
        let mut waiting: Vec<Sequence> = self.deadlines.iter().map(|&(_, item)| item).collect();
        waiting.sort_unstable();
        for worker in &mut self.workers {
            worker.probes.clear();
        }
        let mut actions: Vec<Action> =
            waiting.into_iter().filter_map(|item| self.abandon(item)).collect();
        actions.push(Action::WakeAll);
        actions
    }

    fn wake(&self) -> Option<Action> {
        self.workers.iter().any(|worker| worker.live && worker.idle).then_some(Action::WakeOne)
    }
}

impl Phase {
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
