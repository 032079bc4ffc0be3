//! A file of API keys, one a line.

use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::super::watched::{Source, open_file};
use super::{KeyDigest, digest};

/// A file of keys is not longer; anything longer was named by mistake.
const MAX_BYTES: u64 = 1024 * 1024;

/// Permission bit: every user of the machine may read.
const OTHERS_READ: u32 = 0o004;

/// Why a file gives no keys.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum KeyFileError {
    #[error("cannot read {path}, of --api-key-file")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} has no API key; write one key a line")]
    Empty { path: PathBuf },
    #[error("{path} has more than {MAX_BYTES} bytes; is it a file of API keys?")]
    TooLong { path: PathBuf },
}

/// The file, and what the log says of it.
pub(super) struct KeyFile {
    path: PathBuf,
    /// Whether everybody can read it, which the log says once.
    exposed: AtomicBool,
}

impl KeyFile {
    /// The file at `path`.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), exposed: AtomicBool::new(false) }
    }

    fn warn_when_exposed(&self, mode: u32) {
        let exposed = mode & OTHERS_READ != 0;
        let was_exposed = self.exposed.swap(exposed, Ordering::Relaxed);
        if exposed && !was_exposed {
            let path = self.path.display();
            tracing::warn!(%path, "every user of this machine can read the API keys; chmod o-r");
        }
    }

    fn failed(&self, source: io::Error) -> KeyFileError {
        KeyFileError::Read { path: self.path.clone(), source }
    }
}

impl Source for KeyFile {
    type Content = [Vec<u8>; 1];
    type Value = Vec<KeyDigest>;
    type Error = KeyFileError;

    const NAME: &'static str = "the API keys";

    fn read(&self) -> Result<Self::Content, KeyFileError> {
        let (file, metadata) = open_file(&self.path).map_err(|error| self.failed(error))?;
        let mut content = Vec::new();
        let read = file.take(MAX_BYTES + 1).read_to_end(&mut content);
        if read.map_err(|error| self.failed(error))? as u64 > MAX_BYTES {
            return Err(KeyFileError::TooLong { path: self.path.clone() });
        }
        self.warn_when_exposed(metadata.mode());
        Ok([content])
    }

    /// A file that was emptied while the server runs has no keys: all are revoked.
    fn parse(&self, [content]: &Self::Content) -> Result<Vec<KeyDigest>, KeyFileError> {
        let text = str::from_utf8(content);
        let text = text.map_err(|error| self.failed(io::Error::new(ErrorKind::InvalidData, error)));
        text.map(keys)
    }

    fn log_change(&self, value: &Vec<KeyDigest>) {
        let path = self.path.display();
        match value.len() {
            0 => {
                tracing::warn!(%path, "the file has no API key any more: those it had are revoked")
            }
            keys => tracing::info!(%path, keys, "the API keys were read again"),
        }
    }
}

/// Blank lines and those that start with `#` hold no key.
fn keys(text: &str) -> Vec<KeyDigest> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let keys = text.lines().map(str::trim).filter(|line| !line.is_empty());
    keys.filter(|line| !line.starts_with('#')).map(|key| digest(key.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::watched::Watched;
    use super::*;
    use std::fs;

    #[test]
    fn comments_blank_lines_and_spaces_are_no_keys() {
        let text = "\u{feff}# ours\r\n\r\n  alpha \r\n#beta\n\t\ngamma#1\n";
        assert_eq!(keys(text), [digest(b"alpha"), digest(b"gamma#1")]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("keys");
        let refused = || {
            let error = Watched::open(KeyFile::new(&path)).expect_err("it cannot be read");
            assert!(error.to_string().contains("keys"), "{error}");
            error
        };
        assert!(matches!(refused(), KeyFileError::Read { .. }));
        fs::write(&path, b"\xff\xfe").expect("it is written");
        assert!(matches!(refused(), KeyFileError::Read { .. }));
        fs::write(&path, "k\n".repeat(600_000)).expect("it is written");
        assert!(matches!(refused(), KeyFileError::TooLong { .. }));
    }
}
