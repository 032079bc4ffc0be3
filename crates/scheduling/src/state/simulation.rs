//! Thousands of random events from a seed, and books of what must follow. Every item ends once.
//! Places, orders, turns of checks and counts are what the books say, and nobody sleeps while
//! something waits. Items of the same ids share runs without losing any of that.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::batch::cost::CostModel;
use crate::batch::plan::Shapes;
use crate::batch::{Batch, TokenIds};
use settings::limits::MaxBatchTokens;
use testing::Seeds;

mod books;

use books::{Books, CHECK_TOKENS, CHECKS_MAX, TrackedItem, TrackedWorker, tokens_of};

const SEEDS: u64 = 100;
const EVENTS: usize = 1000;

/// The world around the state machine, with its own books.
struct World {
    seed: u64,
    random: Rng,
    state: SchedulerState,
    now: Moment,
    capacity: usize,
    promised: Option<Duration>,
    items: BTreeMap<Sequence, TrackedItem>,
    requests: Vec<Range<Sequence>>,
    /// Room of requests whose texts are being tokenized, each with its places.
    rooms: Vec<(Reserved, usize)>,
    workers: Vec<TrackedWorker>,
    draining: bool,
    books: Books,
    /// How often a rule was met that the simulation must reach.
    met: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let nodes: Vec<usize> = (0..random.usize(1..=2)).map(|_| random.usize(1..=4)).collect();
        let widths = [&[1][..], &[1, 2], &[1, 2, 4], &[1, 4]][random.usize(0..4)];
        let lanes = Lane::tree(&nodes, widths);
        let workers = lanes.iter().map(|&lane| TrackedWorker::of(lane)).collect();
        let capacity = random.usize(1..=200);
        let shapes = Shapes::on_cpu(512, MaxBatchTokens::DEFAULT);
        let mut state = SchedulerState::new(capacity, lanes, shapes);
        // Every other world has a GPU's cost: small runs all take the same time.
        if seed % 2 == 1 {
            let model = CostModel { floor_us: 10_000.0, ..CostModel::default() };
            state.set_cost(0, Fit { model, median_error: 0.0 });
        }
        let promised = random.bool().then(|| Duration::from_millis(random.u64(1..200)));
        if let Some(p99) = promised {
            state.set_promise(p99);
        }
        Self {
            seed,
            random,
            state,
            now: Moment::START,
            capacity,
            promised,
            items: BTreeMap::new(),
            requests: Vec::new(),
            rooms: Vec::new(),
            workers,
            draining: false,
            books: Books::default(),
            met: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_micros(self.random.u64(0..3000));
        let worker = self.random.usize(0..self.workers.len());
        match self.random.u32(0..1000) {
            0..310 => self.submit(),
            310..360 => self.announce(),
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

    /// Every worker ends what it runs and takes more.
    fn run_once(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        for worker in 0..self.workers.len() {
            self.finish(worker);
            self.ask(worker);
        }
    }

    /// In a second at most, or much later.
    fn deadline(&mut self) -> Moment {
        let later = if self.random.u32(0..4) == 0 { 10_000 } else { 0 };
        self.now + Duration::from_millis(later + self.random.u64(0..1000))
    }

    fn pick<A: Copy>(&mut self, of: &[A]) -> A {
        of[self.random.usize(0..of.len())]
    }

    /// A request that may come or not: it changes nothing but what was late already, and the room
    /// that it gets when its texts are there.
    fn announce(&mut self) {
        let deadline = self.deadline();
        let priority = self.pick(&[Priority::Interactive, Priority::Bulk]);
        let tokens = vec![self.random.usize(1..=512); self.random.usize(1..=20)];
        let tokenizing = Duration::from_millis(self.random.u64(0..500));
        let has_come = self.random.bool();
        let new = Announced { priority, tokens: &tokens, deadline, tokenizing, has_come };
        let needed = self.state.least_time(&tokens).unwrap_or_default();
        let gets_room = has_come && needed <= deadline.since(self.now);
        let answer = self.state.announce(self.now, new);
        self.carry_out();
        self.assert_none_is_late();
        let fits = self.fits(if gets_room { tokens.len() } else { 1 });
        self.note_refusal(answer.as_ref().err(), !self.draining, fits);
        if let Ok(room) = answer {
            assert_eq!(room.is_some(), gets_room, "{self}");
            self.rooms.extend(room.map(|room| (room, tokens.len())));
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
        // Rooms are kept for a while, so that others are refused for them.
        let room = if self.random.u32(0..4) == 0 { self.rooms.pop() } else { None };
        let count = match room {
            // Rows of some texts may be known, and chunks are more.
            Some((_, places)) => self.random.usize(1..=2 * places),
            None if self.random.u32(0..10) == 0 => 60,
            None => self.random.usize(1..=5),
        };
        let reserved = room.map(|(reserved, _)| reserved);
        let fits_room = room.is_some_and(|(_, places)| count <= places);
        // A few texts come often. The same text has the same tokens.
        let texts = if self.random.bool() { 20 } else { 1_000_000 };
        let digests: Vec<Digest> =
            (0..count).map(|_| Digest(u128::from(self.random.u64(0..texts)))).collect();
        let tokens: Vec<usize> = digests.iter().map(|&digest| tokens_of(digest)).collect();
        let vectors = self.pick(&[Vectors::Dense, Vectors::Sparse, Vectors::Both]);
        let new = NewRequest::of(&tokens, self.deadline());
        let chosen = self.pick(&[new.priority, Priority::Interactive, Priority::Bulk]);
        let priority = reserved.map_or(chosen, |reserved| reserved.priority);
        let new = NewRequest { digests: &digests, vectors, priority, reserved, ..new };
        let answer = self.state.submit(self.now, new, &vec![(); count]);
        self.carry_out();
        self.assert_none_is_late();
        // Checks may have come since there was room, and they ask for none.
        let (is_open, fits) = (!self.draining || reserved.is_some(), self.fits(count) || fits_room);
        let fits_alone = self.fits_beside(count, 0);
        self.note_refusal(answer.as_ref().err(), is_open, fits);
        match answer {
            Ok(items) => {
                for (item, digest) in items.clone().zip(&digests) {
                    let text = TrackedItem::of_text(*digest, vectors, new.deadline);
                    self.enter(item, text);
                    self.note_join(item);
                }
                self.requests.push(items);
                self.meet("room was there", fits_room);
                self.meet("room was there in a drain", fits_room && self.draining);
            }
            Err(Refusal::Full { .. }) => self.meet("refused for reserved places", fits_alone),
            Err(Refusal::Late { retry_after }) => {
                assert!(!fits_room && !retry_after.is_zero(), "{self}");
            }
            Err(Refusal::TooShort { needed }) => {
                assert!(needed > new.deadline.since(self.now), "{self}");
            }
            Err(_) => {}
        }
    }

    fn check(&mut self, worker: usize) {
        let deadline = self.now + Duration::from_millis(30);
        let waiting = self.items.values().filter(|item| item.is_check_that_waits(worker)).count();
        let new = NewRequest::of(&[CHECK_TOKENS], deadline);
        let check = self.state.submit_check(self.now, worker, new, ());
        let was_asleep = self.workers[worker].asleep;
        self.carry_out();
        let is_full = waiting >= CHECKS_MAX;
        match check {
            Ok(items) => {
                assert!(self.workers[worker].live && !is_full, "{self}");
                assert!(!self.workers[worker].asleep, "it was not told {self}");
                // It comes for its check, and is woken for items all the same.
                self.workers[worker].asleep = was_asleep;
                self.enter(items.start, TrackedItem::check(worker, deadline));
            }
            Err(Refusal::NoWorker) => assert!(!self.workers[worker].live, "{self}"),
            Err(other) => assert!(is_full, "{other:?} {self}"),
        }
    }

    fn cancel(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.swap_remove(self.random.usize(0..self.requests.len()));
        self.state.cancel(self.now, &request);
        self.carry_out();
        self.assert_none_is_late();
        for item in request {
            let Some(tracked) = self.items.get_mut(&item) else { continue };
            tracked.is_cancelled = true;
            if !tracked.is_running {
                self.end(item);
            }
        }
    }

    fn stick(&mut self, worker: usize) {
        let tracked = &mut self.workers[worker];
        if tracked.running.take().is_none() {
            return;
        }
        (tracked.live, tracked.stuck) = (false, true);
        self.state.stop_stuck_worker(self.now, worker);
        self.carry_out();
    }

    fn open(&mut self, worker: usize) {
        let tracked = &mut self.workers[worker];
        if !tracked.live && !tracked.stuck {
            tracked.live = true;
            self.state.open_worker(worker);
        }
    }

    fn lose(&mut self, worker: usize) {
        let batches = self.workers[worker].batches;
        let lost = TrackedWorker { batches, ..TrackedWorker::of(self.workers[worker].lane) };
        let lost = std::mem::replace(&mut self.workers[worker], lost);
        // Its job was dropped by a panic, or was not.
        if self.random.bool() {
            let answers = self.state.fail_batch(worker);
            self.answer(lost.running.unwrap_or_default(), &answers);
        }
        self.state.lose_worker(self.now, worker);
        self.carry_out();
    }

    fn finish(&mut self, worker: usize) {
        if std::mem::take(&mut self.workers[worker].stuck) {
            self.workers[worker].live = true;
            self.state.fail_batch(worker);
            return;
        }
        let Some(items) = self.workers[worker].running.take() else { return };
        let before = self.state.counts();
        let lost = self.pick(&[Vectors::Dense, Vectors::Sparse, Vectors::Both]);
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
            self.note_rows(&items);
            (self.state.complete_batch(self.now, worker, failed, false), expected)
        };
        assert_eq!(self.state.counts().failed - before.failed, expected as u64, "{self}");
        self.answer(items, &answers);
    }

    fn ask(&mut self, worker: usize) {
        if !self.workers[worker].live || self.workers[worker].running.is_some() {
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
        self.workers[worker].asleep = run.is_none();
        let is_held = was_held || self.is_bulk_held();
        self.carry_out();
        self.assert_none_is_late();
        let ran = run.map(|run| self.begin(worker, run)).unwrap_or_default();
        // What waits may be for a lane of another width, whose worker is told, or asks by itself.
        let is_left = ran.is_empty() && is_free && others;
        assert!(!is_left || is_held || self.another_will_ask(worker), "a core idles {self}");
        self.meet("what waits was left to another", is_left);
        self.meet("a long bulk text left a core free", is_left && is_held);
        assert!(!ran.is_empty() || !checks, "there is a check {self}");
        assert!(ran.is_empty() || others || checks, "{self}");
        let Some(&lead) = ran.first() else {
            self.warm_up(worker);
            return;
        };
        let one_width = self.workers.iter().all(|worker| worker.lane.width == 1);
        let TrackedWorker { since_check, .. } = &mut self.workers[worker];
        if let Some(checked) = self.items[&lead].check_of {
            let since = since_check.replace(0);
            let owes = others && is_free && one_width && !is_held;
            assert!(!owes || since.is_none_or(|since| since >= 7), "too often {self}");
            assert_eq!((checked, ran.len()), (worker, 1), "{self}");
            return;
        }
        *since_check = since_check.map(|since| since + 1);
        assert!(!checks || since_check.is_some_and(|since| since <= 7), "held {self}");
        self.meet("a check let others pass", checks);
        let priority = self.items[&lead].priority;
        assert_eq!(Some(lead), first[priority as usize], "another goes first {self}");
    }

    /// A worker that found nothing to do may run a shape that no item waits for.
    fn warm_up(&mut self, worker: usize) {
        if !self.draining && self.random.u32(0..4) == 0 {
            self.state.warm_up(self.now, worker, Bucket { rows: 1, length: 512 });
            let tracked = &mut self.workers[worker];
            (tracked.running, tracked.asleep) = (Some(Vec::new()), false);
        }
    }

    /// A worker starts a run; its items.
    fn begin(&mut self, worker: usize, Run { bucket, items, priority }: Run) -> Vec<Sequence> {
        let items: Vec<Sequence> = items.iter().map(|(item, ())| *item).collect();
        let of = |item: &Sequence| self.items[item].priority;
        assert_eq!(Some(priority), items.iter().map(of).min(), "somebody waits for it {self}");
        let tokens = items.iter().map(|item| self.items[item].tokens);
        let ids = tokens.clone().map(|tokens| TokenIds::new(&vec![0; tokens]));
        assert!(Batch::new(bucket, ids.collect()).is_ok(), "it fits {self}");
        let budget = MaxBatchTokens::DEFAULT.as_usize();
        assert!(bucket.rows == 1 || bucket.tokens() <= budget, "{self}");
        self.books.tokens_real += tokens.sum::<usize>() as u64;
        self.books.tokens_padded += bucket.tokens() as u64;
        let (now, sharing) = (self.now, self.sharing(&items));
        for (_, item) in &sharing {
            let item = self.items.get_mut(item).expect("it was accepted");
            assert!(item.tokens <= bucket.length && item.deadline > now);
            assert!(!std::mem::replace(&mut item.is_running, true));
        }
        self.assert_alone(worker, &items);
        self.books.coalesced += (sharing.len() - items.len()) as u64;
        self.meet("items started together", sharing.len() > items.len());
        self.workers[worker].batches += 1;
        self.workers[worker].running = Some(sharing);
        items
    }

    /// What the last step has to be followed by.
    fn carry_out(&mut self) {
        let Effects { expired, abandoned, woken } = self.state.take_effects();
        for (item, ()) in expired {
            let expired = self.items[&item];
            assert!(expired.deadline <= self.now && !expired.is_running, "{self}");
            self.note_promise(expired, false);
            self.end(item);
        }
        abandoned.into_iter().for_each(|(item, ())| self.end(item));
        for worker in woken {
            let has_check = !self.state.workers[worker].checks.is_empty();
            let TrackedWorker { live, asleep, .. } = &mut self.workers[worker];
            let has_reason = *live && (std::mem::take(asleep) || has_check);
            assert!(has_reason || self.state.is_closed(), "{self}");
        }
    }

    /// Everything that was accepted ends once nothing new is taken.
    fn drain(&mut self) {
        (0..self.workers.len()).for_each(|worker| self.open(worker));
        // Some have room when it begins.
        for _ in 0..20 {
            self.announce();
            self.run_once();
        }
        self.begin_drain();
        let mut steps = 0;
        while !self.items.is_empty() || !self.rooms.is_empty() {
            self.run_once();
            self.verify();
            // What has room comes last, so that the drain has to wait for it.
            if self.items.is_empty() {
                self.submit();
            }
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
    let (mut met, mut worlds) = (BTreeMap::new(), 0);
    for seed in Seeds::new("every_item_ends_once_whatever_happens", 0..SEEDS) {
        let mut world = World::new(seed);
        for _ in 0..EVENTS {
            world.step();
        }
        world.drain();
        let counts = world.state.counts();
        // Where many lanes are narrow, wide ones may find no cores that are free together.
        let (narrow, wide): (Vec<_>, Vec<_>) =
            world.workers.iter().partition(|worker| worker.lane.width == 1);
        // A promise keeps lanes free, and few batches leave one out by chance.
        let are_few = counts.batches < 10 * world.workers.len() as u64;
        let all_ran = narrow.iter().all(|worker| worker.batches > 0);
        assert!(world.promised.is_some() || are_few || all_ran, "idle worker {world}");
        let ways = [
            ("replied", counts.replied),
            ("failed", counts.failed),
            ("expired", counts.expired),
            ("cancelled", counts.cancelled),
            ("abandoned", counts.abandoned),
            ("refused", counts.refused),
            ("ran on a wide lane", wide.iter().map(|worker| worker.batches).sum()),
        ];
        for (way, times) in ways.into_iter().chain(world.met) {
            *met.entry(way).or_insert(0) += times;
        }
        worlds += 1;
    }
    println!("{met:#?}");
    // It reaches every way to end, and every rule.
    assert!(worlds < SEEDS || met.values().all(|&times| times > worlds), "{met:?}");
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
        assert!(world.workers.iter().all(|worker| !worker.asleep), "all are to end {world}");
        world.verify();
        assert!(world.items.values().all(|item| item.is_running), "{world}");
        world.state.drain();
        assert!(world.state.is_closed(), "a drain opens nothing {world}");
        let new = NewRequest::of(&[CHECK_TOKENS], Moment::from_nanos(u64::MAX));
        let refused = Err(Refusal::NoWorker);
        assert_eq!(world.state.submit(world.now, new, &[()]), refused, "{world}");
        assert_eq!(world.state.submit_check(world.now, 0, new, ()), refused, "{world}");
        let (tokens, tokenizing) = (&[CHECK_TOKENS][..], Duration::ZERO);
        let (deadline, priority) = (new.deadline, new.priority);
        let head = Announced { priority, tokens, deadline, tokenizing, has_come: false };
        assert_eq!(world.state.announce(world.now, head), Err(Refusal::NoWorker), "{world}");
        world.books.refused += 2;
        for worker in 0..world.workers.len() {
            world.lose(worker);
        }
        world.verify();
        assert!(world.items.is_empty(), "{world}");
    }
}
