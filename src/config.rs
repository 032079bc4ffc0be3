//! What the server runs with: resolved, validated, immutable.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use crate::limits::{
    DeepHealthTimeoutMs, DrainTimeoutMs, FakeRunMs, GraphTokens, HttpThreads, KeepAliveS, MaxAgeMs,
    MaxBatchRows, MaxBatchTokens, MaxBodyBytes, MaxItems, QueueCapacity, RequestTimeoutMs,
    ThreadsPerWorker, Workers, WorkersPerDevice,
};

pub mod raw;
pub mod settings;

use raw::{Origin, Problem, RawConfig};

/// Whether clients may send token ids in place of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenInput {
    Accept,
    Reject,
}

/// What a special token that is written in a text (`<s>`) becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialTokenText {
    /// That token, as in XLM-R's reference tokenizer.
    Special,
    /// The tokens of its characters.
    Plain,
}

/// What happens to over-long items when a request does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncateDefault {
    Truncate,
    Refuse,
}

/// Which engine is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineChoice {
    /// The best one that this machine can run.
    Auto,
    OpenVino,
    TensorRt,
    TensorRtRtx,
    Fake,
}

/// Arithmetic of the matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrecisionChoice {
    /// The processor's half precision, when the canary agrees with f32; else f32.
    Auto,
    F32,
    Bf16,
    F16,
}

impl PrecisionChoice {
    /// As it is typed; `None` for `Auto`.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::F32 => Some("f32"),
            Self::Bf16 => Some("bf16"),
            Self::F16 => Some("f16"),
        }
    }
}

/// Whether the API's description is served: `/openapi.json` and `/docs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocsRoutes {
    Serve,
    /// They are answered like any unknown route.
    Omit,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Where the server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub host: IpAddr,
    /// 0 takes a free one.
    pub port: u16,
}

/// What the HTTP side needs to know.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    pub threads: HttpThreads,
    pub keep_alive: KeepAliveS,
    pub max_items: MaxItems,
    pub max_body_bytes: MaxBodyBytes,
    pub request_timeout: RequestTimeoutMs,
    pub deep_health_timeout: DeepHealthTimeoutMs,
    pub truncate: TruncateDefault,
    /// Keys that clients may send as `Authorization: Bearer <key>`; none = no key is asked for.
    pub api_keys: Vec<String>,
    pub docs: DocsRoutes,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            threads: HttpThreads::DEFAULT,
            keep_alive: KeepAliveS::DEFAULT,
            max_items: MaxItems::DEFAULT,
            max_body_bytes: MaxBodyBytes::DEFAULT,
            request_timeout: RequestTimeoutMs::DEFAULT,
            deep_health_timeout: DeepHealthTimeoutMs::DEFAULT,
            truncate: TruncateDefault::Truncate,
            api_keys: Vec::new(),
            docs: DocsRoutes::Serve,
        }
    }
}

/// What decides how the model is run.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub choice: EngineChoice,
    pub precision: PrecisionChoice,
    /// `None` is the engine's own number.
    pub workers: Option<Workers>,
    pub threads_per_worker: ThreadsPerWorker,
    /// `None` searches the system.
    pub openvino_library_dir: Option<PathBuf>,
    pub tensorrt: TensorRtConfig,
    pub fake_run: FakeRunMs,
}

/// What decides how plans are run.
#[derive(Debug, Clone)]
pub struct TensorRtConfig {
    /// CUDA's numbers of the GPUs, at least one, each once.
    pub devices: Vec<usize>,
    pub workers_per_device: WorkersPerDevice,
    /// `None` searches the system.
    pub library_dir: Option<PathBuf>,
    /// `None` searches the system.
    pub cuda_library_dir: Option<PathBuf>,
    pub graph_tokens: GraphTokens,
}

/// What bounds the queue and the batches.
#[derive(Debug, Clone, Copy)]
pub struct QueueConfig {
    pub capacity: QueueCapacity,
    /// `None` is what suits the engine.
    pub max_batch_tokens: Option<MaxBatchTokens>,
    pub max_batch_rows: MaxBatchRows,
    pub max_age: MaxAgeMs,
}

/// How the process reports.
#[derive(Debug, Clone)]
pub struct LogConfig {
    pub format: LogFormat,
    /// A level, or directives of the crate `tracing-subscriber`.
    pub level: String,
}

/// Everything, for `duovec serve`.
#[derive(Debug, Clone)]
pub struct Config {
    pub address: Address,
    pub package: PathBuf,
    /// Names besides the manifest's.
    pub model_aliases: Vec<String>,
    pub token_input: TokenInput,
    pub special_token_text: SpecialTokenText,
    pub drain_timeout: DrainTimeoutMs,
    pub http: HttpConfig,
    pub engine: EngineConfig,
    pub queue: QueueConfig,
    pub log: LogConfig,
}

/// Everything that is wrong, at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Problem>);

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&lines.join("\n"))
    }
}

impl Config {
    /// Resolves what was typed.
    ///
    /// # Errors
    /// Every problem of every setting, not only the first.
    pub fn resolve(raw: &RawConfig) -> Result<Self, ConfigError> {
        let mut reader = Reader { raw, problems: raw.problems().to_vec() };
        let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
        let engine = reader.engine(cores);
        let config = Self {
            address: Address { host: reader.host(), port: reader.port() },
            package: PathBuf::from(reader.text("package")),
            model_aliases: reader.list("model-aliases"),
            token_input: reader.one_of(
                "token-input",
                &[("accept", TokenInput::Accept), ("reject", TokenInput::Reject)],
            ),
            special_token_text: reader.one_of(
                "escape-special-tokens",
                &[("false", SpecialTokenText::Special), ("true", SpecialTokenText::Plain)],
            ),
            drain_timeout: reader.parsed("drain-timeout-ms", DrainTimeoutMs::DEFAULT),
            http: reader.http(cores),
            engine,
            queue: reader.queue(),
            log: reader.log(),
        };
        if config.package.as_os_str().is_empty() {
            reader.problem("package", "name the directory of a model package");
        }
        if config.queue.capacity.get() < config.http.max_items.get() {
            reader.problem(
                "queue-capacity",
                format!(
                    "{} is less than max-items {}: the largest request could never be taken",
                    config.queue.capacity, config.http.max_items
                ),
            );
        }
        if reader.problems.is_empty() { Ok(config) } else { Err(ConfigError(reader.problems)) }
    }
}

/// Reads settings one by one and keeps every problem; a wrong one counts as its default until the
/// problems are reported.
struct Reader<'a> {
    raw: &'a RawConfig,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn http(&mut self, cores: u64) -> HttpConfig {
        let threads = HttpThreads::new(cores.min(HttpThreads::MAX)).unwrap_or_default();
        HttpConfig {
            threads: self.parsed_or_auto("http-threads", threads),
            keep_alive: self.parsed("keep-alive-s", KeepAliveS::DEFAULT),
            max_items: self.parsed("max-items", MaxItems::DEFAULT),
            max_body_bytes: self.parsed("max-body-bytes", MaxBodyBytes::DEFAULT),
            request_timeout: self.parsed("request-timeout-ms", RequestTimeoutMs::DEFAULT),
            deep_health_timeout: self
                .parsed("deep-health-timeout-ms", DeepHealthTimeoutMs::DEFAULT),
            truncate: self.one_of(
                "truncate",
                &[("true", TruncateDefault::Truncate), ("false", TruncateDefault::Refuse)],
            ),
            api_keys: self.list("api-keys"),
            docs: self.one_of("docs", &[("true", DocsRoutes::Serve), ("false", DocsRoutes::Omit)]),
        }
    }

    fn engine(&mut self, cores: u64) -> EngineConfig {
        let workers: Option<Workers> = self.parsed_unless_auto("workers");
        let share = (cores / workers.unwrap_or_default().get())
            .clamp(ThreadsPerWorker::MIN, ThreadsPerWorker::MAX);
        let threads = ThreadsPerWorker::new(share).unwrap_or_default();
        EngineConfig {
            choice: self.one_of(
                "engine",
                &[
                    ("auto", EngineChoice::Auto),
                    ("openvino", EngineChoice::OpenVino),
                    ("tensorrt", EngineChoice::TensorRt),
                    ("tensorrt-rtx", EngineChoice::TensorRtRtx),
                    ("fake", EngineChoice::Fake),
                ],
            ),
            precision: self.one_of(
                "precision",
                &[
                    ("auto", PrecisionChoice::Auto),
                    ("f32", PrecisionChoice::F32),
                    ("bf16", PrecisionChoice::Bf16),
                    ("f16", PrecisionChoice::F16),
                ],
            ),
            workers,
            threads_per_worker: self.parsed_or_auto("threads-per-worker", threads),
            openvino_library_dir: self.folder("openvino-library-dir"),
            tensorrt: TensorRtConfig {
                devices: self.devices(),
                workers_per_device: self.parsed("workers-per-device", WorkersPerDevice::DEFAULT),
                library_dir: self.folder("tensorrt-library-dir"),
                cuda_library_dir: self.folder("cuda-library-dir"),
                graph_tokens: self.parsed("cuda-graph-tokens", GraphTokens::DEFAULT),
            },
            fake_run: self.parsed("fake-run-ms", FakeRunMs::DEFAULT),
        }
    }

    fn devices(&mut self) -> Vec<usize> {
        let mut devices: Vec<usize> = Vec::new();
        for text in self.list("devices") {
            match text.parse() {
                Ok(device) if !devices.contains(&device) => devices.push(device),
                Ok(_) => self.problem("devices", format!("GPU {text} is named twice")),
                Err(_) => self.problem("devices", format!("'{text}' is not the number of a GPU")),
            }
        }
        if devices.is_empty() {
            self.problem("devices", "name at least one GPU, such as 0");
        }
        devices
    }

    fn queue(&mut self) -> QueueConfig {
        QueueConfig {
            capacity: self.parsed("queue-capacity", QueueCapacity::DEFAULT),
            max_batch_tokens: self.parsed_unless_auto("max-batch-tokens"),
            max_batch_rows: self.parsed("max-batch-rows", MaxBatchRows::DEFAULT),
            max_age: self.parsed("max-age-ms", MaxAgeMs::DEFAULT),
        }
    }

    fn log(&mut self) -> LogConfig {
        let level = self.text("log-level");
        if let Err(error) = level.parse::<tracing_subscriber::filter::Targets>() {
            self.problem("log-level", format!("'{level}' is no level or directive: {error}"));
        }
        LogConfig {
            format: self
                .one_of("log-format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]),
            level,
        }
    }

    fn host(&mut self) -> IpAddr {
        let text = self.text("host");
        let text = if text == "localhost" { "127.0.0.1".to_owned() } else { text };
        text.parse().unwrap_or_else(|_| {
            self.problem("host", format!("'{text}' is not an IP address"));
            IpAddr::from([127, 0, 0, 1])
        })
    }

    fn port(&mut self) -> u16 {
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

    fn text(&self, name: &str) -> String {
        self.raw.value(name).text.trim().to_owned()
    }

    fn list(&self, name: &str) -> Vec<String> {
        let items = self.raw.value(name).text.split(',').map(str::trim);
        items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    fn parsed<T>(&mut self, name: &str, fallback: T) -> T
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.text(name).parse().unwrap_or_else(|error: T::Err| {
            self.problem(name, error.to_string());
            fallback
        })
    }

    fn parsed_or_auto<T>(&mut self, name: &str, auto: T) -> T
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        if self.text(name) == "auto" { auto } else { self.parsed(name, auto) }
    }

    fn parsed_unless_auto<T>(&mut self, name: &str) -> Option<T>
    where
        T: FromStr + Default,
        T::Err: fmt::Display,
    {
        (self.text(name) != "auto").then(|| self.parsed(name, T::default()))
    }

    fn folder(&self, name: &str) -> Option<PathBuf> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// The first choice stands in for a word that is none of them.
    fn one_of<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> T {
        let text = self.text(name);
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
            return *choice;
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.problem(name, format!("'{text}' is none of {}", words.join(", ")));
        choices[0].1
    }

    fn problem(&mut self, name: &str, problem: impl Into<String>) {
        self.problems.push(Problem { place: self.raw.place(name), problem: problem.into() });
    }
}

#[cfg(test)]
mod tests;
