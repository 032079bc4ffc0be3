//! A Unix socket to listen on: a file that is ours as long as the process lives.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::config::UnixSocket;

/// Why nothing can listen there.
#[derive(Debug, Error)]
pub enum UnixSocketError {
    #[error("another process listens on {path}")]
    InUse { path: PathBuf },
    #[error("{path} is there and is no socket; name another path")]
    NoSocket { path: PathBuf },
    #[error("cannot listen on {path}")]
    Listen { path: PathBuf, source: io::Error },
}

/// The file of a socket; removed when it is dropped.
pub(super) struct SocketFile {
    path: PathBuf,
    id: Option<FileId>,
}

/// Device and number of a file.
type FileId = (u64, u64);

/// Listens on `socket.path`, with its mode; a file that a dead process left there is replaced.
///
/// # Errors
/// When somebody listens there, the file is no socket, or the operating system refuses.
pub(super) fn listen(socket: &UnixSocket) -> Result<(UnixListener, SocketFile), UnixSocketError> {
    let UnixSocket { path, mode } = socket;
    let failed = |source| UnixSocketError::Listen { path: path.clone(), source };
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = SocketFile { path: path.clone(), id: id(path) };
    fs::set_permissions(path, Permissions::from_mode(*mode)).map_err(failed)?;
    Ok((listener, file))
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
        // What a socket says that nobody listens on.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn id(path: &Path) -> Option<FileId> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A successor may have put its own there.
        if self.id.is_some() && id(&self.path) == self.id {
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
        let (_folder, socket) = socket();
        let (_listener, file) = listen(&socket).expect("it is free");
        let mode = fs::metadata(&socket.path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        drop(file);
        assert!(!socket.path.exists());
    }

    #[test]
    fn what_a_dead_process_left_is_replaced_and_what_lives_is_not() {
        let (_folder, socket) = socket();
        let (listener, file) = listen(&socket).expect("it is free");
        assert!(matches!(listen(&socket), Err(UnixSocketError::InUse { .. })));
        assert!(UnixStream::connect(&socket.path).is_ok(), "it is still served");
        drop(listener);
        std::mem::forget(file);
        assert!(socket.path.exists(), "as after a crash");
        assert!(listen(&socket).is_ok());
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
