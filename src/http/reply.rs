//! Vectors → the JSON of an answer, written straight into one buffer.

use std::io::Write;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::service::chunking::TextChunk;
use crate::service::{EmbedReply, EmbeddedItem, Occurrence, Vectors};
use model::tokenize::Span;
use vectors::small::{NumberType, Ranges};
use vectors::sparse::SparseVector;
use vectors::tokens::{Base64, TokenVectors};

mod decimal;
mod dense;
mod room;

use decimal::Decimals;
pub(super) use decimal::write_json;
pub(super) use dense::{DenseForm, DenseFormat, DenseVector, OutputType};
pub(super) use room::{DECIMAL_BYTES, frame_bytes, most_bytes, number_bytes, room};

/// How sparse vectors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SparseFormat {
    /// `{"indices": […], "values": […]}`
    #[default]
    Indices,
    /// `{"<token id>": weight}`
    Dict,
    /// `{"<vocabulary piece>": weight}`
    Tokens,
    /// `"{index:weight,…}/vocabulary size"`, the text of pgvector's type `sparsevec`, whose indices
    /// start at 1.
    PgVector,
}

/// How the vectors of an answer are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AnswerFormat {
    pub(super) dense: DenseForm,
    pub(super) sparse: SparseFormat,
}

/// What an answer tells of the resident model.
pub(super) struct Resident<'a> {
    pub(super) id: &'a str,
    /// Above every token id.
    pub(super) vocab_size: usize,
    /// Of each length whose vectors can be had in bytes and bits.
    pub(super) small_vectors: &'a [Ranges],
    /// The vocabulary piece of a token id.
    pub(super) piece: &'a dyn Fn(u32) -> Option<String>,
}

/// The vectors of a request, in the order of its input.
#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Items<'a>,
    /// The model's id.
    model: &'a str,
    usage: Usage,
}

/// The tokens as the model gets them, also when they were not run: prompts and special tokens
/// count, padding does not.
#[derive(Serialize)]
pub(super) struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl Usage {
    pub(super) const fn of(reply: &EmbedReply) -> Self {
        Self { prompt_tokens: reply.prompt_tokens, total_tokens: reply.prompt_tokens }
    }
}

/// What `data` is written from, one item after the other.
struct Items<'a> {
    items: &'a [EmbeddedItem],
    vectors: Vectors,
    format: AnswerFormat,
    resident: &'a Resident<'a>,
}

/// What was asked for of one item, or of one chunk.
#[derive(Serialize)]
struct Embedding<'a> {
    object: &'static str,
    /// The item's place in the input, or the chunk's among all chunks.
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<DenseVector<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sparse_values: Option<SparseValues<'a>>,
    /// Where the text has the ids, in its order; absent unless lexical weights have offsets.
    #[serde(skip_serializing_if = "Option::is_none")]
    occurrences: Option<Vec<PlacedWeight>>,
    /// Absent unless the request says token_vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_vectors: Option<TokenTensor<'a>>,
    /// Which part of the input it is; absent unless the request says chunking.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk: Option<ChunkPlace>,
    /// Tokens that the item had before it was cut; absent when it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_from: Option<usize>,
}

impl<'a> Items<'a> {
    fn embedding(&self, index: usize, item: &'a EmbeddedItem) -> Embedding<'a> {
        let Self { vectors, format, resident, .. } = *self;
        let dense = || DenseVector::new(&item.dense, format.dense, resident.small_vectors);
        let sparse = || SparseValues { vector: &item.sparse, format: format.sparse, resident };
        Embedding {
            object: match vectors {
                Vectors::Dense => "embedding",
                Vectors::Sparse => "sparse_embedding",
                Vectors::Both => "paired_embedding",
            },
            index,
            embedding: vectors.dense().then(dense),
            sparse_values: vectors.sparse().then(sparse),
            occurrences: placed(item),
            token_vectors: item.token_vectors.as_ref().map(|all| TokenTensor::of(all, format)),
            chunk: item.chunk.map(ChunkPlace::from),
            truncated_from: item.truncated_from,
        }
    }
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let items = self.items.iter().enumerate();
        json.collect_seq(items.map(|(index, item)| self.embedding(index, item)))
    }
}

/// A part of a text of the input.
#[derive(Serialize)]
struct ChunkPlace {
    /// The text's place in the input.
    input: usize,
    /// The first code point of the text as sent.
    start: usize,
    /// The code point behind the last one.
    end: usize,
    /// The chunk's own tokens that ran.
    tokens: usize,
    /// Which window of the text ran for it; absent when the text has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<usize>,
}

impl From<TextChunk> for ChunkPlace {
    fn from(TextChunk { input, span: Span { start, end }, tokens, window }: TextChunk) -> Self {
        Self { input, start, end, tokens, window }
    }
}

/// Lexical weights of one item, in the form of `sparse_format`.
struct SparseValues<'a> {
    vector: &'a SparseVector,
    format: SparseFormat,
    resident: &'a Resident<'a>,
}

impl Serialize for SparseValues<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let Self { vector, resident, .. } = self;
        // The service gives ids of its own vocabulary, so that each has a piece.
        let piece = |id| (resident.piece)(id).unwrap_or_else(|| id.to_string());
        match self.format {
            SparseFormat::Indices => {
                let mut object = json.serialize_struct("SparseValues", 2)?;
                object.serialize_field("indices", &vector.indices)?;
                object.serialize_field("values", &Decimals(&vector.values))?;
                object.end()
            }
            SparseFormat::Dict => json.collect_map(vector.pairs()),
            SparseFormat::Tokens => {
                json.collect_map(vector.pairs().map(|(id, weight)| (piece(id), weight)))
            }
            SparseFormat::PgVector => quoted(json, |text| self.write_pgvector(text)),
        }
    }
}

impl SparseValues<'_> {
    fn write_pgvector(&self, text: &mut Vec<u8>) {
        text.push(b'{');
        for (position, (id, weight)) in self.vector.pairs().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(text, "{comma}{}:", u64::from(id) + 1).expect(ALL_BYTES);
            serde_json::to_writer(&mut *text, &weight).expect(ALL_BYTES);
        }
        write!(text, "}}/{}", self.resident.vocab_size).expect(ALL_BYTES);
    }
}

/// Writes a string that has nothing to escape, so that it is not searched for such characters.
fn quoted<S: Serializer>(json: S, write: impl FnOnce(&mut Vec<u8>)) -> Result<S::Ok, S::Error> {
    let mut text = vec![b'"'];
    write(&mut text);
    text.push(b'"');
    json.serialize_bytes(&text)
}

/// A place of a text with a token that has a lexical weight.
#[derive(Serialize)]
struct PlacedWeight {
    /// The token's id.
    id: u32,
    /// The first code point of the text as sent.
    start: usize,
    /// The code point behind the last one.
    end: usize,
    /// The token's weight here; that of its id is the largest of all its places.
    weight: f32,
}

/// The vectors of a text's tokens, those of length one.
#[derive(Serialize)]
struct TokenTensor<'a> {
    /// How many tokens, and how many numbers each has.
    shape: [usize; 2],
    dtype: &'static str,
    /// Base64 of the numbers, little-endian, one token behind the other.
    #[serde(serialize_with = "as_text")]
    data: Base64<'a>,
}

impl<'a> TokenTensor<'a> {
    /// The numbers are those of dense vectors, if those are floats.
    fn of(vectors: &'a TokenVectors, format: AnswerFormat) -> Self {
        let half = format.dense.numbers == NumberType::Float16;
        let dtype = if half { "float16" } else { "float32" };
        Self { shape: vectors.shape(), dtype, data: vectors.base64(half) }
    }
}

/// Written in parts: in one piece it would take as much memory once more.
fn as_text<S: Serializer>(data: &Base64<'_>, json: S) -> Result<S::Ok, S::Error> {
    json.collect_str(data)
}

/// `None` when nobody asked.
fn placed(item: &EmbeddedItem) -> Option<Vec<PlacedWeight>> {
    let one = |&Occurrence { id, span, weight }: &Occurrence| PlacedWeight {
        id,
        start: span.start,
        end: span.end,
        weight,
    };
    Some(item.occurrences.as_ref()?.iter().map(one).collect())
}

/// Numbers from which writing should leave the connection's thread; about 5 ms of work.
pub(super) const MANY_NUMBERS: usize = 256 * 1024;

const ALL_BYTES: &str = "a Vec takes all bytes";

/// A place with its four names takes as many bytes as so many decimals.
const PLACE_NUMBERS: usize = 5;

/// Floats and weights of an answer.
pub(super) fn numbers(reply: &EmbedReply) -> usize {
    let of = |item: &EmbeddedItem| {
        let places = item.occurrences.as_ref().map_or(0, Vec::len);
        let of_tokens = item.token_vectors.as_ref().map_or(0, TokenVectors::count);
        item.dense.len() + 2 * item.sparse.indices.len() + PLACE_NUMBERS * places + of_tokens
    };
    reply.items.iter().map(of).sum()
}

/// Writes the body of an answer into `out`.
pub(super) fn write(
    mut out: Vec<u8>,
    reply: &EmbedReply,
    vectors: Vectors,
    format: AnswerFormat,
    resident: &Resident<'_>,
) -> Vec<u8> {
    let list = List {
        object: "list",
        data: Items { items: &reply.items, vectors, format, resident },
        model: resident.id,
        usage: Usage::of(reply),
    };
    write_json(&mut out, &list);
    out
}
