//! The field `input`: a text, texts, token ids, or lists of token ids; never a mixture.
//!
//! A visitor of its own reads it, so that its limits hold while it is read: nothing beyond them is
//! ever in memory. Texts are parts of the body, which then stays in memory until the last of them
//! is dropped. A text with escapes such as `\n` has to be copied. In that case all texts are
//! copied, so that a request keeps either its body or its texts.

use std::cell::{Cell, RefCell};
use std::fmt;

use actix_web::web::BytesMut;
use bytestring::ByteString;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_path_to_error::{Path, Segment};

use crate::http::error::{ApiError, Code, token_id_advice};
use crate::service::Input;
use settings::limits::{MaxItemBytes, MaxItems};

/// The field of one text that is compared with all others, which have numbers.
const QUERY: &str = "query";

/// Bytes of a token id in memory.
const ID_BYTES: usize = size_of::<u32>();

/// What `input` may hold.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct InputLimits {
    pub(in crate::http) items: MaxItems,
    /// Of one item.
    pub(in crate::http) item_bytes: MaxItemBytes,
}

// serde's derive hands nothing to the visitor of a field, and takes nothing from it but a text.
thread_local! {
    /// The body that this thread reads.
    static SOURCE: RefCell<Option<BodySource>> = const { RefCell::new(None) };
}

/// A body that is being read.
struct BodySource {
    body: ByteString,
    /// What the field is, for messages. It names "text", "token id" or both, and takes no other.
    takes: &'static str,
    limits: InputLimits,
    /// Room for copies of texts.
    room: RefCell<BytesMut>,
    /// Whether a text was copied.
    copied: Cell<bool>,
    /// Why [`read`] stopped, as the end of a sentence; where is known to the one who called serde.
    fault: Cell<Option<(Code, String)>>,
}

/// Runs `work`, in which [`read`] takes what is within `limits` out of `body`. Messages say what
/// the field `takes`.
pub(super) fn within<T>(
    body: &ByteString,
    takes: &'static str,
    room: BytesMut,
    limits: InputLimits,
    work: impl FnOnce() -> T,
) -> T {
    /// However `work` ends, the thread does not keep the body.
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            SOURCE.take();
        }
    }
    let _clear = Clear;
    let (body, room) = (body.clone(), RefCell::new(room));
    let (copied, fault) = (Cell::default(), Cell::default());
    SOURCE.set(Some(BodySource { body, takes, limits, room, copied, fault }));
    work()
}

fn with_source<T>(work: impl FnOnce(&BodySource) -> T) -> T {
    SOURCE.with_borrow(|source| work(source.as_ref().expect("bodies are read in `within`")))
}

/// Reads `input`; null gives no items, like an absent field.
pub(in crate::http) fn read<'de, D: Deserializer<'de>>(json: D) -> Result<Vec<Input>, D::Error> {
    read_as(json, Position::Whole, false)
}

/// Reads what [`read`] reads, and objects in the place of texts, whose `text` is taken.
pub(in crate::http) fn read_documents<'de, D: Deserializer<'de>>(
    json: D,
) -> Result<Vec<Input>, D::Error> {
    read_as(json, Position::Whole, true)
}

/// Reads one text, or an object whose `text` is taken; null gives none.
pub(in crate::http) fn read_query<'de, D: Deserializer<'de>>(
    json: D,
) -> Result<Vec<Input>, D::Error> {
    read_as(json, Position::Only, true)
}

fn read_as<'de, D: Deserializer<'de>>(
    json: D,
    position: Position,
    objects: bool,
) -> Result<Vec<Input>, D::Error> {
    with_source(|source| {
        let mut items = match json.deserialize_any(InputSeed { position, objects, source })? {
            Found::Items(items) => items,
            Found::Item(item) => vec![item],
            Found::Id(id) => vec![Input::TokenIds(vec![id])],
        };
        source.copy_others(&mut items);
        Ok(items)
    })
}

/// Copies texts of a body with several such fields when those of another one had to be copied.
pub(in crate::http) fn settle(items: &mut [Input]) {
    with_source(|source| source.copy_others(items));
}

/// Why [`read`] stopped at `path`, in a field with what it takes.
pub(super) fn refusal(path: &Path, (name, takes): (&'static str, &'static str)) -> ApiError {
    let (limits, fault) = with_source(|source| (source.limits, source.fault.take()));
    let (code, fault) = fault.unwrap_or_else(|| (Code::InvalidInput, format!("must be {takes}")));
    match (code, path.iter().nth(1)) {
        (Code::ItemTooLarge, Some(Segment::Seq { index })) => too_large(*index, limits, name),
        (Code::ItemTooLarge, _) if name == QUERY => is_too_large(QUERY, limits, name),
        // Texts in fields of an object have no number among all.
        (Code::ItemTooLarge, Some(Segment::Map { .. })) => {
            is_too_large(&path.to_string(), limits, name)
        }
        (Code::ItemTooLarge, _) => too_large(0, limits, name),
        // The only key of an object that is read.
        _ => ApiError::of(code, name, format!("{path} {fault}").replacen(".?", ".text", 1)),
    }
}

/// Whether one of these functions refused what it read.
pub(super) fn has_fault() -> bool {
    with_source(|source| {
        let fault = source.fault.take();
        let has_fault = fault.is_some();
        source.fault.set(fault);
        has_fault
    })
}

/// Why a field was refused while it was read, as the end of a sentence.
pub(super) fn take_fault() -> Option<(Code, String)> {
    with_source(|source| source.fault.take())
}

/// Refuses a value; `fault` is the end of a sentence.
pub(super) fn stop<E: Error>(code: Code, fault: String) -> E {
    with_source(|source| source.stop(code, fault))
}

/// Refuses one more of `what` than a request may have items.
pub(super) fn check_count<E: Error>(read: usize, what: &str) -> Result<(), E> {
    with_source(|source| {
        let most = source.limits.items;
        if read < most.as_usize() {
            return Ok(());
        }
        let fault = format!("has more than {most} {what}; split the request");
        Err(source.stop(Code::TooManyItems, fault))
    })
}

/// Refuses the item at `index` of the field `name` for its size.
pub(super) fn too_large(index: usize, limits: InputLimits, name: &'static str) -> ApiError {
    is_too_large(&format!("item {index}"), limits, name)
}

fn is_too_large(what: &str, limits: InputLimits, name: &'static str) -> ApiError {
    let limit = limits.item_bytes;
    let ids = limit.get() / ID_BYTES as u64;
    let message = format!(
        "{what} is too large; an item may have {limit} bytes of text, or {ids} token ids: split \
         it, or send its beginning"
    );
    ApiError::of(Code::ItemTooLarge, name, message)
}

impl BodySource {
    fn stop<E: Error>(&self, code: Code, fault: String) -> E {
        self.fault.set(Some((code, fault)));
        E::custom("refused")
    }

    /// A copy of a text. All copies lie in one piece of memory, which the system fills only as far
    /// as they need it.
    fn copy(&self, text: &str) -> ByteString {
        let mut room = self.room.borrow_mut();
        if !self.copied.replace(true) {
            // No text is longer than it is in JSON: this is enough for all.
            room.reserve(self.body.len());
        }
        room.extend_from_slice(text.as_bytes());
        ByteString::try_from(room.split().freeze()).expect("it is a text")
    }

    /// Copies the texts that are parts of the body when others had to be copied.
    fn copy_others(&self, items: &mut [Input]) {
        if !self.copied.get() {
            return;
        }
        let body = self.body.as_bytes().as_ptr_range();
        for item in items {
            if let Input::Text(text) = item
                && body.contains(&text.as_ptr())
            {
                *text = self.copy(text);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Id,
    Ids,
}

/// Where in `input` a value stands.
#[derive(Clone, Copy)]
enum Position {
    Whole,
    /// It is no list.
    Only,
    /// The text of an object.
    Text,
    /// The first of a list: it says what the others must be.
    First,
    Next(Kind),
    /// In a list of token ids that is in a list.
    Within,
}

/// A value that is about to be read.
#[derive(Clone, Copy)]
struct InputSeed<'a> {
    position: Position,
    /// Whether an object with a text may stand for a text.
    objects: bool,
    source: &'a BodySource,
}

/// A field of an object that stands for a text.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum DocumentField {
    Text,
    #[serde(other)]
    Other,
}

enum Found {
    Id(u32),
    Item(Input),
    Items(Vec<Input>),
}

impl InputSeed<'_> {
    fn wrong<E: Error>(self, found: &str) -> E {
        let expected = match self.position {
            Position::Whole => self.source.takes,
            Position::Only | Position::Text => "a text",
            Position::First | Position::Next(_) if self.objects => "a text or an object with text",
            Position::First if !self.takes(Kind::Id) => "a text",
            Position::First if !self.takes(Kind::Text) => "a token id, or a list of token ids",
            Position::First => "a text, a token id, or a list of token ids",
            Position::Next(Kind::Text) => "a text",
            Position::Next(Kind::Ids) => "a list of token ids",
            Position::Next(Kind::Id) | Position::Within => "a token id, a whole number such as 17",
        };
        self.source.stop(Code::InvalidInput, format!("is {found}; send {expected}"))
    }

    /// Whether the field may hold this: what it takes names the kinds.
    fn takes(self, kind: Kind) -> bool {
        self.source.takes.contains(if kind == Kind::Text { "text" } else { "token id" })
    }

    /// Refuses what may not stand at this position.
    fn check<E: Error>(self, kind: Kind) -> Result<(), E> {
        let name = |kind| match kind {
            Kind::Text => "a text",
            Kind::Id => "a token id",
            Kind::Ids => "a list",
        };
        match self.position {
            Position::Whole | Position::Only | Position::Text if kind == Kind::Id => {
                Err(self.wrong("a number"))
            }
            Position::Whole if kind == Kind::Text && !self.takes(kind) => {
                Err(self.wrong(name(kind)))
            }
            Position::First if !self.takes(kind) => Err(self.wrong(name(kind))),
            Position::Within if kind != Kind::Id => Err(self.wrong(name(kind))),
            Position::Only | Position::Text if kind != Kind::Text => Err(self.wrong(name(kind))),
            Position::Next(first) if kind != first => {
                let (found, first) = (name(kind), name(first));
                let message =
                    format!("is {found} and the first item is {first}; send items of one type");
                Err(self.source.stop(Code::InvalidInput, message))
            }
            Position::Whole
            | Position::Only
            | Position::Text
            | Position::First
            | Position::Next(_)
            | Position::Within => Ok(()),
        }
    }

    /// Refuses an item of `bytes` bytes in memory when one may not be so large.
    fn check_size<E: Error>(self, bytes: usize) -> Result<(), E> {
        if bytes <= self.source.limits.item_bytes.as_usize() {
            return Ok(());
        }
        Err(self.source.stop(Code::ItemTooLarge, String::new()))
    }

    /// The token ids of a list, behind those of it that were read.
    fn ids<'de, A: SeqAccess<'de>>(
        self,
        mut ids: Vec<u32>,
        mut list: A,
    ) -> Result<Vec<u32>, A::Error> {
        while let Some(Found::Id(id)) = list.next_element_seed(self)? {
            self.check_size((ids.len() + 1) * ID_BYTES)?;
            ids.push(id);
        }
        Ok(ids)
    }

    /// The items of a list of which the first was read.
    fn items<'de, A: SeqAccess<'de>>(
        self,
        first: Input,
        mut list: A,
    ) -> Result<Vec<Input>, A::Error> {
        let mut items = vec![first];
        while let Some(Found::Item(item)) = list.next_element_seed(self)? {
            let most = self.source.limits.items;
            if items.len() >= most.as_usize() {
                let fault = format!(
                    "has more than {most} items, the server's --max-items; split it into more \
                     requests"
                );
                return Err(self.source.stop(Code::TooManyItems, fault));
            }
            items.push(item);
        }
        Ok(items)
    }
}

impl<'de> DeserializeSeed<'de> for InputSeed<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Found, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for InputSeed<'_> {
    type Value = Found;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.source.takes)
    }

    fn visit_unit<E: Error>(self) -> Result<Found, E> {
        match self.position {
            Position::Whole | Position::Only => Ok(Found::Items(Vec::new())),
            Position::Text | Position::First | Position::Next(_) | Position::Within => {
                Err(self.wrong("null"))
            }
        }
    }

    fn visit_bool<E: Error>(self, _value: bool) -> Result<Found, E> {
        Err(self.wrong("a boolean"))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Found, E> {
        self.check(Kind::Id)?;
        u32::try_from(value).map(Found::Id).map_err(|_| {
            let fault = format!("is larger than every tokenizer's ids; {}", token_id_advice());
            self.source.stop(Code::TokenIdOutOfRange, fault)
        })
    }

    fn visit_i64<E: Error>(self, _value: i64) -> Result<Found, E> {
        // serde_json calls this for numbers below zero only.
        Err(self.wrong("a number below zero"))
    }

    fn visit_f64<E: Error>(self, _value: f64) -> Result<Found, E> {
        Err(self.wrong("a number with a fraction or an exponent, or beyond 64 bits"))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Found, E> {
        self.check(Kind::Text)?;
        self.check_size(text.len())?;
        // serde_json borrows from the body what stands there without escapes.
        Ok(Found::Item(Input::Text(self.source.body.slice_ref(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Found, E> {
        self.check(Kind::Text)?;
        self.check_size(text.len())?;
        Ok(Found::Item(Input::Text(self.source.copy(text))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        self.check(Kind::Ids)?;
        let at = |position| Self { position, ..self };
        if !matches!(self.position, Position::Whole) {
            // An empty list is like an empty text: only the special tokens are run.
            let ids = at(Position::Within).ids(Vec::new(), list)?;
            return Ok(Found::Item(Input::TokenIds(ids)));
        }
        Ok(Found::Items(match list.next_element_seed(at(Position::First))? {
            None => {
                let item = if self.takes(Kind::Id) { "an item" } else { "a text" };
                let fault = format!("is an empty list; send {item}");
                return Err(self.source.stop(Code::InvalidInput, fault));
            }
            Some(Found::Id(first)) => {
                vec![Input::TokenIds(at(Position::Next(Kind::Id)).ids(vec![first], list)?)]
            }
            Some(Found::Item(first @ Input::Text(_))) => {
                at(Position::Next(Kind::Text)).items(first, list)?
            }
            Some(Found::Item(first @ Input::TokenIds(_))) => {
                at(Position::Next(Kind::Ids)).items(first, list)?
            }
            Some(Found::Items(items)) => items,
        }))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        if !self.objects {
            return Err(self.wrong("an object"));
        }
        let mut text = None;
        while let Some(field) = map.next_key()? {
            match field {
                DocumentField::Text if text.is_some() => {
                    let fault = "has text twice; send it once".to_owned();
                    return Err(self.source.stop(Code::DuplicateField, fault));
                }
                DocumentField::Text => {
                    let of_object = Self { position: Position::Text, objects: false, ..self };
                    text = Some(map.next_value_seed(of_object)?);
                }
                DocumentField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        text.ok_or_else(|| self.wrong("an object without text"))
    }
}
