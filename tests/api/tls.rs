//! TLS over real connections: what is spoken, and certificates that are exchanged.

use std::io;
use std::time::Instant;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use settings::{Config, TlsFiles};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::SupportedProtocolVersion;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::http_2_client::{begin, head, localhost, trusting, write_pair};
use crate::support::*;

/// A server with a certificate of its own.
pub(crate) struct Secure {
    pub(crate) server: Server,
    files: TlsFiles,
    cert: CertificateDer<'static>,
    pub(crate) runtime: Runtime,
    _folder: TempDir,
}

impl Secure {
    pub(crate) fn new() -> Self {
        Self::set(|_| {})
    }

    pub(crate) fn set(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name| folder.path().join(name);
        let files = TlsFiles { cert: path("cert.pem"), key: path("key.pem") };
        let cert = write_pair(&files.cert, &files.key);
        let server = Server::set(|set| {
            set.http.tls = Some(files.clone());
            change(set);
        });
        Self { server, files, cert, runtime: runtime(), _folder: folder }
    }

    /// Waits for something while the connections of the runtime go on.
    pub(crate) async fn wait(&self, what: &str, reached: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !reached() {
            assert!(Instant::now() < end, "it never happened that {what}");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a client that trusts `cert` alone can connect.
    fn wait_for_certificate(&self, cert: &CertificateDer<'static>) {
        self.server.wait_until("the new certificate is used", |_| self.trusts(cert).is_ok());
    }

    /// A connection of a client that trusts `cert` alone.
    fn trusts(&self, cert: &CertificateDer<'static>) -> io::Result<Connection> {
        self.connect(cert, ONLY_1_3, &[b"h2", b"http/1.1"])
    }

    /// The same, which offers these versions and protocols in the handshake.
    fn connect(
        &self,
        cert: &CertificateDer<'static>,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&[u8]],
    ) -> io::Result<Connection> {
        let connector = trusting(cert, versions, protocols);
        self.runtime.block_on(async {
            let stream = TcpStream::connect(self.server.address).await?;
            connector.connect(localhost(), stream).await
        })
    }

    /// A connection on which HTTP/2 is to be spoken.
    pub(crate) fn open(&self) -> Connection {
        self.trusts(&self.cert).expect("a connection")
    }

    /// HTTP/2 on a new connection, driven by the runtime while it is blocked on.
    pub(crate) fn http_2(&self) -> SendRequest<Bytes> {
        let stream = self.open();
        self.runtime.block_on(async {
            let (send, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
            tokio::spawn(connection);
            send
        })
    }
}

pub(crate) type Connection = TlsStream<TcpStream>;

const ONLY_1_2: &[&SupportedProtocolVersion] = &[&TLS12];
const ONLY_1_3: &[&SupportedProtocolVersion] = &[&TLS13];

/// The status of an answer over HTTP/2; its body is read.
pub(crate) async fn embed(send: &SendRequest<Bytes>) -> u16 {
    embed_within(send, "30000").await
}

/// The same with so many milliseconds for it.
pub(crate) async fn embed_within(send: &SendRequest<Bytes>, timeout_ms: &str) -> u16 {
    let mut send = send.clone().ready().await.expect("the connection is open");
    let head = head(DENSE, &[("x-request-timeout-ms", timeout_ms)]);
    let (answer, _) = begin(&mut send, head, TEXT);
    read(answer).await.0.status.as_u16()
}

/// Head and length of an answer, all of which is read.
pub(crate) async fn read(answer: ResponseFuture) -> (http::response::Parts, usize) {
    let (head, mut body) = answer.await.expect("an answer").into_parts();
    let mut length = 0;
    while let Some(chunk) = body.data().await {
        let chunk = chunk.expect("the answer is whole");
        body.flow_control().release_capacity(chunk.len()).expect("it was taken");
        length += chunk.len();
    }
    assert_eq!(head.headers["content-length"], length.to_string());
    assert!(head.headers.contains_key("x-request-id"), "{:?}", head.headers);
    (head, length)
}

/// An answer over HTTP/1.1.
async fn exchange(stream: &mut Connection, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("it is open");
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.expect("an answer");
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn http_2_is_chosen_where_the_client_can_and_http_1_1_else() {
    let secure = Secure::new();
    type Case = (&'static [&'static [u8]], Option<&'static [u8]>);
    let cases: [Case; 3] =
        [(&[b"h2", b"http/1.1"], Some(b"h2")), (&[b"http/1.1"], Some(b"http/1.1")), (&[], None)];
    for versions in [ONLY_1_2, ONLY_1_3] {
        for (protocols, chosen) in cases {
            let stream = secure.connect(&secure.cert, versions, protocols);
            let mut stream = stream.expect("a connection");
            let connection = stream.get_ref().1;
            assert_eq!(connection.alpn_protocol(), chosen);
            assert_eq!(connection.protocol_version(), Some(versions[0].version));
            if chosen != Some(b"h2") {
                let answer = secure.runtime.block_on(exchange(&mut stream, &post(DENSE, "", TEXT)));
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
        }
    }
    // Silent clients, and those that speak no TLS, get nothing and hold nobody up.
    let _silent = secure.server.connect();
    let answer = secure.server.exchange(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(!answer.contains("HTTP/1.1"), "{answer}");
    let send = secure.http_2();
    assert_eq!(secure.runtime.block_on(embed(&send)), 200);
}

#[test]
fn handshakes_that_do_not_end_are_counted_among_connections() {
    let secure = Secure::set(|set| {
        set.door.max_inflight_bytes = number(1 << 20);
        set.http.body_timeout = number(100);
    });
    // It is let in while there is room for what it announces; its body does not come.
    let is_let_in = || {
        let mut stream = secure.connect(&secure.cert, ONLY_1_3, &[]).expect("a connection");
        let large = crate::support::head(DENSE, "content-length: 800000\r\n");
        let answer = secure.runtime.block_on(exchange(&mut stream, &large));
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        answer.starts_with("HTTP/1.1 408")
    };
    assert!(is_let_in());
    let silent: Vec<_> = (0..20).map(|_| secure.server.connect()).collect();
    secure.server.wait_until("they leave no room", |_| !is_let_in());
    drop(silent);
    secure.server.wait_until("there is room again", |_| is_let_in());
}

#[test]
fn a_new_certificate_is_taken_without_cutting_connections() {
    let secure = Secure::new();
    let send = secure.http_2();
    assert_eq!(secure.runtime.block_on(embed(&send)), 200);
    let cert = write_pair(&secure.files.cert, &secure.files.key);
    secure.wait_for_certificate(&cert);
    assert!(secure.trusts(&secure.cert).is_err(), "the old one is gone");
    assert_eq!(secure.runtime.block_on(embed(&send)), 200, "its connection stays");
}
