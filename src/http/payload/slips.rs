//! Slips in the names of fields.
//!
//! A field that nobody reads is passed over, since clients send some that are for other servers. A
//! field whose name has a slip would be passed over, too, and the client would get other vectors
//! without a sign.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Shorter names are near to those of other servers' fields: `top_k` to `top_p`.
const LEAST_LETTERS: usize = 6;

/// Names that clients of other servers send as well, of fields that are sought when they are
/// missing, or that change nothing.
const OF_OTHERS: [&str; 3] = ["inputs", "normalize", "normalized"];

/// So many unknown names of an object are compared with its fields: that takes longer than reading
/// them.
const COMPARED: usize = 16;

/// How the error of a slip begins; behind it comes the field that is meant.
pub(super) const SLIP: &str = "a slip of `";

/// Hands the fields of an object to a struct, and ends with an error at a slip.
pub(super) struct ObjectFields<A>(pub(super) A);

impl<'de, A: MapAccess<'de>> Deserializer<'de> for ObjectFields<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        MapAccessDeserializer::new(self.0).deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_map(NamedFields { map: self.0, known, compared: 0 })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The fields of an object, whose names are looked at.
struct NamedFields<A> {
    map: A,
    /// Those that the struct has.
    known: &'static [&'static str],
    /// Unknown names that were compared so far.
    compared: usize,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for NamedFields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Self { map, known, compared } = self;
        map.next_key_seed(FieldName { seed, known, compared })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// The name of a field.
struct FieldName<'a, K> {
    seed: K,
    known: &'static [&'static str],
    compared: &'a mut usize,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for FieldName<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<K::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for FieldName<'_, K> {
    type Value = K::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<K::Value, E> {
        if !self.known.contains(&name) && *self.compared < COMPARED {
            *self.compared += 1;
            if let Some(field) = meant(name, self.known) {
                return Err(E::custom(format_args!("{SLIP}{field}`")));
            }
        }
        self.seed.deserialize(name.into_deserializer())
    }
}

/// Which field a name is a slip of.
fn meant(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let letters = name.chars().count();
    let near = known.iter().filter_map(|field| {
        let most = (field.len() / 4).min(2);
        let is_compared = field.len() >= LEAST_LETTERS
            && field.len().abs_diff(letters) <= most
            && !OF_OTHERS.contains(field);
        let distance = is_compared.then(|| strsim::osa_distance(name, field))?;
        (distance <= most).then_some((distance, *field))
    });
    near.min().map(|(_, field)| field)
}
