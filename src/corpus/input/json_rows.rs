//! JSON lines: an object with a text in one of its fields, or a text alone.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::bytes::Lines;
use super::{CHUNK_ROWS, Columns, CorpusError, InputRecord, Records, utf8};
use super::{bare_texts, named};

pub(super) struct JsonRows {
    path: PathBuf,
    lines: Lines,
    columns: Columns,
    rows: usize,
    /// How many of them are JSON.
    read: usize,
    /// Why the first one that could not be read could not.
    first_fault: Option<String>,
    /// The names of the columns that no row had so far.
    unseen: Vec<String>,
    /// The names of all fields of the first object.
    first: Vec<String>,
}

impl JsonRows {
    pub(super) fn new(path: &Path, lines: Lines, columns: &Columns) -> Self {
        let mut unseen = vec![columns.text.clone()];
        unseen.extend(columns.kept.iter().cloned());
        let (path, columns) = (path.to_owned(), columns.clone());
        let (rows, read, first_fault, first) = (0, 0, None, Vec::new());
        Self { path, lines, columns, rows, read, first_fault, unseen, first }
    }

    /// A name that is wrong for every row is a mistake of the command, not of the rows.
    fn check_names(&self) -> Result<(), CorpusError> {
        let Some(name) = self.unseen.first().filter(|_| self.rows > 0) else { return Ok(()) };
        if self.first.is_empty() && !self.unseen.contains(&self.columns.text) {
            return Err(CorpusError::input(&self.path, bare_texts(name)));
        }
        let (rows, read) = (self.rows, self.read);
        let start = match &self.first_fault {
            None => format!("none of its first {rows} rows"),
            Some(_) if read > 0 => {
                format!("of its first {rows} rows {read} could be read, and none of these")
            }
            Some(fault) => {
                let problem =
                    format!("none of its first {rows} rows could be read; of the first, {fault}");
                return Err(CorpusError::input(&self.path, problem));
            }
        };
        let first = named(&self.first);
        let problem = format!("{start} has a field `{name}`; the fields of the first are {first}");
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
                    let line = parse(line, &self.columns, &mut self.first);
                    line.map_err(|error| reason(&error))
                }),
                Err(reason) => Err(reason),
            };
            match &value {
                Ok(_) => self.read += 1,
                Err(fault) => {
                    self.first_fault.get_or_insert_with(|| fault.clone());
                }
            }
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

/// Reads a line: a text, an object with those of its fields that are wanted, or null for whatever
/// is neither. `names` gets the names of all fields if it has none.
///
/// JSON's reader makes floats of whole numbers beyond 64 bits, which are hashes as a rule, and
/// gives one float in ten to its neighbour. Kept ones are read once more: they become texts of
/// their digits, and the nearest floats.
fn parse(line: &str, columns: &Columns, names: &mut Vec<String>) -> serde_json::Result<Value> {
    match line.trim_ascii_start().as_bytes().first() {
        Some(b'"') => return serde_json::from_str(line).map(Value::String),
        Some(b'{') => {}
        _ => return serde_json::from_str::<IgnoredAny>(line).map(|_| Value::Null),
    }
    let mut reader = serde_json::Deserializer::from_str(line);
    let wanted = WantedFields { columns, is_first: names.is_empty() };
    let (mut fields, all) = reader.deserialize_map(wanted)?;
    reader.end()?;
    names.extend(all);
    let is_float = |name: &&String| fields.get(*name).is_some_and(Value::is_f64);
    let kept = columns.kept.iter().filter(|name| **name != columns.text);
    let floats: Vec<&String> = kept.filter(is_float).collect();
    if floats.is_empty() {
        return Ok(fields.into());
    }
    let written: HashMap<String, &RawValue> = serde_json::from_str(line)?;
    for name in floats {
        let digits = written[name].get();
        let number = match digits.parse::<f64>() {
            Ok(float) if float.abs() < i64::MAX as f64 => float.into(),
            Ok(float) if digits.contains(['.', 'e', 'E']) => float.into(),
            _ => digits.into(),
        };
        fields.insert(name.clone(), number);
    }
    Ok(fields.into())
}

/// Reads the fields of an object that are wanted, and of the first object all names. Other fields
/// are passed over, however deeply they are nested.
struct WantedFields<'a> {
    columns: &'a Columns,
    is_first: bool,
}

impl<'de> Visitor<'de> for WantedFields<'_> {
    type Value = (Map<String, Value>, Vec<String>);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let Columns { text, kept } = self.columns;
        let (mut fields, mut names) = (Map::new(), Vec::new());
        while let Some(name) = object.next_key::<String>()? {
            if self.is_first {
                names.push(name.clone());
            }
            if name != *text && !kept.contains(&name) {
                object.next_value::<IgnoredAny>()?;
                continue;
            }
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the field `{name}` comes twice")));
            }
            fields.insert(name, object.next_value()?);
        }
        Ok((fields, names))
    }
}

/// Why a line cannot be read.
fn reason(error: &serde_json::Error) -> String {
    let said = error.to_string();
    // It says line 1, whichever line of the file this is.
    let (what, _) = said.rsplit_once(" at line 1 ").unwrap_or((&said, ""));
    match error.classify() {
        Category::Data => what.to_owned(),
        _ if what == "recursion limit exceeded" => {
            "the text or a kept field is nested in more than 126 levels".to_owned()
        }
        _ => format!("the line is not valid JSON: {}", said.replace(" at line 1 ", " at ")),
    }
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
