//! The body of a request → what the service is asked, in one pass and without a tree in between.
//!
//! serde's own messages repeat what the client sent. Here a message is made of the field that
//! serde stopped at and of what it takes.

use std::num::NonZeroUsize;

use actix_web::web::{Bytes, BytesMut};
use bytestring::ByteString;
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment, Track};

use super::error::{ApiError, Code, FieldNames};
use super::model_name::{prompt_of, unknown_model};
use super::reply::{self, AnswerFormat, DenseForm, DenseFormat, Resident, SparseFormat};
use crate::service::chunking::Chunking;
use crate::service::{
    AnswerBytes, EmbedOptions, EmbedReply, EmbedRequest, EmbeddingService, Input, InputType,
    Lexical, RequestHead, Vectors,
};
use model::tokenize::Offsets;
use settings::{HttpConfig, TokenInput};
use vectors::sparse::Selection;

pub(super) mod chunking;
#[cfg(test)]
mod fuzz;
pub(super) mod input;
mod item_scanner;
mod slips;
pub(super) mod wishes;
pub(super) mod words;

use chunking::{CHUNKING, ChunkingField};
pub(super) use input::InputLimits;
pub(super) use item_scanner::ItemScanner;
use slips::SLIP;
use wishes::LENGTHS;
pub(super) use wishes::{TRUNCATE, WISHES, Wishes, with_wishes};
use words::{LexicalWord, TokenEncoding};
pub(super) use words::{Truncate, USE, USES, Use, WHOLE_NUMBER, agreed, object, scalar};

/// The body of a request in the words of some family of clients.
pub(super) trait Body: DeserializeOwned {
    /// Its own fields, and what they take. The first one is read by [`input::read`].
    const FIELDS: &'static [(&'static str, &'static str)];
    /// Those that it takes beside them: [`WISHES`], or none.
    const WISHES: &'static [(&'static str, &'static str)] = &[];
    /// The field with the texts or token ids.
    const INPUT: &'static str = Self::FIELDS[0].0;
    /// What [`input::read`] takes.
    const TAKES: &'static str = Self::FIELDS[0].1;
    /// A body that is right.
    const EXAMPLE: &'static str;

    /// Ends the reading of a body with several fields of texts, see [`input::settle`].
    fn settle(&mut self) {}

    /// The field of this name, and what it takes.
    fn field(name: &str) -> Option<(&'static str, &'static str)> {
        Self::FIELDS.iter().chain(Self::WISHES).find(|(known, _)| *known == name).copied()
    }
}

/// A request for vectors in the words of some family of clients.
pub(super) trait Question: Body + Send + 'static {
    /// How the answer is written.
    type Format: Send + 'static;

    /// The fields that the client sent, for refusals.
    fn names(&self) -> FieldNames {
        FieldNames { input: Self::INPUT, ..FieldNames::default() }
    }

    /// What the service is asked, and how its answer is written.
    ///
    /// # Errors
    /// When there is no input, or a field does not fit the model or the server.
    fn ask(
        self,
        vectors: Vectors,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, Self::Format), ApiError>;

    /// The most bytes that the answer of a model takes.
    fn most_bytes(format: &Self::Format, model_id: &str) -> AnswerBytes;

    /// What writing the answer takes, in numbers that are written.
    ///
    /// # Errors
    /// When it takes too long.
    fn work(_format: &Self::Format, reply: &EmbedReply) -> Result<usize, ApiError> {
        Ok(reply::numbers(reply))
    }

    /// Writes the body of the answer into `out`.
    fn write(
        out: Vec<u8>,
        reply: &EmbedReply,
        vectors: Vectors,
        format: &Self::Format,
        resident: &Resident<'_>,
    ) -> Vec<u8>;
}

/// Reads a body whose texts and token ids are within `limits`. Texts may be parts of it; else it is
/// freed at once.
pub(super) fn read<B: Body>(body: impl Into<Bytes>, limits: InputLimits) -> Result<B, ApiError> {
    read_into(body.into(), BytesMut::new(), limits)
}

/// Like [`read`]. Texts that must be copied are put into `room`, which may be empty.
pub(super) fn read_into<B: Body>(
    body: Bytes,
    room: BytesMut,
    limits: InputLimits,
) -> Result<B, ApiError> {
    let text = ByteString::try_from(body).map_err(|error| {
        let at = error.valid_up_to();
        invalid_json(format!("byte {at} of the body is not UTF-8; send UTF-8"))
    })?;
    if text.starts_with('\u{feff}') {
        return Err(invalid_json("the body starts with a byte order mark; send UTF-8 without one"));
    }
    match text.trim_ascii_start().bytes().next() {
        None => {
            let example = B::EXAMPLE;
            let message = format!("the body is empty; send a JSON object such as {example}");
            return Err(invalid_json(message));
        }
        // serde copies a string that it refuses.
        Some(b'"') => return Err(not_an_object::<B>()),
        Some(_) => {}
    }
    input::within(&text, B::TAKES, room, limits, || {
        let mut json = serde_json::Deserializer::from_str(&text);
        let body = object::<_, B>(&mut json).and_then(|body| json.end().map(|()| body));
        let body = body.map_err(|error| match error.classify() {
            Category::Data => refusal::<B>(&text),
            Category::Syntax | Category::Eof | Category::Io => malformed(&error),
        })?;
        let mut body = body.ok_or_else(not_an_object::<B>)?;
        body.settle();
        Ok(body)
    })
}

with_wishes! {
    /// Null is the same as leaving a field out, except for input; unknown fields are ignored, but
    /// for slips in names, a field that comes twice is refused. Whole numbers are written without
    /// fraction and exponent (1, not 1.0).
    #[derive(Debug, Default, serde::Deserialize)]
    pub(super) struct EmbeddingRequest {
        /// Empty when it is absent or null.
        #[serde(default, deserialize_with = "input::read")]
        input: Vec<Input>,
        /// The model's id or an alias; absent is the resident model.
        model: Option<String>,
        /// Anything; it is ignored.
        #[serde(default, rename = "user")]
        _user: IgnoredAny,
        /// The form of lexical weights.
        #[serde(default, deserialize_with = "scalar")]
        sparse_format: Option<SparseFormat>,
        /// Keep so many of the heaviest.
        #[serde(default, deserialize_with = "scalar")]
        sparse_top_k: Option<NonZeroUsize>,
        /// Which tokenizer the token ids of input are of; absent is what the server is set to.
        #[serde(default, deserialize_with = "scalar")]
        token_encoding: Option<TokenEncoding>,
        /// Where lexical weights come from; absent is the model.
        #[serde(default, deserialize_with = "scalar")]
        lexical: Option<LexicalWord>,
        /// Keep weights at or above it.
        #[serde(default, deserialize_with = "weight")]
        sparse_min_weight: Option<f32>,
        /// Whether the answer says where the text has the ids of its lexical weights.
        #[serde(default, deserialize_with = "scalar")]
        offsets: Option<bool>,
        /// Whether the answer has the vectors of tokens.
        #[serde(default, deserialize_with = "scalar")]
        token_vectors: Option<bool>,
        /// How texts are cut into chunks; absent embeds them whole.
        #[serde(default, deserialize_with = "object")]
        chunking: Option<ChunkingField>,
        /// Whether the items are chunks of one text, which are pooled out of its run.
        #[serde(default, deserialize_with = "scalar")]
        late_chunking: Option<bool>,
    }
}

impl Body for EmbeddingRequest {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("input", "a text, a list of texts, or token ids"),
        ("model", "a string"),
        ("user", ""),
        ("sparse_format", "\"indices\" or \"dict\" or \"tokens\" or \"pgvector\""),
        ("sparse_top_k", WHOLE_NUMBER),
        ("token_encoding", "\"model\" or \"cl100k_base\" or \"o200k_base\""),
        ("lexical", "\"head\" or \"table\""),
        ("sparse_min_weight", "a number, zero or above"),
        ("offsets", "true or false"),
        ("token_vectors", "true or false"),
        ("chunking", CHUNKING),
        ("late_chunking", "true or false"),
    ];
    const WISHES: &'static [(&'static str, &'static str)] = WISHES;
    const EXAMPLE: &'static str = "{\"input\": \"a text\"}";
}

impl Question for EmbeddingRequest {
    type Format = AnswerFormat;

    fn names(&self) -> FieldNames {
        let chunks = if self.late_chunking == Some(true) { "late_chunking" } else { "chunking" };
        FieldNames { chunks, ..self.wishes().names() }
    }

    fn ask(
        mut self,
        vectors: Vectors,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, AnswerFormat), ApiError> {
        if self.input.is_empty() {
            return Err(missing::<Self>());
        }
        let wishes = self.wishes();
        let input_type = self.input_type(config, service)?;
        let options = EmbedOptions {
            vectors,
            input_type,
            over_long: wishes.over_long(config)?,
            offsets: match self.offsets {
                Some(true) if vectors.sparse() => Offsets::Find,
                _ => Offsets::Skip,
            },
            token_input: self.token_encoding.map(|encoding| match encoding {
                TokenEncoding::Model => TokenInput::Model,
                TokenEncoding::Cl100kBase => TokenInput::Cl100kBase,
                TokenEncoding::O200kBase => TokenInput::O200kBase,
            }),
            dimensions: wishes.dimensions()?,
            lexical: self.lexical(vectors, input_type)?,
            token_vectors: self.token_vectors == Some(true),
            selection: Selection {
                top_k: self.sparse_top_k.map(NonZeroUsize::get),
                min_weight: self.sparse_min_weight,
            },
            priority: head.priority,
            deadline: head.deadline,
        };
        let format = AnswerFormat {
            dense: DenseForm {
                numbers: wishes.numbers(service)?,
                format: wishes.dense_format()?.map_or_else(DenseFormat::default, |(_, form)| form),
            },
            sparse: self.sparse_format.unwrap_or_default(),
        };
        let chunking = self.chunking(config)?;
        Ok((EmbedRequest { inputs: self.input, options, chunking }, format))
    }

    fn most_bytes(format: &AnswerFormat, model_id: &str) -> AnswerBytes {
        reply::most_bytes(*format, model_id)
    }

    fn write(
        out: Vec<u8>,
        reply: &EmbedReply,
        vectors: Vectors,
        format: &AnswerFormat,
        resident: &Resident<'_>,
    ) -> Vec<u8> {
        reply::write(out, reply, vectors, *format, resident)
    }
}

impl EmbeddingRequest {
    /// A request for texts that says nothing else.
    pub(super) fn of(input: Vec<Input>, model: Option<String>, truncate: Option<Truncate>) -> Self {
        Self { input, model, truncate, ..Self::default() }
    }

    /// Where lexical weights come from. A route without them does not care.
    fn lexical(&self, vectors: Vectors, input_type: InputType) -> Result<Lexical, ApiError> {
        let message = match (self.lexical, vectors, input_type) {
            (None, ..) | (_, Vectors::Dense, _) => return Ok(Lexical::Model),
            (Some(LexicalWord::Head), ..) => return Ok(Lexical::Head),
            (_, Vectors::Sparse, _) if self.token_vectors == Some(true) => {
                "lexical \"table\" needs no run of the model, which token_vectors need; leave one \
                 of them out"
            }
            (_, Vectors::Sparse, InputType::Query) => return Ok(Lexical::Table),
            (_, Vectors::Sparse, _) => {
                "lexical \"table\" is for questions; send input_type \"query\" with it, or leave \
                 lexical out"
            }
            (_, Vectors::Both, _) => {
                "lexical \"table\" needs no run of the model, which dense vectors need; leave \
                 lexical out, or use POST /v1/sparse-embeddings"
            }
        };
        Err(ApiError::of(Code::InvalidValue, "lexical", message))
    }

    fn chunking(&mut self, config: &HttpConfig) -> Result<Option<Chunking>, ApiError> {
        match (self.chunking.take(), self.late_chunking) {
            (None, None | Some(false)) => Ok(None),
            (Some(field), None | Some(false)) => {
                field.read(self.input.len(), config.max_items).map(Some)
            }
            (None, Some(true)) => {
                let bytes = self.input.iter().map(Input::bytes).sum();
                chunking::of_inputs(bytes, self.offsets == Some(true), config).map(Some)
            }
            (Some(_), Some(true)) => {
                let message = "late_chunking and chunking both say what the chunks are; send one \
                               of them";
                Err(ApiError::of(Code::InvalidValue, "late_chunking", message))
            }
        }
    }

    /// What the texts are used for, as `input_type` or the model's name says.
    fn input_type(
        &self,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<InputType, ApiError> {
        let by_name = match &self.model {
            None => InputType::Default,
            Some(model) => {
                prompt_of(model, config, service).ok_or_else(|| unknown_model(service))?
            }
        };
        let Some((name, Use(by_field))) = self.wishes().input_type()? else { return Ok(by_name) };
        if by_name != InputType::Default && by_name != by_field {
            let message = format!(
                "the end of the model's name asks for another prompt; leave {name} out, or send \
                 the name without its end"
            );
            return Err(ApiError::of(Code::InvalidValue, name, message));
        }
        Ok(by_field)
    }
}

/// What is wrong in a body whose fields serde refused. The body is read once more to learn where:
/// to follow the path in every request would make long lists take half as much time again.
fn refusal<B: Body>(text: &str) -> ApiError {
    let (mut json, mut track) = (serde_json::Deserializer::from_str(text), Track::new());
    let read = object::<_, B>(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    let Err(error) = read else { return not_an_object::<B>() };
    let (path, said) = (&track.path(), error.to_string());
    if let Some(name) = duplicate::<B>(path, &said).or_else(|| slip::<B>(path, &said)) {
        return name;
    }
    match path.iter().next() {
        Some(Segment::Map { key }) if key == "chunking" => chunking::refusal(path, &said),
        Some(Segment::Map { key }) => match B::field(key) {
            Some(field) if key == B::INPUT || input::has_fault() => input::refusal(path, field),
            _ => wrong::<B>(key),
        },
        _ => not_an_object::<B>(),
    }
}

/// A body without texts and token ids.
pub(super) fn missing<B: Body>() -> ApiError {
    let (name, takes) = B::FIELDS[0];
    ApiError::of(Code::InvalidInput, name, format!("{name} is missing; send {takes}"))
}

/// The items of a body, which has some.
pub(super) fn some<B: Body>(items: Vec<Input>) -> Result<Vec<Input>, ApiError> {
    if items.is_empty() { Err(missing::<B>()) } else { Ok(items) }
}

/// A field that does not hold what it takes.
fn wrong<B: Body>(field: &str) -> ApiError {
    let Some((name, takes)) = B::field(field) else {
        return not_an_object::<B>();
    };
    let is_length = LENGTHS.contains(&name);
    let code = if is_length { Code::InvalidDimensions } else { Code::InvalidValue };
    ApiError::of(code, name, format!("{name} must be {takes}, or left out"))
}

/// The field that comes twice when that is what serde said at `path`.
fn duplicate<B: Body>(path: &Path, said: &str) -> Option<ApiError> {
    let (field, _) = said.strip_prefix("duplicate field `")?.split_once('`')?;
    let (name, place) = match path.iter().next() {
        Some(Segment::Map { key }) => (key.as_str(), format!("{path}.{field}")),
        _ => (field, field.to_owned()),
    };
    let (name, _) = B::field(name)?;
    Some(ApiError::of(Code::DuplicateField, name, format!("{place} comes twice; send it once")))
}

/// The field that is meant by the name at `path` when serde said that the name has a slip.
fn slip<B: Body>(path: &Path, said: &str) -> Option<ApiError> {
    let (meant, _) = said.strip_prefix(SLIP)?.split_once('`')?;
    let (name, _) = match path.iter().next() {
        Some(Segment::Map { key }) if path.iter().len() > 1 => B::field(key),
        _ => B::field(meant),
    }?;
    let message = format!("{path} is not a field; did you mean {meant}?");
    Some(ApiError::of(Code::InvalidValue, name, message))
}

fn not_an_object<B: Body>() -> ApiError {
    invalid_json(format!("the body must be one JSON object such as {}", B::EXAMPLE))
}

fn malformed(error: &serde_json::Error) -> ApiError {
    let said = error.to_string();
    // Clients that cut texts by UTF-16 units send half an emoji.
    if said.contains("surrogate") || said.contains("hex escape") {
        let place = format!("line {} column {}", error.line(), error.column());
        return invalid_json(format!(
            "the body is not valid JSON: the \\u escape before {place} is half of a character (a \
             lone surrogate), or not four hexadecimal digits; cut texts between characters"
        ));
    }
    invalid_json(format!("the body is not valid JSON: {said}"))
}

fn invalid_json(message: impl Into<String>) -> ApiError {
    ApiError::new(Code::InvalidJson, message)
}

/// Reads a weight; beyond the largest f32 no weight is kept, as asked for.
fn weight<'de, D: Deserializer<'de>>(json: D) -> Result<Option<f32>, D::Error> {
    match scalar::<D, f32>(json)? {
        Some(weight) if weight < 0.0 => Err(D::Error::custom("below zero")),
        weight => Ok(weight.map(|weight| weight.min(f32::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::words::LONGEST_WORD;
    use super::*;
    use serde::de::Deserialize;

    #[test]
    fn a_string_that_is_no_word_is_refused_before_it_is_copied() {
        let limits = InputLimits {
            items: settings::limits::MaxItems::DEFAULT,
            item_bytes: settings::limits::MaxItemBytes::DEFAULT,
        };
        for field in
            ["encoding_format", "dimensions", "truncate", "sparse_min_weight", "task", "prompt"]
        {
            let body = format!("{{\"{field}\":\"{}\"}}", "\u{7f}".repeat(LONGEST_WORD + 1));
            let mut json = serde_json::Deserializer::from_str(&body);
            let error = EmbeddingRequest::deserialize(&mut json).expect_err("it is no word");
            assert!(error.to_string().starts_with("longer than every word"), "{field}: {error}");
            let refused = read::<EmbeddingRequest>(body, limits);
            let refused = refused.expect_err("the same");
            assert_eq!(refused.param, Some(field));
        }
    }
}
