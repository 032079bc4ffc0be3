//! A request on its way to the workers: rows that are known are put in its answer, the items of
//! the others are queued.

use std::sync::Arc;

use super::job::QueuedItem;
use super::state::{Announced, Digest, Event, Reserved};
use super::ticket::{CacheUse, Pending, RowsReceiver};
use super::{Action, Refusal, Scheduler, Ticket};
use crate::batch::{Priority, TokenIds, Vectors};
use crate::clock::Moment;

/// The items of a request.
#[derive(Debug)]
pub struct Submission {
    /// At least one; none longer than the engine's longest bucket.
    pub items: Vec<TokenIds>,
    /// Which rows of an item are copied out of its batch.
    pub vectors: Vectors,
    /// `None` lets the request's size decide.
    pub priority: Option<Priority>,
    /// Items that wait at this moment are not run any more.
    pub deadline: Moment,
}

/// The items of a request that are not in the cache, and where its answer will arrive.
#[derive(Debug)]
pub(crate) struct ItemsToRun {
    /// What each takes of a row.
    tokens: Vec<usize>,
    digests: Vec<Digest>,
    contents: Vec<QueuedItem>,
    vectors: Vectors,
    answer: RowsReceiver,
    cache_use: Option<CacheUse>,
}

/// Room for a request whose texts are being tokenized. Dropping it gives the room back.
#[derive(Debug)]
pub(crate) struct Reservation {
    scheduler: Scheduler,
    reserved: Option<Reserved>,
}

impl Reservation {
    /// That of the request.
    pub(crate) fn priority(&self) -> Option<Priority> {
        self.reserved.map(|reserved| reserved.priority)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.scheduler.apply(&Event::Release(reserved));
        }
    }
}

impl Scheduler {
    /// Whether a request may be read, or tokenized; reserves room for one whose texts are there.
    ///
    /// # Errors
    /// The refusal that the request would get anyway. It counts as one that was refused.
    pub(crate) fn announce(&self, new: Announced<'_>) -> Result<Option<Reservation>, Refusal> {
        let actions = self.handle(&Event::Announce(new));
        let decision = actions.iter().find_map(|action| match action {
            Action::Refuse(refusal) => Some(Err(*refusal)),
            Action::Reserve(reserved) => Some(Ok(*reserved)),
            _ => None,
        });
        let (_, ended) = self.carry_out(actions);
        self.answer_ended(ended);
        let reserved = decision.transpose()?;
        Ok(reserved.map(|room| Reservation { scheduler: self.clone(), reserved: Some(room) }))
    }

    /// Takes a request whole or not at all. Dropping the ticket takes its waiting items out. One
    /// whose rows are all known is always taken.
    ///
    /// # Panics
    /// Without items, or with one longer than every bucket: the caller checks both.
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
            let cache = self.0.cache.as_ref();
            if let Some(rows) = cache.and_then(|cache| cache.find(digest, ids.len(), vectors)) {
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

    /// Takes all of the items or none. Room that was reserved is for their number at most.
    ///
    /// # Panics
    /// With an item longer than every bucket.
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
        let (tokens, contents, digests) = (&tokens[..], &contents[..], &digests[..]);
        let reserved = reservation.and_then(|mut reservation| reservation.reserved.take());
        let event =
            Event::Submit { tokens, contents, digests, vectors, priority, deadline, reserved };
        let mut state = self.0.state.lock();
        assert!(longest <= state.max_length(), "an item fits the longest bucket");
        let actions = state.handle(self.0.clock.now(), &event);
        drop(state);
        self.issue_ticket(actions, answer, cache_use)
    }

    /// Gives an item to one worker, ahead of what waits; for health checks, which see what the
    /// worker itself computes: they share no run, and nothing is kept. While other items wait, a
    /// worker runs one of them in eight batches at most.
    pub(crate) fn submit_check(
        &self,
        worker: usize,
        ids: TokenIds,
        deadline: Moment,
    ) -> Result<Ticket, Refusal> {
        let (tokens, vectors) = (ids.len(), Vectors::Both);
        let (pending, answer) = Pending::new(1);
        let content = QueuedItem { ids, digest: None, vectors, slot: 0, pending };
        let event = Event::Check { worker, tokens, content: &content, deadline };
        let actions = self.handle(&event);
        drop(content);
        self.issue_ticket(actions, answer, None)
    }

    fn issue_ticket(
        &self,
        actions: Vec<Action<QueuedItem>>,
        answer: RowsReceiver,
        cache_use: Option<CacheUse>,
    ) -> Result<Ticket, Refusal> {
        let accepted = actions.iter().find_map(|action| match action {
            Action::Accept { items } => Some(Ok(items.clone())),
            Action::Refuse(refusal) => Some(Err(*refusal)),
            _ => None,
        });
        let (_, ended) = self.carry_out(actions);
        self.answer_ended(ended);
        let items = accepted.expect("a submission is accepted or refused")?;
        Ok(Ticket::new(self.clone(), items, answer, cache_use))
    }
}
