//! A request on its way to the workers: rows in the cache go into its answer, and all other items
//! are queued.

use std::sync::Arc;

use super::job::QueuedItem;
use super::ticket::{CacheUse, Pending, RowsReceiver};
use super::{Scheduler, Ticket};
use clock::Moment;
use scheduling::Refusal;
use scheduling::batch::{Priority, TokenIds, Vectors};
use scheduling::state::{Announced, Digest, NewRequest, Reserved};

/// The items of a request.
#[derive(Debug)]
pub struct Submission {
    /// At least one item; no item is longer than the engine's longest bucket.
    pub items: Vec<TokenIds>,
    /// Which rows of an item the request wants.
    pub vectors: Vectors,
    /// `None` chooses the priority by the request's size.
    pub priority: Option<Priority>,
    /// Items that still wait at this moment are not run.
    pub deadline: Moment,
}

/// The items of a request that are not in the cache, and where its answer will arrive.
#[derive(Debug)]
pub(crate) struct ItemsToRun {
    /// The tokens of a row that each item takes.
    tokens: Vec<usize>,
    digests: Vec<Digest>,
    contents: Vec<QueuedItem>,
    vectors: Vectors,
    answer: RowsReceiver,
    cache_use: Option<CacheUse>,
}

/// Room in the queue for a request whose texts are being tokenized. Dropping it gives the room
/// back.
#[derive(Debug)]
pub(crate) struct Reservation {
    scheduler: Scheduler,
    reserved: Option<Reserved>,
}

impl Reservation {
    /// The priority of the request, if it has come to no more items than there is room for.
    pub(crate) fn priority(&self, items: usize) -> Option<Priority> {
        self.reserved.filter(|room| room.is_for(items)).map(|room| room.priority)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.scheduler.step(|state, _| state.release(reserved));
        }
    }
}

impl Scheduler {
    /// Decides whether a request may be read, or tokenized. Reserves room for a request whose texts
    /// have arrived.
    ///
    /// # Errors
    /// The refusal that the request would get anyway. It counts as a refused request.
    pub(crate) fn announce(&self, new: Announced<'_>) -> Result<Option<Reservation>, Refusal> {
        let reserved = self.step(|state, now| state.announce(now, new))?;
        Ok(reserved.map(|room| Reservation { scheduler: self.clone(), reserved: Some(room) }))
    }

    /// Accepts a request whole or not at all. Dropping the ticket takes its waiting items out of
    /// the queue. A request whose rows are all in the cache is always accepted.
    ///
    /// # Panics
    /// Without items, or with an item that is longer than every bucket: the caller checks both.
    pub fn submit(&self, submission: Submission) -> Result<Ticket, Refusal> {
        let Submission { items, vectors, priority, deadline } = submission;
        self.queue(self.look_up(items, vectors), priority, deadline, None)
    }

    /// Looks for the rows of a request's items in the cache.
    ///
    /// # Panics
    /// Without items.
    pub(crate) fn look_up(&self, items: Vec<TokenIds>, vectors: Vectors) -> ItemsToRun {
        let count = items.len();
        assert!(count > 0, "a request has at least one item");
        let (pending, answer) = Pending::new(count);
        let (mut tokens, mut digests, mut contents) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, ids) in items.into_iter().enumerate() {
            let digest = self.0.digester.digest(&ids);
            let cache = self.0.cache.as_ref().filter(|_| !ids.wants_token_vectors());
            if let Some(rows) = cache.and_then(|cache| cache.find(digest, vectors)) {
                pending.finish(slot, rows, None);
                continue;
            }
            tokens.push(ids.room());
            digests.push(digest);
            let (digest, pending) = (Some(digest), Arc::clone(&pending));
            contents.push(QueuedItem { ids, digest, vectors, slot, pending });
        }
        let cache_use = self.0.cache.as_ref().map(|_| CacheUse::of(count - contents.len(), count));
        ItemsToRun { tokens, digests, contents, vectors, answer, cache_use }
    }

    /// Queues all items or none. More items than room is reserved for are asked again.
    ///
    /// # Panics
    /// With an item that is longer than every bucket.
    pub(crate) fn queue(
        &self,
        items: ItemsToRun,
        priority: Option<Priority>,
        deadline: Moment,
        reservation: Option<Reservation>,
    ) -> Result<Ticket, Refusal> {
        let ItemsToRun { tokens, digests, contents, vectors, answer, cache_use } = items;
        let Some(longest) = tokens.iter().copied().max() else {
            return Ok(Ticket::new(self.clone(), 0..0, answer, cache_use));
        };
        let reserved = reservation.and_then(|mut reservation| reservation.reserved.take());
        let new = NewRequest {
            digests: &digests,
            vectors,
            reserved,
            ..NewRequest::of(&tokens, deadline)
        };
        let new = NewRequest { priority: priority.unwrap_or(new.priority), ..new };
        let items = self.step(|state, now| {
            assert!(longest <= state.max_length(), "an item fits the longest bucket");
            state.submit(now, new, &contents)
        })?;
        Ok(Ticket::new(self.clone(), items, answer, cache_use))
    }

    /// Gives an item of a health check to one worker, ahead of all waiting items. The check must
    /// see what the worker itself computes, so it shares no run and its rows are not kept. While
    /// other items wait, at most one in eight of a worker's batches is a check.
    pub(crate) fn submit_check(
        &self,
        worker: usize,
        ids: TokenIds,
        deadline: Moment,
    ) -> Result<Ticket, Refusal> {
        let (tokens, vectors) = ([ids.len()], Vectors::Both);
        let new = NewRequest::of(&tokens, deadline);
        let (pending, answer) = Pending::new(1);
        let content = QueuedItem { ids, digest: None, vectors, slot: 0, pending };
        let items = self.step(|state, now| state.submit_check(now, worker, new, content))?;
        Ok(Ticket::new(self.clone(), items, answer, None))
    }
}
