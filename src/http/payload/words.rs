//! The words that fields of a request take, those of other services among them.
//!
//! A client that says what it wants gets it or is told: a word that was passed over would give it
//! other vectors without a sign.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

use super::slips::ObjectFields;
use crate::http::error::{ApiError, Code};
use crate::http::reply::OutputType;
use crate::service::InputType;

/// Bytes of the longest string that a field other than `input` and `model` may hold; serde copies
/// what it refuses.
pub(super) const LONGEST_WORD: usize = 64;

/// The words for what texts are used for, what they mean, and whose they are. Every field that
/// asks for it takes all of them.
pub(in crate::http) const USES: &[(&str, InputType, &str)] = &[
    ("query", InputType::Query, "duovec, NVIDIA NIM, Voyage AI, TEI"),
    ("search_query", InputType::Query, "Cohere, Nomic"),
    ("retrieval.query", InputType::Query, "Jina AI"),
    ("code.query", InputType::Query, "Jina AI"),
    ("RETRIEVAL_QUERY", InputType::Query, "Google"),
    ("CODE_RETRIEVAL_QUERY", InputType::Query, "Google"),
    ("QUESTION_ANSWERING", InputType::Query, "Google"),
    ("FACT_VERIFICATION", InputType::Query, "Google"),
    ("passage", InputType::Passage, "duovec, NVIDIA NIM, TEI"),
    ("document", InputType::Passage, "Voyage AI, TEI"),
    ("search_document", InputType::Passage, "Cohere, Nomic"),
    ("retrieval.passage", InputType::Passage, "Jina AI"),
    ("code.passage", InputType::Passage, "Jina AI"),
    ("RETRIEVAL_DOCUMENT", InputType::Passage, "Google"),
    ("classification", InputType::Other, "Cohere, Jina AI, Nomic"),
    ("clustering", InputType::Other, "Cohere, Jina AI, Nomic"),
    ("separation", InputType::Other, "Jina AI"),
    ("text-matching", InputType::Other, "Jina AI"),
    ("CLASSIFICATION", InputType::Other, "Google"),
    ("CLUSTERING", InputType::Other, "Google"),
    ("SEMANTIC_SIMILARITY", InputType::Other, "Google"),
];

/// What a field takes whose words are those of [`USES`].
pub(in crate::http) const USE: &str =
    "\"query\" or \"passage\", or another service's word for one of them";

/// What a field takes whose number is counted.
pub(in crate::http) const WHOLE_NUMBER: &str =
    "a whole number above zero, within 64 bits, without fraction and exponent (1, not 1.0)";

/// What texts are used for: a word of [`USES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Use(pub(in crate::http) InputType);

impl<'de> Deserialize<'de> for Use {
    fn deserialize<D: Deserializer<'de>>(word: D) -> Result<Self, D::Error> {
        struct Known;
        impl Visitor<'_> for Known {
            type Value = Use;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(USE)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Use, E> {
                let known = USES.iter().find(|(known, ..)| *known == word);
                known.map(|(_, of, _)| Use(*of)).ok_or_else(|| E::custom("no word of the table"))
            }
        }
        word.deserialize_str(Known)
    }
}

/// Whether an over-long item is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(untagged)]
pub(in crate::http) enum Truncate {
    Plain(bool),
    Word(TruncateWord),
}

/// NIM's words: refuse, and cut at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(in crate::http) enum TruncateWord {
    None,
    End,
}

/// Which tokenizer token ids are of: the served model's, or OpenAI's, whose ids stand for a text.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum TokenEncoding {
    Model,
    Cl100kBase,
    O200kBase,
}

/// Where lexical weights come from: a run of the model, or the scores of its tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum LexicalWord {
    Head,
    Table,
}

/// Reads a word, a number or a boolean; null is `None`.
pub(in crate::http) fn scalar<'de, D, T>(json: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    json.deserialize_any(Scalar(PhantomData))
}

/// Hands a plain value to `T` and refuses all others before anything of them is kept.
struct Scalar<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Scalar<T> {
    type Value = Option<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a word, a number or a boolean")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Option<T>, E> {
        if value.len() > LONGEST_WORD {
            return Err(E::custom("longer than every word"));
        }
        T::deserialize(value.into_deserializer()).map(Some)
    }
}

/// Reads an object; null is `None`. serde would take a list of its values for a struct, too.
pub(in crate::http) fn object<'de, D, T>(json: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Option<T>, A::Error> {
            T::deserialize(ObjectFields(fields)).map(Some)
        }
    }
    json.deserialize_any(Object(PhantomData))
}

/// Reads the one type of numbers that a word, or a list with one word, names.
pub(in crate::http) fn one_type<'de, D: Deserializer<'de>>(
    json: D,
) -> Result<Option<OutputType>, D::Error> {
    struct OneType;
    impl<'de> Visitor<'de> for OneType {
        type Value = Option<OutputType>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a word or a list of one word")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
            scalar(word.into_deserializer())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let first = list.next_element_seed(Element)?.flatten();
            match (first, list.next_element_seed(Element)?) {
                (Some(one), None) => Ok(Some(one)),
                _ => Err(A::Error::custom("not one word")),
            }
        }
    }
    json.deserialize_any(OneType)
}

/// A word in a list.
struct Element;

impl<'de> DeserializeSeed<'de> for Element {
    type Value = Option<OutputType>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        scalar(json)
    }
}

/// Reads true; false asks for what cannot be had.
pub(in crate::http) fn only_true<'de, D: Deserializer<'de>>(
    json: D,
) -> Result<Option<bool>, D::Error> {
    match scalar::<D, bool>(json)? {
        Some(false) => Err(D::Error::custom("false")),
        other => Ok(other),
    }
}

/// Reads null; every value asks for what cannot be had.
pub(in crate::http) fn only_null<'de, D: Deserializer<'de>>(
    json: D,
) -> Result<Option<bool>, D::Error> {
    match scalar::<D, bool>(json)? {
        Some(_) => Err(D::Error::custom("a value")),
        None => Ok(None),
    }
}

/// What fields that mean the same say together, and the first of them; refuses those that differ.
pub(in crate::http) fn agreed<T: Copy + PartialEq>(
    fields: &[(&'static str, Option<T>)],
) -> Result<Option<(&'static str, T)>, ApiError> {
    let mut said = fields.iter().filter_map(|(name, value)| value.map(|value| (*name, value)));
    let Some((first, meaning)) = said.next() else { return Ok(None) };
    match said.find(|(_, other)| *other != meaning) {
        None => Ok(Some((first, meaning))),
        Some((other, _)) => {
            let message = format!("{other} and {first} differ and mean the same; send one of them");
            Err(ApiError::of(Code::InvalidValue, other, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::check_table;

    #[test]
    fn the_table_of_words_for_uses_is_that_of_the_program() {
        let row = |(word, of, whose): &(&str, InputType, &str)| {
            let means = match of {
                InputType::Query => "`\"query\"`",
                InputType::Passage => "`\"passage\"`",
                InputType::Default | InputType::Other | InputType::Ranking => "another use",
            };
            format!("| `\"{word}\"` | {means} | {whose} |")
        };
        check_table("docs/api.md", "| word |", &USES.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn each_word_stands_once_in_the_table() {
        let mut words: Vec<&str> = USES.iter().map(|(word, ..)| *word).collect();
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{words:?}");
    }
}
