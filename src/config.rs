//! What the server runs with: resolved, validated, immutable.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use serde::Deserialize;

use crate::limits::{
    BodyTimeoutMs, DeepHealthTimeoutMs, DrainDelayMs, DrainTimeoutMs, HeadTimeoutMs, HttpThreads,
    KeepAliveS, MaxAgeMs, MaxBatchRows, MaxBatchTokens, MaxBodyBytes, MaxConnections,
    MaxInflightBytes, MaxItemBytes, MaxItems, MaxRequestTimeoutMs, QueueCapacity, RequestTimeoutMs,
    WorkerStuckMs, WriteTimeoutMs,
};

mod engine;
mod network;
pub mod raw;
pub mod secret;
pub mod settings;
pub mod traces;

pub use traces::TraceConfig;

pub use engine::{
    EngineChoice, EngineConfig, OptimizeFor, PrecisionChoice, RescueChoice, TensorRtConfig,
};
pub use network::{DocsRoutes, TlsFiles, UnixSocket};

use raw::{Origin, Problem, RawConfig};
use secret::ApiKey;

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

/// Whose way of reading unusual characters and white space the tokenizer follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalization {
    /// sentencepiece's, with which such models were trained.
    Sentencepiece,
    /// The crate `tokenizers`': that of most indexes which others have made.
    Huggingface,
}

impl Normalization {
    /// The setting's and the manifest's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sentencepiece => "sentencepiece",
            Self::Huggingface => "huggingface",
        }
    }
}

/// What happens to over-long items when a request does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncateDefault {
    Truncate,
    Refuse,
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
    pub head_timeout: HeadTimeoutMs,
    pub body_timeout: BodyTimeoutMs,
    pub write_timeout: WriteTimeoutMs,
    pub max_connections: MaxConnections,
    pub max_items: MaxItems,
    pub max_item_bytes: MaxItemBytes,
    pub max_body_bytes: MaxBodyBytes,
    pub request_timeout: RequestTimeoutMs,
    pub max_request_timeout: MaxRequestTimeoutMs,
    pub deep_health_timeout: DeepHealthTimeoutMs,
    pub truncate: TruncateDefault,
    /// Whether `/metrics` is a route, and something is recorded for it.
    pub metrics: bool,
    pub traces: TraceConfig,
    /// Keys that clients may send as `Authorization: Bearer <key>`; without any and without a file
    /// no key is asked for.
    pub api_keys: Vec<ApiKey>,
    /// More keys, one a line.
    pub api_key_file: Option<PathBuf>,
    /// Listened on besides the port.
    pub unix_socket: Option<UnixSocket>,
    /// `None` is plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Origins of web pages that may read answers, or `*`; none = no page may.
    pub cors_origins: Vec<String>,
    /// Whether `/metrics` asks for a key too, where keys are asked for.
    pub metrics_need_key: bool,
    pub docs: DocsRoutes,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            threads: HttpThreads::DEFAULT,
            keep_alive: KeepAliveS::DEFAULT,
            head_timeout: HeadTimeoutMs::DEFAULT,
            body_timeout: BodyTimeoutMs::DEFAULT,
            write_timeout: WriteTimeoutMs::DEFAULT,
            max_connections: MaxConnections::DEFAULT,
            max_items: MaxItems::DEFAULT,
            max_item_bytes: MaxItemBytes::DEFAULT,
            max_body_bytes: MaxBodyBytes::DEFAULT,
            request_timeout: RequestTimeoutMs::DEFAULT,
            max_request_timeout: MaxRequestTimeoutMs::DEFAULT,
            deep_health_timeout: DeepHealthTimeoutMs::DEFAULT,
            truncate: TruncateDefault::Truncate,
            metrics: true,
            traces: TraceConfig::default(),
            api_keys: Vec::new(),
            api_key_file: None,
            unix_socket: None,
            tls: None,
            cors_origins: Vec::new(),
            metrics_need_key: false,
            docs: DocsRoutes::Serve,
        }
    }
}

/// What `x-priority: interactive` does for a request that is bulk by its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaisedPriority {
    /// Nothing: the request stays bulk.
    Ignore,
    /// The request is interactive.
    Obey,
}

/// What a request is asked before anything is done for it.
#[derive(Debug, Clone, Copy)]
pub struct DoorConfig {
    pub max_inflight_bytes: MaxInflightBytes,
    pub raised_priority: RaisedPriority,
}

impl Default for DoorConfig {
    fn default() -> Self {
        Self {
            max_inflight_bytes: MaxInflightBytes::DEFAULT,
            raised_priority: RaisedPriority::Ignore,
        }
    }
}

/// What happens when a batch does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStuck {
    /// Readiness fails until it ends after all.
    Wait,
    /// The process ends, for its supervisor to start it again.
    Exit,
}

/// What is done about batches that do not end.
#[derive(Debug, Clone, Copy)]
pub struct WatchdogConfig {
    pub stuck_after: WorkerStuckMs,
    pub on_stuck: OnStuck,
}

impl Default for WatchdogConfig {
    fn default() -> Self {
        Self { stuck_after: WorkerStuckMs::DEFAULT, on_stuck: OnStuck::Wait }
    }
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
    /// `None` is what the manifest says.
    pub normalization: Option<Normalization>,
    pub drain_delay: DrainDelayMs,
    pub drain_timeout: DrainTimeoutMs,
    pub http: HttpConfig,
    pub door: DoorConfig,
    pub engine: EngineConfig,
    pub watchdog: WatchdogConfig,
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
        let cores = cores() as u64;
        let engine = reader.engine();
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
            normalization: reader.normalization(),
            drain_delay: reader.parsed("drain-delay-ms", DrainDelayMs::DEFAULT),
            drain_timeout: reader.parsed("drain-timeout-ms", DrainTimeoutMs::DEFAULT),
            http: reader.http(cores),
            door: DoorConfig {
                max_inflight_bytes: reader.parsed("max-inflight-bytes", MaxInflightBytes::DEFAULT),
                raised_priority: reader.one_of(
                    "raise-priority",
                    &[("false", RaisedPriority::Ignore), ("true", RaisedPriority::Obey)],
                ),
            },
            engine,
            watchdog: WatchdogConfig {
                stuck_after: reader.parsed("worker-stuck-ms", WorkerStuckMs::DEFAULT),
                on_stuck: reader
                    .one_of("exit-on-stuck", &[("false", OnStuck::Wait), ("true", OnStuck::Exit)]),
            },
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
        let largest = config.door.max_inflight_bytes.largest_request();
        if config.http.max_body_bytes.get() > largest {
            reader.problem(
                "max-inflight-bytes",
                format!(
                    "{} leaves {largest} bytes for one request, and max-body-bytes allows {}: the \
                     largest request could never be taken",
                    config.door.max_inflight_bytes, config.http.max_body_bytes
                ),
            );
        }
        if config.http.request_timeout.get() > config.http.max_request_timeout.get() {
            reader.problem(
                "max-request-timeout-ms",
                format!(
                    "{} is less than request-timeout-ms {}: set it to the longest time that any \
                     request may have",
                    config.http.max_request_timeout, config.http.request_timeout
                ),
            );
        }
        if reader.problems.is_empty() { Ok(config) } else { Err(ConfigError(reader.problems)) }
    }
}

/// Processor cores that this process may use; 1 when nobody says.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Reads settings one by one and keeps every problem; a wrong one counts as its default until the
/// problems are reported.
struct Reader<'a> {
    raw: &'a RawConfig,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn normalization(&mut self) -> Option<Normalization> {
        let named = |way: Normalization| (way.name(), Some(way));
        let ways = [Normalization::Sentencepiece, Normalization::Huggingface].map(named);
        self.one_of("tokenizer-normalization", &[("auto", None), ways[0], ways[1]])
    }

    fn http(&mut self, cores: u64) -> HttpConfig {
        let threads = HttpThreads::new(cores.min(HttpThreads::MAX)).unwrap_or_default();
        HttpConfig {
            threads: self.parsed_or_auto("http-threads", threads),
            keep_alive: self.parsed("keep-alive-s", KeepAliveS::DEFAULT),
            head_timeout: self.parsed("head-timeout-ms", HeadTimeoutMs::DEFAULT),
            body_timeout: self.parsed("body-timeout-ms", BodyTimeoutMs::DEFAULT),
            write_timeout: self.parsed("write-timeout-ms", WriteTimeoutMs::DEFAULT),
            max_connections: self.parsed("max-connections", MaxConnections::DEFAULT),
            max_items: self.parsed("max-items", MaxItems::DEFAULT),
            max_item_bytes: self.parsed("max-item-bytes", MaxItemBytes::DEFAULT),
            max_body_bytes: self.parsed("max-body-bytes", MaxBodyBytes::DEFAULT),
            request_timeout: self.parsed("request-timeout-ms", RequestTimeoutMs::DEFAULT),
            max_request_timeout: self
                .parsed("max-request-timeout-ms", MaxRequestTimeoutMs::DEFAULT),
            deep_health_timeout: self
                .parsed("deep-health-timeout-ms", DeepHealthTimeoutMs::DEFAULT),
            truncate: self.one_of(
                "truncate",
                &[("true", TruncateDefault::Truncate), ("false", TruncateDefault::Refuse)],
            ),
            metrics: self.one_of("metrics", &[("true", true), ("false", false)]),
            traces: TraceConfig {
                endpoint: self.parsed("otlp-endpoint", traces::Endpoint::default()),
                sample_ratio: self.parsed("otlp-sample-ratio", traces::SampleRatio::default()),
            },
            api_keys: self.api_keys(),
            api_key_file: self.path_if_given("api-key-file"),
            unix_socket: self.unix_socket(),
            tls: self.tls(),
            cors_origins: self.origins(),
            metrics_need_key: self.one_of("metrics-need-key", &[("false", false), ("true", true)]),
            docs: self.one_of("docs", &[("true", DocsRoutes::Serve), ("false", DocsRoutes::Omit)]),
        }
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

    fn text(&self, name: &str) -> String {
        self.raw.value(name).text().trim().to_owned()
    }

    /// The values of a list, none of them empty.
    fn list(&mut self, name: &str) -> Vec<String> {
        let typed = &self.raw.value(name).values;
        let values = typed.iter().map(|value| value.trim().to_owned());
        let values: Vec<String> = values.filter(|value| !value.is_empty()).collect();
        if values.len() < typed.len() {
            self.problem(name, "a value is empty; give it, or leave it out");
        }
        values
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

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// The same where nothing and an empty text differ: a shell makes an empty text of a variable
    /// that is not set, and the server would run without what was asked for.
    fn path_if_given(&mut self, name: &str) -> Option<PathBuf> {
        let path = self.path(name);
        if path.is_none() && self.raw.value(name).is_given() {
            self.problem(name, "it is empty; give a path, or leave the setting out");
        }
        path
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
