//! What the application is asked, what it answers, and how it refuses.

use bytestring::ByteString;
use thiserror::Error;

use super::chunking::{ChunkFault, Chunking, TextChunk};
use crate::scheduler::CacheUse;
use clock::Moment;
use model::tokenize::{Offsets, OpenAiEncoding, Span};
use scheduling::Refusal;
use scheduling::batch::{Priority, Vectors};
use settings::TokenInput;
use vectors::sparse::{Selection, SparseVector};
use vectors::tokens::TokenVectors;

/// One text of a request, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// UTF-8 text; a prompt is put in front of it. It may be a part of the request's body, and
    /// keeps all of that in memory then.
    Text(ByteString),
    /// Ids of the served tokenizer, used as they are; special tokens are added when absent. In a
    /// request they may be of another tokenizer; then the service makes texts of them.
    TokenIds(Vec<u32>),
}

impl Input {
    /// Bytes of the text, or of the token ids.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::TokenIds(ids) => size_of_val(ids.as_slice()) as u64,
        }
    }

    /// Bytes that must be tokenized: those of texts. Ids are only copied, hundreds of times faster.
    pub(super) fn text_bytes(inputs: &[Self]) -> u64 {
        let texts = inputs.iter().filter(|input| matches!(input, Self::Text(_)));
        texts.map(Self::bytes).sum()
    }
}

/// What is done with an item that has more tokens than the model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverLong {
    /// Its first tokens are embedded and the answer says so.
    Truncate,
    /// The request is refused.
    Refuse,
}

/// What a text is used for; chooses the manifest's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputType {
    /// The manifest's `default_prompt`.
    Default,
    Query,
    /// Also spelled "document" by clients.
    Passage,
    /// What models with prompts for queries and passages have none for, such as clustering.
    Other,
    /// The last text is a query, those before it are passages. Each has the model's prompt for it,
    /// if the model has one. A cross-encoder reads each passage with the query, and these pairs are
    /// what is answered.
    Ranking,
}

/// Where lexical weights come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Lexical {
    /// The table for questions of a model that has one of its own, else a run.
    #[default]
    Model,
    /// A run of the model.
    Head,
    /// For questions, the model's own table or the scores of the tokenizer's vocabulary.
    Table,
}

/// A request as the application understands it.
#[derive(Debug, Clone)]
pub(crate) struct EmbedRequest {
    /// At least one.
    pub inputs: Vec<Input>,
    pub options: EmbedOptions,
    /// `None` when texts are embedded whole.
    pub(crate) chunking: Option<Chunking>,
}

/// What a request wants of its inputs, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EmbedOptions {
    pub vectors: Vectors,
    pub input_type: InputType,
    pub(crate) over_long: OverLong,
    /// Floats of a dense vector; `None` is the model's hidden size.
    pub dimensions: Option<usize>,
    /// Where lexical weights come from; from a table come no dense vectors.
    pub(crate) lexical: Lexical,
    /// Whether the vectors of tokens are wanted; with the table there are none.
    pub(crate) token_vectors: bool,
    /// Which of the lexical weights stay.
    pub selection: Selection,
    /// Whether the places of the lexical weights in the text are wanted.
    pub(crate) offsets: Offsets,
    /// What token ids are; `None` is what the server is set to.
    pub(crate) token_input: Option<TokenInput>,
    /// The one that the client names; `None` lets the request's size decide.
    pub priority: Option<Priority>,
    /// When the answer must be ready.
    pub deadline: Moment,
}

/// The most bytes that the parts of an answer take in the form in which it will be written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AnswerBytes {
    /// What stands around all items.
    pub(crate) frame: u64,
    /// What stands around the vectors of one item.
    pub(crate) item: u64,
    /// Where a chunk stands in its text.
    pub(crate) chunk: u64,
    /// A float of a dense vector.
    pub(crate) number: u64,
    /// A lexical weight with its id, or with what stands around a piece.
    pub(crate) weight: u64,
    /// A place of a lexical weight in its text.
    pub(crate) place: u64,
    /// What stands around the vectors of an item's tokens.
    pub(crate) tokens: u64,
    /// A float of one of them.
    pub(crate) token_number: u64,
    /// Whether pieces of the vocabulary stand for ids.
    pub(crate) has_pieces: bool,
    /// Whether the texts stay in memory for it.
    pub(crate) has_texts: bool,
}

/// One embedded item, or a chunk of one; the vectors that were not wanted are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EmbeddedItem {
    /// L2-normalized, `dimensions` floats.
    pub dense: Vec<f32>,
    /// Ascending ids, weights above zero.
    pub sparse: SparseVector,
    /// Where the text has the ids of `sparse`, in its order; `None` when nobody asked.
    pub(crate) occurrences: Option<Vec<Occurrence>>,
    /// Those of its tokens, without the one in front of every text and without the prompt; `None`
    /// when nobody asked.
    pub(crate) token_vectors: Option<TokenVectors>,
    /// `None` when the item was not cut into chunks.
    pub(crate) chunk: Option<TextChunk>,
    /// Tokens that were run: special tokens included, unless it is a part of a longer run.
    pub tokens: usize,
    /// The full token count when it was cut.
    pub truncated_from: Option<usize>,
}

/// A token of a text whose id is among the text's lexical weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Occurrence {
    pub(crate) id: u32,
    pub(crate) span: Span,
    /// The token's weight at this place, not below zero. The weight of the id is the largest of its
    /// places.
    pub(crate) weight: f32,
}

/// How a request ends without vectors.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum EmbedError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("id {position} of item {index} is {id}, not below the vocabulary size {vocab_size}")]
    TokenIdOutOfRange {
        index: usize,
        position: usize,
        id: u32,
        vocab_size: usize,
        /// Whether the request says that its ids are the model's.
        named: bool,
    },
    #[error("id {position} of item {index} is {id}, which {} does not have", .encoding.name())]
    TokenIdUnknown { index: usize, position: usize, id: u32, encoding: OpenAiEncoding },
    #[error("the tokenizer of the token ids is not named")]
    TokenInputRejected,
    #[error("the token ids of item {index} stand for more than {limit} bytes of text")]
    DecodedItemTooLarge { index: usize, limit: u64 },
    #[error("item {index} has {tokens} tokens, the limit is {limit}")]
    ContextLengthExceeded { index: usize, tokens: usize, limit: usize },
    /// It belongs to no document of the request.
    #[error("the query has {tokens} tokens, the limit is {limit}")]
    QueryTooLong { tokens: usize, limit: usize },
    #[error("dimensions {requested} is not supported")]
    InvalidDimensions {
        requested: usize,
        /// Ascending; the hidden size is the last.
        allowed: Vec<usize>,
    },
    /// It has others; with one for queries, it takes queries too.
    #[error("the model has no prompt for {asked:?}")]
    NoPrompt { asked: InputType, has_query: bool },
    #[error("the model is a cross-encoder, which has no vectors")]
    VectorsNotAvailable,
    #[error("the model has no dense vectors")]
    DenseNotAvailable,
    #[error("the model has no sparse head")]
    SparseNotAvailable,
    #[error("the model has no vectors of tokens")]
    TokenVectorsNotAvailable,
    #[error("the tokenizer has no scores")]
    NoScores,
    #[error("words of the vocabulary have no places in a text")]
    OffsetsOfWords,
    #[error("words are weighed by whole texts")]
    LateChunksOfWords,
    #[error("token ids have no places in a text")]
    OffsetsWithoutText,
    #[error("token ids have no chunks of text")]
    ChunksWithoutText,
    #[error("item {index} cannot be cut: {fault}")]
    Chunks { index: usize, fault: ChunkFault },
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// The text is for the log, not for the client.
    #[error("the engine failed: {0}")]
    EngineFailed(String),
    #[error("item {index} has a vector that is not finite")]
    NonFinite { index: usize },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EmbedReply {
    /// In the order of the inputs, and of the chunks of each.
    pub items: Vec<EmbeddedItem>,
    /// Tokens that were run, special tokens included.
    pub prompt_tokens: u64,
    pub(crate) milestones: Milestones,
    /// Where the rows came from; `None` when none are kept.
    pub(crate) cache_use: Option<CacheUse>,
}

/// When the stages of a request ended, by the service's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Milestones {
    /// Every text had its ids.
    pub tokenized: Moment,
    /// The first batch with an item of the request began.
    pub(crate) started: Moment,
    /// The last row was back.
    pub ran: Moment,
    /// The vectors were chosen from the rows.
    pub selected: Moment,
}
