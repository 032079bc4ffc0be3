//! The fields `chunking` and `late_chunking`: where texts are cut, and how their chunks run.

use std::fmt;
use std::num::NonZeroUsize;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_path_to_error::{Path, Segment};

use super::input;
use super::words::{LONGEST_WORD, WHOLE_NUMBER, scalar};
use crate::http::error::{ApiError, Code};
use crate::service::chunking::{ChunkBy, Chunking};
use model::tokenize::Span;
use settings::HttpConfig;
use settings::limits::MaxItems;

/// What the field takes.
pub(super) const CHUNKING: &str = "an object with by (\"tokens\" or \"sentences\" or \"spans\"), \
                                   with size (and overlap, for tokens) or spans, with late, \
                                   and nothing else";

/// How texts are cut into chunks, each with vectors of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ChunkingField {
    /// Where texts are cut.
    #[serde(default, deserialize_with = "scalar")]
    by: Option<By>,
    /// The most tokens of a chunk; not for spans.
    #[serde(default, deserialize_with = "scalar")]
    size: Option<NonZeroUsize>,
    /// How many of a chunk's tokens the next one has too; only for tokens, and below the size.
    #[serde(default, deserialize_with = "scalar")]
    overlap: Option<usize>,
    /// Where chunks stand in the text, or in each of several; only for spans.
    spans: Option<GivenSpans>,
    /// Whether chunks are pooled out of the run of their whole text.
    #[serde(default, deserialize_with = "scalar")]
    late: Option<bool>,
}

/// What ends a chunk.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum By {
    Tokens,
    Sentences,
    Spans,
}

/// Spans of one text, or a list of them for each text.
#[derive(Debug)]
enum GivenSpans {
    OfOne(Vec<Span>),
    OfEach(Vec<Vec<Span>>),
}

/// What a list within `spans` may hold.
enum Entry {
    Number(usize),
    Span(Span),
    Spans(Vec<Span>),
    Lists(Vec<Vec<Span>>),
}

impl<'de> Deserialize<'de> for GivenSpans {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        match Entry::deserialize(json)? {
            Entry::Spans(spans) => Ok(Self::OfOne(spans)),
            Entry::Lists(lists) => Ok(Self::OfEach(lists)),
            Entry::Number(_) | Entry::Span(_) => Err(D::Error::custom("no list of spans")),
        }
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Known;
        impl<'de> Visitor<'de> for Known {
            type Value = Entry;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("spans")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Entry, E> {
                Ok(Entry::Number(usize::try_from(number).unwrap_or(usize::MAX)))
            }

            fn visit_i64<E: Error>(self, _number: i64) -> Result<Entry, E> {
                // serde_json calls this for numbers below zero only.
                Err(wrong_span("is below zero; send a character's number, which is from 0"))
            }

            fn visit_f64<E: Error>(self, _number: f64) -> Result<Entry, E> {
                let fault = "has a fraction or an exponent, or is beyond 64 bits; send a \
                             character's number such as 12";
                Err(wrong_span(fault))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entry, A::Error> {
                let wrong = || wrong_span("mixes numbers, spans and lists; send one kind");
                match list.next_element()? {
                    None => Ok(Entry::Spans(Vec::new())),
                    Some(Entry::Number(start)) => {
                        match (list.next_element()?, list.next_element()?) {
                            (Some(Entry::Number(end)), None::<Entry>) => {
                                Ok(Entry::Span(Span { start, end }))
                            }
                            _ => Err(wrong_span("is no span of two numbers such as [0, 12]")),
                        }
                    }
                    Some(Entry::Span(first)) => {
                        let mut spans = vec![first];
                        while let Some(next) = list.next_element()? {
                            let Entry::Span(span) = next else { return Err(wrong()) };
                            input::check_count(spans.len(), "spans")?;
                            spans.push(span);
                        }
                        Ok(Entry::Spans(spans))
                    }
                    Some(Entry::Spans(first)) => {
                        let (mut all, mut lists) = (first.len(), vec![first]);
                        while let Some(next) = list.next_element()? {
                            let Entry::Spans(spans) = next else { return Err(wrong()) };
                            all += spans.len();
                            input::check_count(lists.len().max(all.saturating_sub(1)), "spans")?;
                            lists.push(spans);
                        }
                        Ok(Entry::Lists(lists))
                    }
                    Some(Entry::Lists(_)) => {
                        Err(wrong_span("holds lists of lists of spans; send a list for each text"))
                    }
                }
            }
        }
        json.deserialize_any(Known)
    }
}

fn wrong_span<E: Error>(fault: &str) -> E {
    input::stop(Code::InvalidValue, fault.to_owned())
}

/// Why the field could not be read, which ended at `path` with serde's `error`.
pub(super) fn refusal(path: &Path, error: &str) -> ApiError {
    let takes = |name: &str| TAKES.iter().find(|(known, _)| *known == name);
    let unknown = || Some(error.strip_prefix("unknown field `")?.split_once('`')?.0);
    // What does not look like a field's name is not repeated: it may be anything.
    let is_name = |name: &&str| {
        name.len() <= LONGEST_WORD
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if let Some(name) = unknown().filter(is_name) {
        return wrong(format!("chunking has no field {name}; chunking must be {CHUNKING}"));
    }
    let field = match path.iter().nth(1) {
        Some(Segment::Map { key }) => takes(key),
        _ => None,
    };
    let Some((name, takes)) = field else {
        return wrong(format!("chunking must be {CHUNKING}, or left out"));
    };
    match input::take_fault() {
        Some((code, fault)) => ApiError::of(code, "chunking", format!("{path} {fault}")),
        None if path.iter().len() > 2 => {
            wrong(format!("{path} is neither a number nor a list; chunking.{name} must be {takes}"))
        }
        None => wrong(format!("chunking.{name} must be {takes}")),
    }
}

/// What each field takes.
const TAKES: [(&str, &str); 5] = [
    ("by", "\"tokens\" or \"sentences\" or \"spans\""),
    ("size", WHOLE_NUMBER),
    ("overlap", "a whole number below the size"),
    ("spans", "a list of spans such as [0, 12], or a list of such lists for several texts"),
    ("late", "true or false"),
];

fn wrong(message: String) -> ApiError {
    ApiError::of(Code::InvalidValue, "chunking", message)
}

impl ChunkingField {
    /// What the service is asked for `items` texts.
    pub(super) fn read(self, items: usize, most: MaxItems) -> Result<Chunking, ApiError> {
        let Self { by, size, overlap, spans, late } = self;
        let missing = "chunking.by is missing; send \"tokens\" or \"sentences\" or \"spans\"";
        let by = by.ok_or_else(|| wrong(missing.to_owned()))?;
        let word = match by {
            By::Tokens => "tokens",
            By::Sentences => "sentences",
            By::Spans => "spans",
        };
        let unfit = [
            ("size", size.is_some() && matches!(by, By::Spans)),
            ("overlap", overlap.is_some() && !matches!(by, By::Tokens)),
            ("spans", spans.is_some() && !matches!(by, By::Spans)),
        ];
        if let Some((name, _)) = unfit.into_iter().find(|(_, unfit)| *unfit) {
            let message =
                format!("chunking.{name} does not go with chunks by {word}; leave it out");
            return Err(wrong(message));
        }
        let size = || {
            let missing = "chunking.size is missing; send the most tokens of a chunk";
            size.map(NonZeroUsize::get).ok_or_else(|| wrong(missing.to_owned()))
        };
        let by = match by {
            By::Tokens => {
                let (size, overlap) = (size()?, overlap.unwrap_or(0));
                if overlap >= size {
                    return Err(wrong(format!(
                        "chunking.overlap is {overlap} and chunking.size is {size}: no chunk would \
                         go on behind the one before; send an overlap below the size"
                    )));
                }
                ChunkBy::Tokens { size, overlap }
            }
            By::Sentences => ChunkBy::Sentences { size: size()? },
            By::Spans => ChunkBy::Spans(spans_of(spans, items)?),
        };
        let (late, of_inputs) = (late.unwrap_or(false), false);
        Ok(Chunking { by, late, of_inputs, most: most.as_usize() })
    }
}

/// A list for each text.
fn spans_of(spans: Option<GivenSpans>, items: usize) -> Result<Vec<Vec<Span>>, ApiError> {
    let lists = match spans {
        None => {
            let missing = "chunking.spans is missing; send start and end of each chunk";
            return Err(wrong(missing.to_owned()));
        }
        Some(GivenSpans::OfOne(spans)) if items == 1 => vec![spans],
        Some(GivenSpans::OfOne(_)) => {
            return Err(wrong(format!(
                "chunking.spans is a list of spans, and input has {items} items; send a list of \
                 such lists, one for each item"
            )));
        }
        Some(GivenSpans::OfEach(lists)) => lists,
    };
    let found = lists.len();
    if found != items {
        return Err(wrong(format!(
            "chunking.spans has {found} lists, and input has {items} items; send one list for each \
             item"
        )));
    }
    match lists.iter().position(Vec::is_empty) {
        Some(item) => Err(wrong(format!(
            "chunking.spans has no span for item {item}; send one at least, or leave the item out"
        ))),
        None => Ok(lists),
    }
}

/// What Jina's field asks for: the items, of `bytes` bytes together, are chunks of one text.
pub(super) fn of_inputs(
    bytes: u64,
    has_offsets: bool,
    config: &HttpConfig,
) -> Result<Chunking, ApiError> {
    if has_offsets {
        let message = "late_chunking puts the items together, so that there is no text for offsets \
                       to be places in; send the whole text with chunking by spans";
        return Err(ApiError::of(Code::InvalidValue, "late_chunking", message));
    }
    let limit = config.max_item_bytes;
    if bytes > limit.get() {
        let message = format!(
            "late_chunking makes one text of all items, and a text may have {limit} bytes; send \
             fewer or shorter items in each request, or leave late_chunking out"
        );
        return Err(ApiError::of(Code::ItemTooLarge, "late_chunking", message));
    }
    let (by, most) = (ChunkBy::Spans(Vec::new()), config.max_items.as_usize());
    Ok(Chunking { by, late: true, of_inputs: true, most })
}
