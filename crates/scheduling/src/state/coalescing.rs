//! Items of the same token ids share one run, whoever sent them.
//!
//! Those that wait are a group. Its leader is the one that goes first: interactive before bulk,
//! then by turn. Only the leader is in the queue, so planning and predictions count one text. When
//! the leader expires or is cancelled, the next one takes its place. When it starts, all start.
//!
//! An item whose ids run already gets the rows of that run, unless a run of its own is likely to
//! end sooner: a batch of many texts may have begun just now, and another worker be idle.
//!
//! An example with the texts A and B; items 0 and 1 are bulk, 2 and 3 interactive.
//!
//! | event | the queue | runs |
//! |---|---|---|
//! | item 0 of A comes, then item 1 of B | 0, 1 | |
//! | item 2 of A comes and would go first | 2, 1 | |
//! | a worker asks | 1 | 2, for 0 and 2 |
//! | item 3 of A comes | 1 | 2, for 0, 2 and 3 |
//! | item 2 is cancelled | 1 | 2, for 0 and 3 |

use std::cell::LazyCell;
use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::admission::NewRequest;
use super::{Item, SchedulerState};
use crate::batch::plan::{Rank, Sequence};
use clock::Moment;

/// Stands for the token ids of an item: others have the same one only if they have the same ids.
/// It is random enough for maps to need no hash of their own against made-up collisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

/// Where the rows of a new item will come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowSource {
    /// A run that is to be added, or that is to go before others now.
    NewRun,
    /// The run of a group that waits, which costs no more than before.
    Group,
    /// What a worker runs already.
    Running { worker: usize, row: usize },
}

/// What becomes of the queue when an item comes or leaves: one leaves it, and one enters it.
type QueueChange = (Option<Rank>, Option<Rank>);

/// Items of the same ids.
#[derive(Debug)]
enum Group {
    Waiting {
        leader: Rank,
        followers: BTreeSet<Rank>,
    },
    /// The worker's batch knows them.
    Running {
        worker: usize,
        row: usize,
    },
}

/// All of them that wait or run, checks left out.
#[derive(Debug, Default)]
pub(super) struct Groups(FxHashMap<Digest, Group>);

impl Groups {
    /// Adds an item that waits. One that does not share a run waits for the next one.
    fn join(&mut self, digest: Digest, rank: Rank) -> QueueChange {
        let Some(Group::Waiting { leader, followers }) = self.0.get_mut(&digest) else {
            let followers = BTreeSet::new();
            self.0.insert(digest, Group::Waiting { leader: rank, followers });
            return (None, Some(rank));
        };
        if rank > *leader {
            followers.insert(rank);
            return (None, None);
        }
        let before = std::mem::replace(leader, rank);
        followers.insert(before);
        (Some(before), Some(rank))
    }

    /// Takes out an item that waits.
    fn leave(&mut self, digest: Digest, rank: Rank) -> QueueChange {
        let Some(Group::Waiting { leader, followers }) = self.0.get_mut(&digest) else {
            return (None, None);
        };
        if rank != *leader {
            followers.remove(&rank);
            return (None, None);
        }
        let next = followers.pop_first();
        match next {
            Some(next) => *leader = next,
            None => drop(self.0.remove(&digest)),
        }
        (Some(rank), next)
    }

    /// The group runs from now on; gives its followers, in their order.
    pub(super) fn start(
        &mut self,
        digest: Digest,
        worker: usize,
        row: usize,
    ) -> impl Iterator<Item = Sequence> + use<> {
        let before = self.0.insert(digest, Group::Running { worker, row });
        let followers = match before {
            Some(Group::Waiting { followers, .. }) => followers,
            Some(Group::Running { .. }) | None => BTreeSet::new(),
        };
        followers.into_iter().map(|(_, _, sequence)| sequence)
    }

    /// The worker's run has ended. Items that came later may wait, or run on another worker.
    pub(super) fn end(&mut self, digest: Digest, worker: usize) {
        let runs =
            |group: &Group| matches!(group, Group::Running { worker: w, .. } if *w == worker);
        if self.0.get(&digest).is_some_and(runs) {
            self.0.remove(&digest);
        }
    }
}

impl<T: Clone> SchedulerState<T> {
    /// Where the rows of each item of a new request will come from.
    pub(super) fn row_sources(&self, now: Moment, new: NewRequest<'_>) -> Vec<RowSource> {
        let mut seen = FxHashSet::default();
        // Of all items alike, and they may be thousands of a text that runs.
        let wait_us = LazyCell::new(|| self.wait_of(now, new.priority).as_secs_f64() * 1e6);
        let mut source = |(item, &tokens): (usize, &usize)| {
            let Some(&digest) = new.digests.get(item) else { return RowSource::NewRun };
            match self.groups.0.get(&digest) {
                Some(&Group::Running { worker, row })
                    if self.is_sooner(now, worker, tokens, *wait_us) =>
                {
                    RowSource::Running { worker, row }
                }
                // An interactive item makes the run of a bulk one interactive work.
                Some(Group::Waiting { leader, .. }) if leader.0 <= new.priority => RowSource::Group,
                _ if new.tokens.len() > 1 && !seen.insert(digest) => RowSource::Group,
                _ => RowSource::NewRun,
            }
        };
        new.tokens.iter().enumerate().map(&mut source).collect()
    }

    /// Whether the worker's run is likely to end before an item's own would, which waits first.
    fn is_sooner(&self, now: Moment, worker: usize, tokens: usize, wait_us: f64) -> bool {
        let own_us = self.waiting.single_us(tokens) * self.cost().correction();
        self.left_us(now, worker) <= wait_us + own_us
    }

    /// Adds an item to those that get the rows of a run.
    pub(super) fn join_run(&mut self, item: Item<T>, worker: usize, row: usize) {
        let running = self.workers[worker].running.as_mut();
        running.expect("its group runs there").items.push((row, self.next));
        self.items.insert(self.next, item);
        self.next += 1;
        self.counts.coalesced += 1;
    }

    /// Puts an item in the queue when it is the leader of its group.
    pub(super) fn enqueue(&mut self, sequence: Sequence) {
        let item = &self.items[&sequence];
        let rank = item.rank(sequence);
        let joined = item.digest.map(|digest| self.groups.join(digest, rank));
        self.change_queue(joined.unwrap_or((None, Some(rank))), item.tokens);
    }

    /// Takes an item that waits out of its group, and out of the queue when it is there.
    pub(super) fn dequeue(&mut self, sequence: Sequence, item: &Item<T>) {
        let rank = item.rank(sequence);
        let left = item.digest.map(|digest| self.groups.leave(digest, rank));
        self.change_queue(left.unwrap_or((Some(rank), None)), item.tokens);
    }

    /// Both items have these tokens, since they have the same ids.
    fn change_queue(&mut self, (leaves, enters): QueueChange, tokens: usize) {
        leaves.into_iter().for_each(|rank| self.waiting.remove(rank));
        enters.into_iter().for_each(|rank| self.waiting.insert(rank, tokens));
    }
}

#[cfg(test)]
mod tests;
