//! Clients that do not take their answers, and heads that are made to fill the memory: what the
//! server holds for them is bounded, others are served, and the memory goes back.

use std::any::Any;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::DEFAULT_VERSIONS;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::faults::memory_kib;
use super::http_2_client::{begin, head, localhost, trusting, write_pair};
use super::support::*;

/// `--max-inflight-bytes` of these tests.
const INFLIGHT: u64 = 16 * 1024 * 1024;

/// What is made for the first large requests and stays: threads, their heaps and buffers.
const ONCE_KIB: i64 = 12 * 1024;

/// What connections, heads and buffers may take besides.
const MORE_KIB: i64 = 64 * 1024;

const BOTH: &str = "/v1/embeddings:both";

/// 20 KB, and an answer of about a megabyte.
fn body() -> String {
    json!({"input": vec!["a b c d"; 2048], "offsets": true}).to_string()
}

/// A server that holds little, and the certificate of the one with TLS.
struct Small {
    server: Server,
    cert: CertificateDer<'static>,
    has_tls: bool,
    _folder: TempDir,
}

impl Small {
    fn start(tls: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [cert_path, key_path] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        let cert = write_pair(&cert_path, &key_path);
        let mut command = duovec();
        command.args(["serve", "--engine", "fake", "--package"]).arg(tiny());
        command.args(["--http-threads", "2", "--max-body-bytes", "1000000"]);
        command.arg("--max-inflight-bytes").arg(INFLIGHT.to_string());
        if tls {
            command.arg("--tls-cert").arg(cert_path).arg("--tls-key").arg(key_path);
        }
        let server = Server::ready(&mut command);
        Self { server, cert, has_tls: tls, _folder: folder }
    }

    /// A connection of which the system keeps little on the client's side.
    async fn connect(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("it is a socket");
        socket.connect(self.server.address).await.expect("it listens")
    }

    /// A connection of HTTP/2 that another task drives.
    async fn connect_http_2(&self) -> SendRequest<Bytes> {
        let stream = self.connect_tls(b"h2").await;
        let (send, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        send
    }

    async fn connect_tls(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        let stream = self.connect().await;
        let connector = trusting(&self.cert, DEFAULT_VERSIONS, &[protocol]);
        connector.connect(localhost(), stream).await.expect("TLS")
    }

    fn rss_kib(&self) -> i64 {
        memory_kib(self.server.pid(), "VmRSS:")
    }
}

/// Sends `request` on a new connection and reads the whole answer.
async fn exchange(small: &Small, request: &str) -> String {
    let mut answer = Vec::new();
    if small.has_tls {
        let mut stream = small.connect_tls(b"http/1.1").await;
        stream.write_all(request.as_bytes()).await.expect("it is open");
        // A client of TLS need not be told that the connection ends.
        let _ = stream.read_to_end(&mut answer).await;
    } else {
        let mut stream = small.connect().await;
        stream.write_all(request.as_bytes()).await.expect("it is open");
        stream.read_to_end(&mut answer).await.expect("the answer ends with the connection");
    }
    String::from_utf8(answer).expect("it is UTF-8")
}

/// Bytes that the server says it holds.
async fn inflight(small: &Small) -> f64 {
    let metrics = exchange(small, &get("/metrics")).await;
    let line = metrics.lines().find_map(|line| line.strip_prefix("duovec_inflight_bytes "));
    line.expect("the metric is there").parse().expect("a number")
}

const CLOSE: &str = "connection: close\r\n";

fn post(body: &str, more: &str) -> String {
    let head = format!("POST {BOTH} HTTP/1.1\r\nhost: x\r\n{more}");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n{CLOSE}\r\n")
}

/// What the server holds stays within its limits while nobody reads, and others are served; then
/// nobody is there any more.
async fn watch_and_leave<T>(small: &Small, idle_kib: i64, deaf: Vec<T>) {
    let mut most = 0.0_f64;
    // Three seconds: the server takes its figures once in a second.
    for _ in 0..60 {
        let held = inflight(small).await;
        assert!(held <= INFLIGHT as f64, "{held} bytes");
        most = most.max(held);
        let answer = exchange(small, &post(r#"{"input":"a"}"#, CLOSE)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let more = small.rss_kib() - idle_kib;
        assert!(more < INFLIGHT as i64 / 1024 + MORE_KIB, "{more} KiB more than before");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(most > INFLIGHT as f64 / 4.0, "answers that wait are counted: {most}");
    drop(deaf);
    let is_free = async || inflight(small).await == 0.0;
    eventually(PATIENCE, "what nobody reads is free", is_free).await;
    went_back(small, idle_kib).await;
}

/// Within a minute the server takes no more memory than before the storm.
async fn went_back(small: &Small, idle_kib: i64) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let now_kib = small.rss_kib();
        if now_kib <= idle_kib + idle_kib / 20 + ONCE_KIB {
            return println!("{idle_kib} KiB before, {now_kib} KiB behind it");
        }
        assert!(Instant::now() < end, "{idle_kib} KiB before, {now_kib} KiB a minute later");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn answers_that_nobody_reads_are_held_within_the_limit_of_bytes() {
    let small = Small::start(false);
    let idle_kib = small.rss_kib();
    let mut deaf = Vec::new();
    for _ in 0..100 {
        let mut stream = small.connect().await;
        stream.write_all(post(&body(), "").as_bytes()).await.expect("it is open");
        deaf.push(stream);
    }
    watch_and_leave(&small, idle_kib, deaf).await;
}

#[tokio::test]
async fn streams_that_nobody_reads_are_held_within_the_limit_of_bytes() {
    let small = Small::start(true);
    let idle_kib = small.rss_kib();
    let mut deaf = Vec::new();
    for _ in 0..2 {
        let mut send = small.connect_http_2().await;
        for _ in 0..128 {
            send = send.ready().await.expect("it is open");
            deaf.push(begin(&mut send, head(BOTH, &[]), body()));
        }
    }
    watch_and_leave(&small, idle_kib, deaf).await;
}

/// Asks for a file or a text on so many connections of either protocol, over TLS, and reads nothing
/// of it.
async fn ask_and_read_nothing(small: &Small, path: &str, http_1: usize, http_2: usize) -> Deaf {
    let mut deaf = Deaf::new();
    for _ in 0..http_1 {
        let mut stream = small.connect_tls(b"http/1.1").await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it is open");
        deaf.push(Box::new(stream));
    }
    for _ in 0..http_2 {
        let mut send = small.connect_http_2().await;
        for _ in 0..128 {
            send = send.ready().await.expect("it is open");
            let request = http::Request::get(format!("https://localhost{path}"));
            let request = request.body(()).expect("valid");
            let (answer, _) = send.send_request(request, true).expect("it is sent");
            deaf.push(Box::new(answer));
        }
    }
    deaf
}

/// What nobody reads.
type Deaf = Vec<Box<dyn Any>>;

#[tokio::test]
async fn answers_without_a_key_that_nobody_reads_are_one_or_are_counted() {
    let small = Small::start(true);
    for path in ["/docs/swagger-ui-bundle.js", "/openapi.json", "/metrics"] {
        let answer = exchange(&small, &get(path)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}");
        let idle_kib = small.rss_kib();
        let deaf = ask_and_read_nothing(&small, path, 20, 4).await;
        // Whoever came is answered, as far as there is room.
        let (mut most, mut counted) = (0, 0.0_f64);
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            most = most.max(small.rss_kib() - idle_kib);
            counted = counted.max(inflight(&small).await);
        }
        println!("{path}: {} bytes, {most} KiB more, {counted} bytes held", answer.len());
        assert!(most < 24 * 1024, "{path}: {most} KiB more than before");
        let is_shared = path != "/metrics";
        assert!(is_shared || counted > 5e5, "{path}: {counted} bytes are counted");
        assert!(counted < INFLIGHT as f64 / 8.0, "{path}: {counted} bytes are taken from others");
        drop(deaf);
    }
}

/// A request with that body on each of `streams`, of whose answers the client takes nothing.
async fn leave_unread(small: &Small, body: String, streams: usize) -> Vec<impl Send> {
    let stream = small.connect_tls(b"h2").await;
    let mut builder = h2::client::Builder::new();
    let shut = builder.initial_window_size(0).handshake(stream).await;
    let (mut send, connection) = shut.expect("HTTP/2");
    tokio::spawn(connection);
    let body = Bytes::from(body);
    let mut unread = Vec::new();
    for _ in 0..streams {
        send = send.ready().await.expect("it is open");
        let head = head(BOTH, &[("x-request-timeout-ms", "300000")]);
        unread.push(begin(&mut send, head, body.clone()));
    }
    unread
}

/// Large answers take the room of all, and small ones that of single texts. Whoever leaves them
/// unread is cut within seconds, though `--write-timeout-ms` is half a minute.
#[tokio::test]
async fn unread_answers_that_fill_the_memory_make_room_for_others_within_seconds() {
    let small = Small::start(true);
    let large = leave_unread(&small, body(), 40).await;
    let texts = json!({"input": vec!["a b c d"; 64], "offsets": true}).to_string();
    let mut unread = vec![];
    for _ in 0..3 {
        unread.push(leave_unread(&small, texts.clone(), 128).await);
    }
    let many = json!({"input": vec!["a b c d"; 200], "offsets": true}).to_string();
    for (what, body) in
        [("a single text is served", r#"{"input":"a"}"#), ("many texts are served", &many)]
    {
        let is_served = async || {
            let answer = exchange(&small, &post(body, CLOSE)).await;
            let is_served = answer.starts_with("HTTP/1.1 200");
            assert!(is_served || answer.starts_with("HTTP/1.1 429"), "{answer}");
            is_served
        };
        // A busy machine takes some seconds for the texts alone.
        eventually(Duration::from_secs(20), what, is_served).await;
    }
    drop((large, unread));
}

/// Bodies of which a half has come, and of which no more comes, though they have 20 s.
#[tokio::test]
async fn half_bodies_that_fill_the_memory_make_room_for_others_within_seconds() {
    let small = Small::start(false);
    let half = " ".repeat(450_000);
    let mut stopped = Vec::new();
    for _ in 0..16 {
        let head = "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n";
        let mut stream = small.connect().await;
        stream.write_all(head.as_bytes()).await.expect("it is open");
        let _ = stream.write_all(half.as_bytes()).await;
        stopped.push(stream);
    }
    let is_full = async || inflight(&small).await >= 14e6;
    eventually(Duration::from_secs(4), "the bodies fill the memory", is_full).await;
    let text = " ".repeat(400_000);
    let body = json!({ "input": text }).to_string();
    let ask = async || exchange(&small, &post(&body, CLOSE)).await;
    let refused = ask().await;
    assert!(refused.starts_with("HTTP/1.1 429"), "the memory is full: {refused}");
    let is_served = async || ask().await.starts_with("HTTP/1.1 200");
    eventually(Duration::from_secs(14), "half bodies leave the memory", is_served).await;
    let mut answer = String::new();
    stopped[0].read_to_string(&mut answer).await.expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("too slowly"), "{answer}");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn frames_of_clients_write_no_line_above_debug() {
    let mut small = Small::start(true);
    for _ in 0..5 {
        let mut stream = small.connect_tls(b"h2").await;
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        for number in 0..60 {
            // POST, https, / and an authority, all in one frame; then a reset.
            bytes.extend(frame(1, 4, 2 * number + 1, &[0x83, 0x87, 0x84, 0x41, 1, b'x']));
            bytes.extend(frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes()));
        }
        stream.write_all(&bytes).await.expect("it is open");
        // Until the server has had enough, or all of it.
        let mut rest = Vec::new();
        let reading = stream.read_to_end(&mut rest);
        let _ = tokio::time::timeout(Duration::from_millis(500), reading).await;
    }
    small.server.signal("TERM");
    let log = small.server.rest();
    let loud = log.lines().filter(|line| !line.contains("\"INFO\"") && line.starts_with('{'));
    assert_eq!(loud.collect::<Vec<_>>(), Vec::<&str>::new());
}
