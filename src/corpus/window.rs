//! Windows: the rows of one part of the output. Where a window ends depends on the input alone, so
//! that a run which is started again makes the same parts.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use sha2::{Digest, Sha256};

use super::error::CorpusError;
use super::input::{Chunk, InputRows, Row};

/// What ends a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowLimits {
    pub(crate) rows: usize,
    /// Of text. A window ends with the row that reaches it.
    pub(crate) bytes: usize,
}

/// Rows that become one part.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) index: usize,
    /// The number of its first row in the whole input, from 0.
    pub(super) first_row: u64,
    pub(super) rows: Vec<Row>,
    /// Pieces of each kept column; together they are as long as `rows`.
    pub(super) kept: Vec<Vec<ArrayRef>>,
    /// Bytes of the input from the end of the window before to its own.
    pub(super) span: Range<u64>,
}

impl Window {
    /// Tells whether a later run sees the same rows.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for row in &self.rows {
            let (mark, text) = match &row.text {
                Ok(text) => (0_u8, text),
                Err(reason) => (1, reason),
            };
            hash.update([mark]);
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// All windows of an input, in order.
pub(super) struct Windows {
    input: InputRows,
    limits: WindowLimits,
    columns: usize,
    /// What was read beyond the end of the last window.
    left: Option<Chunk>,
    next_index: usize,
    next_row: u64,
    position: u64,
}

impl Windows {
    /// `columns` is the number of kept columns.
    pub(super) const fn new(input: InputRows, limits: WindowLimits, columns: usize) -> Self {
        Self { input, limits, columns, left: None, next_index: 0, next_row: 0, position: 0 }
    }

    /// Bytes of all files; 0 when it is not known.
    pub(super) const fn input_length(&self) -> u64 {
        self.input.length()
    }

    /// The next window; `None` at the end of the input.
    pub(super) fn next(&mut self) -> Result<Option<Window>, CorpusError> {
        let mut rows = Vec::new();
        let mut kept = vec![Vec::new(); self.columns];
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
            let taken = take(&chunk.rows, room, self.limits.bytes, &mut bytes);
            let (chunk, left) = split(chunk, taken);
            rows.extend(chunk.rows);
            for (pieces, column) in kept.iter_mut().zip(chunk.kept) {
                pieces.push(column);
            }
            if left.is_none() {
                end = position;
            }
            self.left = left;
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let (index, first_row) = (self.next_index, self.next_row);
        self.next_index += 1;
        self.next_row += rows.len() as u64;
        self.position = end;
        Ok(Some(Window { index, first_row, rows, kept, span: start..end }))
    }
}

/// How many of these rows the window takes; adds their bytes.
fn take(rows: &[Row], room: usize, bytes_max: usize, bytes: &mut usize) -> usize {
    let mut taken = 0;
    for row in rows.iter().take(room) {
        if *bytes >= bytes_max {
            break;
        }
        *bytes += row.text.as_ref().map_or(0, String::len);
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
    let left = Chunk { rows: rest, kept: slice(rows, length), position: chunk.position };
    let kept = slice(0, rows);
    (Chunk { kept, ..chunk }, Some(left))
}

/// The kept columns of a window, of the rows at `places`, which ascend.
pub(super) fn kept_rows(window: &Window, places: &[usize]) -> Result<Vec<ArrayRef>, String> {
    let mut wanted = vec![false; window.rows.len()];
    for &place in places {
        wanted[place] = true;
    }
    let wanted = arrow_array::BooleanArray::from(wanted);
    let column = |pieces: &Vec<ArrayRef>| {
        let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| &**piece).collect();
        let whole = arrow_select::concat::concat(&pieces)?;
        arrow_select::filter::filter(&whole, &wanted)
    };
    let columns = window.kept.iter().map(column).collect::<Result<Vec<_>, _>>();
    columns.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::input::{Columns, InputFile, InputFormat};
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use std::io::Write;

    fn windows(rows: usize, limits: WindowLimits) -> (tempfile::NamedTempFile, Windows) {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        for row in 0..rows {
            writeln!(file, "{{\"text\": \"{row:04}\", \"id\": {row}}}").expect("written");
        }
        let columns = Columns { text: "text".to_owned(), kept: vec!["id".to_owned()] };
        let files = [InputFile { path: file.path().to_owned(), format: InputFormat::Jsonl }];
        let input = InputRows::new(&files, columns, 1000);
        (file, Windows::new(input, limits, 1))
    }

    fn all(mut windows: Windows) -> Vec<Window> {
        std::iter::from_fn(|| windows.next().expect("it is whole")).collect()
    }

    #[test]
    fn windows_have_every_row_once_whatever_the_chunks() {
        for rows in [1, 700, 1024, 5000] {
            let (file, windows) = windows(5000, WindowLimits { rows, bytes: usize::MAX });
            assert_eq!(windows.input_length(), file.path().metadata().expect("it is there").len());
            let all = all(windows);
            assert_eq!(all.len(), 5000_usize.div_ceil(rows));
            let mut next = 0;
            for (index, window) in all.iter().enumerate() {
                assert_eq!((window.index, window.first_row), (index, next));
                let places: Vec<usize> = (0..window.rows.len()).collect();
                let kept = kept_rows(window, &places).expect("one type");
                for (place, row) in window.rows.iter().enumerate() {
                    assert_eq!(row.text, Ok(format!("{next:04}")));
                    assert_eq!(kept[0].as_primitive::<Int64Type>().value(place), next as i64);
                    next += 1;
                }
            }
            assert_eq!(next, 5000);
            let spans = all.windows(2).all(|pair| pair[0].span.end == pair[1].span.start);
            assert!(spans, "positions go on where the window before ended");
        }
    }

    #[test]
    fn a_window_ends_with_the_row_that_reaches_its_bytes() {
        let (_file, windows) = windows(10, WindowLimits { rows: 100, bytes: 9 });
        let rows: Vec<usize> = all(windows).iter().map(|window| window.rows.len()).collect();
        assert_eq!(rows, [3, 3, 3, 1]);
    }

    #[test]
    fn the_digest_is_of_the_rows_in_their_order() {
        let limits = WindowLimits { rows: 5, bytes: usize::MAX };
        let ((_one, first), (_other, again)) = (windows(10, limits), windows(10, limits));
        let (first, again) = (all(first), all(again));
        assert_eq!(first[0].digest(), again[0].digest());
        assert_ne!(first[0].digest(), first[1].digest());
    }
}
