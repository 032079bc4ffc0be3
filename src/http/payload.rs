//! The bytes of a body → the fields of a request, in one pass and without a tree in between.
//!
//! serde's own messages repeat what the client sent. Here the first thing that is wrong leaves an
//! [`ApiError`] in a cell, with the field and the index, and the parser stops.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{self, Deserialize, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::{ApiError, Code};
use super::validate::Fields;
use crate::limits::{MaxItemBytes, MaxItems};

#[cfg(test)]
mod fuzz;
mod input;
mod item_scanner;

pub(super) use item_scanner::ItemScanner;

/// The first thing that was wrong.
#[derive(Default)]
struct Fault(Cell<Option<ApiError>>);

impl Fault {
    /// Leaves `error` and makes serde stop.
    fn stop<E: de::Error>(&self, error: ApiError) -> E {
        self.0.set(Some(error));
        E::custom("refused")
    }
}

/// The value of a field other than `input`; what is inside lists and objects is not kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar<'de> {
    Null,
    Bool(bool),
    /// A number without fraction and exponent.
    Integer(u64),
    Negative,
    /// A number with a fraction or an exponent, or beyond 64 bits.
    Float(f64),
    Text(Cow<'de, str>),
    List,
    Object,
}

/// What `input` may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputLimits {
    pub(super) items: MaxItems,
    /// Of one item.
    pub(super) item_bytes: MaxItemBytes,
}

/// Reads a request whose `input` is within `limits`.
pub(super) fn parse(body: &[u8], limits: InputLimits) -> Result<Fields, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        ApiError::new(Code::InvalidJson, format!("byte {at} of the body is not UTF-8; send UTF-8"))
    })?;
    if text.trim_ascii().is_empty() {
        let message = "the body is empty; send a JSON object such as {\"input\": \"a text\"}";
        return Err(ApiError::new(Code::InvalidJson, message));
    }
    if text.starts_with('\u{feff}') {
        let message = "the body starts with a byte order mark; send UTF-8 without one";
        return Err(ApiError::new(Code::InvalidJson, message));
    }
    let fault = Fault::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = json
        .deserialize_any(RequestVisitor { fault: &fault, limits })
        .and_then(|fields| json.end().map(|()| fields));
    parsed.map_err(|error| fault.0.take().unwrap_or_else(|| malformed(&error)))
}

fn malformed(error: &serde_json::Error) -> ApiError {
    if error.is_data() {
        // Every wrong type is found by a visitor below, except at the top.
        let message = "the body must be one JSON object such as {\"input\": \"a text\"}";
        return ApiError::new(Code::InvalidJson, message);
    }
    ApiError::new(Code::InvalidJson, format!("the body is not valid JSON: {error}"))
}

/// The fields that a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Input,
    Model,
    EncodingFormat,
    Dimensions,
    User,
    InputType,
    Truncate,
    SparseFormat,
    SparseTopK,
    SparseMinWeight,
    Unknown,
}

impl Key {
    /// All but `Unknown`, in the order of the documents.
    pub(super) const KNOWN: [Self; 10] = [
        Self::Input,
        Self::Model,
        Self::EncodingFormat,
        Self::Dimensions,
        Self::User,
        Self::InputType,
        Self::Truncate,
        Self::SparseFormat,
        Self::SparseTopK,
        Self::SparseMinWeight,
    ];

    /// The field's name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Model => "model",
            Self::EncodingFormat => "encoding_format",
            Self::Dimensions => "dimensions",
            Self::User => "user",
            Self::InputType => "input_type",
            Self::Truncate => "truncate",
            Self::SparseFormat => "sparse_format",
            Self::SparseTopK => "sparse_top_k",
            Self::SparseMinWeight => "sparse_min_weight",
            Self::Unknown => "",
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a key")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
                let known = Key::KNOWN.into_iter().find(|key| key.name() == text);
                Ok(known.unwrap_or(Key::Unknown))
            }
        }

        deserializer.deserialize_identifier(KeyVisitor)
    }
}

struct RequestVisitor<'a> {
    fault: &'a Fault,
    limits: InputLimits,
}

impl<'de> Visitor<'de> for RequestVisitor<'_> {
    type Value = Fields;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        let mut seen = [false; Key::KNOWN.len()];
        while let Some(key) = map.next_key::<Key>()? {
            if key == Key::Unknown {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if std::mem::replace(&mut seen[key as usize], true) {
                let message = format!("{} comes twice; send it once", key.name());
                let error = ApiError::of(Code::DuplicateField, key.name(), message);
                return Err(self.fault.stop(error));
            }
            match key {
                Key::Input => {
                    let seed = input::InputSeed { fault: self.fault, limits: self.limits };
                    fields.input = map.next_value_seed(seed)?;
                }
                Key::User => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    let value = map.next_value_seed(ScalarSeed)?;
                    fields.set(key, value).map_err(|error| self.fault.stop(error))?;
                }
            }
        }
        Ok(fields)
    }
}

struct ScalarSeed;

impl<'de> DeserializeSeed<'de> for ScalarSeed {
    type Value = Scalar<'de>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Scalar<'de>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed {
    type Value = Scalar<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Integer(value))
    }

    fn visit_i64<E: de::Error>(self, _value: i64) -> Result<Scalar<'de>, E> {
        // serde_json calls this for numbers below zero only.
        Ok(Scalar::Negative)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Object)
    }
}
