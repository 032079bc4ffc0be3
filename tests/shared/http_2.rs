//! Clients of TLS and HTTP/2, for tests of the server in their own process and of the binary.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// The name of every server here.
pub(crate) fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// Writes a new certificate of `localhost` with its key.
pub(crate) fn write_pair(cert_path: &Path, key_path: &Path) -> CertificateDer<'static> {
    let made = generate_simple_self_signed(vec!["localhost".to_owned()]);
    let CertifiedKey { cert, signing_key } = made.expect("a pair");
    for (path, text) in [(cert_path, cert.pem()), (key_path, signing_key.serialize_pem())] {
        // As careful writers do it.
        let next = path.with_extension("next");
        fs::write(&next, text).expect("it is written");
        fs::rename(next, path).expect("it is renamed");
    }
    CertificateDer::from_pem_slice(cert.pem().as_bytes()).expect("it is PEM")
}

/// Connects clients that trust `cert` alone and offer these versions and protocols.
pub(crate) fn trusting(
    cert: &CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone()).expect("it is a certificate");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// The head of a POST.
pub(crate) fn head(path: &str, headers: &[(&str, &str)]) -> http::Request<()> {
    let mut head = http::Request::post(format!("https://localhost{path}"));
    for (name, value) in headers {
        head = head.header(*name, *value);
    }
    head.body(()).expect("valid")
}

/// Sends a POST whose answer is for the caller to wait for.
pub(crate) fn begin(
    send: &mut SendRequest<Bytes>,
    head: http::Request<()>,
    body: impl Into<Bytes>,
) -> (ResponseFuture, SendStream<Bytes>) {
    let (answer, mut rest) = send.send_request(head, false).expect("it is sent");
    rest.send_data(body.into(), true).expect("it is sent");
    (answer, rest)
}
