//! Why texts cannot be cut into chunks.

use super::{ApiError, Code};
use crate::service::chunking::ChunkFault;

/// What a client does that asks for chunks of token ids.
pub(super) const OF_TEXTS: &str = "chunks are parts of a text, and input is token ids; send texts, \
                                   or leave chunking and late_chunking out";

impl ApiError {
    /// The text at `index` cannot be cut as asked.
    pub(super) fn chunks(index: usize, fault: &ChunkFault) -> Self {
        let (code, message) = match fault {
            ChunkFault::Span { chunk, span, characters } => {
                let (start, end) = (span.start, span.end);
                let message = format!(
                    "span {chunk} of item {index} is [{start}, {end}], and the text has \
                     {characters} characters; send spans within the text, each with its start \
                     below its end"
                );
                (Code::InvalidValue, message)
            }
            ChunkFault::NoToken { chunk, span } => {
                let (start, end) = (span.start, span.end);
                let message = format!(
                    "span {chunk} of item {index}, [{start}, {end}], has no token that a late \
                     chunk could be pooled from; leave the span out, or send late as false"
                );
                (Code::InvalidValue, message)
            }
            ChunkFault::Blank => {
                let message = format!(
                    "item {index} has no token that could be pooled out of the run of all items; \
                     leave it out"
                );
                return Self::of(Code::InvalidInput, "input", message);
            }
            ChunkFault::TooLong { chunk, tokens, limit } => {
                let message = format!(
                    "chunk {chunk} of item {index} has {tokens} tokens and the limit is {limit}; \
                     make chunks smaller, or let it be cut: \"truncate\": true"
                );
                (Code::ContextLengthExceeded, message)
            }
            ChunkFault::NoRoom { limit } => {
                let message = format!(
                    "the prompt of item {index} leaves nothing of the model's {limit} tokens for \
                     a part of the text, so that its windows cannot move on; send late as false, \
                     or ask for another prompt with input_type"
                );
                (Code::InvalidValue, message)
            }
            ChunkFault::Repeated => {
                let message = format!(
                    "the chunks of item {index} overlap so much that they have its text more than \
                     16 times; make the overlap smaller, or send late as true"
                );
                (Code::InvalidValue, message)
            }
            ChunkFault::TooMany { most } => {
                let message = format!(
                    "with item {index} the request has more than {most} chunks; make chunks \
                     larger, or send fewer texts in each request"
                );
                (Code::TooManyItems, message)
            }
        };
        Self::of(code, "chunking", message)
    }
}
