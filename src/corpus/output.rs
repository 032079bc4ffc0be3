//! Parts of the output: one form for each file type, written whole.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_array::ArrayRef;
use serde::Serialize;

use super::error::CorpusError;
use super::input::Columns;
use super::kept;
use super::recipe::{Recipe, word};
use super::terms::Terms;
use super::window::RowWindow;
use crate::service::EmbeddedItem;
use scheduling::batch::Vectors;

mod jsonl;
mod npy;
mod parquet_file;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Parquet,
    Jsonl,
    /// Dense vectors alone, a row for each row of the input.
    Npy,
}

/// Ends of files' names that are no format of the output, and hardly a folder's.
const OTHER_FORMATS: [&str; 10] =
    ["csv", "tsv", "json", "ndjson", "txt", "npz", "arrow", "feather", "gz", "zst"];

impl OutputFormat {
    /// The words of the flag, which are also the ends of files' names.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("parquet", Self::Parquet), ("jsonl", Self::Jsonl), ("npy", Self::Npy)];

    pub(crate) fn name(self) -> &'static str {
        word(&Self::WORDS, self)
    }

    /// That of a file with this name; `None` for a folder.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let ending = ending(path)?;
        let mut all = Self::WORDS.into_iter();
        all.find(|(name, _)| ending.eq_ignore_ascii_case(name)).map(|(_, format)| format)
    }

    /// Whether the name is that of a file in a form which is not written.
    pub(super) fn is_other(path: &Path) -> bool {
        ending(path).is_some_and(|it| OTHER_FORMATS.contains(&it.to_ascii_lowercase().as_str()))
    }

    /// # Errors
    /// When it cannot hold these columns or vectors, or what is made of a row.
    ///
    /// `otherwise` says how another form of output is chosen.
    pub(super) fn check(
        self,
        columns: &Columns,
        recipe: &Recipe,
        otherwise: &str,
    ) -> Result<(), CorpusError> {
        let vectors = recipe.vectors;
        let wrong = |problem: &str| Err(CorpusError::Options(problem.to_owned()));
        if self == Self::Npy && vectors != Vectors::Dense {
            let cure = format!("use --vectors dense, or {otherwise}");
            return wrong(&format!("npy holds dense vectors only; {cure}"));
        }
        if self == Self::Npy && recipe.chunks.is_some() {
            return wrong(&format!("npy cannot say where chunks are; {otherwise}"));
        }
        if self == Self::Npy && !columns.kept.is_empty() {
            return wrong(&format!("npy has no columns; leave --keep out, or {otherwise}"));
        }
        let mut kept = columns.kept.iter().enumerate();
        if let Some((_, name)) = kept.find(|(place, name)| columns.kept[..*place].contains(name)) {
            return wrong(&format!("--keep has the column `{name}` twice; name it once"));
        }
        match columns.kept.iter().find(|name| OWN_COLUMNS.contains(&name.as_str())) {
            Some(name) => wrong(&format!(
                "the column `{name}` cannot be kept, because the output has a column of that \
                 name: rename yours"
            )),
            None => Ok(()),
        }
    }

    /// # Errors
    /// When the kept columns are of types of Parquet that have no form in JSON that reads back.
    pub(crate) fn check_types(self, kept: &[ArrayRef]) -> Result<(), CorpusError> {
        let kinds = kept.iter().map(|column| column.data_type());
        match kinds.into_iter().find(|kind| self == Self::Jsonl && !kept::has_json(kind)) {
            Some(kind) => Err(CorpusError::Options(format!(
                "a kept column is of type {kind}, which JSON lines cannot hold; write parquet, or \
                 do not keep it"
            ))),
            None => Ok(()),
        }
    }
}

/// Whether a folder is there, or the name ends as that of one.
pub(crate) fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The end of a file's name; none for a folder.
fn ending(path: &Path) -> Option<&str> {
    path.extension().filter(|_| !is_folder(path))?.to_str()
}

/// Columns of the output besides the kept ones.
pub(super) const OWN_COLUMNS: [&str; 9] = [
    "row",
    "chunk_start",
    "chunk_end",
    "chunk_window",
    "tokens",
    "truncated_from",
    "dense",
    "sparse_indices",
    "sparse_values",
];

/// What became of a row: its vectors, or those of each of its chunks; else why it has none.
pub(super) type RowResult = Result<Vec<EmbeddedItem>, String>;

pub(super) struct PartContent<'a> {
    pub(super) window: &'a RowWindow,
    /// One for each row of the window.
    pub(super) outcomes: &'a [RowResult],
    pub(super) recipe: &'a Recipe,
    pub(super) terms: &'a Terms,
    /// Names of the kept columns.
    pub(super) kept: &'a [String],
}

impl PartContent<'_> {
    /// What was embedded, each with the place of its row in the window.
    fn embedded(&self) -> impl Iterator<Item = (usize, &EmbeddedItem)> {
        let rows = self.outcomes.iter().enumerate();
        rows.flat_map(|(at, row)| row.iter().flatten().map(move |item| (at, item)))
    }

    /// Writes the part to `path`, down to the disk.
    pub(super) fn write(&self, format: OutputFormat, path: &Path) -> Result<(), CorpusError> {
        match format {
            OutputFormat::Parquet => parquet_file::write(self, path),
            OutputFormat::Jsonl => stream(path, |out| jsonl::write(self, out)),
            OutputFormat::Npy => stream(path, |out| npy::write(self, out)),
        }
    }
}

pub(super) fn merge(
    format: OutputFormat,
    parts: &[PathBuf],
    terms: &Terms,
    path: &Path,
) -> Result<(), CorpusError> {
    match format {
        OutputFormat::Parquet => parquet_file::merge(parts, terms, path),
        OutputFormat::Jsonl => stream(path, |out| {
            parts.iter().try_for_each(|part| std::io::copy(&mut File::open(part)?, out).map(drop))
        }),
        OutputFormat::Npy => stream(path, |out| npy::merge(parts, out)),
    }
}

pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("it has names and plain values");
    line.push(b'\n');
    line
}

/// Writes a file down to the disk.
pub(crate) fn stream(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), CorpusError> {
    let fault = CorpusError::writing(path);
    let mut out = BufWriter::new(File::create(path).map_err(&fault)?);
    write(&mut out).map_err(&fault)?;
    out.flush().map_err(&fault)?;
    out.get_ref().sync_all().map_err(&fault)
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), CorpusError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(CorpusError::writing(path)),
    }
}

/// Writes a record as [`write_whole`] does, as a line of JSON.
pub(super) fn write_json(
    work: &Path,
    path: &Path,
    value: &impl Serialize,
) -> Result<(), CorpusError> {
    write_whole(work, path, &line(value))
}

/// Writes a small file, whole or not at all; `work` is a folder of the same file system.
pub(super) fn write_whole(work: &Path, path: &Path, bytes: &[u8]) -> Result<(), CorpusError> {
    let temporary = work.join("small.tmp");
    stream(&temporary, |out| out.write_all(bytes))?;
    rename(&temporary, path)
}

/// Gives a file that is on the disk its name, and the name to the disk.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), CorpusError> {
    let fault = CorpusError::writing(to);
    fs::rename(from, to).map_err(&fault)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(&fault)?;
    folder.sync_all().map_err(&fault)
}
