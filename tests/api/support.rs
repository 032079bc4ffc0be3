//! A server on port 0, a client, and what every answer has in common.
//!
//! Only this file knows which service stands behind the server.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use duovec::config::HttpConfig;
use duovec::health::{CheckFailure, Phase};
use duovec::http;
use duovec::service::{EmbedError, EmbeddingService, Unavailable};
use reqwest::Method;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub(crate) use duovec::service::{CUT, HIDDEN, MAX_TOKENS, VOCAB};

pub(crate) const MODEL: &str = "org/stub-model";
pub(crate) const ALIAS: &str = "text-embedding-ada-002";
/// A text of more than `MAX_TOKENS` tokens.
pub(crate) const LONG_TEXT: &str = "a b c d e f g h i j k l m n o p q r s t";
/// Its tokens, special tokens included.
pub(crate) const LONG_TOKENS: usize = 22;

/// The vocabulary piece of a token id.
pub(crate) fn piece(id: u32) -> String {
    format!("▁p\"{id}")
}

pub(crate) const DENSE: &str = "/v1/embeddings";
pub(crate) const SPARSE: &str = "/v1/sparse-embeddings";
pub(crate) const BOTH: &str = "/v1/embeddings:both";

/// No answer takes this long; a test that waits longer fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How the next request ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trouble {
    /// Admission refuses it; 2.1 s later it may be taken.
    QueueFull,
    /// The engine fails with the text "cudaErrorSecret".
    Engine,
    /// Its second item has a NaN.
    NonFinite,
    NoWorker,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    service: Arc<EmbeddingService>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    runtime: Runtime,
    client: reqwest::Client,
}

impl Server {
    /// A server that is ready.
    pub(crate) fn ready() -> Self {
        Self::with(HttpConfig::default())
    }

    /// A server that is ready and runs with `config`.
    pub(crate) fn with(config: HttpConfig) -> Self {
        let server = Self::loading(config);
        server.service.set_phase(Phase::Ready);
        server
    }

    /// A server whose model is being loaded.
    pub(crate) fn loading(config: HttpConfig) -> Self {
        Self::start(EmbeddingService::default(), config, PATIENCE)
    }

    /// A server whose model gives dense vectors only.
    pub(crate) fn without_sparse() -> Self {
        let server =
            Self::start(EmbeddingService::without_sparse(), HttpConfig::default(), PATIENCE);
        server.service.set_phase(Phase::Ready);
        server
    }

    /// A server that is ready and gives requests in flight no time when it stops.
    pub(crate) fn without_patience() -> Self {
        let service = EmbeddingService::default();
        let server = Self::start(service, HttpConfig::default(), Duration::ZERO);
        server.service.set_phase(Phase::Ready);
        server
    }

    fn start(service: EmbeddingService, config: HttpConfig, drain_timeout: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let service = Arc::new(service);
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Arc::clone(&service);
        let thread = thread::spawn(move || {
            let shutdown = async {
                let _ = stopped.await;
            };
            let serving = http::serve(listener, served, config, drain_timeout, shutdown);
            // As a local task, the way the command line runs it.
            http::block_on(async { tokio::task::spawn_local(serving).await })
                .expect("serve does not panic")
        });
        Self {
            address,
            service,
            stop: Some(stop),
            thread: Some(thread),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
            client: reqwest::Client::builder().timeout(PATIENCE).build().expect("a client"),
        }
    }

    pub(crate) fn become_ready(&self) {
        self.service.set_phase(Phase::Ready);
    }

    pub(crate) fn drain(&self) {
        self.service.set_phase(Phase::Draining);
    }

    pub(crate) fn fail(&self) {
        self.service.set_phase(Phase::Failed);
    }

    /// One of the two workers is lost.
    pub(crate) fn lose_worker(&self) {
        self.service.set_workers_live(1);
    }

    /// The next deep checks fail on worker 0, in stage "dense", with the reason "cosine 0.2".
    pub(crate) fn break_numbers(&self) {
        self.service.fail_deep(CheckFailure { stage: "dense", reason: "cosine 0.2".to_owned() });
    }

    /// Makes the next request end in trouble.
    pub(crate) fn prepare(&self, trouble: Trouble) {
        self.service.fail_next(match trouble {
            Trouble::QueueFull => {
                EmbedError::QueueFull { retry_after: Duration::from_millis(2100) }
            }
            Trouble::Engine => EmbedError::EngineFailed("cudaErrorSecret".to_owned()),
            Trouble::NonFinite => EmbedError::NonFinite { index: 1 },
            Trouble::NoWorker => EmbedError::Unavailable(Unavailable::NoWorker),
        });
    }

    /// From now on requests wait until `release`.
    pub(crate) fn hold(&self) {
        self.service.hold(true);
    }

    pub(crate) fn release(&self) {
        self.service.hold(false);
    }

    /// Waits until the service runs exactly `count` requests.
    pub(crate) fn wait_running(&self, count: usize) {
        let mut running = self.service.running();
        let reached = async { running.wait_for(|running| *running == count).await.map(|_| ()) };
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, reached).await })
            .unwrap_or_else(|_| panic!("the service never ran {count} requests"))
            .expect("the service lives");
    }

    /// Asks `serve` to return.
    pub(crate) fn begin_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until `serve` has returned.
    pub(crate) fn join(&mut self) {
        let thread = self.thread.take().expect("it is joined once");
        thread.join().expect("serve does not panic").expect("serve does not fail");
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Vec::new())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, body.to_string())
    }

    pub(crate) fn post_bytes(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.post_with(path, &[("content-type", "application/json")], body)
    }

    pub(crate) fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        self.send(Method::POST, path, headers, body.into())
    }

    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let head = method == Method::HEAD;
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.runtime.block_on(async {
            let response = request.body(body).send().await.expect("there is an answer");
            let status = response.status().as_u16();
            let headers = response.headers().clone();
            let body = response.bytes().await.expect("the answer is whole").to_vec();
            Answer { status, headers, body }
        });
        answer.check_common(head);
        answer
    }

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

impl Drop for Server {
    fn drop(&mut self) {
        self.release();
        self.begin_stop();
    }
}

/// An answer as a client sees it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("our headers are ASCII"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// What holds for every answer on every route.
    fn check_common(&self, head: bool) {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let id = self.header("x-request-id").expect("every answer has an id");
        assert!((1..=128).contains(&id.len()), "{id}");
        let length: usize = self.header("content-length").expect("a length").parse().expect("int");
        if head {
            assert!(self.body.is_empty());
        } else {
            assert_eq!(length, self.body.len());
            self.json();
        }
    }

    /// The body of a successful answer.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// An error as `(status, type, code, param)`, its form checked.
    #[track_caller]
    pub(crate) fn error(&self) -> Refusal {
        let body = self.json();
        let error = body["error"].as_object().expect("an error object");
        assert_eq!(body.as_object().map(|body| body.len()), Some(1), "{body}");
        let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        let text = |key: &str| error[key].as_str().map(str::to_owned);
        Refusal {
            status: self.status,
            kind: text("type").expect("a type"),
            code: text("code").expect("a code"),
            param: text("param"),
            message: text("message").expect("a message"),
        }
    }
}

/// The parts of an error body.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) code: String,
    pub(crate) param: Option<String>,
    pub(crate) message: String,
}

impl Refusal {
    #[track_caller]
    pub(crate) fn is(&self, status: u16, kind: &str, code: &str, param: Option<&str>) {
        let found = (self.status, self.kind.as_str(), self.code.as_str(), self.param.as_deref());
        assert_eq!(found, (status, kind, code, param), "{}", self.message);
    }
}

/// The floats of a JSON list, read as f32.
pub(crate) fn floats(value: &Value) -> Vec<f32> {
    let list = value.as_array().expect("a list");
    list.iter().map(|float| float.to_string().parse().expect("a float")).collect()
}

/// The floats of a base64 text.
pub(crate) fn decode(value: &Value) -> Vec<f32> {
    use base64::Engine as _;
    let text = value.as_str().expect("base64");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    assert_eq!(bytes.len() % 4, 0);
    bytes
        .chunks_exact(4)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().expect("four bytes")))
        .collect()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("a Vec takes all");
    encoder.finish().expect("a Vec takes all")
}
