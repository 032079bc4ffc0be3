//! Thousands of random events from a seed: every item ends once, limits hold, nothing starves.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::batch::plan::bucket_ladder;
use crate::limits::{MaxBatchRows, MaxBatchTokens};
use crate::seeds::Seeds;

const SEEDS: u64 = 100;
const EVENTS: usize = 1000;
const MAX_AGE: Duration = Duration::from_millis(20);

/// What the world knows of an item, apart from the state machine.
#[derive(Debug, Clone, Copy)]
struct TrackedItem {
    tokens: usize,
    deadline: Moment,
    /// The worker that it checks.
    check_of: Option<usize>,
    is_running: bool,
}

impl TrackedItem {
    /// Waits in the queue that all workers share.
    const fn is_queued(&self) -> bool {
        !self.is_running && self.check_of.is_none()
    }
}

/// The world around the state machine, with its own books.
struct World {
    seed: u64,
    random: Rng,
    /// It is the last one.
    wide: bool,
    state: SchedulerState,
    now: Moment,
    capacity: usize,
    items: BTreeMap<Sequence, TrackedItem>,
    requests: Vec<Range<Sequence>>,
    running: Vec<Option<Vec<Sequence>>>,
    live: Vec<bool>,
    /// What a worker ran has ended for its requests, not for the worker.
    stuck: Vec<bool>,
    batches_by_worker: Vec<u64>,
    /// Batches of other items since each worker's last check.
    since_check: Vec<Option<u32>>,
    ended: u64,
    led_by_age: u64,
    /// How often a check had to let others pass.
    checks_held: u64,
    draining: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let (others, wide) = (random.usize(1..=4), random.bool());
        let workers = others + usize::from(wide);
        let capacity = random.usize(1..=200);
        let ladder = bucket_ladder(512, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT);
        let config = StateConfig { capacity, max_age: MAX_AGE, workers: others, wide };
        let mut state = SchedulerState::new(config, BucketTable::new(&ladder));
        // All cores are twice as fast on a text that is alone.
        let cost = CostModel::default();
        let cost = CostModel { per_token_us: cost.per_token_us / 2.0, ..cost };
        let shapes = [8, 64, 256].map(|length| Bucket { rows: 1, length });
        if wide {
            state.measure(others, shapes.map(|shape| (shape, cost.predict(shape))).to_vec());
        }
        Self {
            seed,
            random,
            wide,
            state,
            now: Moment::START,
            capacity,
            items: BTreeMap::new(),
            requests: Vec::new(),
            running: vec![None; workers],
            live: vec![false; workers],
            stuck: vec![false; workers],
            batches_by_worker: vec![0; workers],
            since_check: vec![None; workers],
            ended: 0,
            led_by_age: 0,
            checks_held: 0,
            draining: false,
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_micros(self.random.u64(0..3000));
        let worker = self.random.usize(0..self.live.len());
        match self.random.u32(0..1000) {
            0..330 => self.submit(),
            330..350 => self.announce(),
            350..400 => self.cancel(),
            400..470 => self.check(worker),
            470..490 => self.lose(worker),
            490..510 => self.stick(worker),
            510..620 => self.open(worker),
            620..810 => self.finish(worker),
            // The process stood still for a while.
            810..812 => self.now = self.now + Duration::from_millis(self.random.u64(0..60_000)),
            812 if self.random.u32(0..10) == 0 => self.begin_drain(),
            _ => self.ask(worker),
        }
        self.verify();
    }

    fn begin_drain(&mut self) {
        self.draining = true;
        self.state.handle(self.now, &Event::Drain);
    }

    /// A request that may come or not: it changes nothing but what was late already.
    fn announce(&mut self) {
        let deadline = self.now + Duration::from_millis(self.random.u64(0..1000));
        let (priority, tokens) = (Priority::Bulk, self.random.usize(0..10_000));
        let ahead = Duration::from_millis(self.random.u64(0..500));
        let tokenizing = Duration::from_millis(self.random.u64(0..500));
        let event = Event::Announce(Announced { priority, tokens, deadline, ahead, tokenizing });
        let mut actions = self.state.handle(self.now, &event);
        match actions.pop_if(|action| matches!(action, Action::Refuse(_))) {
            Some(Action::Refuse(Refusal::NoWorker)) => {
                assert!(!self.draining && !self.live.contains(&true), "{self}");
            }
            Some(Action::Refuse(Refusal::Draining)) => assert!(self.draining, "{self}"),
            _ => assert!(!self.draining && self.live.contains(&true), "{self}"),
        }
        self.carry_out(0, actions);
    }

    fn submit(&mut self) {
        let count = if self.random.u32(0..10) == 0 { 60 } else { self.random.usize(1..=5) };
        let tokens: Vec<usize> = (0..count).map(|_| self.random.usize(2..=512)).collect();
        let deadline = self.now + Duration::from_millis(self.random.u64(0..1000));
        let choices = [None, Some(Priority::Interactive), Some(Priority::Bulk)];
        let priority = choices[self.random.usize(0..choices.len())];
        let contents = vec![(); count];
        let event = Event::Submit { tokens: &tokens, contents: &contents, priority, deadline };
        let actions = self.state.handle(self.now, &event);
        let (answer, others) = actions.split_first().expect("a submission is answered");
        self.carry_out(0, others.to_vec());
        let outstanding = self.items.len();
        match answer {
            Action::Accept { items } => {
                assert!(!self.draining && outstanding + count <= self.capacity, "{self}");
                assert!(self.live.contains(&true), "nobody can run it {self}");
                for (item, &tokens) in items.clone().zip(&tokens) {
                    self.enter(item, tokens, deadline, None);
                }
                self.requests.push(items.clone());
            }
            Action::Refuse(Refusal::Full { .. }) => {
                assert!(outstanding + count > self.capacity, "{self}");
            }
            Action::Refuse(Refusal::Late { retry_after }) => {
                assert!(*retry_after > Duration::ZERO, "{self}");
            }
            Action::Refuse(Refusal::NoWorker) => {
                assert!(!self.draining && !self.live.contains(&true), "{self}");
            }
            other => assert!(self.draining, "{other:?} {self}"),
        }
    }

    fn check(&mut self, worker: usize) {
        let deadline = self.now + Duration::from_millis(30);
        let event = Event::Check { worker, tokens: 9, content: &(), deadline };
        if let Action::Accept { items } = &self.state.handle(self.now, &event)[0] {
            assert!(self.live[worker], "{self}");
            self.enter(items.start, 9, deadline, Some(worker));
        }
    }

    fn enter(&mut self, item: Sequence, tokens: usize, deadline: Moment, check_of: Option<usize>) {
        let entry = TrackedItem { tokens, deadline, check_of, is_running: false };
        assert!(self.items.insert(item, entry).is_none(), "{self}");
    }

    fn cancel(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.swap_remove(self.random.usize(0..self.requests.len()));
        self.state.handle(self.now, &Event::Cancel { items: request.clone() });
        for item in request {
            if self.items.get(&item).is_some_and(|item| !item.is_running) {
                self.end(item);
            }
        }
    }

    fn stick(&mut self, worker: usize) {
        if self.running[worker].take().is_none() {
            return;
        }
        (self.live[worker], self.stuck[worker]) = (false, true);
        let actions = self.state.handle(self.now, &Event::WorkerStuck { worker });
        self.carry_out(worker, actions);
    }

    fn open(&mut self, worker: usize) {
        if !self.live[worker] && !self.stuck[worker] {
            self.live[worker] = true;
            self.state.handle(self.now, &Event::WorkerOpened { worker });
        }
    }

    fn lose(&mut self, worker: usize) {
        (self.live[worker], self.stuck[worker]) = (false, false);
        self.since_check[worker] = None;
        // Its job was dropped by a panic, or was not.
        let running = self.running[worker].take().unwrap_or_default();
        if self.random.bool() {
            self.state.handle(self.now, &Event::BatchFailed { worker });
            running.into_iter().for_each(|item| self.end(item));
        }
        let actions = self.state.handle(self.now, &Event::WorkerLost { worker });
        self.carry_out(worker, actions);
    }

    fn finish(&mut self, worker: usize) {
        if std::mem::take(&mut self.stuck[worker]) {
            self.live[worker] = true;
            self.state.handle(self.now, &Event::BatchFailed { worker });
            return;
        }
        let Some(items) = self.running[worker].take() else { return };
        if self.random.u32(0..5) == 0 {
            self.state.handle(self.now, &Event::BatchFailed { worker });
        } else {
            let failed = if self.random.bool() { &items[..items.len().min(1)] } else { &[] };
            self.state.handle(self.now, &Event::BatchDone { worker, failed });
        }
        for item in items {
            self.end(item);
        }
    }

    fn ask(&mut self, worker: usize) {
        if !self.live[worker] || self.running[worker].is_some() {
            return;
        }
        let old =
            [Priority::Interactive, Priority::Bulk].map(|priority| self.oldest_over_age(priority));
        let now = self.now;
        let mut alive = self.items.values().filter(|item| !item.is_running && item.deadline > now);
        let others = alive.clone().any(TrackedItem::is_queued);
        let checks = alive.any(|item| item.check_of == Some(worker));
        let actions = self.state.handle(self.now, &Event::AskForWork { worker });
        let ran = self.carry_out(worker, actions).unwrap_or_default();
        // With a wide worker what waits may be for workers of the other way.
        let held = self.wide && ran.is_empty() && !checks;
        assert!(held || ran.is_empty() == (!others && !checks), "there is work {self}");
        let Some(&lead) = ran.first() else {
            self.warm_up(worker);
            return;
        };
        if self.items[&lead].check_of.is_some() {
            let since = self.since_check[worker].replace(0);
            let others = others && !self.wide;
            assert!(!others || since.is_none_or(|since| since >= 7), "too often {self}");
            return;
        }
        if let Some(since) = &mut self.since_check[worker] {
            *since += 1;
        }
        assert!(!checks || self.since_check[worker].is_some_and(|n| n <= 7), "held {self}");
        self.checks_held += u64::from(checks);
        let [interactive, bulk] = old;
        let oldest = match self.state.items[&lead].priority {
            Priority::Interactive => interactive,
            Priority::Bulk => bulk,
        };
        if let Some(oldest) = oldest {
            assert_eq!(lead, oldest, "{oldest} is over the age bound and waits {self}");
            self.led_by_age += 1;
        }
    }

    /// A worker that found nothing to do may run a shape that no item waits for.
    fn warm_up(&mut self, worker: usize) {
        if !self.draining && self.random.u32(0..4) == 0 {
            let bucket = Bucket { rows: 1, length: 512 };
            self.state.handle(self.now, &Event::WarmUp { worker, bucket });
            self.running[worker] = Some(Vec::new());
        }
    }

    /// The item of the earliest turn, when its age is over the bound and it can still run.
    fn oldest_over_age(&self, priority: Priority) -> Option<Sequence> {
        let queued = self.items.iter().filter(|(_, item)| item.is_queued());
        let alive = queued.filter(|(_, item)| item.deadline > self.now);
        let turns = alive.map(|(item, _)| (&self.state.items[item], *item));
        let same = turns.filter(|(state, _)| state.priority == priority);
        let (state, item) = same.min_by_key(|(state, item)| (state.turn, *item))?;
        (self.now.since(state.turn) >= MAX_AGE).then_some(item)
    }

    fn carry_out(&mut self, worker: usize, actions: Vec<Action>) -> Option<Vec<Sequence>> {
        let mut ran = None;
        for action in actions {
            match action {
                Action::Expire { item, .. } => {
                    let expired = self.items[&item];
                    assert!(expired.deadline <= self.now && !expired.is_running, "{self}");
                    self.end(item);
                }
                Action::Abandon { item, .. } => self.end(item),
                Action::Run { bucket, items, worker: told } => {
                    assert_eq!(told, worker, "{self}");
                    assert!((1..=bucket.rows).contains(&items.len()), "{self}");
                    let budget = MaxBatchTokens::DEFAULT.as_usize();
                    assert!(bucket.rows == 1 || bucket.tokens() <= budget, "{self}");
                    let now = self.now;
                    let items: Vec<Sequence> = items.iter().map(|(item, ())| *item).collect();
                    for item in &items {
                        let item = self.items.get_mut(item).expect("it was accepted");
                        assert!(item.tokens <= bucket.length && item.deadline > now);
                        assert!(!std::mem::replace(&mut item.is_running, true));
                    }
                    self.assert_alone(worker, &items);
                    self.batches_by_worker[worker] += 1;
                    self.running[worker] = Some(items.clone());
                    ran = Some(items);
                }
                Action::Wake { worker } => assert!(self.live[worker], "{self}"),
                Action::WakeAll => {}
                Action::Accept { .. } | Action::Refuse(_) => panic!("unasked {self}"),
            }
        }
        ran
    }

    /// Items of requests never run on the wide worker and on others at the same time.
    fn assert_alone(&self, worker: usize, items: &[Sequence]) {
        let last = self.live.len() - 1;
        let runs = |worker: usize| self.running[worker].is_some();
        let is_check = items.iter().any(|item| self.items[item].check_of.is_some());
        if self.wide && !is_check {
            let clash = if worker == last { (0..last).any(runs) } else { runs(last) };
            assert!(!clash, "worker {worker} runs beside the other way {self}");
        }
    }

    fn end(&mut self, item: Sequence) {
        assert!(self.items.remove(&item).is_some(), "item {item} ended twice {self}");
        self.ended += 1;
    }

    fn verify(&self) {
        let counts = self.state.counts();
        assert_eq!(counts.ended(), self.ended, "{self}");
        assert_eq!(counts.accepted, self.ended + self.items.len() as u64, "{self}");
        let queued = self.items.values().filter(|item| item.is_queued());
        let depth = queued.clone().count();
        let tokens = queued.map(|item| item.tokens).sum();
        assert_eq!(
            (self.state.queue_depth(), self.state.queue_tokens()),
            (depth, tokens),
            "{self}"
        );
        assert_eq!(self.state.is_empty(), self.items.is_empty(), "{self}");
        let live = self.live.iter().filter(|live| **live).count();
        let busy = self.running.iter().flatten().count();
        assert_eq!(self.state.live_and_busy(), (live, busy), "{self}");
    }

    /// Everything that was accepted ends once nothing new is taken.
    fn drain(&mut self) {
        self.begin_drain();
        for worker in 0..self.live.len() {
            self.open(worker);
        }
        let mut steps = 0;
        while !self.items.is_empty() {
            for worker in 0..self.live.len() {
                self.finish(worker);
                self.ask(worker);
            }
            self.submit();
            self.verify();
            self.now = self.now + Duration::from_millis(1);
            steps += 1;
            assert!(steps < 10_000, "the drain does not end {self}");
        }
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "(seed {}, {:?} after the start)", self.seed, self.now)
    }
}

#[test]
fn every_item_ends_once_whatever_happens() {
    let mut totals = [0; 8];
    let mut worlds = 0;
    for seed in Seeds::new("every_item_ends_once_whatever_happens", 0..SEEDS) {
        let mut world = World::new(seed);
        for _ in 0..EVENTS {
            world.step();
        }
        world.drain();
        let counts = world.state.counts();
        assert!(world.batches_by_worker.iter().all(|&batches| batches > 0), "idle worker {world}");
        let ways = [
            counts.replied,
            counts.failed,
            counts.expired,
            counts.cancelled,
            counts.abandoned,
            counts.refused,
            world.led_by_age,
            world.checks_held,
        ];
        totals.iter_mut().zip(ways).for_each(|(total, way)| *total += way);
        worlds += 1;
    }
    // The simulation reaches every way to end, and every rule.
    assert!(worlds < SEEDS || totals.iter().all(|&way| way > worlds), "{totals:?}");
    println!("{totals:?}");
}

#[test]
fn closing_ends_everything_that_waits() {
    for seed in Seeds::new("closing_ends_everything_that_waits", 0..SEEDS) {
        let mut world = World::new(seed);
        for _ in 0..200 {
            world.step();
        }
        let actions = world.state.handle(world.now, &Event::Close);
        world.carry_out(0, actions);
        world.verify();
        assert!(world.items.values().all(|item| item.is_running), "{world}");
        for worker in 0..world.live.len() {
            world.lose(worker);
        }
        world.verify();
        assert!(world.items.is_empty(), "{world}");
    }
}
