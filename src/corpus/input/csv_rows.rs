//! CSV with names in its first record; all of its values are texts.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use csv::{ByteRecord, Reader, ReaderBuilder};
use serde_json::Value;

use super::bytes::{BYTE_ORDER_MARK, Meter, Metered};
use super::place_of;
use super::{Columns, CorpusError, InputRecord, Records, utf8};

pub(super) struct CsvRows {
    path: PathBuf,
    reader: Reader<Quotes>,
    meter: Meter,
    record: ByteRecord,
    text: usize,
    kept: Vec<usize>,
    fields: usize,
    number: u64,
}

impl CsvRows {
    /// Reads the names.
    pub(super) fn open(
        path: &Path,
        metered: Metered,
        columns: &Columns,
    ) -> Result<Self, CorpusError> {
        let meter = metered.meter();
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(Quotes::new(metered));
        let names = reader.byte_headers().map_err(|error| CorpusError::input(path, error))?;
        let names: Vec<String> = names
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim_start_matches('\u{feff}').to_owned())
            .collect();
        let place = |wanted: &String| {
            place_of(wanted, &names).map_err(|problem| CorpusError::input(path, problem))
        };
        let text = place(&columns.text)?;
        let kept = columns.kept.iter().map(place).collect::<Result<_, _>>()?;
        let (path, fields) = (path.to_owned(), names.len());
        Ok(Self { path, reader, meter, record: ByteRecord::new(), text, kept, fields, number: 0 })
    }

    fn text(&self) -> Result<String, String> {
        if self.record.len() != self.fields {
            let (found, expected) = (self.record.len(), self.fields);
            return Err(format!("the row has {found} fields, the first row {expected}"));
        }
        utf8(&self.record[self.text]).map(str::to_owned)
    }
}

impl Records for CsvRows {
    fn next(&mut self) -> Result<Option<InputRecord>, CorpusError> {
        self.meter.begin_record();
        let more = self.reader.read_byte_record(&mut self.record);
        if !more.map_err(|error| CorpusError::input(&self.path, error))? {
            return Ok(None);
        }
        self.number += 1;
        let value = |&column: &usize| match self.record.get(column).map(utf8) {
            Some(Ok(text)) => Value::from(text),
            Some(Err(_)) | None => Value::Null,
        };
        let kept = self.kept.iter().map(value).collect();
        let end = self.position();
        let text = self.reader.get_mut().fault_before(end).map_or_else(|| self.text(), Err);
        Ok(Some(InputRecord { number: self.number, text, kept }))
    }

    fn position(&self) -> u64 {
        self.reader.position().byte()
    }
}

/// Follows the quotes of a file as it is read. Whatever they enclose is one field to [`csv`], so a
/// stray quote would hide the rows behind it.
struct Quotes {
    inner: Metered,
    place: CsvPlace,
    byte: u64,
    /// From 1.
    line: u64,
    /// The line in which the last quote was opened.
    opened: u64,
    /// Each with the number of bytes before it.
    faults: VecDeque<(u64, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CsvPlace {
    FieldStart,
    Unquoted,
    Quoted,
    /// Behind a quote that ends the field, or is the first of two that stand for one.
    Quote,
    /// Behind the end of a field in quotes.
    Closed,
}

impl Quotes {
    fn new(inner: Metered) -> Self {
        let (place, faults) = (CsvPlace::FieldStart, VecDeque::new());
        Self { inner, place, byte: 0, line: 1, opened: 1, faults }
    }

    fn step(&mut self, byte: u8) {
        let place = match (self.place, byte) {
            (CsvPlace::FieldStart, b'"') => {
                self.opened = self.line;
                CsvPlace::Quoted
            }
            (CsvPlace::Quoted, b'"') => CsvPlace::Quote,
            (CsvPlace::Quoted, _) | (CsvPlace::Quote, b'"') => CsvPlace::Quoted,
            (_, b',' | b'\n' | b'\r') => CsvPlace::FieldStart,
            (CsvPlace::Quote | CsvPlace::Closed, b' ' | b'\t') => CsvPlace::Closed,
            (CsvPlace::Quote | CsvPlace::Closed, _) => {
                // Within a line it hides no row.
                if self.line > self.opened {
                    let line = self.line;
                    self.fault(format!(
                        "is closed in line {line} before the end of a field: these lines are read \
                         as one row"
                    ));
                }
                CsvPlace::Unquoted
            }
            (CsvPlace::FieldStart, byte)
                if BYTE_ORDER_MARK.get(self.byte as usize) == Some(&byte) =>
            {
                CsvPlace::FieldStart
            }
            (CsvPlace::FieldStart | CsvPlace::Unquoted, _) => CsvPlace::Unquoted,
        };
        self.place = place;
        self.byte += 1;
        self.line += u64::from(byte == b'\n');
    }

    fn fault(&mut self, problem: String) {
        let problem = format!(
            "a quote opened in line {} {problem}; close it, or double a quote that is text",
            self.opened
        );
        self.faults.push_back((self.byte, problem));
    }

    /// What is wrong with the quotes of a record that ends at this byte.
    fn fault_before(&mut self, end: u64) -> Option<String> {
        let mut first = None;
        while let Some((_, problem)) = self.faults.pop_front_if(|(byte, _)| *byte <= end) {
            first = first.or(Some(problem));
        }
        first
    }
}

impl Read for Quotes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        buffer[..count].iter().for_each(|&byte| self.step(byte));
        if count == 0 && self.place == CsvPlace::Quoted {
            self.fault("is never closed: the rest of the file is read as this row".to_owned());
            self.place = CsvPlace::Closed;
        }
        Ok(count)
    }
}
