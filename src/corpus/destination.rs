//! Where the output lies, which parts of it are finished, and what makes it whole.
//!
//! | | a folder `OUT` | a file `OUT` |
//! |---|---|---|
//! | vectors | `OUT/part-00000.parquet`, … | `OUT`, made of the parts at the end |
//! | what it is | `OUT/_duovec.json` | `OUT.duovec.json` |
//! | rows that were not embedded | `OUT/_rejected.jsonl` | `OUT.rejected.jsonl` |
//! | until it is finished | `OUT/_duovec_work` | `OUT.duovec_work` |
//!
//! A file gets its name when all of it is on the disk, so whatever has a name is whole. A part
//! comes after its note, so whatever has a part has a note.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CorpusError;
use super::input::Columns;
use super::output::{self, OutputFormat, PartContent};
use super::recipe::{Label, named_values};
use super::window::WindowLimits;

/// Of `_duovec.json`.
const FORMAT_VERSION: u32 = 1;

/// What the output is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputTarget {
    pub(crate) path: PathBuf,
    pub(crate) format: OutputFormat,
    pub(crate) kind: TargetKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetKind {
    Folder,
    File,
}

/// What two runs must have in common to make one output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Terms {
    #[serde(flatten)]
    label: Label,
    format: String,
    text_column: String,
    kept_columns: String,
    part_rows: usize,
    part_bytes: usize,
}

/// `_duovec.json`.
#[derive(Debug, Serialize, Deserialize)]
struct JobFile {
    format_version: u32,
    terms: Terms,
    /// Absent until the output is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<Totals>,
}

/// How many rows became what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) embedded: u64,
    pub(crate) rejected: u64,
    pub(crate) tokens: u64,
}

/// What is known of a finished part.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Of the rows that it was made from.
    digest: String,
    #[serde(flatten)]
    totals: Totals,
}

/// The output of a run, with a lock on it.
pub(super) struct Destination {
    target: OutputTarget,
    job: JobFile,
    /// Held until the output is whole.
    _lock: Option<File>,
}

impl OutputTarget {
    /// A folder has parts; a file is named with the end of its format.
    ///
    /// # Errors
    /// When the name and `format` do not agree.
    pub(crate) fn new(path: PathBuf, format: Option<OutputFormat>) -> Result<Self, CorpusError> {
        let of_name = OutputFormat::of(&path).filter(|_| !path.is_dir());
        match (of_name, format) {
            (Some(named), Some(asked)) if named != asked => {
                let problem = format!(
                    "--format {} does not fit the name {}; leave --format out, or change the name",
                    asked.name(),
                    path.display()
                );
                Err(CorpusError::Options(problem))
            }
            (Some(format), _) => Ok(Self { path, format, kind: TargetKind::File }),
            (None, format) => {
                let format = format.unwrap_or(OutputFormat::Parquet);
                Ok(Self { path, format, kind: TargetKind::Folder })
            }
        }
    }

    fn beside(&self, in_folder: &str, behind_file: &str) -> PathBuf {
        match self.kind {
            TargetKind::Folder => self.path.join(in_folder),
            TargetKind::File => {
                let mut name = OsString::from(&self.path);
                name.push(behind_file);
                name.into()
            }
        }
    }

    fn job_path(&self) -> PathBuf {
        self.beside("_duovec.json", ".duovec.json")
    }

    /// Rows that were not embedded, with their reasons.
    pub(crate) fn rejected_path(&self) -> PathBuf {
        self.beside("_rejected.jsonl", ".rejected.jsonl")
    }

    fn work_path(&self) -> PathBuf {
        self.beside("_duovec_work", ".duovec_work")
    }

    fn part_path(&self, part: usize) -> PathBuf {
        let folder = match self.kind {
            TargetKind::Folder => self.path.clone(),
            TargetKind::File => self.work_path(),
        };
        folder.join(format!("part-{part:05}.{}", self.format.name()))
    }

    fn note_path(&self, part: usize) -> PathBuf {
        self.work_path().join(format!("note-{part:05}.json"))
    }

    fn reasons_path(&self, part: usize) -> PathBuf {
        self.work_path().join(format!("rejected-{part:05}.jsonl"))
    }

    fn read_job(&self) -> Result<Option<JobFile>, CorpusError> {
        let path = self.job_path();
        let fault = |problem: String| CorpusError::destination(&self.path, problem);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.check_unused().map(|()| None);
            }
            Err(error) => return Err(fault(format!("{}: {error}", path.display()))),
        };
        let job: JobFile = serde_json::from_slice(&bytes).map_err(|error| {
            fault(format!(
                "{} cannot be understood ({error}); choose another --out",
                path.display()
            ))
        })?;
        if job.format_version != FORMAT_VERSION {
            let version = job.format_version;
            return Err(fault(format!(
                "{} is of version {version}, this program writes {FORMAT_VERSION}; choose another \
                 --out",
                path.display()
            )));
        }
        Ok(Some(job))
    }

    /// Nothing of others is written over.
    fn check_unused(&self) -> Result<(), CorpusError> {
        let used = match self.kind {
            TargetKind::File => self.path.exists(),
            TargetKind::Folder => match fs::read_dir(&self.path) {
                // What an end before the first line of the job left behind.
                Ok(entries) => entries.flatten().any(|entry| entry.path() != self.work_path()),
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            },
        };
        if !used {
            return Ok(());
        }
        let problem = "it exists and was not made by `duovec embed`; choose another --out";
        Err(CorpusError::destination(&self.path, problem))
    }
}

impl Destination {
    /// Takes the place, or goes on with what an earlier run of the same terms left.
    ///
    /// # Errors
    /// When it belongs to other terms, another process writes to it, or the disk does not take it.
    pub(super) fn open(
        target: &OutputTarget,
        label: &Label,
        columns: &Columns,
        limits: WindowLimits,
    ) -> Result<Self, CorpusError> {
        let terms = Terms {
            label: label.clone(),
            format: target.format.name().to_owned(),
            text_column: columns.text.clone(),
            kept_columns: columns.kept.join(","),
            part_rows: limits.rows,
            part_bytes: limits.bytes,
        };
        let mut earlier = target.read_job()?;
        let work = target.work_path();
        if let Some(earlier) = &mut earlier {
            compare(target, &earlier.terms, &terms)?;
            if target.kind == TargetKind::File && !target.path.exists() {
                earlier.finished = None;
            }
        }
        if let Some(job) = earlier.take_if(|job| job.finished.is_some()) {
            // What a run left that ended at its last step.
            let _ = fs::remove_dir_all(&work);
            return Ok(Self { target: target.clone(), job, _lock: None });
        }
        fs::create_dir_all(&work).map_err(CorpusError::writing(&work))?;
        let lock = lock(target, &work.join("lock"))?;
        let job = match earlier {
            Some(job) => job,
            None => {
                let job = JobFile { format_version: FORMAT_VERSION, terms, finished: None };
                write_json(&work, &target.job_path(), &job)?;
                job
            }
        };
        Ok(Self { target: target.clone(), job, _lock: Some(lock) })
    }

    /// What the whole output has; `None` until it is whole.
    pub(super) const fn finished(&self) -> Option<Totals> {
        self.job.finished
    }

    /// Whether a part is finished.
    ///
    /// # Errors
    /// When it was made of other rows than those of `digest`.
    pub(super) fn has_part(&self, part: usize, digest: &str) -> Result<bool, CorpusError> {
        if !self.target.part_path(part).exists() {
            return Ok(false);
        }
        if self.note(part)?.digest == digest {
            return Ok(true);
        }
        let problem = format!(
            "its part {part} was made from other rows than this input has; give the input that it \
             was started with, or choose another --out"
        );
        Err(CorpusError::destination(&self.target.path, problem))
    }

    /// Writes a part: its reasons and its note first.
    pub(super) fn write_part(&self, part: &PartContent<'_>) -> Result<(), CorpusError> {
        let work = self.target.work_path();
        let index = part.window.index;
        let rows = part.window.rows.iter().zip(part.outcomes).zip(part.window.first_row..);
        let reasons: Vec<Reason<'_>> = rows
            .filter_map(|((row, outcome), number)| {
                let reason = outcome.as_ref().err()?;
                Some(Reason { file: &row.file, number: row.number, row: number, reason })
            })
            .collect();
        let lines: Vec<u8> = reasons.iter().flat_map(line).collect();
        write_whole(&work, &self.target.reasons_path(index), &lines)?;
        let embedded = part.outcomes.iter().flatten();
        let totals = Totals {
            embedded: embedded.clone().count() as u64,
            rejected: reasons.len() as u64,
            tokens: embedded.map(|item| item.tokens as u64).sum(),
        };
        let note = Note { digest: part.window.digest(), totals };
        write_json(&work, &self.target.note_path(index), &note)?;
        let temporary = work.join("part.tmp");
        part.write(self.target.format, &temporary)?;
        rename(&temporary, &self.target.part_path(index))
    }

    /// Makes the output whole out of its first `parts` parts, which are all there.
    pub(super) fn finish(&mut self, parts: usize) -> Result<Totals, CorpusError> {
        let target = &self.target;
        if target.note_path(parts).exists() && target.part_path(parts).exists() {
            let problem = "it has more parts than this input gives; give the input that it was \
                           started with, or choose another --out";
            return Err(CorpusError::destination(&target.path, problem));
        }
        let mut totals = Totals::default();
        for part in 0..parts {
            let Totals { embedded, rejected, tokens } = self.note(part)?.totals;
            totals.embedded += embedded;
            totals.rejected += rejected;
            totals.tokens += tokens;
        }
        let work = target.work_path();
        let temporary = work.join("whole.tmp");
        if totals.rejected > 0 {
            let reasons: Vec<PathBuf> = (0..parts).map(|part| target.reasons_path(part)).collect();
            let label = &self.job.terms.label;
            output::merge(OutputFormat::Jsonl, &reasons, label, &temporary)?;
            rename(&temporary, &target.rejected_path())?;
        }
        if target.kind == TargetKind::File {
            let parts: Vec<PathBuf> = (0..parts).map(|part| target.part_path(part)).collect();
            output::merge(target.format, &parts, &self.job.terms.label, &temporary)?;
            rename(&temporary, &target.path)?;
        }
        self.job.finished = Some(totals);
        write_json(&work, &target.job_path(), &self.job)?;
        fs::remove_dir_all(&work).map_err(CorpusError::writing(&work))?;
        Ok(totals)
    }

    fn note(&self, part: usize) -> Result<Note, CorpusError> {
        let path = self.target.note_path(part);
        let note = fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
        note.map_err(|error| {
            let problem = format!("{}: {error}; choose another --out", path.display());
            CorpusError::destination(&self.target.path, problem)
        })
    }
}

/// A line of the side file.
#[derive(Serialize)]
struct Reason<'a> {
    file: &'a str,
    /// Of the file, from 1.
    number: u64,
    /// Of the whole input, from 0.
    row: u64,
    reason: &'a str,
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("it has names and plain values");
    line.push(b'\n');
    line
}

/// Says which of the terms differ.
fn compare(target: &OutputTarget, begun: &Terms, asked: &Terms) -> Result<(), CorpusError> {
    if begun == asked {
        return Ok(());
    }
    let pairs = named_values(begun).into_iter().zip(named_values(asked));
    let differ = pairs.filter(|(begun, asked)| begun != asked);
    let differ: Vec<String> = differ
        .map(|((name, begun), (_, asked))| format!("its {name} is \"{begun}\", not \"{asked}\""))
        .collect();
    let differ = differ.join(", ");
    let problem = format!("{differ}; give what it was started with, or choose another --out");
    Err(CorpusError::destination(&target.path, problem))
}

/// Two processes must not write to one output.
fn lock(target: &OutputTarget, path: &Path) -> Result<File, CorpusError> {
    let file = File::create(path).map_err(CorpusError::writing(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let problem = "another process is writing to it; wait until that one has ended";
            Err(CorpusError::destination(&target.path, problem))
        }
        Err(TryLockError::Error(error)) => Err(CorpusError::output(path, error)),
    }
}

fn write_json(work: &Path, path: &Path, value: &impl Serialize) -> Result<(), CorpusError> {
    write_whole(work, path, &line(value))
}

fn write_whole(work: &Path, path: &Path, bytes: &[u8]) -> Result<(), CorpusError> {
    let temporary = work.join("small.tmp");
    output::stream(&temporary, |out| io::Write::write_all(out, bytes))?;
    rename(&temporary, path)
}

/// Gives a file that is on the disk its name, and the name to the disk.
fn rename(from: &Path, to: &Path) -> Result<(), CorpusError> {
    let fault = CorpusError::writing(to);
    fs::rename(from, to).map_err(&fault)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(&fault)?;
    folder.sync_all().map_err(&fault)
}
