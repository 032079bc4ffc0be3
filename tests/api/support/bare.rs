//! Connections without an HTTP client, for bytes that none would send.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpStream;

use super::{PATIENCE, Server};

impl Server {
    /// A bare connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the port is bound");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("it is a socket");
        stream
    }

    /// Sends bytes on a connection of their own and reads until the server closes it.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        // A reset ends a connection as well as an orderly close; only silence does not.
        let silent = |error: &Error| matches!(error.kind(), ErrorKind::WouldBlock);
        assert!(!ended.as_ref().is_err_and(silent), "the server does not close the connection");
        String::from_utf8_lossy(&answer).into_owned()
    }
}
