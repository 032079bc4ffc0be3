//! The field `input`: a text, texts, token ids, or lists of token ids; never a mixture.

use std::fmt;

use serde::de::{self, DeserializeSeed, SeqAccess, Visitor};

use super::{Fault, InputLimits};
use crate::http::error::{ApiError, Code, token_id_advice};
use crate::service::Input;

/// Bytes of a token id in memory.
const ID_BYTES: usize = size_of::<u32>();

const SHAPES: &str =
    "a text, a list of texts, a list of token ids, or a list of lists of token ids";

/// Where in `input` a value stands, for messages.
#[derive(Debug, Clone, Copy)]
enum Place {
    Whole,
    At(usize),
    Within(usize, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => formatter.write_str("input"),
            Self::At(index) => write!(formatter, "input[{index}]"),
            Self::Within(index, position) => write!(formatter, "input[{index}][{position}]"),
        }
    }
}

/// Reads `input`; null gives no items, like an absent field.
pub(super) struct InputSeed<'a> {
    pub(super) fault: &'a Fault,
    pub(super) limits: InputLimits,
}

impl<'de> DeserializeSeed<'de> for InputSeed<'_> {
    type Value = Option<Vec<Input>>;

    fn deserialize<D: de::Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        let seed = ValueSeed { fault: self.fault, place: Place::Whole, limits: self.limits };
        Ok(match json.deserialize_any(seed)? {
            Value::Null => None,
            Value::Text(text) => Some(vec![Input::Text(text)]),
            Value::Id(_) => return Err(wrong(self.fault, Place::Whole, "a number", SHAPES)),
            Value::Ids(ids) => Some(vec![Input::TokenIds(ids)]),
            Value::Items(items) => Some(items),
        })
    }
}

/// One value at any depth of `input`.
enum Value {
    Null,
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
    Items(Vec<Input>),
}

impl Value {
    const fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text(_) => "a text",
            Self::Id(_) => "a token id",
            Self::Ids(_) | Self::Items(_) => "a list",
        }
    }
}

#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    fault: &'a Fault,
    place: Place,
    limits: InputLimits,
}

fn refuse<E: de::Error>(fault: &Fault, message: String) -> E {
    fault.stop(ApiError::of(Code::InvalidInput, "input", message))
}

fn wrong<E: de::Error>(fault: &Fault, place: Place, found: &str, expected: &str) -> E {
    refuse(fault, format!("{place} is {found}; send {expected}"))
}

/// Refuses the item at `index` for its size.
pub(super) fn too_large(index: usize, limits: InputLimits) -> ApiError {
    let limit = limits.item_bytes;
    let ids = limit.get() / ID_BYTES as u64;
    let message = format!(
        "item {index} is too large; an item may have {limit} bytes of text, or {ids} token ids: \
         split it, or send its beginning"
    );
    ApiError::of(Code::ItemTooLarge, "input", message)
}

impl ValueSeed<'_> {
    /// What may stand at this place.
    const fn expected(&self) -> &'static str {
        match self.place {
            Place::Whole => SHAPES,
            Place::At(_) => "a text, a token id, or a list of token ids",
            Place::Within(..) => "a token id, a whole number such as 17",
        }
    }

    fn wrong<E: de::Error>(&self, found: &str) -> E {
        wrong(self.fault, self.place, found, self.expected())
    }

    /// The element at `index` of the list at this place.
    const fn element(&self, index: usize) -> Self {
        let place = match self.place {
            Place::Whole => Place::At(index),
            Place::At(item) | Place::Within(item, _) => Place::Within(item, index),
        };
        Self { place, ..*self }
    }

    fn too_many<E: de::Error>(&self) -> E {
        let max_items = self.limits.items;
        let message = format!("input has more than {max_items} items; split it into more requests");
        self.fault.stop(ApiError::of(Code::TooManyItems, "input", message))
    }

    /// Refuses an item of `bytes` bytes in memory when one may not be so large.
    fn check_size<E: de::Error>(&self, bytes: usize) -> Result<(), E> {
        let limit = self.limits.item_bytes;
        if bytes <= limit.as_usize() {
            return Ok(());
        }
        let index = match self.place {
            Place::Whole => 0,
            Place::At(index) | Place::Within(index, _) => index,
        };
        Err(self.fault.stop(too_large(index, self.limits)))
    }

    /// The rest of a list of token ids.
    fn ids<'de, A: SeqAccess<'de>>(self, first: u32, mut seq: A) -> Result<Vec<u32>, A::Error> {
        let mut ids = vec![first];
        while let Some(value) = seq.next_element_seed(self.element(ids.len()))? {
            match value {
                Value::Id(id) => {
                    self.check_size((ids.len() + 1) * ID_BYTES)?;
                    ids.push(id);
                }
                other => return Err(self.mixed(ids.len(), &other, "a token id")),
            }
        }
        Ok(ids)
    }

    /// The rest of a list of texts or of lists of token ids.
    fn items<'de, A: SeqAccess<'de>>(
        self,
        first: Input,
        mut seq: A,
    ) -> Result<Vec<Input>, A::Error> {
        let mut items = vec![first];
        while let Some(value) = seq.next_element_seed(self.element(items.len()))? {
            let item = match (value, &items[0]) {
                (Value::Text(text), Input::Text(_)) => Input::Text(text),
                (Value::Ids(ids), Input::TokenIds(_)) => Input::TokenIds(ids),
                (other, Input::Text(_)) => return Err(self.mixed(items.len(), &other, "a text")),
                (other, Input::TokenIds(_)) => {
                    return Err(self.mixed(items.len(), &other, "a list of token ids"));
                }
            };
            if items.len() >= self.limits.items.as_usize() {
                return Err(self.too_many());
            }
            items.push(item);
        }
        Ok(items)
    }

    fn mixed<E: de::Error>(&self, index: usize, found: &Value, first: &str) -> E {
        let (place, found) = (self.element(index).place, found.name());
        let start = self.element(0).place;
        let message = format!("{place} is {found} and {start} is {first}; send items of one type");
        refuse(self.fault, message)
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        match self.place {
            Place::Whole => Ok(Value::Null),
            Place::At(_) | Place::Within(..) => Err(self.wrong("null")),
        }
    }

    fn visit_bool<E: de::Error>(self, _value: bool) -> Result<Value, E> {
        Err(self.wrong("a boolean"))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        if matches!(self.place, Place::Whole) {
            return Err(self.wrong("a number"));
        }
        u32::try_from(value).map(Value::Id).map_err(|_| {
            let advice = token_id_advice();
            let message = format!("{} is larger than every token id; {advice}", self.place);
            self.fault.stop(ApiError::of(Code::TokenIdOutOfRange, "input", message))
        })
    }

    fn visit_i64<E: de::Error>(self, _value: i64) -> Result<Value, E> {
        Err(self.wrong("a number below zero"))
    }

    fn visit_f64<E: de::Error>(self, _value: f64) -> Result<Value, E> {
        Err(self.wrong("a number with a fraction or an exponent, or beyond 64 bits"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        match self.place {
            Place::Within(..) => Err(self.wrong("a text")),
            Place::Whole | Place::At(_) => {
                self.check_size(text.len())?;
                Ok(Value::Text(text.to_owned()))
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        if matches!(self.place, Place::Within(..)) {
            return Err(self.wrong("a list"));
        }
        let whole = matches!(self.place, Place::Whole);
        Ok(match seq.next_element_seed(self.element(0))? {
            None if whole => {
                return Err(refuse(self.fault, "input is an empty list; send an item".to_owned()));
            }
            // Like an empty text: only the special tokens are run.
            None => Value::Ids(Vec::new()),
            Some(Value::Id(first)) => Value::Ids(self.ids(first, seq)?),
            Some(Value::Text(text)) => Value::Items(self.items(Input::Text(text), seq)?),
            Some(Value::Ids(ids)) => Value::Items(self.items(Input::TokenIds(ids), seq)?),
            Some(other @ (Value::Null | Value::Items(_))) => return Err(self.wrong(other.name())),
        })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, _map: A) -> Result<Value, A::Error> {
        Err(self.wrong("an object"))
    }
}
