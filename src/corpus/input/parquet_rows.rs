//! Parquet: only the columns that are asked for are read.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::place_of;
use super::{Chunk, Columns, CorpusError, Row};
use crate::corpus::kept;

/// Rows read at once: few, since a text may be large.
const BATCH_ROWS: usize = 256;

pub(super) struct ParquetRows {
    path: PathBuf,
    name: Arc<str>,
    reader: ParquetRecordBatchReader,
    columns: Columns,
    rows: u64,
    rows_read: u64,
    length: u64,
}

impl ParquetRows {
    /// Reads the footer and looks for the columns.
    pub(super) fn open(path: &Path, columns: &Columns) -> Result<Self, CorpusError> {
        let fault = |problem: String| CorpusError::input(path, problem);
        let file = File::open(path).map_err(|error| fault(error.to_string()))?;
        let length = file.metadata().map_or(0, |found| found.len());
        let builder = guarded(|| ParquetRecordBatchReaderBuilder::try_new(file)).map_err(fault)?;
        let schema = Arc::clone(builder.schema());
        let names: Vec<String> = schema.fields().iter().map(|one| one.name().clone()).collect();
        let wanted = || std::iter::once(&columns.text).chain(&columns.kept);
        wanted().try_for_each(|name| place_of(name, &names).map(drop)).map_err(fault)?;
        let text = schema.field_with_name(&columns.text).map_err(|error| fault(error.to_string()));
        let kind = text?.data_type().clone();
        if !kept::is_text(&kind) {
            let name = &columns.text;
            return Err(fault(format!("its column `{name}` is of type {kind}, not of text")));
        }
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let places = names.iter().enumerate().filter(|(_, name)| wanted().any(|one| one == *name));
        let mask = ProjectionMask::roots(builder.parquet_schema(), places.map(|(place, _)| place));
        let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
        let reader = guarded(|| builder.build()).map_err(fault)?;
        let (name, path) = (path.to_string_lossy().into(), path.to_owned());
        Ok(Self { path, name, reader, columns: columns.clone(), rows, rows_read: 0, length })
    }

    /// The next rows; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Chunk>, CorpusError> {
        let batch = guarded(|| self.reader.next().transpose());
        match batch.map_err(|problem| self.fault(&problem))? {
            Some(batch) => self.chunk(&batch).map(Some),
            None if self.rows_read < self.rows => {
                Err(self.fault("it has fewer rows than its footer says"))
            }
            None => Ok(None),
        }
    }

    fn chunk(&mut self, batch: &RecordBatch) -> Result<Chunk, CorpusError> {
        let column = |name: &String| {
            let found = batch.column_by_name(name).cloned();
            found.ok_or_else(|| self.fault(&format!("it has no column `{name}`")))
        };
        let texts = column(&self.columns.text)?;
        let kept = self.columns.kept.iter().map(column).collect::<Result<_, _>>()?;
        let row = |at: usize| {
            let text = kept::text(&texts, at).map(str::to_owned);
            let text = text.ok_or_else(|| format!("the column `{}` is null", self.columns.text));
            Row { file: Arc::clone(&self.name), number: self.rows_read + at as u64 + 1, text }
        };
        let rows: Vec<Row> = (0..batch.num_rows()).map(row).collect();
        self.rows_read += rows.len() as u64;
        let part = self.rows_read as f64 / self.rows.max(1) as f64;
        let position = (self.length as f64 * part) as u64;
        Ok(Chunk::new(rows, kept, position))
    }

    fn fault(&self, problem: &str) -> CorpusError {
        let text = format!("{problem} (at row {}); replace the file", self.rows_read + 1);
        CorpusError::input(&self.path, text)
    }
}

/// Calls the crate, which panics on some files that are broken.
fn guarded<T, E: ToString>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => {
            result.map_err(|error| format!("not a complete Parquet file: {}", error.to_string()))
        }
        Err(_) => Err("not a complete Parquet file: its pages cannot be decoded".to_owned()),
    }
}
