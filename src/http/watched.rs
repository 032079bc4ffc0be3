//! Files that are read again when they change, such as keys and certificates.
//!
//! Their content is compared rather than their times and sizes: two writes of the same size within
//! one tick of the file system's clock look alike, and these files are small. What was made of them
//! last stays in use while they cannot be read.

use std::error::Error;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io, thread};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// How often the files are read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Writers replace one file after the other, or take one away before they put another there. Only
/// files that cannot be used so many times in a row are worth a warning.
const FAILURES_UNTIL_WARNING: u32 = 2;

/// Files, and what is made of them.
pub(super) trait Source: Send + Sync + 'static {
    /// The bytes of each file.
    type Content: AsRef<[Vec<u8>]>;
    /// What is made of them.
    type Value: Send + Sync + 'static;
    /// Why nothing can be made of them.
    type Error: Error;

    /// What the log calls the value.
    const NAME: &'static str;

    /// Reads the files; blocks as long as the file system does.
    fn read(&self) -> Result<Self::Content, Self::Error>;

    /// Makes a value of what was read.
    fn parse(&self, content: &Self::Content) -> Result<Self::Value, Self::Error>;

    /// Says in the log that another value is in use from now on.
    fn log_change(&self, value: &Self::Value);
}

/// The value that was made last, and the files that it comes from.
pub(super) struct Watched<S: Source> {
    source: S,
    current: ArcSwap<S::Value>,
    last_read: Mutex<LastRead>,
}

/// What the files held when they were read last.
struct LastRead {
    /// Of the content that the current value was made of.
    digest: [u8; 32],
    /// How many times in a row they could not be used.
    failures: u32,
}

impl<S: Source> Watched<S> {
    /// Reads the files for the first time.
    pub(super) fn open(source: S) -> Result<Arc<Self>, S::Error> {
        let content = source.read()?;
        let current = ArcSwap::from_pointee(source.parse(&content)?);
        let last_read = Mutex::new(LastRead { digest: digest(content.as_ref()), failures: 0 });
        Ok(Arc::new(Self { source, current, last_read }))
    }

    /// The value in use.
    pub(super) fn current(&self) -> Arc<S::Value> {
        self.current.load_full()
    }

    /// Reads the files again and again, until nobody holds `self` any more. Each value has a thread
    /// of its own, which nobody waits for: a file system that hangs holds up neither other files
    /// nor the end of the process.
    pub(super) fn watch(self: &Arc<Self>) -> io::Result<()> {
        let watched = Arc::downgrade(self);
        let reads = move || {
            loop {
                thread::sleep(READ_EVERY);
                let Some(watched) = watched.upgrade() else { return };
                watched.refresh();
            }
        };
        thread::Builder::new().name("duovec-files".to_owned()).spawn(reads).map(drop)
    }

    /// Reads the files once; a new value replaces the one in use.
    pub(super) fn refresh(&self) {
        let mut last = self.last_read.lock();
        match self.read_change(&mut last) {
            Ok(change) => {
                last.failures = 0;
                if let Some(value) = change.map(Arc::new) {
                    self.current.store(Arc::clone(&value));
                    self.source.log_change(&value);
                }
            }
            Err(error) => {
                last.failures = last.failures.saturating_add(1);
                if last.failures == FAILURES_UNTIL_WARNING {
                    let cause = error.source().map(ToString::to_string);
                    tracing::warn!(%error, cause, "{} read last stay in use", S::NAME);
                }
            }
        }
    }

    /// A value, when the files hold something else than what the current one was made of.
    fn read_change(&self, last: &mut LastRead) -> Result<Option<S::Value>, S::Error> {
        let content = self.source.read()?;
        let digest = digest(content.as_ref());
        if digest == last.digest {
            return Ok(None);
        }
        let value = self.source.parse(&content)?;
        last.digest = digest;
        Ok(Some(value))
    }
}

/// Without the value, which may be keys.
impl<S: Source> fmt::Debug for Watched<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watched").finish_non_exhaustive()
    }
}

/// Opens a file that is read again and again, at the end of any symbolic links. Everything else is
/// refused without waiting: a pipe without a writer holds up whoever opens it, and one that was
/// read to its end is empty the next time.
///
/// # Errors
/// When it cannot be opened, or is no regular file; the message says what it is, and what helps.
pub(super) fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    let found = metadata.file_type();
    if found.is_file() {
        return Ok((file, metadata));
    }
    let problem = match found {
        found if found.is_dir() => "it is a folder; name a file in it",
        found if found.is_fifo() => {
            "it is a pipe, and it is read again each second; write what it gives to a file"
        }
        _ => "it is a device, and it is read again each second; write what it gives to a file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// Differs when the files do; where one ends and the next begins counts too.
fn digest(content: &[Vec<u8>]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for file in content {
        digest.update((file.len() as u64).to_le_bytes());
        digest.update(file);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Numbers as texts.
    #[derive(Default)]
    struct Numbers {
        files: Mutex<Vec<Vec<u8>>>,
        parsed: AtomicUsize,
        changes: Mutex<Vec<u32>>,
    }

    impl Source for Numbers {
        type Content = Vec<Vec<u8>>;
        type Value = u32;
        type Error = std::num::ParseIntError;

        const NAME: &'static str = "the numbers";

        fn read(&self) -> Result<Self::Content, Self::Error> {
            Ok(self.files.lock().clone())
        }

        fn parse(&self, content: &Self::Content) -> Result<u32, Self::Error> {
            self.parsed.fetch_add(1, Ordering::Relaxed);
            let number = |file| String::from_utf8_lossy(file).parse::<u32>();
            content.iter().map(|file| number(file)).sum()
        }

        fn log_change(&self, value: &u32) {
            self.changes.lock().push(*value);
        }
    }

    fn write(watched: &Watched<Numbers>, files: &[&str]) {
        let files = files.iter().map(|text| text.as_bytes().to_vec());
        *watched.source.files.lock() = files.collect();
        watched.refresh();
    }

    #[test]
    fn only_regular_files_are_read_whatever_links_lead_to_them() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [file, link, second, pipe] = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
        std::fs::write(&file, "content").expect("it is written");
        symlink("a", &link).expect("a link");
        symlink("b", &second).expect("a link");
        for path in [&file, &link, &second] {
            assert_eq!(open_file(path).expect("it is a file").1.len(), 7);
        }
        mkfifoat(CWD, &pipe, Mode::RUSR).expect("a pipe");
        for (path, what) in
            [(&*pipe, "a pipe"), (folder.path(), "a folder"), (Path::new("/dev/zero"), "a device")]
        {
            let error = open_file(path).expect_err("it is no file").to_string();
            assert!(error.starts_with(&format!("it is {what}")), "{error}");
        }
    }

    #[test]
    fn files_that_hang_hold_up_no_others() {
        let [hanging, other] =
            [(); 2].map(|()| Watched::open(Numbers::default()).expect("nothing is zero"));
        // Who reads them waits.
        let hangs = hanging.source.files.lock();
        for watched in [&hanging, &other] {
            watched.watch().expect("a thread can be started");
        }
        *other.source.files.lock() = vec![b"7".to_vec()];
        let deadline = std::time::Instant::now() + 20 * READ_EVERY;
        while *other.current() != 7 || !hanging.last_read.is_locked() {
            assert!(std::time::Instant::now() < deadline, "one is not read");
            thread::sleep(READ_EVERY / 20);
        }
        drop(hangs);
    }

    #[test]
    fn a_change_is_used_and_logged_once() {
        let watched = Watched::open(Numbers::default()).expect("nothing is zero");
        assert_eq!(*watched.current(), 0);
        for files in [&["12", "3"][..], &["12", "3"], &["1", "23"], &["12", "3"]] {
            write(&watched, files);
        }
        assert_eq!(*watched.source.changes.lock(), [15, 24, 15]);
        assert_eq!((*watched.current(), watched.source.parsed.load(Ordering::Relaxed)), (15, 4));
    }

    #[test]
    fn the_last_value_stays_while_the_files_cannot_be_used() {
        let watched = Watched::open(Numbers::default()).expect("nothing is zero");
        let failures = || watched.last_read.lock().failures;
        write(&watched, &["7"]);
        for times in [1, 2, 3] {
            write(&watched, &["x"]);
            assert_eq!((*watched.current(), failures()), (7, times));
        }
        write(&watched, &["7"]);
        assert_eq!(failures(), 0, "they are as they were");
        write(&watched, &["8"]);
        assert_eq!((*watched.current(), failures()), (8, 0));
    }
}
