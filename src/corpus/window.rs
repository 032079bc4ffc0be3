//! Windows of rows: what one part of the vectors is made from.

use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_ipc::writer::StreamWriter;

use super::Window;
use super::error::CorpusError;
use super::input::{Chunk, InputRows, Row};
use super::kept;
use super::terms::PieceDigest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowLimits {
    pub(crate) rows: usize,
    /// Of text and kept columns. A window ends with the row that reaches it.
    pub(crate) bytes: usize,
}

/// Rows that become one part.
#[derive(Debug)]
pub(crate) struct RowWindow {
    /// The number of its first row in the whole input, from 0.
    pub(super) first_row: u64,
    pub(super) rows: Vec<Row>,
    /// Pieces of each kept column; together they are as long as `rows`.
    pub(super) kept: Vec<Vec<ArrayRef>>,
}

impl RowWindow {
    /// Of everything that is written: texts, files' names and numbers of rows, kept columns.
    fn digest(&self) -> String {
        let mut digest = PieceDigest::default();
        for row in &self.rows {
            digest.add(row.file.as_bytes());
            digest.add(row.number.to_le_bytes());
            let (mark, text) = match &row.text {
                Ok(text) => (0_u8, text),
                Err(reason) => (1, reason),
            };
            digest.add([mark]);
            digest.add(text);
        }
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let kept = kept_rows(self, &all).and_then(|columns| {
            let mut bytes = Vec::new();
            for column in columns {
                arrow_bytes(column, &mut bytes).map_err(|error| error.to_string())?;
            }
            Ok(bytes)
        });
        // What cannot be read here cannot be written either, and is said then.
        digest.add(kept.unwrap_or_default());
        digest.finish()
    }
}

/// A column in Arrow's own form, which has its type and all of its values.
fn arrow_bytes(column: ArrayRef, bytes: &mut Vec<u8>) -> Result<(), arrow_schema::ArrowError> {
    let batch = RecordBatch::try_from_iter_with_nullable([("", column, true)])?;
    let mut writer = StreamWriter::try_new(bytes, &batch.schema())?;
    writer.write(&batch)?;
    writer.finish()
}

/// All windows of an input, in order.
pub(crate) struct Windows {
    input: InputRows,
    limits: WindowLimits,
    /// What was read beyond the end of the last window.
    left: Option<Chunk>,
    next_row: u64,
    position: u64,
}

impl Windows {
    /// Nothing is read yet.
    pub(crate) const fn new(input: InputRows, limits: WindowLimits) -> Self {
        Self { input, limits, left: None, next_row: 0, position: 0 }
    }

    /// Reads the first rows, so that a column that is not there is said before anything is made of
    /// the others; gives their kept columns.
    pub(crate) fn look(&mut self) -> Result<&[ArrayRef], CorpusError> {
        self.left = self.input.next()?;
        let empty = || CorpusError::Empty("the input is empty");
        self.left.as_ref().map(|chunk| &chunk.kept[..]).ok_or_else(empty)
    }

    /// Bytes of all files; 0 when it is not known.
    pub(crate) const fn input_length(&self) -> u64 {
        self.input.length()
    }

    fn read(&mut self) -> Result<Option<Window<RowWindow>>, CorpusError> {
        let mut rows: Vec<Row> = Vec::new();
        let mut kept: Vec<Vec<ArrayRef>> = Vec::new();
        let (start, mut end) = (self.position, self.position);
        let mut bytes = 0;
        while rows.len() < self.limits.rows && bytes < self.limits.bytes {
            let chunk = match self.left.take() {
                Some(chunk) => Some(chunk),
                None => self.input.next()?,
            };
            let Some(chunk) = chunk else { break };
            let position = chunk.position;
            let room = self.limits.rows - rows.len();
            let taken = take(&chunk, room, self.limits.bytes, &mut bytes);
            let (chunk, left) = split(chunk, taken);
            rows.extend(chunk.rows);
            kept.resize_with(chunk.kept.len(), Vec::new);
            for (pieces, column) in kept.iter_mut().zip(chunk.kept) {
                pieces.push(column);
            }
            if left.is_none() {
                end = position;
            }
            self.left = left;
        }
        let Some(first) = rows.first() else { return Ok(None) };
        let place = format!("row {} of {}", first.number, first.file);
        let first_row = self.next_row;
        self.next_row += rows.len() as u64;
        self.position = end;
        let content = RowWindow { first_row, rows, kept };
        Ok(Some(Window { digest: content.digest(), place, bytes: end - start, content }))
    }
}

impl Iterator for Windows {
    type Item = Result<Window<RowWindow>, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// How many rows of the chunk the window takes; adds their bytes.
fn take(chunk: &Chunk, room: usize, bytes_max: usize, bytes: &mut usize) -> usize {
    let mut taken = 0;
    for (at, row) in chunk.rows.iter().take(room).enumerate() {
        if *bytes >= bytes_max {
            break;
        }
        let columns = chunk.kept.iter().zip(&chunk.means);
        let kept = columns.map(|(column, &mean)| kept::bytes(column, at, mean));
        *bytes += row.text.as_ref().map_or(0, String::len) + kept.sum::<usize>();
        taken += 1;
    }
    taken
}

/// The first `rows` rows, and the others when there are any.
fn split(mut chunk: Chunk, rows: usize) -> (Chunk, Option<Chunk>) {
    if rows >= chunk.rows.len() {
        return (chunk, None);
    }
    let rest = chunk.rows.split_off(rows);
    let length = rest.len();
    let slice = |from: usize, length: usize| {
        let columns = chunk.kept.iter();
        columns.map(move |column| column.slice(from, length)).collect::<Vec<_>>()
    };
    let (kept, means) = (slice(rows, length), chunk.means.clone());
    let left = Chunk { rows: rest, kept, means, position: chunk.position };
    let kept = slice(0, rows);
    (Chunk { kept, ..chunk }, Some(left))
}

/// The kept columns of a window, of the rows at `places`.
pub(super) fn kept_rows(window: &RowWindow, places: &[usize]) -> Result<Vec<ArrayRef>, String> {
    let places = places.iter().map(|&place| place as u64).collect::<UInt64Array>();
    let column = |pieces: &Vec<ArrayRef>| {
        let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| &**piece).collect();
        let whole = arrow_select::concat::concat(&pieces)?;
        arrow_select::take::take(&whole, &places, None)
    };
    let columns = window.kept.iter().map(column).collect::<Result<Vec<_>, _>>();
    columns.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::input::{Columns, InputFile, InputFormat};
    use arrow_array::ListArray;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use serde_json::{Value, json};
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;

    fn windows(rows: usize, limits: WindowLimits) -> (tempfile::NamedTempFile, Windows) {
        windows_of((0..rows).map(|row| json!({"text": format!("{row:04}"), "id": row})), limits)
    }

    fn windows_of(
        rows: impl Iterator<Item = Value>,
        limits: WindowLimits,
    ) -> (tempfile::NamedTempFile, Windows) {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        for row in rows {
            writeln!(file, "{row}").expect("written");
        }
        let columns = Columns { text: "text".to_owned(), kept: vec!["id".to_owned()] };
        let files = [InputFile { path: file.path().to_owned(), format: InputFormat::Jsonl }];
        let input = InputRows::new(&files, columns, 1000);
        (file, Windows::new(input, limits))
    }

    fn all(windows: Windows) -> Vec<Window<RowWindow>> {
        windows.map(|window| window.expect("it is whole")).collect()
    }

    #[test]
    fn windows_have_every_row_once_whatever_the_chunks() {
        for rows in [1, 700, 1024, 5000] {
            let (file, windows) = windows(5000, WindowLimits { rows, bytes: usize::MAX });
            let length = file.path().metadata().expect("it is there").len();
            assert_eq!(windows.input_length(), length);
            let all = all(windows);
            assert_eq!(all.len(), 5000_usize.div_ceil(rows));
            let mut next = 0;
            for window in all.iter().map(|window| &window.content) {
                assert_eq!(window.first_row, next);
                let places: Vec<usize> = (0..window.rows.len()).collect();
                let kept = kept_rows(window, &places).expect("one type");
                for (place, row) in window.rows.iter().enumerate() {
                    assert_eq!(row.text, Ok(format!("{next:04}")));
                    assert_eq!(kept[0].as_primitive::<Int64Type>().value(place), next as i64);
                    next += 1;
                }
            }
            assert_eq!(next, 5000);
            let bytes: u64 = all.iter().map(|window| window.bytes).sum();
            assert_eq!(bytes, length, "each byte is of one window");
        }
    }

    /// As those of pipes have none, or are removed meanwhile.
    #[test]
    fn bytes_are_counted_of_files_whose_names_are_gone() {
        let rows = |count| (0..count).map(|id| json!({"text": "a", "id": id}));
        let limits = WindowLimits { rows: 4, bytes: usize::MAX };
        let [(first, _), (second, _)] = [9, 5].map(|count| windows_of(rows(count), limits));
        let file = |path: &Path| InputFile { path: path.to_owned(), format: InputFormat::Jsonl };
        let columns = || Columns { text: "text".to_owned(), kept: vec![] };
        let of = |paths: &[&Path]| {
            let files: Vec<InputFile> = paths.iter().map(|path| file(path)).collect();
            Windows::new(InputRows::new(&files, columns(), 1000), limits)
        };
        let length = |path: &Path| path.metadata().expect("it is there").len();
        let all_bytes = length(first.path()) + length(second.path());
        let mut both = of(&[first.path(), second.path()]);
        assert_eq!(both.input_length(), all_bytes);
        both.look().expect("the first file has rows");
        drop(first);
        assert_eq!(all(both).iter().map(|window| window.bytes).sum::<u64>(), all_bytes);
        let with_pipe = of(&[Path::new("/dev/null"), second.path()]);
        assert_eq!(with_pipe.input_length(), 0, "nobody knows it");
    }

    #[test]
    fn a_window_ends_with_the_row_that_reaches_its_bytes() {
        let (_file, windows) = windows(10, WindowLimits { rows: 100, bytes: 9 });
        assert_eq!(lengths(windows), [3, 3, 3, 1], "numbers beside the texts count nothing");
        let rows = (0..10).map(|_| json!({"text": "four", "id": "and five"}));
        let (_file, windows) = windows_of(rows, WindowLimits { rows: 100, bytes: 25 });
        assert_eq!(lengths(windows), [3, 3, 3, 1], "kept texts count");
    }

    /// Arrow says of a part of some lists that it has the bytes of all of them.
    #[test]
    fn kept_lists_count_as_much_after_the_end_of_a_window_as_before() {
        let list = |_| Some([Some(0_i64); 1000]);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>((0..20).map(list));
        let row = |number| Row { file: "a.parquet".into(), number, text: Ok(String::new()) };
        let chunk = Chunk::new((1..=20).map(row).collect(), vec![Arc::new(lists)], 0);
        let columns = Columns { text: "text".to_owned(), kept: vec!["lists".to_owned()] };
        let limits = WindowLimits { rows: 100, bytes: 25_000 };
        let windows = Windows::new(InputRows::new(&[], columns, 1000), limits);
        assert_eq!(lengths(Windows { left: Some(chunk), ..windows }), [4; 5]);
    }

    fn lengths(windows: Windows) -> Vec<usize> {
        all(windows).iter().map(|window| window.content.rows.len()).collect()
    }

    fn digests(folder: &Path, lines: &str, name: &str, kept: &[&str]) -> Vec<String> {
        let path = folder.join(name);
        std::fs::write(&path, lines).expect("written");
        let kept = kept.iter().map(|&name| name.to_owned()).collect();
        let columns = Columns { text: "text".to_owned(), kept };
        let files = [InputFile { path, format: InputFormat::Jsonl }];
        let input = InputRows::new(&files, columns, 1000);
        let limits = WindowLimits { rows: 2, bytes: usize::MAX };
        let windows = all(Windows::new(input, limits));
        windows.into_iter().map(|window| window.digest).collect()
    }

    #[test]
    fn the_digest_is_of_all_that_is_written() {
        let lines = "{\"text\":\"a\",\"id\":1}\n{\"text\":\"b\",\"id\":2}\n\"c\"\n";
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path();
        let first = digests(folder, lines, "a.jsonl", &["id"]);
        assert_eq!(first, digests(folder, lines, "a.jsonl", &["id"]));
        let changed = |lines: &str, name: &str, kept: &[&str]| {
            let other = digests(folder, lines, name, kept);
            (other[0] != first[0], other[1] != first[1])
        };
        assert_eq!(changed(&lines.replace("\"c\"", "\"d\""), "a.jsonl", &["id"]), (false, true));
        assert_eq!(changed(&lines.replace(":2", ":3"), "a.jsonl", &["id"]), (true, false));
        assert_eq!(changed(lines, "b.jsonl", &["id"]), (true, true), "reasons name the file");
        assert_eq!(changed(&format!("\n{lines}"), "a.jsonl", &["id"]), (true, true));
        assert!(changed(&lines.replace("1}", "1.5}"), "a.jsonl", &["id"]).0);
    }
}
