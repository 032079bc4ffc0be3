//! CSV with names in its first record; all of its values are texts.

use std::path::{Path, PathBuf};

use csv::{ByteRecord, Reader, ReaderBuilder};
use serde_json::Value;

use super::bytes::{Meter, Metered};
use super::json_rows::named;
use super::{Columns, CorpusError, InputRecord, Records, utf8};

pub(super) struct CsvRows {
    path: PathBuf,
    reader: Reader<Metered>,
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
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(metered);
        let names = reader.byte_headers().map_err(|error| CorpusError::input(path, error))?;
        let names: Vec<String> = names
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim_start_matches('\u{feff}').to_owned())
            .collect();
        let place = |wanted: &String| {
            names.iter().position(|name| name == wanted).ok_or_else(|| {
                let problem = format!("it has no column `{wanted}`; it has {}", named(&names));
                CorpusError::input(path, problem)
            })
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
        Ok(Some(InputRecord { number: self.number, text: self.text(), kept }))
    }

    fn position(&self) -> u64 {
        self.reader.position().byte()
    }
}
