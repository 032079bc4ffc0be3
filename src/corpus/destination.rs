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
//! comes after its note, so whatever has a part has a note. Records say what files held when they
//! were written: a part that holds something else is made again, and a whole output that lost a
//! file goes on as an interrupted one. Nothing is read of an output that is not finished before it
//! is locked.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::CorpusError;
use super::input::Columns;
use super::job::{FORMAT_VERSION, FileSum, Finished, JobFile, Note, Totals};
use super::output::{self, OutputFormat, rename, write_json, write_whole};
use super::recipe::Recipe;
use super::terms::Terms;
use super::{Maker, Window};

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

type WritePart<'a> = Box<dyn FnOnce(&Path) -> Result<(), CorpusError> + 'a>;

pub(crate) struct NewPart<'a> {
    pub(crate) totals: Totals,
    /// Lines about rows that were not embedded.
    pub(crate) reasons: Vec<u8>,
    pub(crate) write: WritePart<'a>,
}

/// The output of a run, with a lock on it.
pub(crate) struct Destination {
    target: OutputTarget,
    /// What an earlier run, or this one, began.
    job: Option<JobFile>,
    /// Held until the output is whole.
    lock: Option<File>,
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
    fn files<'a>(&self, finished: &'a Finished) -> Vec<(PathBuf, &'a FileSum)> {
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
    fn parts(&self) -> usize {
        let first = self.part_path(0);
        let entries = first.parent().and_then(|folder| fs::read_dir(folder).ok());
        let is_part = |entry: &fs::DirEntry| {
            OutputFormat::of(&entry.path()).is_some()
                && entry.file_name().to_string_lossy().starts_with("part-")
        };
        entries.into_iter().flatten().flatten().filter(is_part).count()
    }

    /// Whether there is anything that took work: parts, or the file that was made of them.
    fn has_vectors(&self) -> bool {
        self.kind == TargetKind::File && self.path.exists() || self.parts() > 0
    }

    /// Two processes must not write to one output. The lock is a file of the work folder, which
    /// goes with it: one that was removed meanwhile locks nothing.
    fn lock(&self) -> Result<File, CorpusError> {
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
        let is_rejected = rejected.exists() && !self.path.exists();
        let found = if is_rejected { &rejected } else { &self.path };
        let problem = "exists and was not made by this command; name another output";
        Err(CorpusError::destination(&self.path, format!("{} {problem}", found.display())))
    }
}

impl Destination {
    /// Takes the place, or that of an earlier run with these terms, without a change of what lies
    /// there. `asked` has what is known before the model is loaded.
    ///
    /// # Errors
    /// On other terms, changed files, another process that writes to it, or a fault of the disk.
    pub(crate) fn open(target: OutputTarget, asked: &Terms) -> Result<Self, CorpusError> {
        let mut destination = Self { job: target.read_job()?, target, lock: None };
        let work = destination.target.work_path();
        if destination.finished().is_some() {
            // A complete output of another format has no file of this one, so that it would be
            // locked as one that lost them all.
            destination.compare(asked)?;
            destination.check_files()?;
        }
        if !destination.is_finished() {
            destination.lock = Some(destination.target.lock()?);
            // Another process may have finished it meanwhile.
            destination.job = destination.target.read_job()?;
            destination.compare(asked)?;
        } else if work.exists() {
            // Of a run that ended at its last step, or is at it.
            destination.lock = destination.target.lock().ok();
        }
        if destination.is_finished() && destination.lock.is_some() {
            let _ = fs::remove_dir_all(work);
        }
        Ok(destination)
    }

    /// Begins the output, or goes on with what an earlier run left of it.
    ///
    /// # Errors
    /// When the earlier run had other terms, or the disk does not take it.
    pub(crate) fn begin(&mut self, terms: &Terms) -> Result<(), CorpusError> {
        self.compare(terms)?;
        let parts = self.target.parts();
        if parts > 0 {
            tracing::info!(parts, "goes on with what an earlier run finished");
        }
        match parts {
            _ if self.kept_file().is_some() => Ok(()),
            0 => self.write_job(terms.clone(), None),
            _ => self.reopen(),
        }
    }

    /// Gives an output that was whole, and lost a file, the notes of one that was interrupted.
    fn reopen(&mut self) -> Result<(), CorpusError> {
        let (target, work) = (&self.target, self.target.work_path());
        let Some(JobFile { terms, finished: Some(finished), .. }) = &self.job else {
            return Ok(());
        };
        // Without them, the parts with such rows are made again.
        let rejected = fs::read(target.rejected_path()).unwrap_or_default();
        let mut lines = rejected.split_inclusive(|&byte| byte == b'\n');
        for (part, note) in finished.parts.iter().enumerate() {
            let own = lines.by_ref().take(note.totals.rejected as usize);
            let own: Vec<u8> = own.flatten().copied().collect();
            write_whole(&work, &target.reasons_path(part), &own)?;
            write_json(&work, &target.note_path(part), note)?;
        }
        self.write_job(terms.clone(), None)
    }

    fn write_job(&mut self, terms: Terms, finished: Option<Finished>) -> Result<(), CorpusError> {
        let job = JobFile { format_version: FORMAT_VERSION, terms, finished };
        write_json(&self.target.work_path(), &self.target.job_path(), &job)?;
        self.job = Some(job);
        Ok(())
    }

    /// Refuses to go on with what was made on other terms. Without vectors nothing was made.
    fn compare(&self, asked: &Terms) -> Result<(), CorpusError> {
        let Some(job) = &self.job else { return Ok(()) };
        let differing = job.terms.differing(asked);
        if differing.is_empty() || !self.target.has_vectors() {
            return Ok(());
        }
        let cure = "give what it was started with, or name another output";
        Err(self.fault(format!("{differing}; {cure}")))
    }

    /// Whether nothing is left to do for the input that it was made from: no file is missing.
    pub(crate) fn is_finished(&self) -> bool {
        let files = self.finished().map(|finished| self.target.files(finished));
        files.is_some_and(|files| files.iter().all(|(path, _)| path.exists()))
    }

    fn finished(&self) -> Option<&Finished> {
        self.job.as_ref()?.finished.as_ref()
    }

    /// What is on record about a whole file that lost its side file. Both are made again out of the
    /// same input, and the file stays until then.
    fn kept_file(&self) -> Option<&Finished> {
        self.finished().filter(|found| found.whole.is_some() && self.target.path.exists())
    }

    /// Refuses a complete output of which somebody changed a file: it would be written over.
    fn check_files(&self) -> Result<(), CorpusError> {
        let files = self.finished().map(|finished| self.target.files(finished));
        let mut there = files.into_iter().flatten().filter(|(path, _)| path.exists());
        let found = there.find_map(|(path, sum)| sum.difference(&path));
        let Some(difference) = found else { return Ok(()) };
        Err(self.fault(format!(
            "it is complete, but {difference}; delete this file and run the same command again, \
             which makes it again"
        )))
    }

    /// What a finished output has.
    ///
    /// # Errors
    /// When the input is another one than it was made from.
    pub(crate) fn check_finished<M: Maker>(
        &self,
        windows: impl Iterator<Item = Result<Window<M::Content>, CorpusError>>,
    ) -> Result<Totals, CorpusError> {
        let Some(finished) = self.finished() else { return Ok(Totals::default()) };
        let mut found = 0;
        for window in windows {
            let Window { digest, place, .. } = window?;
            self.compare_window::<M>(finished, found, &digest, &place)?;
            found += 1;
        }
        if found < finished.parts.len() { Err(self.more_parts()) } else { Ok(finished.totals) }
    }

    /// Refuses a window that a complete output was not made from.
    fn compare_window<M: Maker>(
        &self,
        finished: &Finished,
        part: usize,
        digest: &str,
        place: &str,
    ) -> Result<(), CorpusError> {
        match finished.parts.get(part) {
            Some(note) if note.digest == digest => Ok(()),
            Some(_) => Err(self.other_input::<M>(part, place)),
            None => Err(self.fault(format!(
                "it is complete, and this input goes on at {place}; {OTHER_INPUT}"
            ))),
        }
    }

    /// Whether a part is finished, and is still as it was written.
    ///
    /// # Errors
    /// When it, or the whole file that is still there, was made of another window than the one with
    /// `digest`, which begins at `place`.
    pub(super) fn has_part<M: Maker>(
        &self,
        part: usize,
        digest: &str,
        place: &str,
    ) -> Result<bool, CorpusError> {
        if let Some(finished) = self.kept_file() {
            self.compare_window::<M>(finished, part, digest, place)?;
        }
        let (path, reasons) = (self.target.part_path(part), self.target.reasons_path(part));
        if !path.exists() {
            return Ok(false);
        }
        let note = self.note(part)?;
        if note.digest != digest {
            return Err(self.other_input::<M>(part, place));
        }
        let differing = note.part.difference(&path).or_else(|| note.reasons.difference(&reasons));
        if let Some(difference) = &differing {
            tracing::warn!(part, "{difference}; the part is made again");
        }
        Ok(differing.is_none())
    }

    /// Writes a part, which gets its name after its reasons and its note.
    pub(super) fn write_part(
        &self,
        index: usize,
        digest: &str,
        part: NewPart<'_>,
    ) -> Result<(), CorpusError> {
        let (work, NewPart { totals, reasons, write }) = (self.target.work_path(), part);
        let (temporary, reasons_path) = (work.join("part.tmp"), self.target.reasons_path(index));
        write(&temporary)?;
        write_whole(&work, &reasons_path, &reasons)?;
        let (part, reasons) = (FileSum::written(&temporary)?, FileSum::written(&reasons_path)?);
        let note = Note { digest: digest.to_owned(), totals, part, reasons };
        write_json(&work, &self.target.note_path(index), &note)?;
        rename(&temporary, &self.target.part_path(index))
    }

    /// Makes the output whole out of its first `parts` parts, which are all there.
    pub(super) fn finish(&mut self, parts: usize) -> Result<Totals, CorpusError> {
        let target = &self.target;
        let kept = self.kept_file().map_or(0, |finished| finished.parts.len());
        if target.parts().max(kept) > parts {
            return Err(self.more_parts());
        }
        let mut finished = Finished::default();
        for part in 0..parts {
            let note = self.note(part)?;
            finished.totals.embedded += note.totals.embedded;
            finished.totals.rejected += note.totals.rejected;
            finished.totals.tokens += note.totals.tokens;
            finished.parts.push(note);
        }
        let (totals, work) = (finished.totals, target.work_path());
        let temporary = work.join("whole.tmp");
        let terms = self.job.as_ref().map(|job| job.terms.clone()).unwrap_or_default();
        let reasons: Vec<PathBuf> = (0..parts).map(|part| target.reasons_path(part)).collect();
        output::merge(OutputFormat::Jsonl, &reasons, &terms, &temporary)?;
        if fs::metadata(&temporary).is_ok_and(|found| found.len() > 0) {
            finished.reasons = Some(FileSum::written(&temporary)?);
            rename(&temporary, &target.rejected_path())?;
        } else {
            // An earlier run may have rejected what is right now.
            output::remove(&target.rejected_path())?;
        }
        if target.kind == TargetKind::File {
            let parts: Vec<PathBuf> = (0..parts).map(|part| target.part_path(part)).collect();
            output::merge(target.format, &parts, &terms, &temporary)?;
            finished.whole = Some(FileSum::written(&temporary)?);
            rename(&temporary, &target.path)?;
        }
        self.write_job(terms, Some(finished))?;
        // The next run removes what cannot be removed now.
        let _ = fs::remove_dir_all(&work);
        Ok(totals)
    }

    fn note(&self, part: usize) -> Result<Note, CorpusError> {
        let path = self.target.note_path(part);
        let note = fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        note.map_err(|error| {
            self.fault(format!("{}: {error}; name another output", path.display()))
        })
    }

    fn other_input<M: Maker>(&self, part: usize, place: &str) -> CorpusError {
        let items = M::ITEMS;
        self.fault(format!(
            "its part {part} was made from other {items} than this input has from {place} on; \
             {OTHER_INPUT}"
        ))
    }

    fn more_parts(&self) -> CorpusError {
        self.fault(format!("it has more parts than this input gives; {OTHER_INPUT}"))
    }

    fn fault(&self, problem: String) -> CorpusError {
        CorpusError::destination(&self.target.path, problem)
    }
}

const OTHER_INPUT: &str = "give the input that it was started with, or name another output";
