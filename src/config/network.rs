//! Where connections come in, and who may read the answers.

use std::net::IpAddr;
use std::path::PathBuf;

use super::secret::ApiKey;
use super::{Origin, Reader};

/// Where the certificate and its key are, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's own certificate, then those between it and the root.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A socket in the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    pub path: PathBuf,
    /// Permission bits; who may write may connect.
    pub mode: u32,
}

/// Whether the API's description is served: `/openapi.json` and `/docs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocsRoutes {
    Serve,
    /// They are answered like any unknown route.
    Omit,
}

impl Reader<'_> {
    pub(super) fn host(&mut self) -> IpAddr {
        let text = self.text("host");
        let text = if text == "localhost" { "127.0.0.1".to_owned() } else { text };
        text.parse().unwrap_or_else(|_| {
            self.problem("host", format!("'{text}' is not an IP address"));
            IpAddr::from([127, 0, 0, 1])
        })
    }

    pub(super) fn port(&mut self) -> u16 {
        let text = self.text("port");
        text.parse().unwrap_or_else(|_| {
            let linked =
                self.raw.value("port").origin == Origin::Environment && text.starts_with("tcp://");
            self.problem(
                "port",
                if linked {
                    format!(
                        "'{text}' looks like Kubernetes' variable for a service named duovec: set \
                         enableServiceLinks to false, or give --port"
                    )
                } else {
                    format!("'{text}' is not a port, 0 to 65535")
                },
            );
            0
        })
    }

    pub(super) fn unix_socket(&mut self) -> Option<UnixSocket> {
        let text = self.text("unix-socket-mode");
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
        if mode.is_none() {
            self.problem("unix-socket-mode", format!("'{text}' is no mode such as 660"));
        }
        self.path("unix-socket").zip(mode).map(|(path, mode)| UnixSocket { path, mode })
    }

    /// No key at all opens the server to everyone, so it must not come about by mistake.
    pub(super) fn api_keys(&mut self) -> Vec<ApiKey> {
        let keys = self.list("api-keys");
        let typed = self.raw.value("api-keys");
        if typed.is_given() && typed.values.is_empty() {
            self.problem("api-keys", "it is empty; give a key, or leave the setting out");
        }
        keys.into_iter().map(ApiKey::new).collect()
    }

    pub(super) fn tls(&mut self) -> Option<TlsFiles> {
        let (cert, key) = (self.path_if_given("tls-cert"), self.path_if_given("tls-key"));
        if cert.is_some() != key.is_some() {
            let given = if cert.is_some() { "tls-cert" } else { "tls-key" };
            self.problem(given, "give both --tls-cert and --tls-key, or none for plain HTTP");
        }
        cert.zip(key).map(|(cert, key)| TlsFiles { cert, key })
    }

    pub(super) fn origins(&mut self) -> Vec<String> {
        let origins = self.list("cors-origin");
        for origin in &origins {
            // Browsers send it like this, and it is compared byte by byte.
            let host = origin.split_once("://").map_or("", |(_, host)| host);
            let wrong = |c: char| "/*,".contains(c) || c.is_whitespace() || c.is_uppercase();
            if origin != "*" && (host.is_empty() || host.contains(wrong)) {
                self.problem(
                    "cors-origin",
                    format!("'{origin}' is no origin; write https://host, https://host:port or *"),
                );
            }
        }
        origins
    }
}
