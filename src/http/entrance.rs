//! What is opened before the model is loaded, so that a wrong file or a taken port is said at once.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use thiserror::Error;

use super::auth::Keys;
use super::auth::key_file::KeyFileError;
use super::tls::{Tls, TlsError};
use crate::config::{Address, HttpConfig};

/// Why the server cannot be reached.
#[derive(Debug, Error)]
pub enum EntranceError {
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// Where connections come in, and the keys that requests must show.
pub struct Entrance {
    pub(super) doors: Doors,
    pub(super) keys: Arc<Keys>,
}

/// The listener, bound.
pub(super) struct Doors {
    pub(super) tcp: TcpListener,
    /// `None` for plain HTTP.
    pub(super) tls: Option<Arc<Tls>>,
}

impl Entrance {
    /// Reads the files that `config` names, then binds `address`.
    ///
    /// # Errors
    /// When a file cannot be used or the address cannot be bound.
    pub fn open(address: Address, config: &HttpConfig) -> Result<Self, EntranceError> {
        let keys = Keys::open(&config.api_keys, config.api_key_file.as_deref())?;
        let tls = config.tls.as_ref().map(Tls::open).transpose()?.map(Arc::new);
        let address = SocketAddr::new(address.host, address.port);
        let tcp = TcpListener::bind(address)
            .map_err(|source| EntranceError::Listen { address, source })?;
        Ok(Self { doors: Doors { tcp, tls }, keys: Arc::new(keys) })
    }

    /// The address listened on, with the port that was taken.
    ///
    /// # Errors
    /// When the operating system does not tell it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.doors.tcp.local_addr()
    }

    /// Whether connections are secure.
    pub fn is_secure(&self) -> bool {
        self.doors.tls.is_some()
    }
}
