//! How a request reads that ends without vectors.

use std::time::Duration;

use super::{ApiError, Code, token_id_advice};
use crate::service::chunking::ChunkFault;
use crate::service::{EmbedError, InputType};

const NO_SPARSE: &str = "the model has no lexical weights; use POST /v1/embeddings";

const NO_DENSE: &str = "the model has lexical weights and no dense vectors; use POST \
                        /v1/sparse-embeddings";

const NO_VECTORS: &str = "the model is a cross-encoder, which scores documents by a query and has \
                          no vectors; send query and documents to POST /v1/rerank, or query and \
                          texts to POST /rerank";

const NO_TOKEN_VECTORS: &str = "this model has no vectors of tokens; leave token_vectors out";

const NO_SCORES: &str = "lexical must be \"head\" here, or left out: this model's tokenizer has no \
                         scores of its pieces that fit, and the model has no table";

const WORDS_HAVE_NO_PLACE: &str = "this model weighs words that a text need not have, so that they \
                                   have no place in it; leave offsets out";

const NO_LATE_WORDS: &str = "this model weighs words by whole texts, and late chunks are parts of \
                             one; send chunks that are not late";

const CHUNKS_OF_TEXTS: &str = "chunks are parts of a text, and input is token ids; send texts";

const OFFSETS_OF_TEXTS: &str =
    "offsets are places in a text, and input is token ids; send texts, or leave offsets out";

/// The fields with which a request asks for what the service may refuse.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct FieldNames {
    /// The texts or token ids.
    pub(in crate::http) input: &'static str,
    /// The length of dense vectors.
    pub(in crate::http) length: &'static str,
    /// The prompt.
    pub(in crate::http) prompt: &'static str,
    /// How texts are cut.
    pub(in crate::http) chunks: &'static str,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self { input: "input", length: "dimensions", prompt: "input_type", chunks: "chunking" }
    }
}

impl ApiError {
    /// How an answer without vectors reads; `timeout` is the request's whole time, and
    /// `names` are the fields that it sent.
    pub(in crate::http) fn from_embed(
        error: EmbedError,
        timeout: Duration,
        names: FieldNames,
    ) -> Self {
        let FieldNames { length, prompt, chunks, .. } = names;
        let input = |code, message| Self::of(code, names.input, message);
        let wrong = |param, message: &'static str| Self::of(Code::InvalidValue, param, message);
        let no_chunks = |why: &str| {
            Self::of(Code::InvalidValue, chunks, format!("{why}, or leave {chunks} out"))
        };
        let advice = token_id_advice();
        match error {
            EmbedError::Refused(refusal) => Self::unavailable(refusal),
            EmbedError::TokenIdOutOfRange { index, position, id, vocab_size, named } => {
                let place = format!("token id {id} of item {index}, at position {position}");
                Self::out_of_range(&place, vocab_size, named)
            }
            EmbedError::TokenIdUnknown { index, position, id, encoding } => input(
                Code::TokenIdOutOfRange,
                format!(
                    "token id {id} of item {index}, at position {position}, is not in {}; {advice}",
                    encoding.name()
                ),
            ),
            EmbedError::DecodedItemTooLarge { index, limit } => input(
                Code::ItemTooLarge,
                format!(
                    "the token ids of item {index} stand for more than {limit} bytes of text; \
                     split it, or send its beginning"
                ),
            ),
            EmbedError::TokenInputRejected => input(
                Code::TokenEncodingMissing,
                format!("input is token ids, but their tokenizer is not named; {advice}"),
            ),
            EmbedError::ContextLengthExceeded { index, tokens, limit } => input(
                Code::ContextLengthExceeded,
                too_long(&format!("item {index}"), tokens, limit),
            ),
            EmbedError::QueryTooLong { tokens, limit } => {
                Self::of(Code::ContextLengthExceeded, "query", too_long("query", tokens, limit))
            }
            EmbedError::InvalidDimensions { requested, allowed } => Self::of(
                Code::InvalidDimensions,
                length,
                format!("{length} {requested} is not supported; use {}", join(&allowed)),
            ),
            EmbedError::NoPrompt { asked, has_query } => {
                let texts = if asked == InputType::Query { "queries" } else { "this use" };
                let query = if has_query { "\"query\" or " } else { "" };
                let message = format!(
                    "the model has no prompt for {texts}; leave {prompt} out, or send \
                     {query}\"passage\""
                );
                Self::of(Code::InvalidValue, prompt, message)
            }
            EmbedError::DenseNotAvailable => Self::new(Code::DenseNotAvailable, NO_DENSE),
            EmbedError::VectorsNotAvailable => Self::new(Code::VectorsNotAvailable, NO_VECTORS),
            EmbedError::SparseNotAvailable => Self::new(Code::SparseNotAvailable, NO_SPARSE),
            EmbedError::TokenVectorsNotAvailable => wrong("token_vectors", NO_TOKEN_VECTORS),
            EmbedError::NoScores => wrong("lexical", NO_SCORES),
            EmbedError::OffsetsOfWords => wrong("offsets", WORDS_HAVE_NO_PLACE),
            EmbedError::LateChunksOfWords => no_chunks(NO_LATE_WORDS),
            EmbedError::OffsetsWithoutText => wrong("offsets", OFFSETS_OF_TEXTS),
            EmbedError::ChunksWithoutText => no_chunks(CHUNKS_OF_TEXTS),
            EmbedError::Chunks { index, fault } => Self::chunks(index, &fault, names),
            EmbedError::DeadlineExceeded => Self::deadline(timeout),
            EmbedError::EngineFailed(cause) => Self::server(Code::EngineFailed, cause),
            EmbedError::NonFinite { index } => Self::non_finite(index, names),
        }
    }

    fn non_finite(index: usize, names: FieldNames) -> Self {
        let cure = match names.chunks {
            "late_chunking" => {
                " or one behind it that ran with it; leave late_chunking out to learn which"
            }
            _ => "; send the other items without it",
        };
        Self {
            message: format!("the model returned NaN or infinity for item {index}{cure}"),
            param: Some(names.input),
            ..Self::server(Code::NonFiniteOutput, format!("item {index} is not finite"))
        }
    }

    /// `place` names an id that is not below `vocab_size`; `named` says whether the request named
    /// the model as the tokenizer of its ids.
    fn out_of_range(place: &str, vocab_size: usize, named: bool) -> Self {
        let last = vocab_size.saturating_sub(1);
        let mut message = format!("{place}, is outside the vocabulary (0 to {last})");
        if !named {
            message = format!("{message}; {}", token_id_advice());
        }
        Self::of(Code::TokenIdOutOfRange, "input", message)
    }

    /// The text at `index` cannot be cut as asked.
    fn chunks(index: usize, fault: &ChunkFault, names: FieldNames) -> Self {
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
            ChunkFault::Empty => {
                let message = format!("item {index} of {} is empty; leave it out", names.chunks);
                (Code::InvalidValue, message)
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
                     a part of the text, so that its windows cannot move on; send chunks that are \
                     not late, or ask for another prompt with {}",
                    names.prompt
                );
                (Code::InvalidValue, message)
            }
            ChunkFault::Repeated => {
                let message = format!(
                    "the chunks of item {index} overlap so much that its text would run more than \
                     16 times; make the overlap smaller"
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
        Self::of(code, names.chunks, message)
    }
}

/// `what` is a text of the request.
fn too_long(what: &str, tokens: usize, limit: usize) -> String {
    format!(
        "{what} has {tokens} tokens and the limit is {limit}; shorten it, or let it be cut: \
         \"truncate\": true, or \"END\" from clients of NIM"
    )
}

fn join(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
}
