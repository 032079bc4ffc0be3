//! Where the output of a run lies, and what lies there.
//!
//! | | a folder `OUT` | a file `OUT` |
//! |---|---|---|
//! | vectors | `OUT/part-00000.parquet`, … | `OUT`, made of the parts at the end |
//! | what it is | `OUT/_duovec.json` | `OUT.duovec.json` |
//! | rows that were not embedded | `OUT/_rejected.jsonl` | `OUT.rejected.jsonl` |
//! | until it is finished | `OUT/_duovec_work` | `OUT.duovec_work` |

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::CorpusError;
use super::input::Columns;
use super::job::{FORMAT_VERSION, FileSum, Finished, JobFile, Note};
use super::output::{self, OutputFormat, rename};
use super::recipe::Recipe;

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

impl OutputTarget {
    /// A folder has parts; a file is named with the end of its format.
    pub(crate) fn new(path: PathBuf, format: Option<OutputFormat>) -> Result<Self, CorpusError> {
        let (format, kind) = match (OutputFormat::of(&path), format) {
            (Some(named), Some(asked)) if named != asked => {
                return Err(CorpusError::Options(format!(
                    "--format {} does not fit the name {}; leave --format out, or end the \
                     name in .{0}",
                    asked.name(),
                    path.display()
                )));
            }
            (Some(format), _) => (format, TargetKind::File),
            (None, _) if OutputFormat::is_other(&path) => {
                return Err(CorpusError::Options(format!(
                    "{}: vectors are written as .parquet, .jsonl or .npy; end the name so, or name \
                     a folder",
                    path.display()
                )));
            }
            (None, format) => (format.unwrap_or(OutputFormat::Parquet), TargetKind::Folder),
        };
        Ok(Self { path, format, kind })
    }

    /// A file of JSON lines, whatever its name.
    pub(crate) const fn lines(path: PathBuf) -> Self {
        Self { path, format: OutputFormat::Jsonl, kind: TargetKind::File }
    }

    /// # Errors
    /// When the form of the output cannot hold these columns or vectors, or what is made of a row.
    pub(crate) fn check(&self, columns: &Columns, recipe: &Recipe) -> Result<(), CorpusError> {
        let otherwise = match self.kind {
            TargetKind::File => "end the name in .parquet or .jsonl",
            TargetKind::Folder => "use --format parquet or --format jsonl",
        };
        self.format.check(columns, recipe, otherwise)
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

    pub(super) fn job_path(&self) -> PathBuf {
        self.beside("_duovec.json", ".duovec.json")
    }

    /// Rows that were not embedded, with their reasons.
    pub(crate) fn rejected_path(&self) -> PathBuf {
        self.beside("_rejected.jsonl", ".rejected.jsonl")
    }

    pub(super) fn work_path(&self) -> PathBuf {
        self.beside("_duovec_work", ".duovec_work")
    }

    /// What a run writes beside the vectors: two files, and a folder of others.
    pub(crate) fn side_paths(&self) -> [PathBuf; 3] {
        [self.job_path(), self.rejected_path(), self.work_path()]
    }

    pub(crate) fn part_path(&self, part: usize) -> PathBuf {
        let folder = match self.kind {
            TargetKind::Folder => self.path.clone(),
            TargetKind::File => self.work_path(),
        };
        folder.join(format!("part-{part:05}.{}", self.format.name()))
    }

    pub(super) fn note_path(&self, part: usize) -> PathBuf {
        self.work_path().join(format!("note-{part:05}.json"))
    }

    pub(super) fn reasons_path(&self, part: usize) -> PathBuf {
        self.work_path().join(format!("rejected-{part:05}.jsonl"))
    }

    pub(super) fn read_job(&self) -> Result<Option<JobFile>, CorpusError> {
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
            fault(format!("{} cannot be understood ({error}); name another output", path.display()))
        })?;
        match job.format_version {
            FORMAT_VERSION => Ok(Some(job)),
            version => Err(fault(format!(
                "{} is of version {version}, this program writes {FORMAT_VERSION}; name another \
                 output",
                path.display()
            ))),
        }
    }

    /// The files of a whole output, each with what was written to it.
    pub(super) fn files<'a>(&self, finished: &'a Finished) -> Vec<(PathBuf, &'a FileSum)> {
        let vectors: Vec<_> = match &finished.whole {
            Some(whole) => vec![(self.path.clone(), whole)],
            None => {
                let part = |(at, note): (usize, &'a Note)| (self.part_path(at), &note.part);
                finished.parts.iter().enumerate().map(part).collect()
            }
        };
        let rejected = finished.reasons.iter().map(|sum| (self.rejected_path(), sum));
        vectors.into_iter().chain(rejected).collect()
    }

    /// How many parts of an output that is not whole are finished, those of other formats too.
    pub(super) fn parts(&self) -> usize {
        let first = self.part_path(0);
        let entries = first.parent().and_then(|folder| fs::read_dir(folder).ok());
        let is_part = |entry: &fs::DirEntry| {
            OutputFormat::of(&entry.path()).is_some()
                && entry.file_name().to_string_lossy().starts_with("part-")
        };
        entries.into_iter().flatten().flatten().filter(is_part).count()
    }

    /// Whether there is anything that took work: parts, or the file that was made of them.
    pub(super) fn has_vectors(&self) -> bool {
        self.kind == TargetKind::File && self.path.exists() || self.parts() > 0
    }

    /// Two processes must not write to one output. The lock is a file of the work folder, which
    /// goes with it: one that was removed meanwhile locks nothing.
    pub(super) fn lock(&self) -> Result<File, CorpusError> {
        let work = self.work_path();
        let path = work.join("lock");
        loop {
            fs::create_dir_all(&work).map_err(CorpusError::writing(&work))?;
            let file = match File::create(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                created => created.map_err(CorpusError::writing(&path))?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let problem = "another process is writing to it; wait until that one has ended";
                    return Err(CorpusError::destination(&self.path, problem));
                }
                Err(TryLockError::Error(error)) => return Err(CorpusError::output(&path, error)),
            }
            if file.metadata().map_err(CorpusError::writing(&path))?.nlink() > 0 {
                return Ok(file);
            }
        }
    }

    /// Nothing of others is written over.
    fn check_unused(&self) -> Result<(), CorpusError> {
        let rejected = self.rejected_path();
        let used = match self.kind {
            TargetKind::File => self.has_vectors() || rejected.exists(),
            TargetKind::Folder => match fs::read_dir(&self.path) {
                // What an end before the first line of the job left behind.
                Ok(entries) => entries.flatten().any(|entry| entry.path() != self.work_path()),
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            },
        };
        if !used {
            return Ok(());
        }
        if rejected.exists() && !self.path.exists() {
            return Err(self.not_on_record(&rejected));
        }
        let problem = "exists and was not made by this command; name another output";
        Err(CorpusError::destination(&self.path, format!("{} {problem}", self.path.display())))
    }

    /// Refuses a file, beside a single file or that file itself, which holds none of `own`: another
    /// program wrote it after the run began.
    pub(super) fn check_own(
        &self,
        path: &Path,
        own: &[Option<&FileSum>],
    ) -> Result<(), CorpusError> {
        let mut own = own.iter().flatten();
        if self.kind == TargetKind::Folder
            || !path.exists()
            || own.any(|sum| sum.difference(path).is_none())
        {
            return Ok(());
        }
        Err(self.not_on_record(path))
    }

    /// Gives a file of a whole output its name, which `before` or the file itself may have: a run
    /// may have ended after this step.
    pub(super) fn put(
        &self,
        temporary: &Path,
        path: &Path,
        before: Option<&FileSum>,
    ) -> Result<FileSum, CorpusError> {
        let sum = FileSum::written(temporary)?;
        self.check_own(path, &[before, Some(&sum)])?;
        rename(temporary, path)?;
        Ok(sum)
    }

    /// Removes the list of rejected rows, which must be `before`.
    pub(super) fn remove_rejected(&self, before: Option<&FileSum>) -> Result<(), CorpusError> {
        let path = self.rejected_path();
        self.check_own(&path, &[before])?;
        output::remove(&path)
    }

    fn not_on_record(&self, path: &Path) -> CorpusError {
        let problem = "is of no run that is on record here; remove it, or name another output";
        CorpusError::destination(&self.path, format!("{} {problem}", path.display()))
    }
}
