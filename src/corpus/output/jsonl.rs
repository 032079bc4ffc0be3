//! JSON lines: an object for each row that was embedded, or for each of its chunks.

use std::io::{self, Write};

use arrow_array::ArrayRef;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::PartContent;
use crate::corpus::kept;
use crate::corpus::window::kept_rows;
use crate::service::EmbeddedItem;
use crate::service::chunking::TextChunk;

pub(super) fn write(part: &PartContent<'_>, out: &mut impl Write) -> io::Result<()> {
    let places: Vec<usize> = part.embedded().map(|(place, _)| place).collect();
    let kept = kept_rows(part.window, &places).map_err(io::Error::other)?;
    for (at, (place, item)) in part.embedded().enumerate() {
        let row = part.window.first_row + place as u64;
        serde_json::to_writer(&mut *out, &OutputLine { part, kept: &kept, at, row, item })?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

struct OutputLine<'a> {
    part: &'a PartContent<'a>,
    kept: &'a [ArrayRef],
    /// Its place in the kept columns.
    at: usize,
    row: u64,
    item: &'a EmbeddedItem,
}

impl Serialize for OutputLine<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let Self { part, kept, at, row, item } = self;
        let mut map = json.serialize_map(None)?;
        map.serialize_entry("row", row)?;
        for (name, column) in part.kept.iter().zip(*kept) {
            map.serialize_entry(name, &kept::json(column, *at))?;
        }
        if let Some(TextChunk { span, window, .. }) = item.chunk {
            map.serialize_entry("chunk_start", &span.start)?;
            map.serialize_entry("chunk_end", &span.end)?;
            if let Some(window) = window {
                map.serialize_entry("chunk_window", &window)?;
            }
        }
        map.serialize_entry("tokens", &item.tokens)?;
        if let Some(tokens) = item.truncated_from {
            map.serialize_entry("truncated_from", &tokens)?;
        }
        if part.recipe.vectors.dense() {
            map.serialize_entry("dense", &part.recipe.numbers(&item.dense))?;
        }
        if part.recipe.vectors.sparse() {
            map.serialize_entry("sparse_indices", &item.sparse.indices)?;
            map.serialize_entry("sparse_values", &item.sparse.values)?;
        }
        map.end()
    }
}
