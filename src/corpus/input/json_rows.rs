//! JSON lines: an object with a text in one of its fields, or a text alone.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::bytes::Lines;
use super::named;
use super::{CHUNK_ROWS, Columns, CorpusError, InputRecord, Records, utf8};

pub(super) struct JsonRows {
    path: PathBuf,
    lines: Lines,
    columns: Columns,
    rows: usize,
    /// The names of the columns that no row had so far.
    unseen: Vec<String>,
    /// The fields of the first object.
    first: Vec<String>,
}

impl JsonRows {
    pub(super) fn new(path: &Path, lines: Lines, columns: &Columns) -> Self {
        let mut unseen = vec![columns.text.clone()];
        unseen.extend(columns.kept.iter().cloned());
        let (path, columns) = (path.to_owned(), columns.clone());
        Self { path, lines, columns, rows: 0, unseen, first: Vec::new() }
    }

    /// A name that is wrong for every row is a mistake of the command, not of the rows.
    fn check_names(&self) -> Result<(), CorpusError> {
        let Some(name) = self.unseen.first().filter(|_| self.rows > 0) else { return Ok(()) };
        let problem = format!(
            "none of its first {} rows has a field `{name}`; the fields of the first are {}",
            self.rows,
            named(&self.first)
        );
        Err(CorpusError::input(&self.path, problem))
    }

    fn record(&mut self, line: Result<Value, String>) -> InputRecord {
        let kept = self.columns.kept.len();
        let nothing = vec![Value::Null; kept];
        let (text, kept) = match line {
            Err(reason) => (Err(reason), nothing),
            Ok(Value::String(text)) => {
                self.unseen.retain(|name| *name != self.columns.text);
                (Ok(text), nothing)
            }
            Ok(Value::Object(fields)) => self.fields(fields),
            Ok(_) => (Err("the line is neither an object nor a text".to_owned()), nothing),
        };
        InputRecord { number: self.lines.number(), text, kept }
    }

    fn fields(&mut self, mut fields: Map<String, Value>) -> (Result<String, String>, Vec<Value>) {
        if self.first.is_empty() {
            self.first = fields.keys().cloned().collect();
        }
        self.unseen.retain(|name| !fields.contains_key(name));
        let value = |name: &String| fields.get(name).cloned().unwrap_or_default();
        let kept = self.columns.kept.iter().map(value).collect();
        let name = &self.columns.text;
        let text = match fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            None => Err(format!("there is no field `{name}`")),
            Some(other) => Err(format!("the field `{name}` is {}, not a text", kind(&other))),
        };
        (text, kept)
    }
}

impl Records for JsonRows {
    fn next(&mut self) -> Result<Option<InputRecord>, CorpusError> {
        loop {
            let line = self.lines.next().map_err(|error| CorpusError::input(&self.path, error))?;
            let Some(line) = line else {
                self.check_names()?;
                return Ok(None);
            };
            let value = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => utf8(line).and_then(|line| {
                    parse(line, &self.columns).map_err(|error| {
                        // It says line 1, whichever line of the file this is.
                        let said = error.to_string().replace(" at line 1 ", " at ");
                        format!("the line is not valid JSON: {said}")
                    })
                }),
                Err(reason) => Err(reason),
            };
            let record = self.record(value);
            self.rows += 1;
            if self.rows == CHUNK_ROWS {
                self.check_names()?;
            }
            return Ok(Some(record));
        }
    }

    fn position(&self) -> u64 {
        self.lines.position()
    }
}

/// Reads a line. JSON's reader makes floats of whole numbers beyond 64 bits, which are hashes as a
/// rule, and gives one float in ten to its neighbour. Kept ones are read once more: they become
/// texts of their digits, and the nearest floats.
fn parse(line: &str, columns: &Columns) -> serde_json::Result<Value> {
    let mut value: Value = serde_json::from_str(line)?;
    let is_float = |name: &&String| value.get(*name).is_some_and(Value::is_f64);
    let kept = columns.kept.iter().filter(|name| **name != columns.text);
    let floats: Vec<&String> = kept.filter(is_float).collect();
    if floats.is_empty() {
        return Ok(value);
    }
    let written: HashMap<String, &RawValue> = serde_json::from_str(line)?;
    for name in floats {
        // Absent where the line's one name is the reader's own mark of raw text: the value is then
        // what that text holds.
        let Some(digits) = written.get(name).map(|raw| raw.get()) else { continue };
        value[name] = match digits.parse::<f64>() {
            Ok(float) if float.abs() < i64::MAX as f64 => float.into(),
            Ok(float) if digits.contains(['.', 'e', 'E']) => float.into(),
            _ => digits.into(),
        };
    }
    Ok(value)
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
