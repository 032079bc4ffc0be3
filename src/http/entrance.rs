//! What is opened before the model is loaded, so that a wrong file or a taken port is said at once.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use thiserror::Error;

use super::auth::Keys;
use super::auth::key_file::KeyFileError;
use super::tls::{Tls, TlsError};
use super::unix_socket::{self, BACKLOG, SocketFile, UnixSocketError};
use settings::{Address, HttpConfig};

/// Why the server cannot be reached.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum EntranceError {
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    UnixSocket(#[from] UnixSocketError),
    #[error("cannot listen on {address}: {cause}; {}", cure(cause.kind()))]
    Listen { address: SocketAddr, cause: io::Error },
}

/// What to do when an address cannot be listened on.
const fn cure(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "end the other process or choose another --port",
        io::ErrorKind::PermissionDenied => "choose a --port from 1024 on",
        io::ErrorKind::AddrNotAvailable => {
            "choose a --host that is an address of this machine, or 0.0.0.0 for all"
        }
        _ => "choose another --host or --port",
    }
}

/// Where connections come in, and the keys that requests must show.
pub struct Entrance {
    pub(super) listeners: Listeners,
    pub(super) keys: Arc<Keys>,
    /// Removes the socket's file at the end.
    pub(super) socket_file: Option<SocketFile>,
}

/// The listeners, bound.
pub(super) struct Listeners {
    pub(super) tcp: TcpListener,
    /// Plain HTTP for processes of this machine.
    pub(super) unix: Option<UnixListener>,
    /// Of the port; `None` for plain HTTP.
    pub(super) tls: Option<Arc<Tls>>,
}

impl Entrance {
    /// Reads the files that `config` names, then binds `address` and the Unix socket.
    ///
    /// # Errors
    /// When a file cannot be used, or the address or the socket cannot be bound.
    pub fn open(address: Address, config: &HttpConfig) -> Result<Self, EntranceError> {
        let keys = Keys::open(&config.api_keys, config.api_key_file.as_deref())?;
        let tls = config.tls.as_ref().map(Tls::open).transpose()?.map(Arc::new);
        let address = SocketAddr::new(address.host, address.port);
        let failed = |cause| EntranceError::Listen { address, cause };
        let tcp = TcpListener::bind(address).map_err(failed)?;
        // Again, for more places than the standard library asks for.
        rustix::net::listen(&tcp, BACKLOG).map_err(|error| failed(error.into()))?;
        let socket = config.unix_socket.as_ref().map(unix_socket::listen).transpose()?;
        let (unix, socket_file) = socket.unzip();
        Ok(Self { listeners: Listeners { tcp, unix, tls }, keys: Arc::new(keys), socket_file })
    }

    /// The address listened on, with the port that was taken.
    ///
    /// # Errors
    /// When the operating system does not tell it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listeners.tcp.local_addr()
    }

    /// How many API keys there are; without any every request passes.
    pub fn api_keys(&self) -> usize {
        self.keys.count()
    }

    /// Whether connections are secure.
    pub fn is_secure(&self) -> bool {
        self.listeners.tls.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// The system waits a second before it tries again to reach a full queue.
    #[test]
    fn hundreds_who_connect_at_once_wait_for_nobody() {
        let address = Address { port: 0, ..Address::default() };
        let entrance = Entrance::open(address, &HttpConfig::default()).expect("a free port");
        let address = entrance.address().expect("it is bound");
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let clients: io::Result<Vec<_>> = (0..400).map(connect).collect();
        assert_eq!(clients.expect("there is room, though nobody accepts").len(), 400);
    }
}
