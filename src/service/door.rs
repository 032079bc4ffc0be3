//! The door: what a request holds while it is read, parsed and tokenized.
//!
//! A request is let in by its head, before its body is read, so that a refusal costs next to
//! nothing. It then holds a [`Permit`] until its end, whatever the end. The permit counts the bytes
//! that the request keeps in memory, those of its texts that wait to be tokenized, and the time
//! that its items will take on the workers as long as the scheduler does not know them yet.
//! Dropping the permit gives all of it back.
//!
//! | moment | bytes held | waits to be tokenized | time expected on the workers |
//! |---|---|---|---|
//! | the head has come | those that it announces | nothing | guessed from those bytes |
//! | a chunk comes, gzip is unpacked | those that are there, if more | nothing | as before |
//! | the body is parsed | the same, or its ids | its texts, unless short | guessed from them |
//! | the texts are tokenized | those of the ids | nothing | none: the scheduler counts it |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tokenizing::INLINE_BYTES;
use super::{EmbedError, EmbedRequest, EmbeddingService, Input, Refusal, ResidentModel};
use crate::batch::Priority;
use crate::clock::Moment;
use crate::config::RaisedPriority;
use crate::limits::{MaxInflightBytes, SMALL_REQUEST_BYTES};
use crate::scheduler::Announced;

/// Bytes of text for each token, as a rule. Latin scripts have about four, others three or four.
const TOKEN_BYTES: u64 = 4;

/// A body of up to so many bytes is a query, or a few: reading and tokenizing it costs little more
/// than the refusal that it may get then.
const QUERY_BYTES: u64 = 2048;

/// What the head of a request tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestHead {
    /// Bytes of the body; 0 when the head does not say.
    pub(crate) announced_bytes: u64,
    /// The priority that the client names.
    pub priority: Option<Priority>,
    pub deadline: Moment,
}

/// Counts what all permits hold.
#[derive(Debug)]
pub(super) struct Door {
    limit: MaxInflightBytes,
    bytes: AtomicU64,
    /// Bytes of long texts that wait to be tokenized.
    text_bytes: AtomicU64,
    /// Nanoseconds of the workers' time, by priority.
    expected_ns: [AtomicU64; 2],
}

impl Door {
    pub(super) fn new(limit: MaxInflightBytes) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let expected_ns = [zero(), zero()];
        Arc::new(Self { limit, bytes: zero(), text_bytes: zero(), expected_ns })
    }

    /// A permit that holds nothing yet.
    pub(super) fn enter(self: &Arc<Self>) -> Permit {
        let expected = (Priority::Interactive, 0);
        Permit { door: Arc::clone(self), bytes: 0, text_bytes: 0, expected }
    }

    /// Bytes that all requests hold.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of long texts that wait to be tokenized.
    fn text_bytes(&self) -> u64 {
        self.text_bytes.load(Ordering::Relaxed)
    }

    /// Time on the workers of all items that the scheduler does not know yet, and that are run
    /// before those of a priority: bulk items do not hold interactive ones up.
    fn expected(&self, before: Priority) -> Duration {
        let of = |priority: Priority| self.expected_ns[priority as usize].load(Ordering::Relaxed);
        let bulk_ns = if before == Priority::Bulk { of(Priority::Bulk) } else { 0 };
        Duration::from_nanos(of(Priority::Interactive) + bulk_ns)
    }
}

/// What one request holds; gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    door: Arc<Door>,
    bytes: u64,
    text_bytes: u64,
    /// Nanoseconds on the workers, and their priority.
    expected: (Priority, u64),
}

impl Permit {
    /// Holds `bytes` from now on, more or fewer than before.
    ///
    /// # Errors
    /// `BytesExceeded` when more is asked for and too much is in flight; the permit holds what it
    /// held.
    pub(crate) fn hold(&mut self, bytes: u64) -> Result<(), Refusal> {
        let limit = match bytes {
            0..=SMALL_REQUEST_BYTES => self.door.limit.get(),
            _ => self.door.limit.largest_request(),
        };
        let held = self.bytes;
        let more = |all: u64| {
            let all = all - held + bytes;
            (bytes <= held || all <= limit).then_some(all)
        };
        let taken = self.door.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        self.bytes = taken.map(|_| bytes).map_err(|_| Refusal::BytesExceeded)?;
        Ok(())
    }

    /// Holds `inputs` from now on; gives the bytes that are held. Texts may be parts of the body,
    /// so no less is held than before.
    ///
    /// # Errors
    /// Those of [`Self::hold`].
    pub(super) fn hold_inputs(&mut self, inputs: &[Input]) -> Result<u64, Refusal> {
        let bytes: u64 = inputs.iter().map(Input::bytes).sum();
        let body = match inputs.first() {
            Some(Input::Text(_)) => self.bytes,
            Some(Input::TokenIds(_)) | None => 0,
        };
        self.hold(bytes.max(body))?;
        Ok(self.bytes)
    }

    /// The request's long texts wait to be tokenized.
    pub(super) fn begin_tokenizing(&mut self, text_bytes: u64) {
        self.door.text_bytes.fetch_add(text_bytes, Ordering::Relaxed);
        self.text_bytes += text_bytes;
    }

    /// The request's texts have become ids of `bytes` bytes.
    pub(super) fn end_tokenizing(&mut self, bytes: u64) {
        self.door.text_bytes.fetch_sub(self.text_bytes, Ordering::Relaxed);
        self.text_bytes = 0;
        // Holding no more than before is never refused.
        let _ = self.hold(bytes.min(self.bytes));
    }

    /// The request's items will take `time` on the workers, and the scheduler does not know yet.
    fn expect(&mut self, priority: Priority, time: Duration) {
        self.submitted();
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4);
        self.door.expected_ns[priority as usize].fetch_add(ns, Ordering::Relaxed);
        self.expected = (priority, ns);
    }

    /// The scheduler counts the request's items from now on.
    pub(super) fn submitted(&mut self) {
        let (priority, ns) = std::mem::replace(&mut self.expected, (Priority::Interactive, 0));
        self.door.expected_ns[priority as usize].fetch_sub(ns, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end_tokenizing(0);
        self.submitted();
    }
}

impl EmbeddingService {
    /// Lets a request in by its head, before its body is read. With a cache, a request with a short
    /// body is asked later, when it is known whether it needs a run.
    ///
    /// # Errors
    /// When no worker lives, requests of its priority wait too long for its deadline, or too many
    /// bytes are in flight.
    pub(crate) fn admit(&self, head: &RequestHead) -> Result<Permit, EmbedError> {
        let resident = self.available()?;
        let mut permit = self.door.enter();
        permit.hold(head.announced_bytes)?;
        if resident.scheduler.has_cache() && (1..=QUERY_BYTES).contains(&head.announced_bytes) {
            return Ok(permit);
        }
        // The number of texts is not known yet. A single text makes a request interactive.
        let priority = self.priority(head.priority, Priority::Interactive);
        let limit = resident.package.manifest().max_input_tokens;
        let tokens = likely_tokens(head.announced_bytes, limit);
        // A short text is tokenized where it arrives: it does not wait behind long ones.
        let behind = if head.announced_bytes > INLINE_BYTES { self.door.text_bytes() } else { 0 };
        let new = self.announced(priority, tokens, head.deadline, behind);
        permit.expect(priority, resident.scheduler.admissible(new)?);
        Ok(permit)
    }

    /// Asks again once the body is parsed, since many texts make a request bulk, which waits
    /// longer. A short request is not asked: tokenizing it costs no more than asking.
    pub(super) fn admit_items(
        &self,
        resident: &ResidentModel,
        request: &EmbedRequest,
        permit: &mut Permit,
    ) -> Result<(), EmbedError> {
        let bytes = request.inputs.iter().map(Input::bytes);
        let all = bytes.clone().sum();
        // This is more than before only for lists of short token ids, which are longer in memory.
        permit.hold_inputs(&request.inputs)?;
        if all <= INLINE_BYTES {
            return Ok(());
        }
        let limit = resident.package.manifest().max_input_tokens;
        let tokens = bytes.map(|bytes| likely_tokens(bytes, limit)).sum();
        // Half of the tokens count: in doubt the request is interactive, and it is asked once more
        // with its ids.
        let by_size = Priority::of(request.inputs.len(), tokens / 2);
        let priority = self.priority(request.options.priority, by_size);
        // The request does not wait behind its own items.
        permit.submitted();
        let deadline = request.options.deadline;
        let new = self.announced(priority, tokens, deadline, self.door.text_bytes());
        permit.expect(priority, resident.scheduler.admissible(new)?);
        permit.begin_tokenizing(all);
        Ok(())
    }

    /// What the scheduler is asked: a request that waits behind `behind` bytes of texts to be
    /// tokenized, and behind what other permits expect.
    fn announced(
        &self,
        priority: Priority,
        tokens: usize,
        deadline: Moment,
        behind: u64,
    ) -> Announced {
        let (ahead, tokenizing) = (self.door.expected(priority), self.pace.time_of(behind));
        Announced { priority, tokens, deadline, ahead, tokenizing }
    }

    /// The priority of a request that names `named`, and whose size says `by_size`.
    pub(super) const fn priority(&self, named: Option<Priority>, by_size: Priority) -> Priority {
        match (named, self.options.door.raised_priority) {
            (Some(Priority::Bulk), _) => Priority::Bulk,
            (Some(Priority::Interactive), RaisedPriority::Obey) => Priority::Interactive,
            (Some(Priority::Interactive) | None, _) => by_size,
        }
    }
}

/// Tokens of a text of `bytes` bytes, as a rule, at most `limit`.
fn likely_tokens(bytes: u64, limit: usize) -> usize {
    usize::try_from(bytes / TOKEN_BYTES).unwrap_or(usize::MAX).clamp(1, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(limit: u64) -> Arc<Door> {
        Door::new(MaxInflightBytes::new(limit).expect("in range"))
    }

    #[test]
    fn a_permit_gives_back_what_it_holds_whatever_it_held_before() {
        let door = door(1_000_000);
        let (mut first, mut second) = (door.enter(), door.enter());
        first.hold(500_000).expect("there is room");
        second.hold(300_000).expect("there is room");
        second.hold(100_000).expect("less is always right");
        assert_eq!(door.bytes(), 600_000);
        drop(first);
        assert_eq!(door.bytes(), 100_000);
        drop(second);
        assert_eq!(door.bytes(), 0);
    }

    #[test]
    fn large_requests_leave_the_last_eighth_to_small_ones() {
        let door = door(800_000);
        let (mut large, mut other, mut small) = (door.enter(), door.enter(), door.enter());
        large.hold(700_000).expect("seven eighths");
        assert_eq!(large.hold(700_001), Err(Refusal::BytesExceeded));
        assert_eq!(other.hold(SMALL_REQUEST_BYTES + 1), Err(Refusal::BytesExceeded));
        small.hold(SMALL_REQUEST_BYTES).expect("it is small");
        other.hold(800_000 - 700_000 - SMALL_REQUEST_BYTES).expect("what is left");
        assert_eq!(door.enter().hold(1), Err(Refusal::BytesExceeded));
        assert_eq!(door.bytes(), 800_000, "what was refused is not held");
    }

    #[test]
    fn a_body_is_held_as_long_as_texts_may_be_parts_of_it() {
        let door = door(1_000_000);
        let mut permit = door.enter();
        permit.hold(300_000).expect("there is room");
        assert_eq!(permit.hold_inputs(&[Input::Text("a".into())]), Ok(300_000));
        permit.end_tokenizing(2_000);
        assert_eq!(door.bytes(), 2_000);
        permit.hold(300_000).expect("there is room");
        assert_eq!(permit.hold_inputs(&[Input::TokenIds(vec![5; 10])]), Ok(40));
        assert_eq!(door.bytes(), 40);
    }

    #[test]
    fn a_permit_over_the_limit_may_still_become_smaller() {
        let door = door(800_000);
        let (mut large, mut small) = (door.enter(), door.enter());
        large.hold(700_000).expect("seven eighths");
        small.hold(60_000).expect("it is small");
        large.hold(650_000).expect("less is always right");
        assert_eq!(door.bytes(), 710_000);
    }

    #[test]
    fn texts_wait_until_they_are_tokenized_or_their_request_ends() {
        let door = door(1_000_000);
        let (mut first, mut second) = (door.enter(), door.enter());
        first.hold(300_000).expect("there is room");
        first.begin_tokenizing(300_000);
        second.begin_tokenizing(200_000);
        assert_eq!(door.text_bytes(), 500_000);
        first.end_tokenizing(2_000);
        assert_eq!((door.text_bytes(), door.bytes()), (200_000, 2_000));
        drop((first, second));
        assert_eq!((door.text_bytes(), door.bytes()), (0, 0));
    }

    #[test]
    fn expected_time_is_that_of_all_permits_of_the_classes_before() {
        let door = door(1_000_000);
        let (mut first, mut second, mut bulk) = (door.enter(), door.enter(), door.enter());
        first.expect(Priority::Interactive, Duration::from_millis(30));
        second.expect(Priority::Interactive, Duration::from_millis(12));
        first.expect(Priority::Interactive, Duration::from_millis(10));
        bulk.expect(Priority::Bulk, Duration::from_secs(100));
        let expected = |before| door.expected(before).as_millis();
        assert_eq!(expected(Priority::Interactive), 22, "bulk items wait behind");
        assert_eq!(expected(Priority::Bulk), 100_022);
        drop((second, bulk));
        first.submitted();
        assert_eq!((expected(Priority::Interactive), expected(Priority::Bulk)), (0, 0));
    }

    #[test]
    fn a_text_has_at_least_one_token_and_at_most_the_limit() {
        assert_eq!([0, 4, 400, 4_000].map(|bytes| likely_tokens(bytes, 512)), [1, 1, 100, 512]);
    }
}
