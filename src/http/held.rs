//! Answers in memory, which the permits of their requests count until their last byte was taken.
//!
//! The bytes own the permit. So it does not matter who has them, or how they end: they are sent,
//! their stream is reset, their connection is gone.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{self, Write};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;
use serde::Serialize;

use super::error::ApiError;
use crate::service::Permit;

/// An answer, and what counts it.
struct Held {
    answer: Vec<u8>,
    _permit: Permit,
}

thread_local! {
    /// The room of a small answer that is gone, for the thread's next one. As the only block of its
    /// size, an answer would make the allocator take a page from the system's, and give it back,
    /// every few requests.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Room for an answer of so many bytes.
pub(super) fn room(bytes: usize) -> Vec<u8> {
    let spare = SPARE.take();
    if spare.capacity() < bytes { Vec::with_capacity(bytes) } else { spare }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.answer.capacity() <= PART_BYTES {
            self.answer.clear();
            SPARE.set(mem::take(&mut self.answer));
        }
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

/// The bytes of an answer, which is all that its request holds from now on.
pub(super) fn hold(mut answer: Vec<u8>, mut permit: Permit) -> Bytes {
    // It was held before it was written, and less than before is never refused. A vector that had
    // to grow has more room than bytes.
    if permit.hold(answer.capacity() as u64).is_err() {
        answer.shrink_to_fit();
        let _ = permit.hold(answer.capacity() as u64);
    }
    Bytes::from_owner(Held { answer, _permit: permit })
}

/// What a connection of HTTP/1.1 takes at once. Actix copies it, and nobody counts the copy.
pub(super) const PART_BYTES: usize = 16 * 1024;

/// What a connection takes at once while there is room for a copy that is counted: most answers
/// then cost two writes.
const LARGE_PART_BYTES: usize = 256 * 1024;

/// Bytes of the largest copy of a part of this body; `None` when it is too short for parts.
pub(super) fn copied_bytes(body: &impl MessageBody) -> Option<u64> {
    match body.size() {
        BodySize::Sized(length) if length > PART_BYTES as u64 => {
            Some(length.min(LARGE_PART_BYTES as u64))
        }
        _ => None,
    }
}

/// The body of an answer for a connection of HTTP/1.1: a long one comes in parts, so that its bytes
/// are here, where they are counted, until the client has taken them. `copy` counts
/// [`copied_bytes`], if there is room for them.
pub(super) fn in_parts(body: impl MessageBody + 'static, copy: Option<Permit>) -> BoxBody {
    match body.try_into_bytes() {
        Ok(rest) if rest.len() > PART_BYTES => BoxBody::new(AnswerParts { rest, copy }),
        Ok(short) => BoxBody::new(short),
        Err(body) => BoxBody::new(body),
    }
}

/// An answer that is handed on part by part.
struct AnswerParts {
    rest: Bytes,
    /// Counts what actix copies; without it the parts are small.
    copy: Option<Permit>,
}

impl AnswerParts {
    /// The last part is small: nothing is counted once it is handed on.
    fn next_length(&self) -> usize {
        let rest = self.rest.len();
        match &self.copy {
            Some(_) if rest > PART_BYTES => (rest - PART_BYTES).min(LARGE_PART_BYTES),
            _ => rest.min(PART_BYTES),
        }
    }
}

impl MessageBody for AnswerParts {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let length = self.next_length();
        Poll::Ready((length > 0).then(|| Ok(self.rest.split_to(length))))
    }
}

/// Writes `answer` as JSON beside what `permit` holds already. It is measured before it is written,
/// so that it is held before it takes memory.
pub(super) fn write(answer: &impl Serialize, mut permit: Permit) -> Result<Bytes, ApiError> {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, answer).expect(ALL_BYTES);
    permit.hold_more(length.0 as u64).map_err(ApiError::unavailable)?;
    let mut out = Vec::with_capacity(length.0);
    serde_json::to_writer(&mut out, answer).expect(ALL_BYTES);
    Ok(hold(out, permit))
}

const ALL_BYTES: &str = "memory takes all bytes";

/// Counts what is written, and keeps nothing.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;
    use crate::service::EmbeddingService;
    use clock::RealClock;
    use settings::Config;
    use settings::limits::MaxInflightBytes;

    fn service(max_inflight_bytes: u64) -> EmbeddingService {
        let mut config = Config::default();
        config.door.max_inflight_bytes =
            MaxInflightBytes::new(max_inflight_bytes).expect("in range");
        EmbeddingService::new(&config, Arc::new(RealClock::new()))
    }

    /// The lengths of the parts in which a connection takes an answer of `length` bytes.
    fn parts(service: &EmbeddingService, length: usize) -> Vec<usize> {
        let answer = Bytes::from(vec![b'x'; length]);
        let copy = copied_bytes(&answer).and_then(|bytes| service.spare_room_for(bytes));
        let mut body = in_parts(answer, copy);
        let mut context = Context::from_waker(Waker::noop());
        let mut lengths = Vec::new();
        while let Poll::Ready(Some(part)) = Pin::new(&mut body).poll_next(&mut context) {
            lengths.push(part.expect("it is in memory").len());
        }
        lengths
    }

    #[test]
    fn parts_are_large_while_their_copy_can_be_counted_but_for_the_last() {
        let service = service(1 << 20);
        assert_eq!(parts(&service, 16_384), [16_384]);
        assert_eq!(parts(&service, 100_000), [83_616, 16_384]);
        assert_eq!(parts(&service, 600_000), [262_144, 262_144, 59_328, 16_384]);
        let _others: Vec<Permit> = iter::from_fn(|| service.room_for(60_000).ok()).collect();
        assert_eq!(parts(&service, 100_000), [[16_384; 6].as_slice(), &[1_696]].concat());
    }

    #[test]
    fn an_answer_that_had_to_grow_takes_no_more_than_it_holds() {
        let service = service(65_536);
        let permit = service.room_for(60_000).expect("there is room");
        let mut answer = Vec::with_capacity(100_000);
        answer.resize(50_000, b'x');
        let held = hold(answer, permit);
        service.room_for(15_000).expect("nothing is held that is not there");
        service.room_for(16_000).expect_err("the answer is held");
        drop(held);
        service.room_for(65_000).expect("it is gone");
    }
}
