//! Which parts of the output are finished, and what makes it whole.
//!
//! A file gets its name when all of it is on the disk, so whatever has a name is whole. A part
//! comes after its note, so whatever has a part has a note. Records say what files held when they
//! were written: a part that holds something else is made again, and a whole output that lost a
//! file goes on as an interrupted one. Nothing is read of an output that is not finished before it
//! is locked.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::error::CorpusError;
use super::job::{FORMAT_VERSION, FileSum, Finished, JobFile, Note, Totals};
use super::output::{self, OutputFormat, rename, write_json, write_whole};
use super::target::{OutputTarget, TargetKind};
use super::terms::Terms;
use super::{Maker, Window};

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
            0 => {
                // The record goes, and later nothing would tell the list from another's file.
                let before = self.finished().and_then(|finished| finished.reasons.as_ref());
                self.target.remove_rejected(before)?;
                self.target.check_own(&self.target.path, &[])?;
                self.write_job(terms.clone(), None)
            }
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
        let before = self.finished().and_then(|finished| finished.reasons.as_ref());
        if fs::metadata(&temporary).is_ok_and(|found| found.len() > 0) {
            finished.reasons = Some(target.put(&temporary, &target.rejected_path(), before)?);
        } else {
            // An earlier run may have rejected what is right now.
            target.remove_rejected(before)?;
        }
        if target.kind == TargetKind::File {
            let parts: Vec<PathBuf> = (0..parts).map(|part| target.part_path(part)).collect();
            output::merge(target.format, &parts, &terms, &temporary)?;
            let before = self.finished().and_then(|finished| finished.whole.as_ref());
            finished.whole = Some(target.put(&temporary, &target.path, before)?);
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
