//! The door: what a request holds while it is read, parsed and tokenized.
//!
//! A request is let in by its head, before its body is read, so that a refusal costs next to
//! nothing. It then holds a [`Permit`] until its end, whatever the end. The permit counts the bytes
//! that the request keeps in memory, and those of its texts that wait to be tokenized. Dropping it
//! gives all of it back. Room in the queue is reserved for long texts while they are tokenized.
//!
//! | moment | bytes held | waits to be tokenized | room in the queue |
//! |---|---|---|---|
//! | the head has come | none: there is room for those that it announces | nothing | none |
//! | a chunk comes | twice those that came, those announced at most | nothing | none |
//! | gzip is unpacked | those that are there | nothing | none |
//! | the body is parsed | those of body or ids | its texts, unless short | theirs, unless short |
//! | texts are tokenized | those of their ids and places too | as before | as before |
//! | the texts are tokenized | of ids, rows, answer, at most | nothing | that of the items |
//! | the answer is written | those of the answer | nothing | none |
//!
//! The answer keeps the permit until its last byte was taken, or its connection is gone.
//!
//! Connections and streams take memory as well, with and without a permit, and are never refused
//! for it. A quarter of the permits' bytes is theirs on top. What they take beyond that, permits
//! may not hold meanwhile, but for the eighth of small requests and a sixteenth for all.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{EmbedError, EmbedRequest, EmbeddingService, Input, Refusal, ResidentModel};
use crate::scheduler::Reservation;
use clock::Moment;
use model::package::manifest::ModelKind;
use scheduling::batch::Priority;
use scheduling::state::Announced;
use settings::RaisedPriority;
use settings::limits::{MaxInflightBytes, SMALL_REQUEST_BYTES};

/// Texts of up to this many bytes together are tokenized where they arrive, about 1 ms; handing
/// them to another thread would cost more than it spares the other connections.
pub(super) const INLINE_BYTES: u64 = 16 * 1024;

/// Bytes of text for each token, as a rule. Latin scripts have about four, others three or four.
const TOKEN_BYTES: u64 = 4;

/// A body of up to so many bytes is a query, or a few: reading and tokenizing it costs little more
/// than the refusal that it may get then.
const QUERY_BYTES: u64 = 2048;

/// Answers to requests without a key have this part of all bytes.
const PUBLIC_PART: u64 = 16;

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
pub(crate) struct Door {
    limit: MaxInflightBytes,
    bytes: AtomicU64,
    /// What connections and streams take, about.
    beside: AtomicU64,
    /// Bytes of long texts that wait to be tokenized.
    text_bytes: AtomicU64,
}

impl Door {
    pub(crate) fn new(limit: MaxInflightBytes) -> Arc<Self> {
        let none = AtomicU64::default;
        Arc::new(Self { limit, bytes: none(), beside: none(), text_bytes: none() })
    }

    /// Counts a connection or a stream, as long as the result lives. `bytes` is what it takes,
    /// about, without what permits hold.
    pub(crate) fn count_beside(self: &Arc<Self>, bytes: u64) -> Beside {
        self.beside.fetch_add(bytes, Ordering::Relaxed);
        Beside { door: Arc::clone(self), bytes }
    }

    /// The door of answers to requests without a key; what passes it passes this one too.
    pub(super) fn public(&self) -> Arc<Self> {
        Self::new(MaxInflightBytes::nearest(self.limit.get() / PUBLIC_PART))
    }

    /// A permit of a request that announces so many bytes. It holds none before they come: who
    /// sends nothing takes nothing from others.
    ///
    /// # Errors
    /// `BytesExceeded` when there is no room for them now, `NeverFits` when there never is.
    pub(crate) fn enter(self: &Arc<Self>, announced: u64) -> Result<Permit, Refusal> {
        let limit = self.limit_of(announced);
        if announced > limit {
            return Err(Refusal::NeverFits { limit });
        }
        if announced > 0 && self.bytes() + announced > self.left_of(limit) {
            return Err(Refusal::BytesExceeded);
        }
        let (door, [besides, bytes, text_bytes]) = (Arc::clone(self), [0; 3]);
        Ok(Permit { door, announced, besides, bytes, text_bytes, public: None })
    }

    /// What all may hold when a request of `bytes` is among them.
    const fn limit_of(&self, bytes: u64) -> u64 {
        match bytes {
            0..=SMALL_REQUEST_BYTES => self.limit.get(),
            _ => self.limit.largest_request(),
        }
    }

    /// What connections and streams leave of `limit` to permits.
    fn left_of(&self, limit: u64) -> u64 {
        let (all, beside) = (self.limit.get(), self.beside.load(Ordering::Relaxed));
        limit - beside.saturating_sub(all / 4).min(all / 16 * 13)
    }

    /// Bytes that all requests hold.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) const fn limit(&self) -> u64 {
        self.limit.get()
    }

    /// How calmly the server can wait for clients: 1 while half of what permits may hold is free,
    /// and half of that and the connections' quarter together; less and less beyond that, and 0
    /// when nothing of either is free.
    pub(crate) fn calm(&self) -> f64 {
        let (limit, bytes) = (self.limit.get(), self.bytes());
        let all = bytes + self.beside.load(Ordering::Relaxed);
        let part = |taken: u64, of: u64| taken as f64 / of as f64;
        let taken = part(bytes, self.left_of(limit)).max(part(all, limit + limit / 4));
        (2.0 * (1.0 - taken)).clamp(0.0, 1.0)
    }

    /// Bytes of long texts that wait to be tokenized.
    fn text_bytes(&self) -> u64 {
        self.text_bytes.load(Ordering::Relaxed)
    }
}

/// A connection or a stream that is counted.
#[derive(Debug)]
pub(crate) struct Beside {
    door: Arc<Door>,
    bytes: u64,
}

impl Beside {
    /// Counts `bytes` from now on, unless it counts more.
    pub(crate) fn grow(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.bytes);
        self.door.beside.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.door.beside.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What one request holds; gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    door: Arc<Door>,
    /// Bytes of the body, as its head says.
    announced: u64,
    /// What its request holds by another permit.
    besides: u64,
    bytes: u64,
    text_bytes: u64,
    /// What is held besides at the door of answers without a key.
    public: Option<Box<Permit>>,
}

impl Permit {
    /// Holds `bytes` from now on, more or fewer than before.
    ///
    /// # Errors
    /// `BytesExceeded` when more is asked for and too much is in flight, `NeverFits` when it is
    /// more than one request may hold; the permit holds what it held.
    pub(crate) fn hold(&mut self, bytes: u64) -> Result<(), Refusal> {
        // A large request is large from its first byte on.
        let all = bytes + self.besides;
        let limit = self.door.limit_of(all.max(self.announced));
        let held = self.bytes;
        if bytes > held && all > limit {
            return Err(Refusal::NeverFits { limit });
        }
        let left = self.door.left_of(limit);
        let more = |all: u64| {
            let all = all - held + bytes;
            (bytes <= held || all <= left).then_some(all)
        };
        let taken = self.door.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        self.bytes = taken.map(|_| bytes).map_err(|_| Refusal::BytesExceeded)?;
        Ok(())
    }

    /// So many bytes of the body have come. As many again are held, as far as they are announced:
    /// there is memory for so many more.
    pub(crate) fn hold_body(&mut self, came: u64) -> Result<(), Refusal> {
        self.hold(earned_bytes(came, self.announced))
    }

    /// Holds `bytes` more than before.
    pub(crate) fn hold_more(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.hold(self.bytes + bytes)
    }

    /// A permit for what work on this request holds, until [`Self::take_over`].
    pub(super) fn of_work(&self) -> Self {
        let (door, besides) = (Arc::clone(&self.door), self.bytes);
        Self { door, announced: self.announced, besides, bytes: 0, text_bytes: 0, public: None }
    }

    /// Holds what the work has held.
    pub(super) fn take_over(&mut self, of_work: &mut Self) {
        self.bytes += mem::take(&mut of_work.bytes);
    }

    /// Bytes that are held.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `inputs` from now on; gives the bytes that are held. Texts may be parts of the body,
    /// so no less is held than before.
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
    pub(super) fn begin_tokenizing(&mut self, inputs: &[Input]) {
        let text_bytes = Input::text_bytes(inputs);
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
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end_tokenizing(0);
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
        let permit = self.door.enter(head.announced_bytes)?;
        if resident.scheduler.has_cache() && (1..=QUERY_BYTES).contains(&head.announced_bytes) {
            return Ok(permit);
        }
        // The number of texts is not known yet. A single text makes a request interactive.
        let priority = self.priority(head.priority, Priority::Interactive);
        let limit = resident.package.manifest().max_input_tokens;
        let tokens = &[likely_tokens(head.announced_bytes, limit)];
        // A short text is tokenized where it arrives: it does not wait behind long ones.
        let behind = if head.announced_bytes > INLINE_BYTES { self.door.text_bytes() } else { 0 };
        let (deadline, tokenizing) = (head.deadline, self.pace.time_of(behind));
        let new = Announced { priority, tokens, deadline, tokenizing, has_come: false };
        resident.scheduler.announce(new)?;
        Ok(permit)
    }

    /// Where the bytes of all requests are counted.
    pub(crate) fn door(&self) -> Arc<Door> {
        Arc::clone(&self.door)
    }

    /// Room for an answer of `bytes` bytes that no request has room for yet.
    pub(crate) fn room_for(&self, bytes: u64) -> Result<Permit, Refusal> {
        let mut permit = self.door.enter(0)?;
        permit.hold(bytes)?;
        Ok(permit)
    }

    /// Room of `bytes` bytes for a copy that saves time, as long as no client could miss it.
    pub(crate) fn spare_room_for(&self, bytes: u64) -> Option<Permit> {
        if self.door.calm() < 1.0 { None } else { self.room_for(bytes).ok() }
    }

    /// Room for an answer of `bytes` bytes to somebody without a key. All such answers together
    /// have a small part of all bytes, so that nobody without a key takes them from others.
    pub(crate) fn public_room_for(&self, bytes: u64) -> Result<Permit, Refusal> {
        let mut public = self.public_door.enter(0)?;
        public.hold(bytes)?;
        let mut permit = self.room_for(bytes)?;
        permit.public = Some(Box::new(public));
        Ok(permit)
    }

    /// Asks for long texts before they are tokenized, since many make a request bulk, which waits
    /// longer. Gives the room that they then have in the queue. Short ones are asked as items:
    /// tokenizing them costs no more than asking.
    pub(super) fn admit_items(
        &self,
        resident: &ResidentModel,
        request: &EmbedRequest,
        permit: &mut Permit,
    ) -> Result<Option<Reservation>, EmbedError> {
        // This is more than before only for lists of short token ids, which are longer in memory.
        permit.hold_inputs(&request.inputs)?;
        let bytes = request.inputs.iter().map(Input::bytes);
        if bytes.clone().sum::<u64>() <= INLINE_BYTES {
            return Ok(None);
        }
        let manifest = resident.package.manifest();
        let tokens = likely_items(bytes.collect(), manifest.kind, manifest.max_input_tokens);
        let by_size = Priority::of(tokens.len(), tokens.iter().sum());
        let priority = self.priority(request.options.priority, by_size);
        let deadline = request.options.deadline;
        let (tokens, tokenizing) = (&tokens[..], self.pace.time_of(self.door.text_bytes()));
        let new = Announced { priority, tokens, deadline, tokenizing, has_come: true };
        let room = resident.scheduler.announce(new)?;
        permit.begin_tokenizing(&request.inputs);
        Ok(room)
    }

    /// The priority of a request that names `named`, and whose size says `by_size`.
    pub(super) const fn priority(&self, named: Option<Priority>, by_size: Priority) -> Priority {
        match (named, self.config.door.raised_priority) {
            (Some(Priority::Bulk), _) => Priority::Bulk,
            (Some(Priority::Interactive), RaisedPriority::Obey) => Priority::Interactive,
            (Some(Priority::Interactive) | None, _) => by_size,
        }
    }
}

/// Bytes of memory that a body may take of which so many have come.
pub(crate) fn earned_bytes(came: u64, announced: u64) -> u64 {
    came.saturating_mul(2).min(announced).max(came)
}

/// Tokens of each item that texts of so many bytes run as. A cross-encoder reads the query, which
/// is the last text, with each of the documents before it.
fn likely_items(mut bytes: Vec<u64>, kind: ModelKind, limit: usize) -> Vec<usize> {
    let query = bytes.pop_if(|_| kind == ModelKind::CrossEncoder).unwrap_or(0);
    bytes.into_iter().map(|bytes| likely_tokens(bytes + query, limit)).collect()
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

    /// A request that announces nothing.
    fn enter(door: &Arc<Door>) -> Permit {
        door.enter(0).expect("it needs no room")
    }

    #[test]
    fn the_first_bytes_of_a_large_request_leave_the_last_eighth_too() {
        let door = door(800_000);
        let mut large = door.enter(100_000).expect("there is room");
        let mut other = enter(&door);
        other.hold(700_000).expect("seven eighths");
        assert_eq!(large.hold_body(1), Err(Refusal::BytesExceeded));
        assert!(door.enter(SMALL_REQUEST_BYTES).is_ok_and(|mut small| small.hold_body(1).is_ok()));
    }

    #[test]
    fn a_cross_encoder_reads_the_query_with_each_document() {
        let texts = || vec![40, 0, 4000, 80];
        assert_eq!(likely_items(texts(), ModelKind::Embedding, 512), [10, 1, 512, 20]);
        assert_eq!(likely_items(texts(), ModelKind::CrossEncoder, 512), [30, 20, 512]);
    }

    #[test]
    fn a_permit_gives_back_what_it_holds_whatever_it_held_before() {
        let door = door(1_000_000);
        let (mut first, mut second) = (enter(&door), enter(&door));
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
        let (mut large, mut other, mut small) = (enter(&door), enter(&door), enter(&door));
        large.hold(700_000).expect("seven eighths");
        assert_eq!(large.hold(700_001), Err(Refusal::NeverFits { limit: 700_000 }));
        assert_eq!(other.hold(SMALL_REQUEST_BYTES + 1), Err(Refusal::BytesExceeded));
        small.hold(SMALL_REQUEST_BYTES).expect("it is small");
        other.hold(800_000 - 700_000 - SMALL_REQUEST_BYTES).expect("what is left");
        assert_eq!(enter(&door).hold(1), Err(Refusal::BytesExceeded));
        assert_eq!(door.bytes(), 800_000, "what was refused is not held");
    }

    #[test]
    fn a_body_is_held_as_long_as_texts_may_be_parts_of_it() {
        let door = door(1_000_000);
        let mut permit = enter(&door);
        permit.hold(300_000).expect("there is room");
        assert_eq!(permit.hold_inputs(&[Input::Text("a".into())]), Ok(300_000));
        permit.end_tokenizing(2_000);
        assert_eq!(door.bytes(), 2_000);
        permit.hold(300_000).expect("there is room");
        assert_eq!(permit.hold_inputs(&[Input::TokenIds(vec![5; 10])]), Ok(40));
        assert_eq!(door.bytes(), 40);
    }

    #[test]
    fn connections_beyond_a_quarter_leave_less_to_permits_down_to_a_sixteenth() {
        let door = door(800_000);
        let mut connections: Vec<_> = (0..4).map(|_| door.count_beside(50_000)).collect();
        let mut permit = enter(&door);
        permit.hold(700_000).expect("seven eighths");
        connections.push(door.count_beside(50_000));
        permit.hold(650_000).expect("less is always right");
        assert_eq!(permit.hold(650_001), Err(Refusal::BytesExceeded));
        assert_eq!(permit.hold(700_001), Err(Refusal::NeverFits { limit: 700_000 }));
        connections.extend((0..100).map(|_| door.count_beside(50_000)));
        assert_eq!(door.calm(), 0.0, "nothing is free");
        permit.hold(50_000).expect("less is always right");
        let mut other = enter(&door);
        assert_eq!(other.hold(SMALL_REQUEST_BYTES + 1), Err(Refusal::BytesExceeded));
        let mut small: Vec<_> = (0..3).map(|_| enter(&door)).collect();
        for one in &mut small {
            one.hold(100_000 / 3).expect("the other eighth is for small ones");
        }
        assert_eq!(enter(&door).hold(100), Err(Refusal::BytesExceeded));
        drop((connections, small));
        permit.hold(700_000).expect("they are gone");
    }

    #[test]
    fn a_permit_over_the_limit_may_still_become_smaller() {
        let door = door(800_000);
        let (mut large, mut small) = (enter(&door), enter(&door));
        large.hold(700_000).expect("seven eighths");
        small.hold(60_000).expect("it is small");
        large.hold(650_000).expect("less is always right");
        assert_eq!(door.bytes(), 710_000);
    }

    #[test]
    fn texts_wait_until_they_are_tokenized_or_their_request_ends() {
        let door = door(1_000_000);
        let (mut first, mut second) = (enter(&door), enter(&door));
        first.hold(300_000).expect("there is room");
        first.begin_tokenizing(&[Input::Text("a".repeat(300_000).into())]);
        second.begin_tokenizing(&[Input::Text("a".repeat(200_000).into())]);
        second.begin_tokenizing(&[Input::TokenIds(vec![5; 10_000])]);
        assert_eq!(door.text_bytes(), 500_000, "ids need no tokenizing");
        first.end_tokenizing(2_000);
        assert_eq!((door.text_bytes(), door.bytes()), (200_000, 2_000));
        drop((first, second));
        assert_eq!((door.text_bytes(), door.bytes()), (0, 0));
    }
}
