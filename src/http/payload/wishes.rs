//! The fields in which clients of all services say which vectors they want. Every dialect takes all
//! of them, and fields that mean the same may come together when they agree.

use std::num::NonZeroUsize;

use super::words::{Truncate, TruncateWord, USE, Use, WHOLE_NUMBER, agreed};
use crate::http::error::{ApiError, Code, FieldNames};
use crate::http::reply::{DenseFormat, OutputType};
use crate::service::{EmbeddingService, OverLong};
use settings::{Dialect, HttpConfig, TruncateDefault};
use vectors::small::NumberType;

/// The fields, and what they take.
pub(in crate::http) const WISHES: &[(&str, &str)] = &[
    ("encoding_format", "\"float\" or \"base64\""),
    ("dimensions", WHOLE_NUMBER),
    ("input_type", USE),
    ("task", USE),
    ("task_type", USE),
    ("prompt_name", USE),
    (
        "prompt",
        "null (write a prompt in front of each text, or choose one of the model's with input_type)",
    ),
    ("output_dimension", WHOLE_NUMBER),
    ("truncate_dim", WHOLE_NUMBER),
    ("output_type", TYPE),
    ("output_dtype", TYPE),
    ("embedding_type", TYPE),
    ("embedding_types", TYPE),
    ("embed_dtype", TYPE),
    ("normalized", "true (vectors always have length one)"),
    ("truncation", "true or false"),
    ("truncate", TRUNCATE),
];

/// What a field takes that says what is done with texts that are too long.
pub(in crate::http) const TRUNCATE: &str = "true or false or \"NONE\" or \"END\" (a text keeps its \
                                            start: \"START\" is not possible)";

/// The names of the field for the length of dense vectors.
pub(super) const LENGTHS: [&str; 3] = ["dimensions", "output_dimension", "truncate_dim"];

/// What a field takes that says what dense vectors consist of.
const TYPE: &str = "\"float\" or \"float32\" or \"float16\" or \"int8\" or \"uint8\" or \
                    \"binary\" or \"ubinary\" or \"base64\", or a list with one of them";

/// Makes the body of a request that has the fields of [`WISHES`] behind its own ones. serde's
/// `flatten` would keep each field that it does not know in memory.
macro_rules! with_wishes {
    ($(#[$about:meta])* $visible:vis struct $name:ident { $($own:tt)* }) => {
        $(#[$about])*
        $visible struct $name {
            $($own)*
            /// The form of dense vectors.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) encoding_format: Option<crate::http::reply::DenseFormat>,
            /// The length of dense vectors; absent is the model's own.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) dimensions: Option<std::num::NonZeroUsize>,
            /// Which of the model's prompts is put in front of texts.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) input_type: Option<crate::http::payload::Use>,
            /// Another name of input_type.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) task: Option<crate::http::payload::Use>,
            /// Another name of input_type.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) task_type: Option<crate::http::payload::Use>,
            /// Another name of input_type.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) prompt_name: Option<crate::http::payload::Use>,
            #[serde(default, rename = "prompt")]
            #[serde(deserialize_with = "crate::http::payload::words::only_null")]
            pub(in crate::http) _prompt: Option<bool>,
            /// Another name of dimensions.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) output_dimension: Option<std::num::NonZeroUsize>,
            /// Another name of dimensions.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) truncate_dim: Option<std::num::NonZeroUsize>,
            /// What dense vectors consist of, which may be in a list; base64 is that of
            /// encoding_format.
            #[serde(default, deserialize_with = "crate::http::payload::words::one_type")]
            pub(in crate::http) output_type: Option<crate::http::reply::OutputType>,
            /// Another name of output_type.
            #[serde(default, deserialize_with = "crate::http::payload::words::one_type")]
            pub(in crate::http) output_dtype: Option<crate::http::reply::OutputType>,
            /// Another name of output_type.
            #[serde(default, deserialize_with = "crate::http::payload::words::one_type")]
            pub(in crate::http) embedding_type: Option<crate::http::reply::OutputType>,
            /// Another name of output_type.
            #[serde(default, deserialize_with = "crate::http::payload::words::one_type")]
            pub(in crate::http) embedding_types: Option<crate::http::reply::OutputType>,
            /// Another name of output_type.
            #[serde(default, deserialize_with = "crate::http::payload::words::one_type")]
            pub(in crate::http) embed_dtype: Option<crate::http::reply::OutputType>,
            #[serde(default, rename = "normalized")]
            #[serde(deserialize_with = "crate::http::payload::words::only_true")]
            pub(in crate::http) _normalized: Option<bool>,
            /// Another name of truncate.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) truncation: Option<bool>,
            /// Whether an over-long item is cut, or refused.
            #[serde(default, deserialize_with = "crate::http::payload::words::scalar")]
            pub(in crate::http) truncate: Option<crate::http::payload::Truncate>,
        }

        impl $name {
            /// What the request says in the fields that every dialect takes.
            fn wishes(&self) -> crate::http::payload::Wishes {
                crate::http::payload::Wishes {
                    uses: [
                        ("input_type", self.input_type),
                        ("task", self.task),
                        ("task_type", self.task_type),
                        ("prompt_name", self.prompt_name),
                    ],
                    lengths: [
                        ("dimensions", self.dimensions),
                        ("output_dimension", self.output_dimension),
                        ("truncate_dim", self.truncate_dim),
                    ],
                    form: ("encoding_format", self.encoding_format),
                    types: [
                        ("output_type", self.output_type),
                        ("output_dtype", self.output_dtype),
                        ("embedding_type", self.embedding_type),
                        ("embedding_types", self.embedding_types),
                        ("embed_dtype", self.embed_dtype),
                    ],
                    truncate: self.truncate,
                    truncation: self.truncation,
                }
            }
        }
    };
}
pub(in crate::http) use with_wishes;

/// What a field of some name says, when the client sent it.
type Said<T> = (&'static str, Option<T>);

/// What a request says in the fields of [`WISHES`]; those that mean the same stand together.
pub(in crate::http) struct Wishes {
    pub(in crate::http) uses: [Said<Use>; 4],
    pub(in crate::http) lengths: [Said<NonZeroUsize>; 3],
    pub(in crate::http) form: Said<DenseFormat>,
    /// What dense vectors consist of.
    pub(in crate::http) types: [Said<OutputType>; 5],
    pub(in crate::http) truncate: Option<Truncate>,
    pub(in crate::http) truncation: Option<bool>,
}

impl Wishes {
    /// What the texts are used for, and the field that says so.
    pub(in crate::http) fn input_type(&self) -> Result<Option<(&'static str, Use)>, ApiError> {
        agreed(&self.uses)
    }

    /// Floats of a dense vector.
    pub(in crate::http) fn dimensions(&self) -> Result<Option<usize>, ApiError> {
        Ok(agreed(&self.lengths)?.map(|(_, length)| length.get()))
    }

    /// How dense vectors are written, and the field that says so. Of the types of their numbers,
    /// only base64 says so: with "float" the numbers of base64 are meant too.
    pub(in crate::http) fn dense_format(
        &self,
    ) -> Result<Option<(&'static str, DenseFormat)>, ApiError> {
        let packed = agreed(&self.types)?.filter(|(_, asked)| *asked == OutputType::Base64);
        match packed {
            Some((name, _)) => agreed(&[self.form, (name, Some(DenseFormat::Base64))]),
            None => agreed(&[self.form]),
        }
    }

    /// What dense vectors consist of; refuses what the model has no ranges for.
    pub(in crate::http) fn numbers(
        &self,
        service: &EmbeddingService,
    ) -> Result<NumberType, ApiError> {
        let Some((name, asked)) = agreed(&self.types)? else { return Ok(NumberType::default()) };
        let (numbers, card) = (asked.numbers(), service.model_card());
        let Some(card) = card.filter(|_| numbers.needs_ranges()) else { return Ok(numbers) };
        let length = self.dimensions()?.unwrap_or(card.hidden_size);
        let known = card.small_vectors.iter().map(|ranges| ranges.mean.len());
        // Of a length that the model does not have, the service tells those that it has.
        if known.clone().any(|one| one == length) || !card.dimensions().contains(&length) {
            return Ok(numbers);
        }
        let lengths: Vec<String> = known.map(|length| length.to_string()).collect();
        let message = if lengths.is_empty() {
            format!(
                "{name} must be \"float\" or \"float16\" here, or left out: this model has no \
                 ranges for bytes and bits; make them of the floats yourself"
            )
        } else {
            format!(
                "this model has bytes and bits for vectors of {} numbers only; ask for that \
                 length, or send {name} \"float\" or \"float16\"",
                lengths.join(" or ")
            )
        };
        Err(ApiError::of(Code::InvalidValue, name, message))
    }

    /// What is done with items that are too long.
    pub(in crate::http) fn over_long(&self, config: &HttpConfig) -> Result<OverLong, ApiError> {
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
        let is_cut = truncate.map_or(by_default, |(_, truncate)| truncate);
        Ok(if is_cut { OverLong::Truncate } else { OverLong::Refuse })
    }

    /// The fields that the client sent, for refusals.
    pub(in crate::http) fn names(&self) -> FieldNames {
        let names = FieldNames::default();
        FieldNames {
            length: first_said(&self.lengths).unwrap_or(names.length),
            prompt: first_said(&self.uses).unwrap_or(names.prompt),
            ..names
        }
    }
}

fn first_said<T>(fields: &[Said<T>]) -> Option<&'static str> {
    fields.iter().find(|(_, value)| value.is_some()).map(|(name, _)| *name)
}
