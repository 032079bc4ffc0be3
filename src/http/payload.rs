//! The body of a request → what the service is asked, in one pass and without a tree in between.
//!
//! serde's own messages repeat what the client sent. Here a message is made of the field that
//! serde stopped at and of what it takes.

use std::num::NonZeroUsize;

use actix_web::web::{Bytes, BytesMut};
use bytestring::ByteString;
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny};
use serde_json::error::Category;
use serde_path_to_error::Segment;

use super::error::{ApiError, Code};
use super::model_name::{prompt_of, unknown_model};
use super::reply::{AnswerFormat, DenseFormat, SparseFormat};
use crate::config::{Dialect, HttpConfig, TokenInput, TruncateDefault};
use crate::service::chunking::Chunking;
use crate::service::{
    EmbedOptions, EmbedRequest, EmbeddingService, Input, InputType, OverLong, RequestHead, Vectors,
};
use crate::sparse::Selection;
use crate::tokenize::Offsets;

pub(super) mod chunking;
#[cfg(test)]
mod fuzz;
pub(super) mod input;
mod item_scanner;
#[cfg(test)]
mod shared_texts;
pub(super) mod words;

use chunking::{CHUNKING, ChunkingField};
pub(super) use input::InputLimits;
pub(super) use item_scanner::ItemScanner;
use words::{TokenEncoding, Truncate, TruncateWord, agreed, one_form, only_null, only_true};
pub(super) use words::{USE, USES, Use, WHOLE_NUMBER, object, scalar};

/// The body of a request in the words of some family of clients.
pub(super) trait Body: DeserializeOwned {
    /// The fields in the order of the documents, and what they take. The first one is read by
    /// [`input::read`].
    const FIELDS: &'static [(&'static str, &'static str)];
    /// The field with the texts or token ids.
    const INPUT: &'static str = Self::FIELDS[0].0;
    /// A body that is right.
    const EXAMPLE: &'static str;
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
        // serde takes a list for the values of a struct, and copies a string that it refuses.
        Some(b'[' | b'"') => return Err(not_an_object::<B>()),
        Some(_) => {}
    }
    input::within(&text, B::FIELDS[0].1, room, limits, || {
        serde_json::from_str(&text).map_err(|error| match error.classify() {
            Category::Data => refusal::<B>(&text),
            Category::Syntax | Category::Eof | Category::Io => malformed(&error),
        })
    })
}

/// Null is the same as leaving a field out, except for input; unknown fields are ignored, a field
/// that comes twice is refused. Whole numbers are written without fraction and exponent (1, not
/// 1.0).
#[derive(Debug, serde::Deserialize)]
pub(super) struct EmbeddingRequest {
    /// Empty when it is absent or null.
    #[serde(default, deserialize_with = "input::read")]
    input: Vec<Input>,
    /// The model's id or an alias; absent is the resident model.
    model: Option<String>,
    /// The form of dense vectors.
    #[serde(default, deserialize_with = "scalar")]
    encoding_format: Option<DenseFormat>,
    /// The length of dense vectors; absent is the model's own.
    #[serde(default, deserialize_with = "scalar")]
    dimensions: Option<NonZeroUsize>,
    /// Anything; it is ignored.
    #[serde(default, rename = "user")]
    _user: IgnoredAny,
    /// Which of the model's prompts is put in front of texts.
    #[serde(default, deserialize_with = "scalar")]
    input_type: Option<Use>,
    /// Another name of input_type.
    #[serde(default, deserialize_with = "scalar")]
    task: Option<Use>,
    /// Another name of input_type.
    #[serde(default, deserialize_with = "scalar")]
    task_type: Option<Use>,
    /// Another name of input_type.
    #[serde(default, deserialize_with = "scalar")]
    prompt_name: Option<Use>,
    #[serde(default, rename = "prompt", deserialize_with = "only_null")]
    _prompt: Option<bool>,
    /// Another name of dimensions.
    #[serde(default, deserialize_with = "scalar")]
    output_dimension: Option<NonZeroUsize>,
    /// Another name of dimensions.
    #[serde(default, deserialize_with = "scalar")]
    truncate_dim: Option<NonZeroUsize>,
    /// What vectors consist of; base64 is that of encoding_format.
    #[serde(default, deserialize_with = "one_form")]
    output_dtype: Option<DenseFormat>,
    /// Another name of output_dtype.
    #[serde(default, deserialize_with = "one_form")]
    embedding_type: Option<DenseFormat>,
    /// A list with one output_dtype.
    #[serde(default, deserialize_with = "one_form")]
    embedding_types: Option<DenseFormat>,
    #[serde(default, rename = "normalized", deserialize_with = "only_true")]
    _normalized: Option<bool>,
    /// Another name of truncate.
    #[serde(default, deserialize_with = "scalar")]
    truncation: Option<bool>,
    /// Whether an over-long item is cut, or refused.
    #[serde(default, deserialize_with = "scalar")]
    truncate: Option<Truncate>,
    /// The form of lexical weights.
    #[serde(default, deserialize_with = "scalar")]
    sparse_format: Option<SparseFormat>,
    /// Keep so many of the heaviest.
    #[serde(default, deserialize_with = "scalar")]
    sparse_top_k: Option<NonZeroUsize>,
    /// Which tokenizer the token ids of input are of; absent is what the server is set to.
    #[serde(default, deserialize_with = "scalar")]
    token_encoding: Option<TokenEncoding>,
    /// Keep weights at or above it.
    #[serde(default, deserialize_with = "weight")]
    sparse_min_weight: Option<f32>,
    /// Whether the answer says where the text has the ids of its lexical weights.
    #[serde(default, deserialize_with = "scalar")]
    offsets: Option<bool>,
    /// How texts are cut into chunks; absent embeds them whole.
    #[serde(default, deserialize_with = "object")]
    chunking: Option<ChunkingField>,
    /// Whether the items are chunks of one text, which are pooled out of its run.
    #[serde(default, deserialize_with = "scalar")]
    late_chunking: Option<bool>,
}

impl Body for EmbeddingRequest {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("input", "a text, a list of texts, or token ids"),
        ("model", "a string"),
        ("encoding_format", "\"float\" or \"base64\""),
        ("dimensions", WHOLE_NUMBER),
        ("user", ""),
        ("input_type", USE),
        ("task", USE),
        ("task_type", USE),
        ("prompt_name", USE),
        (
            "prompt",
            "null (write a prompt in front of each text, or choose one of the model's with \
             input_type)",
        ),
        ("output_dimension", WHOLE_NUMBER),
        ("truncate_dim", WHOLE_NUMBER),
        ("output_dtype", FORM),
        ("embedding_type", FORM),
        ("embedding_types", FORM),
        ("normalized", "true (vectors always have length one)"),
        ("truncation", "true or false"),
        (
            "truncate",
            "true or false or \"NONE\" or \"END\" (a text keeps its start: \"START\" is not \
             possible)",
        ),
        ("sparse_format", "\"indices\" or \"dict\" or \"tokens\" or \"pgvector\""),
        ("sparse_top_k", WHOLE_NUMBER),
        ("token_encoding", "\"model\" or \"cl100k_base\" or \"o200k_base\""),
        ("sparse_min_weight", "a number, zero or above"),
        ("offsets", "true or false"),
        ("chunking", CHUNKING),
        ("late_chunking", "true or false"),
    ];
    const EXAMPLE: &'static str = "{\"input\": \"a text\"}";
}

/// The names of the field for the length of dense vectors.
pub(super) const LENGTHS: [&str; 3] = ["dimensions", "output_dimension", "truncate_dim"];

const FORM: &str =
    "\"float\" or \"base64\" (make other numbers of the vectors' 32-bit floats yourself)";

impl EmbeddingRequest {
    /// What the service is asked and how its answer is written; refuses a request without input or
    /// for another model.
    pub(super) fn validate(
        mut self,
        vectors: Vectors,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, AnswerFormat), ApiError> {
        if self.input.is_empty() {
            return Err(missing::<Self>());
        }
        let options = EmbedOptions {
            vectors,
            input_type: self.input_type(config, service)?,
            over_long: self.over_long(config)?,
            offsets: match self.offsets {
                Some(true) if vectors.sparse() => Offsets::Find,
                _ => Offsets::Skip,
            },
            token_input: self.token_encoding.map(|encoding| match encoding {
                TokenEncoding::Model => TokenInput::Model,
                TokenEncoding::Cl100kBase => TokenInput::Cl100kBase,
                TokenEncoding::O200kBase => TokenInput::O200kBase,
            }),
            dimensions: self.dimensions()?.map(NonZeroUsize::get),
            selection: Selection {
                top_k: self.sparse_top_k.map(NonZeroUsize::get),
                min_weight: self.sparse_min_weight,
            },
            priority: head.priority,
            deadline: head.deadline,
        };
        let format = AnswerFormat {
            dense: self.dense_format()?.unwrap_or_default(),
            sparse: self.sparse_format.unwrap_or_default(),
        };
        let chunking = self.chunking(config)?;
        Ok((EmbedRequest { inputs: self.input, options, chunking }, format))
    }

    fn chunking(&mut self, config: &HttpConfig) -> Result<Option<Chunking>, ApiError> {
        match (self.chunking.take(), self.late_chunking) {
            (None, None | Some(false)) => Ok(None),
            (Some(field), None | Some(false)) => {
                field.read(self.input.len(), config.max_items).map(Some)
            }
            (None, Some(true)) => {
                chunking::of_inputs(self.offsets == Some(true), config.max_items).map(Some)
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
        let by_field = agreed(&[
            ("input_type", self.input_type),
            ("task", self.task),
            ("task_type", self.task_type),
            ("prompt_name", self.prompt_name),
        ]);
        let Some(Use(by_field)) = by_field? else { return Ok(by_name) };
        if by_name != InputType::Default && by_name != by_field {
            let message = "the end of the model's name asks for another prompt; leave input_type \
                           out, or send the name without its end";
            return Err(ApiError::of(Code::InvalidValue, "input_type", message));
        }
        Ok(by_field)
    }

    fn dimensions(&self) -> Result<Option<NonZeroUsize>, ApiError> {
        agreed(&[
            ("dimensions", self.dimensions),
            ("output_dimension", self.output_dimension),
            ("truncate_dim", self.truncate_dim),
        ])
    }

    /// How dense vectors are written. Of the types of their numbers, only base64 says so: with
    /// "float" the numbers of base64 are meant too.
    fn dense_format(&self) -> Result<Option<DenseFormat>, ApiError> {
        let is_base64 = |form: &DenseFormat| *form == DenseFormat::Base64;
        agreed(&[
            ("encoding_format", self.encoding_format),
            ("output_dtype", self.output_dtype.filter(is_base64)),
            ("embedding_type", self.embedding_type.filter(is_base64)),
            ("embedding_types", self.embedding_types.filter(is_base64)),
        ])
    }

    fn over_long(&self, config: &HttpConfig) -> Result<OverLong, ApiError> {
        let truncate = match self.truncate {
            None => None,
            Some(Truncate::Plain(truncate)) => Some(truncate),
            Some(Truncate::Word(word)) if config.speaks(Dialect::Nim) => {
                Some(word == TruncateWord::End)
            }
            Some(Truncate::Word(_)) => {
                let message = "truncate must be true or false here, or left out; words are NIM's, \
                               which --dialects leaves out";
                return Err(ApiError::of(Code::InvalidValue, "truncate", message));
            }
        };
        let truncate = agreed(&[("truncate", truncate), ("truncation", self.truncation)])?;
        let by_default = config.truncate == TruncateDefault::Truncate;
        Ok(if truncate.unwrap_or(by_default) { OverLong::Truncate } else { OverLong::Refuse })
    }
}

/// What is wrong in a body whose fields serde refused. The body is read once more to learn where:
/// to follow the path in every request would make long lists take half as much time again.
fn refusal<B: Body>(text: &str) -> ApiError {
    let mut json = serde_json::Deserializer::from_str(text);
    let Err(error) = serde_path_to_error::deserialize::<_, B>(&mut json) else {
        return not_an_object::<B>();
    };
    match error.path().iter().next() {
        Some(Segment::Map { key }) if key == B::INPUT => input::refusal(error.path()),
        Some(Segment::Map { key }) if key == "chunking" => chunking::refusal(error.path()),
        Some(Segment::Map { key }) => wrong::<B>(key),
        _ => duplicate::<B>(&error.inner().to_string()).unwrap_or_else(not_an_object::<B>),
    }
}

/// A body without texts and token ids.
pub(super) fn missing<B: Body>() -> ApiError {
    let (name, takes) = B::FIELDS[0];
    ApiError::of(Code::InvalidInput, name, format!("{name} is missing; send {takes}"))
}

/// A field that does not hold what it takes.
fn wrong<B: Body>(field: &str) -> ApiError {
    let Some(&(name, takes)) = B::FIELDS.iter().find(|(name, _)| *name == field) else {
        return not_an_object::<B>();
    };
    let is_length = LENGTHS.contains(&name);
    let code = if is_length { Code::InvalidDimensions } else { Code::InvalidValue };
    ApiError::of(code, name, format!("{name} must be {takes}, or left out"))
}

/// The field that comes twice when that is what serde says.
fn duplicate<B: Body>(error: &str) -> Option<ApiError> {
    let (field, _) = error.strip_prefix("duplicate field `")?.split_once('`')?;
    let (name, _) = B::FIELDS.iter().find(|(name, _)| *name == field)?;
    Some(ApiError::of(Code::DuplicateField, name, format!("{name} comes twice; send it once")))
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
            items: crate::limits::MaxItems::DEFAULT,
            item_bytes: crate::limits::MaxItemBytes::DEFAULT,
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
