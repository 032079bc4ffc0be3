//! A Unix socket to listen on: a file that is ours as long as the process lives.

use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::fchmod;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use thiserror::Error;

use settings::UnixSocket;

/// Connections that may wait to be accepted; the system's `somaxconn` bounds it. One that finds no
/// place is tried again after a second.
pub(super) const BACKLOG: i32 = 4096;

/// Why nothing can listen there.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum UnixSocketError {
    #[error("another process listens on {path}")]
    InUse { path: PathBuf },
    #[error("{path} exists and is not a socket; name another path")]
    NoSocket { path: PathBuf },
    #[error(
        "--unix-socket: cannot lock {path} beside the socket; its folder must exist and be writable"
    )]
    Lock { path: PathBuf, source: io::Error },
    #[error("cannot listen on {path}")]
    Listen { path: PathBuf, source: io::Error },
}

/// The file of a socket; removed when it is dropped.
pub(super) struct SocketFile {
    path: PathBuf,
    id: FileId,
    /// Dropped last: until then the path is ours.
    _lock: PathLock,
}

/// The right to a socket's path, as long as it lives: a locked file beside the socket. Two
/// processes may start together and find the socket of a dead one: without the lock, the second
/// could remove the socket that the first has just made.
struct PathLock {
    path: PathBuf,
    _file: File,
}

/// Device and number of a file.
type FileId = (u64, u64);

/// Listens on `socket.path`, with its mode; a file that a dead process left there is replaced. As
/// long as the socket's file lives, a file `.lock` lies beside it.
///
/// # Errors
/// When somebody listens there, the file is no socket, or the operating system refuses.
pub(super) fn listen(socket: &UnixSocket) -> Result<(UnixListener, SocketFile), UnixSocketError> {
    let UnixSocket { path, mode } = socket;
    let failed = |source| UnixSocketError::Listen { path: path.clone(), source };
    let lock = PathLock::take(path)?;
    remove_stale(path)?;
    let listener = bind(path, *mode).map_err(failed)?;
    let made = fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile { path: path.clone(), id: id(&made), _lock: lock };
    fs::set_permissions(path, Permissions::from_mode(*mode)).map_err(failed)?;
    Ok((listener, file))
}

/// Listens on `path`, with at most the permissions `mode`: who connects in the moment before they
/// are set would be in. Of those, the process's umask takes some away.
fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Linux the file gets the mode that the socket has.
    fchmod(&socket, mode.into())?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn remove_stale(path: &Path) -> Result<(), UnixSocketError> {
    let failed = |source| UnixSocketError::Listen { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(UnixSocketError::NoSocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(UnixSocketError::InUse { path: path.to_owned() }),
        // This is how a socket refuses when nobody listens on it.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

impl PathLock {
    fn take(socket: &Path) -> Result<Self, UnixSocketError> {
        let path = socket.with_added_extension("lock");
        let failed = |source| UnixSocketError::Lock { path: path.clone(), source };
        loop {
            let mut options = File::options();
            // Whoever can open it can lock it.
            let options = options.create(true).write(true).truncate(false).mode(0o600);
            let file = options.open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(UnixSocketError::InUse { path: socket.to_owned() });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Its owner may have removed it between the two calls; then it locks nobody out.
            let locked = file.metadata().map_err(failed)?;
            if fs::metadata(&path).is_ok_and(|there| id(&there) == id(&locked)) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A successor may have put its own there.
        if fs::symlink_metadata(&self.path).is_ok_and(|there| id(&there) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    fn socket() -> (tempfile::TempDir, UnixSocket) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("duovec.sock");
        (folder, UnixSocket { path, mode: 0o660 })
    }

    #[test]
    fn the_file_has_its_mode_and_leaves_with_its_owner() {
        let (folder, socket) = socket();
        let (_listener, file) = listen(&socket).expect("it is free");
        let mode = fs::metadata(&socket.path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn before_it_has_its_mode_the_file_is_never_open_to_more() {
        for mode in [0o600, 0o660, 0o606] {
            let (_folder, socket) = socket();
            let _listener = bind(&socket.path, mode).expect("it is free");
            let made = fs::metadata(&socket.path).expect("it is there").permissions().mode();
            assert_eq!(made & 0o777 & !mode, 0, "{made:o}");
        }
    }

    #[test]
    fn what_a_dead_process_left_is_replaced_and_what_lives_is_not() {
        let (_folder, socket) = socket();
        // As after a crash: both files are there, nobody listens and nobody holds the lock.
        drop(UnixListener::bind(&socket.path).expect("it is free"));
        fs::write(socket.path.with_added_extension("lock"), "").expect("it is written");
        let (_listener, _file) = listen(&socket).expect("it is free");
        assert!(matches!(listen(&socket), Err(UnixSocketError::InUse { .. })));
        assert!(UnixStream::connect(&socket.path).is_ok(), "it is still served");
    }

    /// An older version of this program takes no lock, and neither do others.
    #[test]
    fn who_listens_without_the_lock_is_left_alone() {
        let (_folder, socket) = socket();
        let _other = UnixListener::bind(&socket.path).expect("it is free");
        assert!(matches!(listen(&socket), Err(UnixSocketError::InUse { .. })));
        assert!(UnixStream::connect(&socket.path).is_ok(), "it is still served");
    }

    #[test]
    fn of_processes_that_start_together_one_listens_and_stays_reachable() {
        const STARTS: usize = 4;
        for _ in 0..200 {
            let (_folder, socket) = socket();
            drop(UnixListener::bind(&socket.path).expect("it is free"));
            let together = Barrier::new(STARTS);
            let start = || {
                together.wait();
                listen(&socket)
            };
            let ended: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..STARTS).map(|_| scope.spawn(start)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let listening = ended.iter().filter(|ended| ended.is_ok()).count();
            assert_eq!(listening, 1, "so many believe that the path is theirs");
            assert!(UnixStream::connect(&socket.path).is_ok(), "its socket was taken away");
        }
    }

    #[test]
    fn other_files_and_the_socket_of_a_successor_stay() {
        let (_folder, socket) = socket();
        fs::write(&socket.path, "precious").expect("it is written");
        assert!(matches!(listen(&socket), Err(UnixSocketError::NoSocket { .. })));
        assert_eq!(fs::read(&socket.path).expect("it is there"), b"precious");
        fs::remove_file(&socket.path).expect("it was there");
        let (_listener, file) = listen(&socket).expect("it is free");
        fs::remove_file(&socket.path).expect("it was there");
        let _successor = UnixListener::bind(&socket.path).expect("it is free");
        drop(file);
        assert!(socket.path.exists());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let socket = UnixSocket { path: "/nowhere/duovec.sock".into(), mode: 0o660 };
        let error = listen(&socket).err().expect("there is no folder");
        assert!(error.to_string().contains("/nowhere/duovec.sock"), "{error}");
    }
}
