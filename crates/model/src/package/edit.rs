//! Changes a package on disk so that a process killed at any moment leaves it whole.
//!
//! Files appear under names that hold their digest, and only when they are complete and synced; the
//! manifest, replaced at the end by renaming, is what makes them part of the package.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::value::RawValue;
use thiserror::Error;
use uuid::Uuid;

use super::digest;
use super::manifest::plan::{PlanEntry, PlanFlavour};

/// What an editor locks: a file that is open for writing, since NFS tells other nodes of no other
/// lock. It stays, so that all lock the same one, and goes over into a package that replaces this.
const LOCK: &str = ".lock";
/// Prefix of the names of files that are being written; no other name may have it.
const UNFINISHED: &str = ".unfinished-";
const PLAN_ENDING: &str = ".plan";
const KERNELS_ENDING: &str = ".kernels";
/// Hexadecimal digits of the digest in a plan's name.
const DIGEST_IN_NAME: usize = 16;
/// The name in the log, which operators filter by: part of the server's, whatever the crate's is.
const LOG_TARGET: &str = "duovec::package::edit";

/// Why a package could not be changed. It is left as it was.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum EditError {
    #[error("another process is changing {}", .0.display())]
    Locked(PathBuf),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a manifest", path.display())]
    Manifest { path: PathBuf, source: serde_json::Error },
}

/// A plan that is on disk but in no manifest yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenPlan {
    /// Plain name in the package.
    pub file: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Of the whole file.
    pub bytes: u64,
}

/// The right to change a package, held by one process until it is dropped.
#[derive(Debug)]
pub struct PackageEditor {
    directory: PathBuf,
    /// Closing it, also by a kill, gives the lock back.
    _lock: File,
}

impl PackageEditor {
    /// Takes the lock and removes what a killed process left.
    ///
    /// # Errors
    /// `Locked` when another process has it; nobody waits. `Write` when the directory cannot be
    /// written.
    pub fn open(directory: &Path) -> Result<Self, EditError> {
        loop {
            let lock = lock_file(directory)?;
            lock.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => EditError::Locked(directory.to_owned()),
                TryLockError::Error(source) => no_lock(directory, source),
            })?;
            // Who had the lock may have put another package in this one's place.
            if is_in(directory, &lock).map_err(|source| no_lock(directory, source))? {
                return Self::new(directory, lock);
            }
        }
    }

    /// The same, but waits for a process that has the lock.
    ///
    /// # Errors
    /// Those of writing the directory and of removing files.
    pub fn wait(directory: &Path) -> Result<Self, EditError> {
        loop {
            match Self::open(directory) {
                Err(error @ EditError::Locked(_)) => {
                    tracing::info!(target: LOG_TARGET, "{error}; waiting for its end");
                    let given_back = lock_file(directory)?.lock();
                    given_back.map_err(|source| no_lock(directory, source))?;
                }
                opened => return opened,
            }
        }
    }

    fn new(directory: &Path, lock: File) -> Result<Self, EditError> {
        let editor = Self { directory: directory.to_owned(), _lock: lock };
        // A folder that takes no file is to be known before a build of minutes.
        let probe = directory.join(format!("{UNFINISHED}probe"));
        File::create(&probe).map_err(|source| EditError::Write { path: probe, source })?;
        editor.remove_files(|name| name.starts_with(UNFINISHED))?;
        Ok(editor)
    }

    /// Writes a plan under a name made of its flavour and digest.
    pub fn write_plan(&self, flavour: PlanFlavour, plan: &[u8]) -> Result<WrittenPlan, EditError> {
        let sha256 = digest::of_bytes(plan);
        let file = format!("{flavour}-{}{PLAN_ENDING}", &sha256[..DIGEST_IN_NAME]);
        self.write(&file, plan)?;
        Ok(WrittenPlan { file, sha256, bytes: plan.len() as u64 })
    }

    /// Puts `plans` in place of the manifest's, then removes the files of plans that it no longer
    /// lists, and their kernels. Everything else in the manifest stays as it is, byte for byte.
    pub fn replace_plans(&self, plans: &[PlanEntry]) -> Result<(), EditError> {
        let path = self.directory.join("manifest.json");
        let text = fs::read_to_string(&path)
            .map_err(|source| EditError::Read { path: path.clone(), source })?;
        let edited = with_plans(&text, plans)
            .map_err(|source| EditError::Manifest { path: path.clone(), source })?;
        self.write("manifest.json", edited.as_bytes())?;
        let unlisted = |name: &str| {
            plan_of(name).is_some_and(|file| plans.iter().all(|plan| plan.file != file))
        };
        if let Err(error) = self.remove_files(unlisted) {
            // The package is complete; the next change tries again.
            tracing::warn!(target: LOG_TARGET, "an old plan could not be removed: {error}");
        }
        Ok(())
    }

    /// Writes a whole file: beside its place, synced, renamed.
    ///
    /// # Errors
    /// The file is as it was before, or absent.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), EditError> {
        write_whole(&self.directory, &format!("{UNFINISHED}{name}"), name, content)
    }

    /// Takes a file away that no manifest lists.
    ///
    /// # Errors
    /// When it cannot be removed; none when it is not there.
    pub fn remove(&self, name: &str) -> Result<(), EditError> {
        self.remove_files(|found| found == name)
    }

    fn remove_files(&self, unwanted: impl Fn(&str) -> bool) -> Result<(), EditError> {
        let failed = |path: &Path, source| EditError::Write { path: path.to_owned(), source };
        let entries = fs::read_dir(&self.directory)
            .map_err(|source| EditError::Read { path: self.directory.clone(), source })?;
        for entry in entries {
            let entry = entry.map_err(|source| failed(&self.directory, source))?;
            if entry.file_name().to_str().is_some_and(&unwanted) {
                fs::remove_file(entry.path()).map_err(|source| failed(&entry.path(), source))?;
            }
        }
        Ok(())
    }
}

/// The file of the lock, to be written if that may be: another user may have made it.
fn lock_file(directory: &Path) -> Result<File, EditError> {
    let path = directory.join(LOCK);
    File::create(&path)
        .or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => File::open(&path).map_err(|_| error),
            _ => Err(error),
        })
        .map_err(|source| no_lock(directory, source))
}

fn no_lock(directory: &Path, source: io::Error) -> EditError {
    EditError::Write { path: directory.join(LOCK), source }
}

/// Whether the directory still has this file of the lock.
fn is_in(directory: &Path, lock: &File) -> io::Result<bool> {
    let (locked, found) = (lock.metadata()?, fs::metadata(directory.join(LOCK)));
    Ok(found.is_ok_and(|found| (found.dev(), found.ino()) == (locked.dev(), locked.ino())))
}

/// Puts kernels that were compiled for a plan beside it, whoever changes the package or writes the
/// same meanwhile. What a killed process leaves goes with its plan.
///
/// # Errors
/// As [`PackageEditor::write`].
pub fn write_kernels(
    directory: &Path,
    plan_file: &str,
    key: &str,
    content: &[u8],
) -> Result<(), EditError> {
    // Not `UNFINISHED`: an editor takes those away, also while they are written.
    let unfinished = kernels_name(plan_file, &Uuid::new_v4().simple().to_string());
    write_whole(directory, &unfinished, &kernels_name(plan_file, key), content)
}

fn write_whole(
    directory: &Path,
    unfinished: &str,
    name: &str,
    content: &[u8],
) -> Result<(), EditError> {
    let (unfinished, target) = (directory.join(unfinished), directory.join(name));
    let write = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&unfinished, &target)?;
        // The directory's entry must be on disk before the manifest names the file.
        File::open(directory)?.sync_all()
    };
    write().map_err(|source| {
        // A disk that is full must not stay full; the first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
        EditError::Write { path: target.clone(), source }
    })
}

/// The name of a file with kernels that were compiled for a plan; `key` is the machine's.
pub fn kernels_name(plan_file: &str, key: &str) -> String {
    format!(".{plan_file}-{key}{KERNELS_ENDING}")
}

/// The plan that a file is, or whose kernels it has.
fn plan_of(name: &str) -> Option<&str> {
    let kernels = || name.strip_prefix('.')?.strip_suffix(KERNELS_ENDING)?.rsplit_once('-');
    let file = kernels().map_or(name, |(file, _)| file);
    is_plan(file).then_some(file)
}

/// Whether the name is one that `write_plan` gives.
fn is_plan(name: &str) -> bool {
    PlanFlavour::ALL.iter().any(|flavour| {
        name.strip_prefix(flavour.name())
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(PLAN_ENDING))
            .is_some_and(|digest| {
                digest.len() == DIGEST_IN_NAME && digest.bytes().all(|b| b.is_ascii_hexdigit())
            })
    })
}

/// The manifest's text with other plans; all other fields keep their order and their bytes.
fn with_plans(text: &str, plans: &[PlanEntry]) -> Result<String, serde_json::Error> {
    let mut fields: IndexMap<String, Box<RawValue>> = serde_json::from_str(text)?;
    let plans = serde_json::to_string_pretty(plans)?.replace('\n', "\n  ");
    fields.insert("plans".to_owned(), RawValue::from_string(plans)?);
    Ok(serde_json::to_string_pretty(&fields)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(file: &str) -> PlanEntry {
        serde_json::from_value(json!({
            "file": file, "sha256": "0".repeat(64), "bytes": 7, "flavour": "tensorrt",
            "version": "11.4.0.0", "model_file": "model.onnx", "model_sha256": "1".repeat(64),
            "precision": "f16", "compute_capabilities": [], "build_seconds": 1.5, "profiles": [],
        }))
        .expect("the entry is valid")
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("it is a folder");
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.expect("it can be listed").file_name().into_string().expect("it is UTF-8")
        };
        let mut names: Vec<String> = entries.map(name).filter(|name| name != LOCK).collect();
        names.sort();
        names
    }

    #[test]
    fn other_fields_keep_their_bytes_and_order() {
        let text = "{\n  \"z\": [0.10, 1e3,   2],\n  \"plans\": [],\n  \"a\": {\"b\": \"é\"}\n}\n";
        let edited = with_plans(text, &[entry("a.plan")]).expect("it is an object");
        let (before, rest) = edited.split_once("\"plans\": [").expect("plans stay there");
        assert_eq!(before, "{\n  \"z\": [0.10, 1e3,   2],\n  ");
        assert!(rest.ends_with("\n  ],\n  \"a\": {\"b\": \"é\"}\n}\n"), "{rest}");
        assert_eq!(with_plans(&edited, &[]).expect("it is an object"), text);
    }

    #[test]
    fn plans_are_added_to_a_manifest_without_any() {
        let edited = with_plans("{\"a\": 1}", &[]).expect("it is an object");
        assert_eq!(edited, "{\n  \"a\": 1,\n  \"plans\": []\n}\n");
        assert!(with_plans("[]", &[]).is_err());
    }

    #[test]
    fn a_new_plan_replaces_the_files_of_unlisted_ones_only() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let put = |name: &str| fs::write(folder.path().join(name), "{}").expect("it is writable");
        put("manifest.json");
        put("mine.plan");
        put("tensorrt-0000000000000000.plan");
        put(".unfinished-manifest.json");
        let editor = PackageEditor::open(folder.path()).expect("nobody else has it");
        let written = editor.write_plan(PlanFlavour::TensorRtRtx, b"abc").expect("it is written");
        assert_eq!(written.file, "tensorrt-rtx-ba7816bf8f01cfea.plan");
        editor.replace_plans(&[entry(&written.file)]).expect("it is replaced");
        assert_eq!(names(folder.path()), ["manifest.json", "mine.plan", &written.file]);
    }

    #[test]
    fn only_one_process_changes_a_package() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let first = PackageEditor::open(folder.path()).expect("nobody else has it");
        let second = PackageEditor::open(folder.path());
        assert!(matches!(second, Err(EditError::Locked(_))), "{second:?}");
        drop(first);
        assert!(PackageEditor::open(folder.path()).is_ok());
    }

    #[test]
    fn who_waits_gets_the_lock_of_the_package_that_replaced_the_locked_one() {
        let parent = tempfile::tempdir().expect("a folder can be made");
        let place = parent.path().join("package");
        fs::create_dir(&place).expect("a folder can be made");
        let first = PackageEditor::open(&place).expect("nobody else has it");
        let number = fs::metadata(place.join(LOCK)).expect("it is there").ino();
        let waits = |line: &str| line.contains("->") && line.contains(&format!(":{number} "));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| PackageEditor::wait(&place));
            while !fs::read_to_string("/proc/locks").expect("Linux has it").lines().any(waits) {
                std::thread::yield_now();
            }
            fs::rename(&place, parent.path().join("replaced")).expect("it is ours");
            fs::create_dir(&place).expect("a folder can be made");
            drop(first);
            let second = waiting.join().expect("it does not panic").expect("nobody has it");
            let third = PackageEditor::open(&place);
            assert!(matches!(third, Err(EditError::Locked(_))), "{third:?}, {second:?}");
        });
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_before_any_work() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        // In a folder without permission root, as whom tests may run, would write all the same.
        fs::create_dir(folder.path().join(LOCK)).expect("a folder can be made");
        for taken in [PackageEditor::open, PackageEditor::wait] {
            let refused = taken(folder.path());
            assert!(matches!(refused, Err(EditError::Write { .. })), "{refused:?}");
        }
    }

    #[test]
    fn kernels_are_written_by_many_at_once_and_beside_a_change() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let plan = "tensorrt-rtx-0000000000000000.plan";
        let left = kernels_name(plan, "left");
        fs::write(folder.path().join(&left), "by a killed process").expect("it is writable");
        fs::write(folder.path().join("manifest.json"), "{}").expect("it is writable");
        let editor = PackageEditor::open(folder.path()).expect("nobody else has it");
        let kernels = vec![7; 12 << 20];
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    write_kernels(folder.path(), plan, "key", &kernels).expect("they are written");
                });
            }
        });
        let name = kernels_name(plan, "key");
        assert_eq!(names(folder.path()), [&name, &left, "manifest.json"]);
        assert!(fs::read(folder.path().join(&name)).expect("it is there") == kernels);
        editor.replace_plans(&[]).expect("it is replaced");
        assert_eq!(names(folder.path()), ["manifest.json"]);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::create_dir(folder.path().join("taken")).expect("a folder can be made");
        let editor = PackageEditor::open(folder.path()).expect("nobody else has it");
        assert!(editor.write("taken", b"abc").is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }
}
