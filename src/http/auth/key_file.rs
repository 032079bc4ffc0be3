//! A file of API keys, one a line, and whether it has changed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::super::stamp::Stamp;
use super::{KeyDigest, digest};

/// A file of keys is not longer; anything longer was named by mistake.
const MAX_BYTES: u64 = 1024 * 1024;

/// Permission bit: every user of the machine may read.
const OTHERS_READ: u32 = 0o004;

/// Why a file gives no keys.
#[derive(Debug, Error)]
pub enum KeyFileError {
    #[error("cannot read the API keys of {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} has no API key; write one key a line")]
    Empty { path: PathBuf },
    #[error("{path} has more than {MAX_BYTES} bytes; is it a file of API keys?")]
    TooLong { path: PathBuf },
}

/// What is known of the file.
pub(super) struct KeyFile {
    path: PathBuf,
    /// Of the keys that were read; `None` after a failure, so that it is tried again.
    stamp: Option<Stamp>,
    /// The last look failed, and the log says so.
    failing: bool,
    /// The log says that everybody can read it.
    exposed: bool,
}

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<KeyDigest>), KeyFileError> {
        let mut file = Self { path: path.to_owned(), stamp: None, failing: false, exposed: false };
        let keys = file.read()?;
        Ok((file, keys))
    }

    /// The keys, when the file is another one than at the last look. One that cannot be read is a
    /// warning, once, until it can be read again.
    pub(super) fn changed(&mut self) -> Option<Vec<KeyDigest>> {
        if self.stamp.is_some() && Stamp::of(&self.path).ok() == self.stamp {
            return None;
        }
        match self.read() {
            Ok(keys) => {
                self.failing = false;
                Some(keys)
            }
            Err(error) => {
                if !self.failing {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "the API keys read last stay");
                }
                self.failing = true;
                self.stamp = None;
                None
            }
        }
    }

    fn read(&mut self) -> Result<Vec<KeyDigest>, KeyFileError> {
        let failed = |source| KeyFileError::Read { path: self.path.clone(), source };
        let file = File::open(&self.path).map_err(failed)?;
        // Before its content: what is written from here on is a change.
        let metadata = file.metadata().map_err(failed)?;
        let mut text = String::new();
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if read as u64 > MAX_BYTES {
            return Err(KeyFileError::TooLong { path: self.path.clone() });
        }
        let keys = parse(&text);
        let exposed = metadata.mode() & OTHERS_READ != 0;
        if exposed && !self.exposed {
            let path = self.path.display();
            tracing::warn!(%path, "every user of this machine can read the API keys; chmod o-r");
        }
        self.exposed = exposed;
        self.stamp = Some(Stamp::from(&metadata));
        Ok(keys)
    }
}

/// Blank lines and those that start with `#` hold no key.
fn parse(text: &str) -> Vec<KeyDigest> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let keys = text.lines().map(str::trim).filter(|line| !line.is_empty());
    keys.filter(|line| !line.starts_with('#')).map(|key| digest(key.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn comments_blank_lines_and_spaces_are_no_keys() {
        let text = "\u{feff}# ours\r\n\r\n  alpha \r\n#beta\n\t\ngamma#1\n";
        assert_eq!(parse(text), [digest(b"alpha"), digest(b"gamma#1")]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("keys");
        let refused = || {
            let error = KeyFile::open(&path).err().expect("it cannot be read");
            assert!(error.to_string().contains("keys"), "{error}");
            error
        };
        assert!(matches!(refused(), KeyFileError::Read { .. }));
        fs::write(&path, b"\xff\xfe").expect("it is written");
        assert!(matches!(refused(), KeyFileError::Read { .. }));
        fs::write(&path, "k\n".repeat(600_000)).expect("it is written");
        assert!(matches!(refused(), KeyFileError::TooLong { .. }));
    }

    #[test]
    fn an_unchanged_file_is_not_read_again_and_a_replaced_one_is() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("keys");
        fs::write(&path, "a\n").expect("it is written");
        let (mut file, keys) = KeyFile::open(&path).expect("it has a key");
        assert_eq!(keys, [digest(b"a")]);
        assert_eq!(file.changed(), None);
        // As careful writers do it: a new file of the same size takes its place.
        let next = folder.path().join("next");
        fs::write(&next, "b\n").expect("it is written");
        fs::rename(&next, &path).expect("it is renamed");
        assert_eq!(file.changed(), Some(vec![digest(b"b")]));
        assert_eq!(file.changed(), None);
    }
}
