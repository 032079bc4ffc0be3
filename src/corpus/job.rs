//! What is on record about an output: what it was asked for, and what its files held when they were
//! written.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::CorpusError;
use super::terms::Terms;
use model::package::digest;

/// Of `_duovec.json`.
pub(super) const FORMAT_VERSION: u32 = 3;

/// `_duovec.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobFile {
    pub(super) format_version: u32,
    pub(super) terms: Terms,
    /// Absent until the output is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) finished: Option<Finished>,
}

/// What a whole output has.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Finished {
    #[serde(flatten)]
    pub(super) totals: Totals,
    /// One file of all parts; absent where the parts are the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) whole: Option<FileSum>,
    /// Lines about rows that were not embedded; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reasons: Option<FileSum>,
    pub(super) parts: Vec<Note>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) embedded: u64,
    pub(crate) rejected: u64,
    pub(crate) tokens: u64,
}

/// What is known of a finished part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Note {
    /// Of the window that it was made from.
    pub(super) digest: String,
    #[serde(flatten)]
    pub(super) totals: Totals,
    pub(super) part: FileSum,
    /// Lines about the window's rows that were not embedded.
    pub(super) reasons: FileSum,
}

/// What a file held when it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSum {
    bytes: u64,
    /// In hexadecimal.
    sha256: String,
}

impl FileSum {
    /// That of a file of the output which was just written.
    pub(super) fn written(path: &Path) -> Result<Self, CorpusError> {
        Self::of(path).map_err(CorpusError::writing(path))
    }

    fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let sha256 = digest::of_file(&mut file)?;
        Ok(Self { bytes: file.stream_position()?, sha256 })
    }

    /// How the file differs from what was written, in words; `None` when it does not.
    pub(super) fn difference(&self, path: &Path) -> Option<String> {
        let name = path.file_name().unwrap_or(path.as_os_str()).display();
        match Self::of(path) {
            Ok(found) if found == *self => None,
            Ok(Self { bytes, .. }) if bytes != self.bytes => {
                Some(format!("{name} has {bytes} bytes, and {} were written", self.bytes))
            }
            Ok(_) => Some(format!("{name} has other bytes than were written")),
            Err(error) => Some(format!("{name} cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_changed_or_lost_is_told_from_what_was_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("part");
        std::fs::write(&path, "one two").expect("written");
        let sum = FileSum::of(&path).expect("it is there");
        assert_eq!(sum.difference(&path), None);
        for (bytes, word) in [("one", "has 3 bytes, and 7 were"), ("one twO", "other bytes")] {
            std::fs::write(&path, bytes).expect("written");
            let told = sum.difference(&path).expect("it differs");
            assert!(told.starts_with("part ") && told.contains(word), "{told}");
        }
        std::fs::remove_file(&path).expect("it is there");
        assert!(sum.difference(&path).is_some_and(|told| told.contains("cannot be read")));
    }
}
