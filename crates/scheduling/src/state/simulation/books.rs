//! What the world around the state machine knows on its own, and compares.

use super::*;

pub(super) const CHECK_TOKENS: usize = 9;
/// Checks that may wait for one worker.
pub(super) const CHECKS_MAX: usize = 4;

/// Tokens of a text.
pub(super) fn tokens_of(digest: Digest) -> usize {
    2 + (digest.0 * 7919 % 511) as usize
}

/// What the world knows of an item, apart from the state machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackedItem {
    pub(super) tokens: usize,
    /// Of its ids; a check has none.
    pub(super) digest: Option<Digest>,
    pub(super) vectors: Vectors,
    /// Both are what the state machine made of them, once it has taken the item.
    pub(super) priority: Priority,
    pub(super) turn: Moment,
    pub(super) deadline: Moment,
    /// The worker that it checks.
    pub(super) check_of: Option<usize>,
    pub(super) is_running: bool,
    pub(super) is_cancelled: bool,
}

impl TrackedItem {
    pub(super) const fn check(worker: usize, deadline: Moment) -> Self {
        Self {
            tokens: CHECK_TOKENS,
            digest: None,
            vectors: Vectors::Both,
            priority: Priority::Interactive,
            turn: Moment::START,
            deadline,
            check_of: Some(worker),
            is_running: false,
            is_cancelled: false,
        }
    }

    pub(super) fn of_text(digest: Digest, vectors: Vectors, deadline: Moment) -> Self {
        let (tokens, digest) = (tokens_of(digest), Some(digest));
        Self { tokens, digest, vectors, check_of: None, ..Self::check(0, deadline) }
    }

    /// Waits in the queue that all workers share.
    pub(super) const fn is_queued(&self) -> bool {
        !self.is_running && self.check_of.is_none()
    }

    pub(super) fn is_check_that_waits(&self, worker: usize) -> bool {
        self.check_of == Some(worker) && !self.is_running
    }
}

/// What the world knows of a worker.
#[derive(Debug)]
pub(super) struct TrackedWorker {
    pub(super) lane: Lane,
    pub(super) live: bool,
    /// What it ran has ended for its requests, not for the worker.
    pub(super) stuck: bool,
    /// It found nothing to do and was not woken since.
    pub(super) asleep: bool,
    /// All items that get rows of what it runs, each with its row.
    pub(super) running: Option<Vec<(usize, Sequence)>>,
    pub(super) batches: u64,
    /// Batches of other items since its last check.
    pub(super) since_check: Option<u32>,
}

impl TrackedWorker {
    pub(super) const fn of(lane: Lane) -> Self {
        let (running, since_check) = (None, None);
        Self { lane, live: false, stuck: false, asleep: false, running, batches: 0, since_check }
    }

    fn cores(&self) -> Range<usize> {
        self.lane.first..self.lane.first + self.lane.width
    }
}

/// What the state machine must have counted.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) ended: u64,
    pub(super) cancelled: u64,
    pub(super) refused: u64,
    pub(super) coalesced: u64,
    pub(super) tokens_real: u64,
    pub(super) tokens_padded: u64,
    /// Interactive items that kept the promise, and those that missed it.
    pub(super) kept: u64,
    pub(super) missed: u64,
}

impl World {
    /// A rule was met that the simulation must reach, or it was not.
    pub(super) fn meet(&mut self, rule: &'static str, is_met: bool) {
        *self.met.entry(rule).or_insert(0) += u64::from(is_met);
    }

    /// Whether there are places for so many items. The last eighth is for requests of few.
    pub(super) fn fits(&self, items: usize) -> bool {
        self.fits_beside(items, self.rooms.iter().map(|(_, places)| places).sum())
    }

    /// The same if so many places were reserved.
    pub(super) fn fits_beside(&self, items: usize, reserved: usize) -> bool {
        let taken = self.items.len() + reserved;
        let is_small = items <= (self.capacity / 64).max(1);
        let kept = if is_small { 0 } else { (self.capacity / 8).min(taken) };
        taken + items + kept <= self.capacity
    }

    /// Each refusal has its reason, and nothing is taken where there is one.
    pub(super) fn note_refusal(&mut self, refusal: Option<&Refusal>, is_open: bool, fits: bool) {
        self.books.refused += u64::from(refusal.is_some());
        let lives = self.workers.iter().any(|worker| worker.live);
        match refusal {
            Some(Refusal::Draining) => assert!(!is_open, "{self}"),
            Some(Refusal::NoWorker) => assert!(is_open && !lives, "{self}"),
            Some(Refusal::Full { .. }) => assert!(is_open && lives && !fits, "{self}"),
            Some(Refusal::TooShort { .. }) => assert!(is_open && lives, "{self}"),
            None | Some(Refusal::Late { .. }) => assert!(is_open && lives && fits, "{self}"),
            Some(other) => panic!("{other:?} {self}"),
        }
    }

    pub(super) fn enter(&mut self, item: Sequence, entry: TrackedItem) {
        let &Item { priority, turn, .. } = &self.state.items[&item];
        let entry = TrackedItem { priority, turn, ..entry };
        assert!(self.items.insert(item, entry).is_none(), "{self}");
    }

    /// A new item may get the rows of a run under way, if that is of its ids.
    pub(super) fn note_join(&mut self, item: Sequence) {
        let before = self.books.coalesced;
        for worker in 0..self.workers.len() {
            let Some(batch) = &self.state.workers[worker].running else { continue };
            let Some(&(row, _)) = batch.items.iter().find(|(_, joined)| *joined == item) else {
                continue;
            };
            let running = self.workers[worker].running.as_mut().expect("it runs something");
            let first = running.iter().find(|(other, _)| *other == row);
            let (_, first) = *first.expect("the row runs");
            assert_eq!(self.items[&first].digest, self.items[&item].digest);
            running.push((row, item));
            self.items.get_mut(&item).expect("it was accepted").is_running = true;
            self.books.coalesced += 1;
        }
        self.meet("an item joined a run", self.books.coalesced > before);
    }

    /// An interactive item has its rows, or it never will. A check is promised nothing.
    pub(super) fn note_promise(&mut self, item: TrackedItem, has_rows: bool) {
        let is_promised = item.priority == Priority::Interactive && item.check_of.is_none();
        let Some(promised) = self.promised.filter(|_| is_promised) else { return };
        let is_kept = has_rows && self.now.since(item.turn) <= promised;
        *if is_kept { &mut self.books.kept } else { &mut self.books.missed } += 1;
    }

    /// A batch ran. Its rows are there, whoever is gone that wanted them.
    pub(super) fn note_rows(&mut self, items: &[(usize, Sequence)]) {
        for (_, item) in items {
            self.note_promise(self.items[item], true);
        }
    }

    /// A batch has ended: all that share its rows are answered, each with its own row.
    pub(super) fn answer(&mut self, mut items: Vec<(usize, Sequence)>, answers: &[ItemAnswer]) {
        let mut answered: Vec<_> = answers.iter().map(|answer| (answer.row, answer.item)).collect();
        answered.sort_unstable();
        items.sort_unstable();
        assert_eq!(answered, items, "{self}");
        items.into_iter().for_each(|(_, item)| self.end(item));
    }

    /// The item of the earliest turn that can still run.
    pub(super) fn first_in_order(&self, priority: Priority) -> Option<Sequence> {
        let leaders = self.leaders(|item| item.deadline > self.now).into_values();
        let same = leaders.filter(|item| self.items[item].priority == priority);
        same.min_by_key(|item| (self.items[item].turn, *item))
    }

    /// The item that goes first, of each text that waits for these queued items.
    pub(super) fn leaders(
        &self,
        counts: impl Fn(&TrackedItem) -> bool,
    ) -> BTreeMap<u128, Sequence> {
        let rank = |item: &Sequence| (self.items[item].priority, self.items[item].turn, *item);
        let mut leaders: BTreeMap<u128, Sequence> = BTreeMap::new();
        for (item, tracked) in &self.items {
            if tracked.is_queued() && counts(tracked) {
                let digest = tracked.digest.expect("it is no check").0;
                let leader = leaders.entry(digest).or_insert(*item);
                *leader = std::cmp::min_by_key(*leader, *item, rank);
            }
        }
        leaders
    }

    /// The items that run in the rows of these, in which their texts run; others of the same texts
    /// no longer wait.
    pub(super) fn sharing(&self, leaders: &[Sequence]) -> Vec<(usize, Sequence)> {
        let mut sharing = Vec::new();
        for (row, leader) in leaders.iter().enumerate() {
            let text = self.items[leader].digest;
            let shares = |item: &TrackedItem| text.is_some() && item.digest == text;
            let others = self.items.iter().filter(|(_, item)| item.is_queued() && shares(item));
            let others = others.map(|(item, _)| *item).filter(|item| item != leader);
            sharing.extend(std::iter::once(*leader).chain(others).map(|item| (row, item)));
        }
        sharing
    }

    /// Whether nothing runs on any core of a worker's lane.
    pub(super) fn is_free(&self, worker: usize) -> bool {
        let mut cores = self.workers[worker].cores();
        let busy = || self.workers.iter().filter(|worker| worker.running.is_some());
        cores.all(|core| !busy().any(|other| other.cores().contains(&core)))
    }

    /// Whether a long bulk text waits for the end of what runs, since it would leave no core free.
    pub(super) fn is_bulk_held(&self) -> bool {
        let is_free = |&lane: &usize| self.workers[lane].live && self.is_free(lane);
        let narrow = (0..self.workers.len()).filter(|&lane| self.workers[lane].lane.width == 1);
        let runs = self.workers.iter().any(|worker| worker.running.is_some());
        self.state.is_long_bulk(self.now) && runs && narrow.filter(is_free).count() < 2
    }

    /// Whether a worker but this one asks by itself, with free cores, or was told to. One that was
    /// told and has no free cores any more tells the next one.
    pub(super) fn another_will_ask(&self, worker: usize) -> bool {
        let asks = |other: usize| self.workers[other].live && !self.workers[other].asleep;
        let comes = |other: usize| self.is_free(other) || self.state.workers[other].told;
        (0..self.workers.len()).any(|other| other != worker && asks(other) && comes(other))
    }

    /// Items of requests never run on cores on which something runs.
    pub(super) fn assert_alone(&self, worker: usize, items: &[Sequence]) {
        let is_check = items.iter().any(|item| self.items[item].check_of.is_some());
        assert!(is_check || self.is_free(worker), "worker {worker} shares its cores {self}");
    }

    /// What waited at its deadline has ended.
    pub(super) fn assert_none_is_late(&self) {
        let mut waiting = self.items.values().filter(|item| !item.is_running);
        assert!(waiting.all(|item| item.deadline > self.now), "{self}");
    }

    pub(super) fn end(&mut self, item: Sequence) {
        let Some(tracked) = self.items.remove(&item) else { panic!("{item} ended twice {self}") };
        self.books.ended += 1;
        self.books.cancelled += u64::from(tracked.is_cancelled);
    }

    pub(super) fn verify(&self) {
        let Books { ended, cancelled, refused, coalesced, tokens_real, tokens_padded, .. } =
            self.books;
        let batches = self.workers.iter().map(|worker| worker.batches).sum();
        let counts = self.state.counts();
        let Counts { replied, failed, expired, abandoned, .. } = counts;
        let accepted = ended + self.items.len() as u64;
        let expected = Counts {
            accepted,
            cancelled,
            refused,
            coalesced,
            batches,
            tokens_real,
            tokens_padded,
            ..Counts { replied, failed, expired, abandoned, ..Counts::default() }
        };
        assert_eq!((counts, counts.ended()), (expected, ended), "{self}");
        let PromiseFigures { kept, missed, .. } = self.state.promise();
        assert_eq!((kept, missed), (self.books.kept, self.books.missed), "{self}");
        // A text that several wait for is one text of the queue.
        let leaders = self.leaders(|_| true);
        let depth = leaders.len();
        let tokens = leaders.values().map(|item| self.items[item].tokens).sum();
        assert_eq!(
            (self.state.queue_depth(), self.state.queue_tokens()),
            (depth, tokens),
            "{self}"
        );
        assert_eq!(self.state.is_empty(), self.items.is_empty(), "{self}");
        let is_last = self.draining || self.state.is_closed();
        let is_drained = is_last && self.items.is_empty() && self.rooms.is_empty();
        assert_eq!(self.state.is_drained(), is_drained, "{self}");
        let live = self.workers.iter().filter(|worker| worker.live);
        let busy = self.workers.iter().filter(|worker| worker.running.is_some()).count();
        assert_eq!(self.state.live_and_busy(), (live.clone().count(), busy), "{self}");
        // Who runs something asks again at its end.
        let all_sleep = live.clone().count() > 0 && live.clone().all(|worker| worker.asleep);
        assert!(depth == 0 || !all_sleep, "nobody comes for what waits {self}");
    }
}
