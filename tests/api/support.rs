//! A server on port 0, a client, and what every answer has in common.
//!
//! Only this file knows which service stands behind the server.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clock::{Clock, RealClock};
use duovec::engine::Engine;
use duovec::http::{self, Entrance};
use duovec::scheduler::{Scheduler, SchedulerConfig, Submission, Ticket};
use duovec::service::{EmbeddingService, ResidentModel, Tuned};
use duovec::worker::pool::{PoolConfig, WorkerPool};
use futures_util::FutureExt;
use model::tokenize::TextTokenizer;
use parking_lot::Mutex;
use scheduling::batch::cost::{CostModel, Fit};
use scheduling::batch::plan::Shapes;
use scheduling::batch::{TokenIds, Vectors};
use settings::limits::{Bounded, InteractiveP99Ms, MaxBatchTokens, QueueCapacity, Workers};
use settings::{Address, Config, OptimizeFor, SpecialTokenText, TokenInput};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

mod answer;
mod bare;
pub(crate) mod description;
mod values;

pub(crate) use crate::engine::Fault;
use crate::engine::{Controls, TestEngine};
use crate::package::package;
// What most tests use is theirs by `use crate::support::*`.
pub(crate) use crate::package::{
    ALIAS, CANARY, CUT, Gives, HIDDEN, MASK, MAX_TOKENS, MODEL, TOKEN_SIZE, TWO_ID, VOCAB, ids_of,
    piece,
};
pub(crate) use answer::Answer;
pub(crate) use bare::{Talk, get, head, post, said_within};
pub(crate) use reqwest::Method;
pub(crate) use serde_json::{Value, json};
pub(crate) use settings::secret::ApiKey;
pub(crate) use testing::{joined, rows};
pub(crate) use values::{decode, floats, pairs};

/// A text of more than `MAX_TOKENS` tokens.
pub(crate) const LONG_TEXT: &str = "a b c d e f g h i j k l m n o p q r s t";
/// Its tokens, special tokens included.
pub(crate) const LONG_TOKENS: usize = 22;

/// Two, so that one can be lost.
pub(crate) const WORKERS: u64 = 2;

pub(crate) const DENSE: &str = "/v1/embeddings";
pub(crate) const SPARSE: &str = "/v1/sparse-embeddings";
pub(crate) const BOTH: &str = "/v1/embeddings:both";
pub(crate) const METRICS: &str = "/metrics";
/// What gives vectors in our own form.
pub(crate) const ROUTES: [&str; 3] = [DENSE, SPARSE, BOTH];

/// A body that these take.
pub(crate) const TEXT: &str = r#"{"input":"text"}"#;

/// No answer takes this long, however busy the machine is: a test that waits longer fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    service: Arc<EmbeddingService>,
    /// What the service is given when it becomes ready.
    resident: Mutex<Option<ResidentModel>>,
    scheduler: Scheduler,
    controls: Arc<Controls>,
    /// Items that occupy workers or the queue.
    plugs: Mutex<Vec<Ticket>>,
    /// An id that no such item had; those of the same ids would share a run.
    next_plug: AtomicU32,
    /// Plugs that hold workers.
    held: AtomicUsize,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    runtime: Runtime,
    client: reqwest::Client,
    _pool: WorkerPool,
    _folder: TempDir,
}

/// A setting's value, whatever its range.
pub(crate) fn number<const MIN: u64, const MAX: u64, const DEFAULT: u64>(
    value: u64,
) -> Bounded<MIN, MAX, DEFAULT> {
    Bounded::new(value).expect("in range")
}

impl Server {
    /// A server that is ready.
    pub(crate) fn ready() -> Self {
        Self::set(|_| {})
    }

    /// A server that is ready and was told what `change` says.
    pub(crate) fn set(change: impl FnOnce(&mut Config)) -> Self {
        Self::with(Gives::DenseAndSparse, change)
    }

    /// A server that is ready, of a model that gives this.
    pub(crate) fn of(gives: Gives) -> Self {
        Self::with(gives, |_| {})
    }

    pub(crate) fn with(gives: Gives, change: impl FnOnce(&mut Config)) -> Self {
        let server = Self::start(gives, change);
        server.become_ready();
        server
    }

    /// A server whose model is being loaded.
    pub(crate) fn loading() -> Self {
        Self::start(Gives::DenseAndSparse, |_| {})
    }

    /// Token ids are those of the model, and no time is short, since the machine may be busy.
    fn start(gives: Gives, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { token_input: TokenInput::Model, ..Config::default() };
        config.http.request_timeout = number(PATIENCE.as_secs() * 1000);
        config.http.deep_health_timeout = number(PATIENCE.as_secs() * 1000);
        change(&mut config);
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let (folder, package) = package(gives);
        let controls = Arc::new(Controls::default());
        let engine: Arc<dyn Engine> = Arc::new(TestEngine::new(Arc::clone(&controls), gives));
        let workers: Workers = number(WORKERS);
        let scheduling = SchedulerConfig {
            cache_bytes: config.queue.cache_bytes,
            interactive_p99: InteractiveP99Ms::DEFAULT,
            ..SchedulerConfig::new(workers)
        };
        let max_batch_tokens = MaxBatchTokens::DEFAULT;
        let shapes = Shapes::on_cpu(MAX_TOKENS, max_batch_tokens);
        let scheduler = Scheduler::new(scheduling, shapes, Arc::clone(&clock));
        let pool = WorkerPool::start(
            Arc::clone(&engine),
            scheduler.clone(),
            Arc::clone(&clock),
            PoolConfig::new(workers),
        );
        pool.wait_ready().expect("the workers open");
        let resident = ResidentModel {
            tokenizer: TextTokenizer::open(&package, SpecialTokenText::Special, None)
                .expect("the tokenizer fits"),
            package,
            engine,
            engine_reason: "fake was asked for".to_owned(),
            tuned: Tuned { optimize_for: OptimizeFor::Latency, measured: Vec::new() },
            max_batch_tokens,
            scheduler: scheduler.clone(),
            warm_up: Duration::from_millis(1),
        };
        let local = Address { host: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0 };
        let entrance = Entrance::open(local, &config.http).expect("a free port and good files");
        let address = entrance.address().expect("it is bound");
        let service = Arc::new(EmbeddingService::new(&config, clock));
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Arc::clone(&service);
        let thread = thread::spawn(move || {
            let shutdown = stopped.map(|_| PATIENCE);
            let serving = http::serve(entrance, served, config.http, PATIENCE, shutdown);
            // As a local task, the way the command line runs it.
            http::block_on(async { tokio::task::spawn_local(serving).await })
                .expect("serve does not panic")
        });
        Self {
            address,
            service,
            resident: Mutex::new(Some(resident)),
            scheduler,
            controls,
            plugs: Mutex::default(),
            next_plug: AtomicU32::new(1_000_000),
            held: AtomicUsize::new(0),
            stop: Some(stop),
            thread: Some(thread),
            runtime: runtime(),
            client: reqwest::Client::builder().timeout(PATIENCE).build().expect("a client"),
            _pool: pool,
            _folder: folder,
        }
    }

    pub(crate) fn become_ready(&self) {
        let resident = self.resident.lock().take();
        if let Some(resident) = resident {
            self.service.install(resident);
        }
    }

    pub(crate) fn drain(&self) {
        self.service.begin_drain();
    }

    pub(crate) fn fail(&self) {
        self.service.fail("device lost".to_owned());
    }

    /// One of the two workers is lost and does not come back.
    pub(crate) fn lose_worker(&self) {
        let live = |server: &Self| server.scheduler.snapshot().workers.live;
        let left = live(self) - 1;
        self.fault(Fault::LoseSession);
        let answer = self.post_bytes(DENSE, TEXT);
        assert_eq!(answer.status, 500);
        self.wait_until("a worker is lost", |server| live(server) == left);
    }

    /// From now on every run is predicted to take `fixed`, and the longest text so much more.
    pub(crate) fn predict(&self, fixed: Duration, longest_text: Duration) {
        let fixed_us = fixed.as_secs_f64() * 1e6;
        let per_token_us = longest_text.as_secs_f64() * 1e6 / MAX_TOKENS as f64;
        let model = CostModel { floor_us: 0.0, fixed_us, per_token_us, per_token_length_us: 0.0 };
        self.scheduler.set_cost(Fit { model, median_error: 0.0 });
    }

    /// From now on `items` more items wait, as one request of the class that its size says.
    pub(crate) fn plug(&self, items: usize) {
        let id = || self.next_plug.fetch_add(1, Ordering::Relaxed);
        let items = (0..items).map(|_| TokenIds::new(&[0, id(), 2])).collect();
        let deadline = RealClock::new().now() + PATIENCE * 10;
        let vectors = Vectors::Dense;
        let ticket = self.scheduler.submit(Submission { items, vectors, priority: None, deadline });
        self.plugs.lock().push(ticket.expect("there is room"));
    }

    /// From now on the model gives other numbers.
    pub(crate) fn break_numbers(&self) {
        self.engine().set(|engine| engine.distorted = true);
    }

    /// From now on every item has these token weights, one for each of its positions.
    pub(crate) fn set_weights(&self, weights: &[f32]) {
        self.engine().set(|engine| engine.weights = Some(weights.to_vec()));
    }

    /// From now on the engine does this, once.
    pub(crate) fn fault(&self, fault: Fault) {
        self.engine().set(|engine| engine.fault = Some(fault));
    }

    /// Admission refuses the next requests, until `recover`.
    pub(crate) fn fill_queue(&self) {
        self.engine().set(|engine| engine.held = true);
        self.plug(QueueCapacity::DEFAULT.as_usize());
    }

    /// No worker will ever come back.
    pub(crate) fn close(&self) {
        self.scheduler.close();
    }

    /// Empties the queue.
    pub(crate) fn recover(&self) {
        self.release();
        self.wait_until("the queue is empty", |server| {
            let counts = server.scheduler.snapshot().counts;
            counts.ended() == counts.accepted
        });
    }

    /// From now on requests wait until `release`.
    pub(crate) fn hold(&self) {
        self.engine().set(|engine| engine.held = true);
        for held in 1..=WORKERS as usize {
            self.plug(1);
            self.controls.wait_held(held);
            self.held.store(held, Ordering::Relaxed);
        }
    }

    pub(crate) fn release(&self) {
        self.plugs.lock().clear();
        self.held.store(0, Ordering::Relaxed);
        self.engine().set(|engine| (engine.held, engine.silent) = (false, false));
    }

    /// The tests' hand on the engine.
    pub(crate) fn engine(&self) -> &Controls {
        &self.controls
    }

    /// What stands behind HTTP.
    pub(crate) fn service(&self) -> &EmbeddingService {
        &self.service
    }

    /// Waits until exactly `count` items wait while requests are held.
    pub(crate) fn wait_waiting(&self, count: usize) {
        self.wait_until("that many items wait", |server| server.waiting() == count);
    }

    /// How many items wait while requests are held; those of the same text count each.
    pub(crate) fn waiting(&self) -> usize {
        let counts = self.scheduler.snapshot().counts;
        let outstanding = (counts.accepted - counts.ended()) as usize;
        outstanding.saturating_sub(self.held.load(Ordering::Relaxed))
    }

    /// How many items have been accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.scheduler.snapshot().counts.accepted
    }

    pub(crate) fn wait_until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let (end, mut pause) = (Instant::now() + PATIENCE, Duration::from_millis(1));
        while !reached(self) {
            assert!(Instant::now() < end, "it never happened that {what}");
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
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

    /// The series (name with labels) of /metrics and their values.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        let answer = self.get(METRICS);
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
        let text = answer.text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            (series.to_owned(), value.parse().expect("a number"))
        });
        series.collect()
    }

    #[track_caller]
    pub(crate) fn metric(&self, series: &str) -> f64 {
        *self.metrics().get(series).expect("the series is there")
    }

    /// The routes refuse the body of each row as the row says: the body, the code with the field
    /// that it is about, and what the message says, with `…` between its parts.
    #[track_caller]
    pub(crate) fn refuses(&self, routes: &[&str], table: &str) {
        for [body, refusal, words] in rows(table) {
            let (code, field) = refusal.split_once(' ').unwrap_or((refusal, ""));
            for path in routes {
                self.post_bytes(path, body).refused(code, field).says(words);
            }
        }
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
        let answer = self.send_unchecked(method.clone(), path, headers, body);
        answer.check_common(method == Method::HEAD);
        description::check(method.as_str(), path, &answer);
        answer
    }

    /// For answers that are not the application's.
    pub(crate) fn send_unchecked(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        // A failed test shows what it asked last: the case.
        let shown = String::from_utf8_lossy(&body[..body.len().min(300)]);
        let asked = format!("{method} {path} {headers:?} {shown}");
        println!("{asked}");
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.runtime.block_on(async {
            let response = request.body(body).send().await.expect("there is an answer");
            Answer::read(asked, response).await
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.release();
        self.close();
        self.begin_stop();
    }
}

/// One that runs on the thread that blocks on it.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("a Vec takes all");
    encoder.finish().expect("a Vec takes all")
}
