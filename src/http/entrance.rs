//! What is opened before the model is loaded, so that a wrong file or a taken port is said at once.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use thiserror::Error;

use super::auth::Keys;
use super::auth::key_file::KeyFileError;
use crate::config::{Address, HttpConfig};

/// Why the server cannot be reached.
#[derive(Debug, Error)]
pub enum EntranceError {
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// The listener, bound, and the keys that requests must show.
pub struct Entrance {
    pub(super) tcp: TcpListener,
    pub(super) keys: Arc<Keys>,
}

impl Entrance {
    /// Reads the files that `config` names, then binds `address`.
    ///
    /// # Errors
    /// When a file cannot be used or the address cannot be bound.
    pub fn open(address: Address, config: &HttpConfig) -> Result<Self, EntranceError> {
        let keys = Keys::open(&config.api_keys, config.api_key_file.as_deref())?;
        let address = SocketAddr::new(address.host, address.port);
        let tcp = TcpListener::bind(address)
            .map_err(|source| EntranceError::Listen { address, source })?;
        Ok(Self { tcp, keys: Arc::new(keys) })
    }

    /// The address listened on, with the port that was taken.
    ///
    /// # Errors
    /// When the operating system does not tell it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
