//! Answers in memory, which the permits of their requests count until their last byte was taken.
//!
//! The bytes own the permit. So it does not matter who has them, or how they end: they are sent,
//! their stream is reset, their connection is gone.

use std::convert::Infallible;
use std::io::{self, Write};
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

/// What a connection of HTTP/1.1 takes at once. Actix copies it.
pub(super) const PART_BYTES: usize = 16 * 1024;

/// The body of an answer for a connection of HTTP/1.1: a long one comes in parts, so that its bytes
/// are here, where they are counted, until the client has taken them.
pub(super) fn in_parts(body: impl MessageBody + 'static) -> BoxBody {
    match body.try_into_bytes() {
        Ok(rest) if rest.len() > PART_BYTES => BoxBody::new(AnswerParts { rest }),
        Ok(short) => BoxBody::new(short),
        Err(body) => BoxBody::new(body),
    }
}

/// An answer that is handed on part by part.
struct AnswerParts {
    rest: Bytes,
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
        let length = self.rest.len().min(PART_BYTES);
        Poll::Ready((length > 0).then(|| Ok(self.rest.split_to(length))))
    }
}

/// Writes `answer` as JSON beside what `permit` holds already. It is measured before it is written,
/// so that it is held before it takes memory.
///
/// # Errors
/// When there is no room for it.
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
    use std::sync::Arc;

    use super::*;
    use crate::service::{EmbeddingService, ServiceOptions};
    use clock::RealClock;
    use settings::limits::{MaxInflightBytes, MaxItemBytes};
    use settings::{DoorConfig, TokenInput};

    #[test]
    fn an_answer_that_had_to_grow_takes_no_more_than_it_holds() {
        let max_inflight_bytes = MaxInflightBytes::new(65_536).expect("in range");
        let options = ServiceOptions {
            model_aliases: Vec::new(),
            token_input: TokenInput::Model,
            max_item_bytes: MaxItemBytes::DEFAULT,
            door: DoorConfig { max_inflight_bytes, ..DoorConfig::default() },
            metrics: false,
        };
        let service = EmbeddingService::new(options, Arc::new(RealClock::new()));
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
