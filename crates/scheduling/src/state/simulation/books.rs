//! What the world around the state machine knows on its own, and compares.

use super::*;

pub(super) const CHECK_TOKENS: usize = 9;

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
    pub(super) deadline: Moment,
    /// The worker that it checks.
    pub(super) check_of: Option<usize>,
    pub(super) is_running: bool,
    pub(super) is_cancelled: bool,
}

impl TrackedItem {
    pub(super) fn of_text(digest: Digest, vectors: Vectors, deadline: Moment) -> Self {
        let (tokens, digest) = (tokens_of(digest), Some(digest));
        let (check_of, is_running, is_cancelled) = (None, false, false);
        Self { tokens, digest, vectors, deadline, check_of, is_running, is_cancelled }
    }

    pub(super) const fn check(worker: usize, deadline: Moment) -> Self {
        let (tokens, digest, vectors) = (CHECK_TOKENS, None, Vectors::Both);
        let (check_of, is_running, is_cancelled) = (Some(worker), false, false);
        Self { tokens, digest, vectors, deadline, check_of, is_running, is_cancelled }
    }

    /// Waits in the queue that all workers share.
    pub(super) const fn is_queued(&self) -> bool {
        !self.is_running && self.check_of.is_none()
    }
}

impl World {
    pub(super) fn enter(&mut self, item: Sequence, entry: TrackedItem) {
        assert!(self.items.insert(item, entry).is_none(), "{self}");
    }

    /// A new item may get the rows of a run under way, if that is of its ids.
    pub(super) fn note_join(&mut self, item: Sequence) {
        for worker in 0..self.running.len() {
            let Some(batch) = &self.state.workers[worker].running else { continue };
            let Some(&(row, _)) = batch.items.iter().find(|(_, joined)| *joined == item) else {
                continue;
            };
            let running = self.running[worker].as_mut().expect("it runs something");
            let first = running.iter().find(|(other, _)| *other == row);
            let (_, first) = *first.expect("the row runs");
            assert_eq!(self.items[&first].digest, self.items[&item].digest);
            running.push((row, item));
            self.items.get_mut(&item).expect("it was accepted").is_running = true;
            self.joined += 1;
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
        let turns = leaders.map(|item| (&self.state.items[&item], item));
        let same = turns.filter(|(state, _)| state.priority == priority);
        same.min_by_key(|(state, item)| (state.turn, *item)).map(|(_, item)| item)
    }

    /// The item that goes first, of each text that waits for these queued items.
    pub(super) fn leaders(
        &self,
        counts: impl Fn(&TrackedItem) -> bool,
    ) -> BTreeMap<u128, Sequence> {
        let rank = |item: &Sequence| self.state.items[item].rank(*item);
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
        let cores = |worker: usize| {
            let Lane { first, width } = self.lanes[worker];
            first..first + width
        };
        let mut taken = (0..self.lanes.len()).filter(|&other| self.running[other].is_some());
        taken.all(|other| !cores(other).any(|core| cores(worker).contains(&core)))
    }

    /// Whether a long bulk text waits for the end of what runs, since it would leave no core free.
    pub(super) fn is_bulk_held(&self) -> bool {
        let is_free = |&lane: &usize| self.live[lane] && self.is_free(lane);
        let narrow = (0..self.lanes.len()).filter(|&lane| self.lanes[lane].width == 1);
        let runs = self.running.iter().any(Option::is_some);
        self.state.is_long_bulk(self.now) && runs && narrow.filter(is_free).count() < 2
    }

    /// Whether a worker but this one has free cores and asks for work by itself.
    pub(super) fn another_will_ask(&self, worker: usize) -> bool {
        let asks = |other: usize| self.live[other] && !self.state.workers[other].idle;
        (0..self.lanes.len()).any(|other| other != worker && asks(other) && self.is_free(other))
    }

    /// Items of requests never run on cores on which something runs.
    pub(super) fn assert_alone(&self, worker: usize, items: &[Sequence]) {
        let is_check = items.iter().any(|item| self.items[item].check_of.is_some());
        assert!(is_check || self.is_free(worker), "worker {worker} shares its cores {self}");
    }

    pub(super) fn end(&mut self, item: Sequence) {
        let Some(tracked) = self.items.remove(&item) else { panic!("{item} ended twice {self}") };
        self.ended += 1;
        self.cancelled += u64::from(tracked.is_cancelled);
    }

    pub(super) fn verify(&self) {
        let counts = self.state.counts();
        assert_eq!((counts.ended(), counts.cancelled), (self.ended, self.cancelled), "{self}");
        assert_eq!(counts.accepted, self.ended + self.items.len() as u64, "{self}");
        assert_eq!(counts.coalesced, self.shared + self.joined, "{self}");
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
        let live = self.live.iter().filter(|live| **live).count();
        let busy = self.running.iter().flatten().count();
        assert_eq!(self.state.live_and_busy(), (live, busy), "{self}");
    }
}
