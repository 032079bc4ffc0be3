//! Parquet: kept columns, dense vectors as lists of fixed size, sparse ones as two lists.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float16Array, Float32Array, Int8Array, ListArray,
    RecordBatch, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use half::f16;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::PartContent;
use crate::corpus::error::CorpusError;
use crate::corpus::terms::Terms;
use crate::corpus::window::kept_rows;
use vectors::small::NumberType;

pub(super) fn write(part: &PartContent<'_>, path: &Path) -> Result<(), CorpusError> {
    let batch = batch(part).map_err(|problem| CorpusError::output(path, problem))?;
    let mut writer = open(path, batch.schema(), part.terms)?;
    writer.write(&batch).map_err(|error| CorpusError::output(path, error))?;
    close(writer, path)
}

pub(super) fn merge(parts: &[PathBuf], terms: &Terms, path: &Path) -> Result<(), CorpusError> {
    let mut writer: Option<ArrowWriter<File>> = None;
    for part in parts {
        let broken = |error: &dyn ToString| {
            let problem = format!("{}; delete this part and run again", error.to_string());
            CorpusError::input(part, problem)
        };
        let file = File::open(part).map_err(|error| broken(&error))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|one| one.build());
        for batch in reader.map_err(|error| broken(&error))? {
            let batch = batch
                .map_err(|error| broken(&error))
                .and_then(|batch| without_metadata(&batch).map_err(|error| broken(&error)))?;
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(open(path, batch.schema(), terms)?),
            };
            writer.write(&batch).map_err(|error| CorpusError::output(path, error))?;
        }
        // A part is a row group of the whole.
        if let Some(writer) = &mut writer {
            writer.flush().map_err(|error| CorpusError::output(path, error))?;
        }
    }
    match writer {
        Some(writer) => close(writer, path),
        None => Err(CorpusError::Empty("no row could be embedded")),
    }
}

/// What a part says of itself is read into the schema, in an order that changes; the whole says it
/// once more.
fn without_metadata(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = Schema::new(batch.schema().fields().clone());
    RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec())
}

fn open(path: &Path, schema: SchemaRef, terms: &Terms) -> Result<ArrowWriter<File>, CorpusError> {
    let file = File::create(path).map_err(CorpusError::writing(path))?;
    let pair =
        |(name, value): (&String, &String)| KeyValue::new(format!("duovec.{name}"), value.clone());
    let metadata = terms.pairs().map(pair);
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(metadata.collect()));
    // Nobody asks for the least float of all vectors, and hardly any comes twice.
    for vector in ["dense", "sparse_indices", "sparse_values"] {
        let column = ColumnPath::from(vec![vector.to_owned(), "list".into(), "element".into()]);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_statistics_enabled(column, EnabledStatistics::None);
    }
    let writer = ArrowWriter::try_new(file, schema, Some(properties.build()));
    writer.map_err(|error| CorpusError::output(path, error))
}

fn close(writer: ArrowWriter<File>, path: &Path) -> Result<(), CorpusError> {
    let file = writer.into_inner().map_err(|error| CorpusError::output(path, error))?;
    file.sync_all().map_err(CorpusError::writing(path))
}

fn batch(part: &PartContent<'_>) -> Result<RecordBatch, String> {
    let places: Vec<usize> = part.embedded().map(|(place, _)| place).collect();
    let first = part.window.first_row;
    let rows = places.iter().map(|&place| first + place as u64).collect::<UInt64Array>();
    let mut columns: Vec<(&str, ArrayRef)> = vec![("row", Arc::new(rows))];
    let kept = kept_rows(part.window, &places)?;
    columns.extend(part.kept.iter().map(String::as_str).zip(kept));
    if part.recipe.chunks.is_some() {
        let chunks = || part.embedded().map(|(_, item)| item.chunk);
        let start = chunks().flatten().map(|chunk| chunk.span.start as u64);
        let end = chunks().flatten().map(|chunk| chunk.span.end as u64);
        let window = chunks().map(|chunk| chunk?.window.map(|window| window as u32));
        columns.push(("chunk_start", Arc::new(start.collect::<UInt64Array>())));
        columns.push(("chunk_end", Arc::new(end.collect::<UInt64Array>())));
        columns.push(("chunk_window", Arc::new(window.collect::<UInt32Array>())));
    }
    let tokens = part.embedded().map(|(_, item)| item.tokens as u32).collect::<UInt32Array>();
    columns.push(("tokens", Arc::new(tokens)));
    let cut = part.embedded().map(|(_, item)| item.truncated_from.map(|tokens| tokens as u32));
    columns.push(("truncated_from", Arc::new(cut.collect::<UInt32Array>())));
    let vectors = part.recipe.vectors;
    if vectors.dense() {
        columns.push(("dense", dense(part).map_err(|error| error.to_string())?));
    }
    if vectors.sparse() {
        let [indices, values] = sparse(part).map_err(|error| error.to_string())?;
        columns.extend([("sparse_indices", indices), ("sparse_values", values)]);
    }
    let is_kept = |name: &str| part.kept.iter().any(|kept| kept == name);
    let field = |(name, column): &(&str, ArrayRef)| {
        let nullable = is_kept(name) || ["truncated_from", "chunk_window"].contains(name);
        Field::new(*name, column.data_type().clone(), nullable)
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns).map_err(|error| error.to_string())
}

fn dense(part: &PartContent<'_>) -> Result<ArrayRef, ArrowError> {
    let (recipe, floats) = (part.recipe, || part.embedded().flat_map(|(_, item)| &item.dense));
    let bytes = || part.embedded().flat_map(|(_, item)| recipe.bytes(&item.dense));
    let numbers: ArrayRef = match recipe.numbers {
        NumberType::Float => Arc::new(Float32Array::from_iter_values(floats().copied())),
        NumberType::Float16 => {
            Arc::new(Float16Array::from_iter_values(floats().map(|&value| f16::from_f32(value))))
        }
        NumberType::Int8 | NumberType::Binary => {
            Arc::new(Int8Array::from_iter_values(bytes().map(|byte| byte as i8)))
        }
        NumberType::Uint8 | NumberType::Ubinary => Arc::new(UInt8Array::from_iter_values(bytes())),
    };
    let element = Arc::new(Field::new("element", numbers.data_type().clone(), false));
    let size = i32::try_from(recipe.numbers.length(recipe.dimensions)).unwrap_or(i32::MAX);
    Ok(Arc::new(FixedSizeListArray::try_new(element, size, numbers, None)?))
}

/// Token ids and their weights.
fn sparse(part: &PartContent<'_>) -> Result<[ArrayRef; 2], ArrowError> {
    let all = || part.embedded().map(|(_, item)| &item.sparse);
    let offsets = OffsetBuffer::from_lengths(all().map(|vector| vector.indices.len()));
    let list = |values: ArrayRef| -> Result<ArrayRef, ArrowError> {
        let element: DataType = values.data_type().clone();
        let element = Arc::new(Field::new("element", element, false));
        Ok(Arc::new(ListArray::try_new(element, offsets.clone(), values, None)?))
    };
    let indices = UInt32Array::from_iter_values(all().flat_map(|v| v.indices.iter().copied()));
    let values = Float32Array::from_iter_values(all().flat_map(|v| v.values.iter().copied()));
    Ok([list(Arc::new(indices))?, list(Arc::new(values))?])
}
