//! What tests of several crates share: seeds, the loop of fuzz targets, and what lies in the
//! repository for them.
//!
//! `DUOVEC_FUZZ_SECONDS` is how long each random test runs, and `DUOVEC_SEED` repeats one run.

use std::env;
use std::str::FromStr;

use serde_json::Value;

mod fuzz;
mod repository;
mod seeds;

pub use fuzz::{damage, pick, run_for};
pub use repository::{check_table, copy_of, default_package, files, in_code, table, text_of, tiny};
pub use seeds::Seeds;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let value = text.parse().ok();
    assert!(value.is_some(), "{name} is '{text}': set a number, or leave it out");
    value
}

/// An object with more fields, also within its own objects; all else gives way to what is new.
pub fn joined(mut own: Value, more: &Value) -> Value {
    let (Some(fields), Some(more)) = (own.as_object_mut(), more.as_object()) else {
        return more.clone();
    };
    for (key, value) in more {
        let before = fields.get_mut(key).map_or(Value::Null, Value::take);
        fields.insert(key.clone(), joined(before, value));
    }
    own
}

/// The rows of a table of cases: a line each, with `|` between its cells.
///
/// # Panics
/// When a row has another number of cells.
pub fn rows<const CELLS: usize>(table: &str) -> Vec<[&str; CELLS]> {
    let row = |line| -> [&str; CELLS] {
        let cells: Vec<&str> = str::split(line, '|').map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{CELLS} cells are wanted: {line}"))
    };
    table.trim().lines().map(row).collect()
}
