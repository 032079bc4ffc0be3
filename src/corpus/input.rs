//! The rows of a corpus, from files or standard input, a few at a time.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use serde_json::Value;

use super::error::CorpusError;
use super::kept;

mod bytes;
mod csv_rows;
mod json_rows;
mod parquet_rows;

pub(crate) use bytes::Lines;
use bytes::{GZIP_ADVICE, Metered};
use csv_rows::CsvRows;
use json_rows::JsonRows;
use parquet_rows::ParquetRows;

const CHUNK_ROWS: usize = 1024;
/// Bytes of a file of records from which a chunk ends before it has so many rows.
const CHUNK_BYTES: u64 = 4 * 1024 * 1024;
/// The same for the first chunk of all, by which the types of kept columns are guessed. As many as
/// a window has of text; kept lists of JSON take many times as much memory until they are texts.
const FIRST_CHUNK_BYTES: u64 = 64 * 1024 * 1024;

const STDIN: &str = "-";

/// A star stands for a part of one name, as where files are looked for.
const BY_FOLDER: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A path that can be compared with another one.
fn whole(path: &Path) -> PathBuf {
    absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Why rows without names give no column.
fn bare_texts(name: &str) -> String {
    format!(
        "its lines are bare texts, which have no field `{name}` to keep; leave --keep out, or make \
         each line an object, such as {{\"text\": \"…\", \"{name}\": \"…\"}} in a .jsonl file"
    )
}

/// Names in a sentence.
fn named(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

/// The place of a column among those of a file, or what is wrong with it.
fn place_of(wanted: &String, names: &[String]) -> Result<usize, String> {
    let mut places = names.iter().enumerate().filter(|(_, name)| *name == wanted);
    match (places.next(), places.next()) {
        (Some((place, _)), None) => Ok(place),
        (None, _) => Err(format!("it has no column `{wanted}`; it has {}", named(names))),
        (Some(_), Some(_)) => Err(format!("it has two columns `{wanted}`; rename one of them")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputFormat {
    /// An object or a text a line.
    Jsonl,
    /// Fields between commas, names in the first record.
    Csv,
    Parquet,
    /// A text a line; an empty line is an empty text.
    Lines,
}

impl InputFormat {
    pub(crate) const WORDS: [(&'static str, Self); 4] = [
        ("jsonl", Self::Jsonl),
        ("csv", Self::Csv),
        ("parquet", Self::Parquet),
        ("lines", Self::Lines),
    ];

    fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match ending.as_str() {
            "jsonl" | "ndjson" => Self::Jsonl,
            "csv" => Self::Csv,
            "parquet" => Self::Parquet,
            "txt" => Self::Lines,
            _ => return None,
        })
    }
}

/// One file, or standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputFile {
    pub(crate) path: PathBuf,
    pub(crate) format: InputFormat,
}

impl InputFile {
    /// Files of these names and patterns, in the order typed, those of a pattern by name. A pattern
    /// passes over `side`: files that the run writes beside its vectors, and folders of them.
    ///
    /// # Errors
    /// When a name or a pattern has no file, nobody says what a file holds, or a name is of `side`.
    pub(crate) fn find(
        typed: &[String],
        format: Option<InputFormat>,
        side: &[PathBuf],
    ) -> Result<Vec<Self>, CorpusError> {
        let mut files = Vec::new();
        for name in typed {
            let path = Path::new(name);
            let fault = |problem: String| CorpusError::wrong_name(path, problem);
            if name == STDIN || path.exists() {
                if Self::is_side(path, side) {
                    let problem = "the run itself writes it beside its vectors; leave it out, or \
                                   put the pattern in quotes";
                    return Err(fault(problem.to_owned()));
                }
                files.push(Self::new(path, format)?);
                continue;
            }
            let found = glob::glob(name).map_err(|error| fault(error.to_string()))?;
            let before = files.len();
            for path in found {
                let path = path.map_err(|error| fault(error.to_string()))?;
                if !Self::is_side(&path, side) {
                    files.push(Self::new(&path, format)?);
                }
            }
            if files.len() == before {
                return Err(fault("there is no such file".to_owned()));
            }
        }
        Ok(files)
    }

    /// Whether it is one of these files, or in one of these folders.
    pub(crate) fn is_side(path: &Path, side: &[PathBuf]) -> bool {
        side.iter().any(|own| whole(path).starts_with(whole(own)))
    }

    /// # Errors
    /// When `out` is one of the files, or a later run would take it, or `part` of it, for one.
    pub(crate) fn refuse_output(
        files: &[Self],
        typed: &[String],
        out: &Path,
        part: &Path,
    ) -> Result<(), CorpusError> {
        // Without the slash that says that it is a folder: no pattern would match it.
        let out_place: PathBuf = whole(out).components().collect();
        let part_place = whole(part);
        let here = glob::Pattern::escape(&whole(Path::new(".")).to_string_lossy());
        let is_taken = |name: &String| {
            let place = whole(&Path::new(&here).join(name));
            let pattern = glob::Pattern::new(&place.to_string_lossy());
            let takes = |own: &Path| {
                pattern.as_ref().is_ok_and(|pattern| pattern.matches_path_with(own, BY_FOLDER))
            };
            whole(Path::new(name)).parent() == Some(&out_place)
                || takes(&out_place)
                || takes(&part_place)
        };
        let mut patterns = typed.iter().filter(|name| !Path::new(name).exists());
        if files.iter().any(|file| whole(&file.path) == out_place) || patterns.any(is_taken) {
            let problem = format!(
                "--out {} is also the input, or would be at the next run; name another place",
                out.display()
            );
            return Err(CorpusError::Options(problem));
        }
        Ok(())
    }

    fn new(path: &Path, format: Option<InputFormat>) -> Result<Self, CorpusError> {
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")) {
            return Err(CorpusError::input(path, GZIP_ADVICE));
        }
        if path.is_dir() {
            // Spark writes a folder `a.parquet` of such files.
            let own = InputFormat::of(path).and(path.extension()).and_then(OsStr::to_str);
            let files = path.join(format!("*.{}", own.unwrap_or("jsonl")));
            let problem = format!("it is a folder; name its files, such as '{}'", files.display());
            return Err(CorpusError::wrong_name(path, problem));
        }
        let unknown = || {
            let problem = "its format is not known; name it with --input-format: jsonl, csv, \
                           parquet or lines";
            CorpusError::wrong_name(path, problem)
        };
        let format = format.or_else(|| InputFormat::of(path)).ok_or_else(unknown)?;
        if path == Path::new(STDIN) && format == InputFormat::Parquet {
            let problem = "Parquet cannot be read from standard input; name a file";
            return Err(CorpusError::wrong_name(path, problem));
        }
        Ok(Self { path: path.to_owned(), format })
    }

    /// Bytes of the file; standard input and pipes have no length.
    fn length(&self) -> Option<u64> {
        let found = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_file);
        found.map(|found| found.len())
    }
}

/// Which columns of the input are read. Plain lines have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    /// What is embedded.
    pub(crate) text: String,
    /// What is kept beside the vectors.
    pub(crate) kept: Vec<String>,
}

/// One row: where it stands, and its text or why it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) file: Arc<str>,
    /// Of the file, from 1: a line of plain text and JSON lines, a row of CSV and Parquet.
    pub(super) number: u64,
    pub(super) text: Result<String, String>,
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) rows: Vec<Row>,
    /// One for each kept column, as long as `rows`.
    pub(super) kept: Vec<ArrayRef>,
    /// One for each kept column: [`kept::mean_bytes`] of all rows that were read with these.
    pub(super) means: Vec<usize>,
    /// Bytes of all files up to the end of these rows.
    pub(super) position: u64,
}

impl Chunk {
    pub(super) fn new(rows: Vec<Row>, kept: Vec<ArrayRef>, position: u64) -> Self {
        let means = kept.iter().map(|column| kept::mean_bytes(column)).collect();
        Self { rows, kept, means, position }
    }
}

/// A row as a file of lines has it.
struct InputRecord {
    number: u64,
    text: Result<String, String>,
    /// One for each kept column.
    kept: Vec<Value>,
}

trait Records {
    /// The next record; `None` at the end.
    fn next(&mut self) -> Result<Option<InputRecord>, CorpusError>;

    fn position(&self) -> u64;
}

enum OpenFile {
    Records(Box<dyn Records>),
    Parquet(Box<ParquetRows>),
}

pub(crate) struct InputRows {
    files: VecDeque<InputFile>,
    columns: Columns,
    item_bytes_max: usize,
    opened: Option<(InputFile, OpenFile)>,
    /// Of the kept columns; known with the first rows.
    kept_types: Option<Vec<DataType>>,
    /// Bytes up to the end of the last rows of the files that were read to their end.
    read: u64,
    /// Bytes up to the end of the last rows of all.
    position: u64,
    length: u64,
}

impl InputRows {
    /// Nothing is opened yet. A text of more than `item_bytes_max` bytes counts as wrong.
    pub(crate) fn new(files: &[InputFile], columns: Columns, item_bytes_max: usize) -> Self {
        let length = files.iter().map(InputFile::length).sum::<Option<u64>>().unwrap_or(0);
        let (files, opened, kept_types) = (files.iter().cloned().collect(), None, None);
        let (read, position) = (0, 0);
        Self { files, columns, item_bytes_max, opened, kept_types, read, position, length }
    }

    /// Bytes of all files; 0 when it is not known.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// The next rows; `None` when all files are read.
    pub(super) fn next(&mut self) -> Result<Option<Chunk>, CorpusError> {
        loop {
            let (file, opened) = match &mut self.opened {
                Some(opened) => opened,
                none => match self.files.pop_front() {
                    Some(file) => {
                        let opened = open(&file, &self.columns)?;
                        none.insert((file, opened))
                    }
                    None => return Ok(None),
                },
            };
            let (columns, types) = (&self.columns.kept, &mut self.kept_types);
            let chunk = match opened {
                OpenFile::Records(records) => chunk_of(file, &mut **records, columns, types)?,
                OpenFile::Parquet(rows) => rows.next()?,
            };
            let Some(mut chunk) = chunk else {
                self.read = self.position;
                self.opened = None;
                continue;
            };
            check_types(file, &chunk, columns, types)?;
            chunk.position += self.read;
            self.position = chunk.position;
            let most = self.item_bytes_max;
            for row in &mut chunk.rows {
                if row.text.as_ref().is_ok_and(|text| text.len() > most) {
                    let reason = format!("the text has more than {most} bytes (--max-item-bytes)");
                    row.text = Err(reason);
                }
            }
            return Ok(Some(chunk));
        }
    }
}

/// The next rows of a file of records. Their kept columns get the types of the first rows of all.
fn chunk_of(
    file: &InputFile,
    records: &mut dyn Records,
    columns: &[String],
    types: &mut Option<Vec<DataType>>,
) -> Result<Option<Chunk>, CorpusError> {
    let most = if types.is_some() { CHUNK_BYTES } else { FIRST_CHUNK_BYTES };
    let (mut read, start) = (Vec::new(), records.position());
    while read.len() < CHUNK_ROWS && records.position() - start < most {
        let Some(record) = records.next()? else { break };
        read.push(record);
    }
    if read.is_empty() {
        return Ok(None);
    }
    let infer = || {
        let of = |column| kept::infer(read.iter().map(|record: &InputRecord| &record.kept[column]));
        (0..columns.len()).map(of).collect()
    };
    let types: &Vec<DataType> = types.get_or_insert_with(infer);
    if types.iter().any(|kind| *kind != DataType::Utf8 && !kept::OF_JSON.contains(kind)) {
        let problem = "its kept columns have other types than in the files before it; embed it on \
                       its own, or do not keep the columns";
        return Err(CorpusError::input(&file.path, problem));
    }
    for record in &mut read {
        check_kept(record, columns, types);
    }
    let column = |column: usize| {
        let values: Vec<Value> = read.iter_mut().map(|record| record.kept[column].take()).collect();
        kept::array(&values, &types[column])
    };
    let kept = (0..columns.len()).map(column).collect();
    let name: Arc<str> = file.path.to_string_lossy().into();
    let row = |InputRecord { number, text, .. }| Row { file: Arc::clone(&name), number, text };
    let rows = read.into_iter().map(row).collect();
    Ok(Some(Chunk::new(rows, kept, records.position())))
}

/// Columns of Parquet keep their types, so all files must have the same.
fn check_types(
    file: &InputFile,
    chunk: &Chunk,
    columns: &[String],
    types: &mut Option<Vec<DataType>>,
) -> Result<(), CorpusError> {
    let here = || chunk.kept.iter().map(|column| column.data_type().clone()).collect();
    let types: &Vec<DataType> = types.get_or_insert_with(here);
    for ((name, kind), column) in columns.iter().zip(types).zip(&chunk.kept) {
        if kind != column.data_type() {
            let problem = format!(
                "its column `{name}` is of type {}, and of type {kind} in the files before it; \
                 embed it on its own, or do not keep the column",
                column.data_type()
            );
            return Err(CorpusError::input(&file.path, problem));
        }
    }
    Ok(())
}

/// A row whose kept value does not fit its column is wrong.
fn check_kept(record: &mut InputRecord, names: &[String], types: &[DataType]) {
    let columns = names.iter().zip(types).zip(&record.kept);
    let wrong = columns.into_iter().find(|((_, kind), value)| !kept::fits(value, kind));
    if let Some(((name, kind), value)) = wrong
        && record.text.is_ok()
    {
        let value: String = value.to_string().chars().take(40).collect();
        let reason = format!("the field `{name}` is {value}, and its column is of type {kind}");
        record.text = Err(reason);
    }
}

fn open(file: &InputFile, columns: &Columns) -> Result<OpenFile, CorpusError> {
    let path = &file.path;
    if file.format == InputFormat::Parquet {
        return Ok(OpenFile::Parquet(Box::new(ParquetRows::open(path, columns)?)));
    }
    let reader: Box<dyn std::io::Read> = if path == Path::new(STDIN) {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).map_err(|error| CorpusError::input(path, error))?)
    };
    let metered = Metered::new(reader);
    Ok(OpenFile::Records(match file.format {
        InputFormat::Csv => Box::new(CsvRows::open(path, metered, columns)?),
        InputFormat::Jsonl => Box::new(JsonRows::new(path, Lines::new(metered), columns)),
        InputFormat::Lines | InputFormat::Parquet => {
            if let Some(name) = columns.kept.first() {
                return Err(CorpusError::input(path, bare_texts(name)));
            }
            Box::new(PlainRows { path: path.clone(), lines: Lines::new(metered) })
        }
    }))
}

/// A text a line.
struct PlainRows {
    path: PathBuf,
    lines: Lines,
}

impl Records for PlainRows {
    fn next(&mut self) -> Result<Option<InputRecord>, CorpusError> {
        let line = self.lines.next().map_err(|error| CorpusError::input(&self.path, error))?;
        let text = line.map(|line| line.and_then(|bytes| utf8(bytes).map(str::to_owned)));
        let number = self.lines.number();
        Ok(text.map(|text| InputRecord { number, text, kept: Vec::new() }))
    }

    fn position(&self) -> u64 {
        self.lines.position()
    }
}

/// Bytes as text, or why they are none.
fn utf8(bytes: &[u8]) -> Result<&str, String> {
    let wrong = |error: std::str::Utf8Error| format!("byte {} is not UTF-8", error.valid_up_to());
    std::str::from_utf8(bytes).map_err(wrong)
}

#[cfg(test)]
mod tests;
