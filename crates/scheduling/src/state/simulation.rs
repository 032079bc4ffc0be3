//! Thousands of random events from a seed: every item ends once, limits hold, nothing starves, and
//! items of the same ids share runs without losing any of that.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::batch::cost::CostModel;
use crate::batch::plan::Shapes;
use crate::batch::{Batch, TokenIds};
use settings::limits::MaxBatchTokens;
use testing::Seeds;

mod books;

use books::{CHECK_TOKENS, TrackedItem, tokens_of};

const SEEDS: u64 = 100;
const EVENTS: usize = 1000;

/// The world around the state machine, with its own books.
struct World {
    seed: u64,
    random: Rng,
    lanes: Vec<Lane>,
    state: SchedulerState,
    now: Moment,
    capacity: usize,
    items: BTreeMap<Sequence, TrackedItem>,
    requests: Vec<Range<Sequence>>,
    /// Room of requests whose texts are being tokenized, each with its places.
    rooms: Vec<(Reserved, usize)>,
    /// All items that get rows of what each worker runs, each with its row.
    running: Vec<Option<Vec<(usize, Sequence)>>>,
    live: Vec<bool>,
    /// What a worker ran has ended for its requests, not for the worker.
    stuck: Vec<bool>,
    batches_by_worker: Vec<u64>,
    /// Batches of other items since each worker's last check.
    since_check: Vec<Option<u32>>,
    ended: u64,
    cancelled: u64,
    /// How often a worker with free cores left what waits to another one.
    left: u64,
    /// How often a long bulk text left a core free.
    held: u64,
    /// How often a check had to let others pass.
    checks_held: u64,
    /// Items that started with another one, and those that joined it later.
    shared: u64,
    joined: u64,
    /// Requests that came with room of their own.
    from_rooms: u64,
    draining: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let nodes: Vec<usize> = (0..random.usize(1..=2)).map(|_| random.usize(1..=4)).collect();
        let widths = [&[1][..], &[1, 2], &[1, 2, 4], &[1, 4]][random.usize(0..4)];
        let lanes = Lane::tree(&nodes, widths);
        let workers = lanes.len();
        let capacity = random.usize(1..=200);
        let config = StateConfig { capacity, lanes: lanes.clone() };
        let shapes = Shapes::on_cpu(512, MaxBatchTokens::DEFAULT);
        let mut state = SchedulerState::new(config, shapes);
        // Every other world has a GPU's cost: small runs all take the same time.
        if seed % 2 == 1 {
            let model = CostModel { floor_us: 10_000.0, ..CostModel::default() };
            state.set_cost(0, Fit { model, median_error: 0.0 });
        }
        if random.bool() {
            state.set_promise(Duration::from_millis(random.u64(1..200)));
        }
        Self {
            seed,
            random,
            lanes,
            state,
            now: Moment::START,
            capacity,
            items: BTreeMap::new(),
            requests: Vec::new(),
            rooms: Vec::new(),
            running: vec![None; workers],
            live: vec![false; workers],
            stuck: vec![false; workers],
            batches_by_worker: vec![0; workers],
            since_check: vec![None; workers],
            ended: 0,
            cancelled: 0,
            left: 0,
            held: 0,
            checks_held: 0,
            shared: 0,
            joined: 0,
            from_rooms: 0,
            draining: false,
        }
    }

    /// Places that are reserved.
    fn reserved(&self) -> usize {
        self.rooms.iter().map(|(_, places)| places).sum()
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_micros(self.random.u64(0..3000));
        let worker = self.random.usize(0..self.live.len());
        match self.random.u32(0..1000) {
            0..330 => self.submit(),
            330..360 => self.announce(),
            360..365 => self.withdraw(),
            365..400 => self.cancel(),
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
        self.state.drain();
    }

    /// A request that may come or not: it changes nothing but what was late already, and the room
    /// that it gets when its texts are there.
    fn announce(&mut self) {
        let deadline = self.now + Duration::from_millis(self.random.u64(0..1000));
        let priorities = [Priority::Interactive, Priority::Bulk];
        let priority = priorities[self.random.usize(0..2)];
        let tokens = vec![self.random.usize(1..=512); self.random.usize(1..=20)];
        let tokenizing = Duration::from_millis(self.random.u64(0..500));
        let has_come = self.random.bool();
        let new = Announced { priority, tokens: &tokens, deadline, tokenizing, has_come };
        let needed = self.state.least_time(&tokens).unwrap_or_default();
        let is_asked_again = !has_come || needed > deadline.since(self.now);
        let answer = self.state.announce(self.now, new);
        self.carry_out();
        match answer {
            Err(Refusal::NoWorker) => {
                assert!(!self.draining && !self.live.contains(&true), "{self}");
            }
            Err(Refusal::Draining) => assert!(self.draining, "{self}"),
            _ => assert!(!self.draining && self.live.contains(&true), "{self}"),
        }
        match answer {
            Ok(Some(room)) => {
                self.rooms.push((room, tokens.len()));
                assert!(self.items.len() + self.reserved() <= self.capacity, "{self}");
            }
            Ok(None) => assert!(is_asked_again, "{self}"),
            Err(_) => {}
        }
    }

    /// A request with room leaves before its items come.
    fn withdraw(&mut self) {
        if !self.rooms.is_empty() {
            let (room, _) = self.rooms.swap_remove(self.random.usize(0..self.rooms.len()));
            self.state.release(room);
        }
    }

    fn submit(&mut self) {
        let room = if self.random.bool() { self.rooms.pop() } else { None };
        let count = match room {
            // Rows of some texts may be known, and chunks are more.
            Some((_, places)) => self.random.usize(1..=2 * places),
            None if self.random.u32(0..10) == 0 => 60,
            None => self.random.usize(1..=5),
        };
        let reserved = room.map(|(reserved, _)| reserved);
        let fits_room = room.is_some_and(|(_, places)| count <= places);
        let is_open = !self.draining || reserved.is_some();
        // A few texts come often. The same text has the same tokens.
        let texts = if self.random.bool() { 20 } else { 1_000_000 };
        let digests: Vec<Digest> =
            (0..count).map(|_| Digest(u128::from(self.random.u64(0..texts)))).collect();
        let tokens: Vec<usize> = digests.iter().map(|&digest| tokens_of(digest)).collect();
        let wanted = [Vectors::Dense, Vectors::Sparse, Vectors::Both];
        let vectors = wanted[self.random.usize(0..wanted.len())];
        let deadline = self.now + Duration::from_millis(self.random.u64(0..1000));
        let new = NewRequest::of(&tokens, deadline);
        let choices = [new.priority, Priority::Interactive, Priority::Bulk];
        let chosen = choices[self.random.usize(0..choices.len())];
        let priority = reserved.map_or(chosen, |reserved| reserved.priority);
        let new = NewRequest { digests: &digests, vectors, priority, reserved, ..new };
        let answer = self.state.submit(self.now, new, &vec![(); count]);
        self.carry_out();
        let outstanding = self.items.len() + self.reserved();
        match answer {
            Ok(items) => {
                let fits = outstanding + count <= self.capacity;
                // Checks may have come since there was room, and they ask for none.
                assert!(is_open && (fits || fits_room), "{self}");
                assert!(self.live.contains(&true), "nobody can run it {self}");
                for (item, digest) in items.clone().zip(digests) {
                    self.enter(item, TrackedItem::of_text(digest, vectors, deadline));
                    self.note_join(item);
                }
                self.requests.push(items);
                self.from_rooms += u64::from(fits_room);
            }
            Err(Refusal::Full { .. } | Refusal::Late { .. }) if fits_room => {
                panic!("it has room {self}")
            }
            Err(Refusal::Full { .. }) => {
                let kept = if count > (self.capacity / 64).max(1) { self.capacity / 8 } else { 0 };
                assert!(outstanding + count > self.capacity - kept, "{self}");
            }
            Err(Refusal::Late { retry_after }) => assert!(!retry_after.is_zero(), "{self}"),
            Err(Refusal::NoWorker) => assert!(is_open && !self.live.contains(&true), "{self}"),
            Err(Refusal::TooShort { needed }) => {
                assert!(is_open && needed > deadline.since(self.now), "{self}");
            }
            Err(other) => assert!(!is_open, "{other:?} {self}"),
        }
    }

    fn check(&mut self, worker: usize) {
        let deadline = self.now + Duration::from_millis(30);
        let new = NewRequest::of(&[CHECK_TOKENS], deadline);
        let check = self.state.submit_check(self.now, worker, new, ());
        self.carry_out();
        if let Ok(items) = check {
            assert!(self.live[worker], "{self}");
            self.enter(items.start, TrackedItem::check(worker, deadline));
        }
    }

    fn cancel(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.swap_remove(self.random.usize(0..self.requests.len()));
        self.state.cancel(self.now, &request);
        self.carry_out();
        for item in request {
            let Some(tracked) = self.items.get_mut(&item) else { continue };
            tracked.is_cancelled = true;
            if !tracked.is_running {
                self.end(item);
            }
        }
    }

    fn stick(&mut self, worker: usize) {
        if self.running[worker].take().is_none() {
            return;
        }
        (self.live[worker], self.stuck[worker]) = (false, true);
        self.state.stop_stuck_worker(self.now, worker);
        self.carry_out();
    }

    fn open(&mut self, worker: usize) {
        if !self.live[worker] && !self.stuck[worker] {
            self.live[worker] = true;
            self.state.open_worker(worker);
        }
    }

    fn lose(&mut self, worker: usize) {
        (self.live[worker], self.stuck[worker]) = (false, false);
        self.since_check[worker] = None;
        // Its job was dropped by a panic, or was not.
        let running = self.running[worker].take().unwrap_or_default();
        if self.random.bool() {
            let answers = self.state.fail_batch(worker);
            self.answer(running, &answers);
        }
        self.state.lose_worker(self.now, worker);
        self.carry_out();
    }

    fn finish(&mut self, worker: usize) {
        if std::mem::take(&mut self.stuck[worker]) {
            self.live[worker] = true;
            self.state.fail_batch(worker);
            return;
        }
        let Some(items) = self.running[worker].take() else { return };
        let before = self.state.counts();
        let lost = [Vectors::Dense, Vectors::Sparse, Vectors::Both][self.random.usize(0..3)];
        let failed: &[(usize, Vectors)] = if self.random.bool() { &[(0, lost)] } else { &[] };
        let has_failed = |&(row, item): &(usize, Sequence)| {
            let item = &self.items[&item];
            !item.is_cancelled && row == 0 && failed.len() == 1 && lost.overlaps(item.vectors)
        };
        let (answers, expected) = if self.random.u32(0..5) == 0 {
            let wanted = |(_, item): &&(usize, Sequence)| !self.items[item].is_cancelled;
            let expected = items.iter().filter(wanted).count();
            (self.state.fail_batch(worker), expected)
        } else {
            let expected = items.iter().filter(|item| has_failed(item)).count();
            (self.state.complete_batch(self.now, worker, failed, false), expected)
        };
        assert_eq!(self.state.counts().failed - before.failed, expected as u64, "{self}");
        self.answer(items, &answers);
    }

    fn ask(&mut self, worker: usize) {
        if !self.live[worker] || self.running[worker].is_some() {
            return;
        }
        let first =
            [Priority::Interactive, Priority::Bulk].map(|priority| self.first_in_order(priority));
        let now = self.now;
        let mut alive = self.items.values().filter(|item| !item.is_running && item.deadline > now);
        let others = alive.clone().any(TrackedItem::is_queued);
        let checks = alive.any(|item| item.check_of == Some(worker));
        let is_free = self.is_free(worker);
        let was_held = self.is_bulk_held();
        let run = self.state.ask_for_work(self.now, worker);
        let on_its_way = self.state.workers.iter().any(|worker| worker.told);
        let is_held = was_held || self.is_bulk_held();
        self.carry_out();
        let ran = run.map(|run| self.begin(worker, run)).unwrap_or_default();
        // What waits may be for a lane of another width, whose worker is told, or asks by itself.
        let is_left = ran.is_empty() && is_free && others;
        self.left += u64::from(is_left);
        let another_will = on_its_way || self.another_will_ask(worker);
        assert!(!is_left || is_held || another_will, "a core idles {self}");
        self.held += u64::from(is_left && is_held);
        assert!(!ran.is_empty() || !checks, "there is a check {self}");
        assert!(ran.is_empty() || others || checks, "{self}");
        let Some(&lead) = ran.first() else {
            self.warm_up(worker);
            return;
        };
        if self.items[&lead].check_of.is_some() {
            let since = self.since_check[worker].replace(0);
            let one_width = self.lanes.iter().all(|lane| lane.width == 1);
            let owes = others && is_free && one_width && !is_held;
            assert!(!owes || since.is_none_or(|since| since >= 7), "too often {self}");
            return;
        }
        if let Some(since) = &mut self.since_check[worker] {
            *since += 1;
        }
        assert!(!checks || self.since_check[worker].is_some_and(|n| n <= 7), "held {self}");
        self.checks_held += u64::from(checks);
        let priority = self.state.items[&lead].priority;
        assert_eq!(Some(lead), first[priority as usize], "another goes first {self}");
    }

    /// A worker that found nothing to do may run a shape that no item waits for.
    fn warm_up(&mut self, worker: usize) {
        if !self.draining && self.random.u32(0..4) == 0 {
            let bucket = Bucket { rows: 1, length: 512 };
            self.state.warm_up(self.now, worker, bucket);
            self.running[worker] = Some(Vec::new());
        }
    }

    /// A worker starts a run; its items.
    fn begin(&mut self, worker: usize, Run { bucket, items, priority }: Run) -> Vec<Sequence> {
        let items: Vec<Sequence> = items.iter().map(|(item, ())| *item).collect();
        let of = |item: &Sequence| self.state.items[item].priority;
        assert_eq!(Some(priority), items.iter().map(of).min(), "somebody waits for it {self}");
        let ids = |item: &Sequence| TokenIds::new(&vec![0; self.state.items[item].tokens]);
        assert!(Batch::new(bucket, items.iter().map(ids).collect()).is_ok(), "it fits {self}");
        let budget = MaxBatchTokens::DEFAULT.as_usize();
        assert!(bucket.rows == 1 || bucket.tokens() <= budget, "{self}");
        let (now, sharing) = (self.now, self.sharing(&items));
        for (_, item) in &sharing {
            let item = self.items.get_mut(item).expect("it was accepted");
            assert!(item.tokens <= bucket.length && item.deadline > now);
            assert!(!std::mem::replace(&mut item.is_running, true));
        }
        self.assert_alone(worker, &items);
        self.batches_by_worker[worker] += 1;
        self.shared += (sharing.len() - items.len()) as u64;
        self.running[worker] = Some(sharing);
        items
    }

    /// What the last step has to be followed by.
    fn carry_out(&mut self) {
        let Effects { expired, abandoned, woken } = self.state.take_effects();
        for (item, ()) in expired {
            let expired = self.items[&item];
            assert!(expired.deadline <= self.now && !expired.is_running, "{self}");
            self.end(item);
        }
        abandoned.into_iter().for_each(|(item, ())| self.end(item));
        let closed = self.state.is_closed();
        assert!(closed || woken.into_iter().all(|worker| self.live[worker]), "{self}");
    }

    /// Everything that was accepted ends once nothing new is taken.
    fn drain(&mut self) {
        self.begin_drain();
        for worker in 0..self.live.len() {
            self.open(worker);
        }
        let mut steps = 0;
        while !self.items.is_empty() || !self.rooms.is_empty() {
            assert!(!self.state.is_drained(), "{self}");
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
        assert!(self.state.is_drained(), "{self}");
        let admission = &self.state.admission;
        assert_eq!((admission.reserved_items, admission.reserved_ns), (0, [0; 2]), "{self}");
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "(seed {}, {:?} after the start)", self.seed, self.now)
    }
}

#[test]
fn every_item_ends_once_whatever_happens() {
    let mut totals = [0; 13];
    let mut worlds = 0;
    for seed in Seeds::new("every_item_ends_once_whatever_happens", 0..SEEDS) {
        let mut world = World::new(seed);
        for _ in 0..EVENTS {
            world.step();
        }
        world.drain();
        let counts = world.state.counts();
        // Where many lanes are narrow, wide ones may find no cores that are free together.
        let (mut narrow, mut wide) = (Vec::new(), 0);
        for (lane, &batches) in world.lanes.iter().zip(&world.batches_by_worker) {
            if lane.width == 1 { narrow.push(batches) } else { wide += batches }
        }
        // A promise keeps lanes free, and few batches leave one out by chance.
        let is_promised = !world.state.promise().p99.is_zero();
        let are_few = counts.batches < 10 * world.lanes.len() as u64;
        let all_ran = narrow.iter().all(|&batches| batches > 0);
        assert!(is_promised || are_few || all_ran, "idle worker {world}");
        let ways = [
            counts.replied,
            counts.failed,
            counts.expired,
            counts.cancelled,
            counts.abandoned,
            counts.refused,
            world.checks_held,
            world.left,
            world.held,
            wide,
            world.shared,
            world.joined,
            world.from_rooms,
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
        world.state.close();
        world.carry_out();
        world.verify();
        assert!(world.items.values().all(|item| item.is_running), "{world}");
        for worker in 0..world.live.len() {
            world.lose(worker);
        }
        world.verify();
        assert!(world.items.is_empty(), "{world}");
    }
}
