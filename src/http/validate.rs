//! The rules of the fields: what was sent → what the application understands.

use super::error::{ApiError, Code};
use super::payload::{Key, Scalar};
use super::reply::{DenseFormat, Form, SparseFormat};
use crate::clock::Moment;
use crate::config::TruncateDefault;
use crate::service::{EmbedRequest, EmbeddingService, Input, InputType, OverLong, Vectors};
use crate::sparse::Selection;

/// The words of `encoding_format`.
pub(super) const DENSE_FORMATS: &[(&str, DenseFormat)] =
    &[("float", DenseFormat::Float), ("base64", DenseFormat::Base64)];

/// The words of `input_type`.
pub(super) const INPUT_TYPES: &[(&str, InputType)] = &[
    ("query", InputType::Query),
    ("passage", InputType::Passage),
    ("document", InputType::Passage),
];

/// The words of `sparse_format`.
pub(super) const SPARSE_FORMATS: &[(&str, SparseFormat)] = &[
    ("indices", SparseFormat::Indices),
    ("dict", SparseFormat::Dict),
    ("tokens", SparseFormat::Tokens),
    ("pgvector", SparseFormat::PgVector),
];

/// The fields of a request; absent and null are the same.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) input: Option<Vec<Input>>,
    model: Option<String>,
    dense_format: Option<DenseFormat>,
    dimensions: Option<usize>,
    input_type: Option<InputType>,
    truncate: Option<bool>,
    sparse_format: Option<SparseFormat>,
    selection: Selection,
}

impl Fields {
    /// Takes the value of a field other than `input`; refuses one that breaks the field's rule.
    pub(super) fn set(&mut self, key: Key, value: Scalar<'_>) -> Result<(), ApiError> {
        if value == Scalar::Null {
            return Ok(());
        }
        match key {
            Key::Model => self.model = Some(text(key, value)?),
            Key::EncodingFormat => self.dense_format = Some(word(key, &value, DENSE_FORMATS)?),
            Key::Dimensions => self.dimensions = Some(count(key, &value)?),
            Key::InputType => self.input_type = Some(word(key, &value, INPUT_TYPES)?),
            Key::Truncate => {
                let Scalar::Bool(truncate) = value else {
                    return Err(wrong(key, "true or false"));
                };
                self.truncate = Some(truncate);
            }
            Key::SparseFormat => self.sparse_format = Some(word(key, &value, SPARSE_FORMATS)?),
            Key::SparseTopK => self.selection.top_k = Some(count(key, &value)?),
            Key::SparseMinWeight => self.selection.min_weight = Some(weight(key, &value)?),
            Key::Input | Key::User | Key::Unknown => {}
        }
        Ok(())
    }
}

fn wrong(key: Key, expected: &str) -> ApiError {
    let code = match key {
        Key::Dimensions => Code::InvalidDimensions,
        _ => Code::InvalidValue,
    };
    ApiError::of(code, key.name(), format!("{} must be {expected}, or left out", key.name()))
}

fn text(key: Key, value: Scalar<'_>) -> Result<String, ApiError> {
    match value {
        Scalar::Text(text) => Ok(text.into_owned()),
        _ => Err(wrong(key, "a string")),
    }
}

fn word<T: Copy>(key: Key, value: &Scalar<'_>, words: &[(&str, T)]) -> Result<T, ApiError> {
    let Scalar::Text(text) = value else {
        return Err(wrong(key, &one_of(words)));
    };
    let found = words.iter().find(|(name, _)| name == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| wrong(key, &one_of(words)))
}

fn one_of<T>(words: &[(&str, T)]) -> String {
    let names: Vec<String> = words.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    names.join(" or ")
}

fn count(key: Key, value: &Scalar<'_>) -> Result<usize, ApiError> {
    match *value {
        // More than memory can hold means all.
        Scalar::Integer(count @ 1..) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        Scalar::Float(_) => {
            Err(wrong(key, "a whole number above zero, without fraction and exponent (1, not 1.0)"))
        }
        _ => Err(wrong(key, "a whole number above zero")),
    }
}

fn weight(key: Key, value: &Scalar<'_>) -> Result<f32, ApiError> {
    let weight = match *value {
        Scalar::Integer(weight) => weight as f64,
        Scalar::Float(weight) if weight >= 0.0 => weight,
        _ => return Err(wrong(key, "a number, zero or above")),
    };
    // Beyond the largest f32 no weight is kept, as asked for.
    Ok((weight as f32).min(f32::MAX))
}

/// What the server does when a request does not say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) truncate: TruncateDefault,
}

/// Makes the request of the application; refuses one without input or for another model.
///
/// What its headers say, priority and deadline, is still open; the caller sets it.
pub(super) fn validate(
    fields: Fields,
    vectors: Vectors,
    defaults: Defaults,
    service: &EmbeddingService,
) -> Result<(EmbedRequest, Form), ApiError> {
    let Some(inputs) = fields.input else {
        let message = "input is missing; send a text, a list of texts, or token ids";
        return Err(ApiError::of(Code::InvalidInput, "input", message));
    };
    if let Some(model) = &fields.model
        && !service.knows_model(model)
    {
        return Err(unknown_model(service));
    }
    let truncate = fields.truncate.unwrap_or(match defaults.truncate {
        TruncateDefault::Truncate => true,
        TruncateDefault::Refuse => false,
    });
    let request = EmbedRequest {
        inputs,
        vectors,
        input_type: fields.input_type.unwrap_or(InputType::Default),
        over_long: if truncate { OverLong::Truncate } else { OverLong::Refuse },
        dimensions: fields.dimensions,
        selection: fields.selection,
        priority: None,
        deadline: Moment::default(),
    };
    let form = Form {
        dense: fields.dense_format.unwrap_or(DenseFormat::Float),
        sparse: fields.sparse_format.unwrap_or(SparseFormat::Indices),
    };
    Ok((request, form))
}

/// The name is not repeated: it may be anything of any length.
pub(super) fn unknown_model(service: &EmbeddingService) -> ApiError {
    let served = service.model_card().map_or("", |card| &card.id);
    let message = format!(
        "this model is not served here; send \"{served}\", or leave model out (GET /v1/models has \
         the aliases)"
    );
    ApiError::of(Code::ModelNotFound, "model", message)
}
