//! The table of settings. Each entry is all there is to a setting: its flag, variable, file key,
//! default, range and help, and its field in the configuration, with the type of that field. The
//! kinds of entries are explained at the macro `settings!` in `config/setting`.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::number::number;
use super::raw::RawValue;
use super::read;
use super::secret::ApiKey;
use super::setting::Command::{Bench, BuildEngine, Check, Offline};
use super::setting::{Words, choice, kind, settings};
use super::traces::{SampleRatio, TraceEndpoint};
use numbers::*;

pub use super::setting::{Command, Setting, Takes};

settings! {
    /// Where the server listens.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Address at |config| &mut config.address, with [] {
        host: read(IpAddr, read::host, "127.0.0.1"),
            "host", "ADDRESS", "address to listen on; 0.0.0.0 for all";
        port: read(u16, read::port, "8080"),
            "port", "PORT", "port to listen on; 0 takes a free one and logs it";
    }

    /// Everything, for `duovec serve`.
    #[derive(Debug, Clone)]
    pub struct Config at |config| config, with [
        address: Address,
        http: HttpConfig,
        door: DoorConfig,
        engine: EngineConfig,
        watchdog: WatchdogConfig,
        queue: QueueConfig,
        log: LogConfig,
        warnings: Vec<String>,
    ] {
        package: read(PathBuf, read::package, "engines/multilingual-e5-small"),
            "package", "DIR", "model package to serve",
            commands: &[Offline];
        /// They are valid besides the manifest's.
        model_aliases: read(Vec<String>, read::list, ""),
            "model-aliases", "A,B", "further names that clients may send as `model`",
            takes: Takes::ListInOneFlag;
        default_prompt: choice(DefaultPrompt {
            /// The manifest's, which may be none.
            Manifest = "auto",
            /// Texts are run as they are, as by most other servers.
            None = "none",
            Query = "query",
            Passage = "passage",
        }),
            "default-prompt", "PROMPT",
            "auto, none, query or passage: which of the model's prompts a request gets that asks \
            for none; auto is what the manifest says",
            commands: &[Check, Offline];
        token_input: choice(TokenInput {
            /// Refused, unless the request itself says whose ids they are.
            Reject = "reject",
            /// Ids of the served model, run as they are.
            Model = "model",
            /// Ids of OpenAI's older models, read as the text that they stand for.
            Cl100kBase = "cl100k_base",
            /// Ids of OpenAI's newer models, read as the text that they stand for.
            O200kBase = "o200k_base",
        }),
            "token-input", "ENCODING",
            "tokenizer of token-id input when a request does not name one: model, cl100k_base or \
            o200k_base; reject refuses them",
            commands: &[Check, Offline];
        special_token_text: choice(SpecialTokenText {
            /// The special token, as in XLM-R's reference tokenizer.
            Special = "false",
            /// The tokens of its characters.
            Plain = "true",
        }),
            "escape-special-tokens", "BOOL",
            "whether `<s>`, `</s>`, `<mask>` and the like in a text are plain text; false makes \
            them the special tokens",
            commands: &[Offline];
        /// `None` is what the manifest says.
        normalization: read(Option<Normalization>, read::word, "auto"),
            "tokenizer-normalization", "WAY",
            "auto, sentencepiece or huggingface: which way an XLM-R tokenizer reads unusual \
            characters; auto is what the manifest says",
            commands: &[Offline];
        drain_delay: number(DrainDelayMs, 0..=600_000, "milliseconds", 500),
            "drain-delay-ms", "MS",
            "time after SIGTERM in which /health says 503 and requests are still taken";
        drain_timeout: number(DrainTimeoutMs, 0..=3_600_000, "milliseconds", 30_000),
            "drain-timeout-ms", "MS",
            "time after that to answer what was accepted; new requests get 503";
    }

    /// What decides how the model is run.
    #[derive(Debug, Clone)]
    pub struct EngineConfig at |config| &mut config.engine, with [tensorrt: TensorRtConfig] {
        choice: choice(EngineChoice {
            /// The best one that this machine can run.
            Auto = "auto",
            OpenVino = "openvino",
            TensorRt = "tensorrt",
            TensorRtRtx = "tensorrt-rtx",
            Fake = "fake",
        }),
            "engine", "ENGINE",
            "auto, openvino, tensorrt, tensorrt-rtx, or fake (no model; measures the server)",
            commands: &[Check, Bench, Offline];
        /// It is that of the matrix products.
        precision: choice(PrecisionChoice {
            /// The processor's half precision, when the canary agrees with f32; else f32.
            Auto = "auto",
            F32 = "f32",
            Bf16 = "bf16",
            F16 = "f16",
            /// The package's graph in 8 bits for CPUs.
            Int8 = "int8",
            /// That for GPUs, in floating point.
            Fp8 = "fp8",
        }),
            "precision", "PRECISION",
            "auto, f32, bf16, f16, int8 or fp8 arithmetic; auto takes the processor's half \
            precision when the canary agrees with f32, or a plan's own, but never 8 bits; int8 and \
            fp8 take a package's graph in 8 bits, for CPUs and for GPUs",
            commands: &[Check, Bench, BuildEngine, Offline];
        rescue: choice(RescueChoice {
            /// The request of a row that is not finite fails.
            None = "none",
            /// The row is run again in f32.
            F32 = "f32",
        }),
            "rescue-precision", "PRECISION",
            "none, or f32: rows that are not finite in half precision are run again in it \
            (OpenVINO; holds the weights once more)",
            commands: &[Offline];
        optimize_for: choice(OptimizeFor {
            /// Both: lanes of several widths, wide ones for a text that is alone, one a core under
            /// load.
            Both = "both",
            /// The time of a query that comes alone or with few others.
            Latency = "latency",
            /// Texts per second when there is always something to run.
            Throughput = "throughput",
        }),
            "optimize-for", "GOAL",
            "both, latency or throughput: what decides where workers, their threads or the size of \
            batches are auto. On a CPU with several cores, both holds the model once for each \
            width of lanes: a text that is alone gets many cores, many texts get one each";
        warm_up: choice(WarmUp {
            /// Shapes of up to 512 tokens of a text, for some seconds; others while workers idle.
            Common = "common",
            /// Every shape, however long that takes.
            All = "all",
            /// No shape, neither before nor after.
            None = "none",
        }),
            "warm-up", "SHAPES",
            "common, all or none: the shapes of batches that are run before the server is ready; \
            with common the others follow while it idles. All where an engine compiles shapes";
        /// `None` is the engine's own number, or measured.
        workers: number_or_auto(Workers, 1..=256, "workers", 1),
            "workers", "N",
            "workers, each with one session; auto is measured at the start on a CPU, 1 with \
            threads-per-worker, and workers-per-device for each GPU",
            commands: &[Bench, Offline];
        /// `None` shares the processor's cores.
        threads_per_worker: number_or_auto(ThreadsPerWorker, 1..=1024, "threads"),
            "threads-per-worker", "N", "processor threads of a worker; auto shares all cores",
            commands: &[Check, Bench, Offline];
        /// `None` searches the system.
        openvino_library_dir: read(Option<PathBuf>, read::path, ""),
            "openvino-library-dir", "DIR", "folder of libopenvino_c.so; empty searches the system",
            commands: &[Check, Bench, Offline];
        fake_run: number(FakeRunMs, 0..=3_600_000, "milliseconds", 0),
            "fake-run-ms", "MS", "time of a run of the fake engine",
            commands: &[Bench, Offline];
    }

    /// What decides how plans are run.
    #[derive(Debug, Clone)]
    pub struct TensorRtConfig at |config| &mut config.engine.tensorrt, with [] {
        /// At least one, each once.
        devices: read(Vec<usize>, read::devices, "0"),
            "devices", "LIST", "GPUs that TensorRT uses, as CUDA counts them, such as 0,1",
            takes: Takes::ListInOneFlag, commands: &[Check, Bench, Offline];
        /// While one copies, another computes.
        workers_per_device: number(WorkersPerDevice, 1..=64, "workers", 2),
            "workers-per-device", "N", "workers of each GPU, each with one CUDA stream",
            commands: &[Offline];
        /// `None` searches the system.
        library_dir: read(Option<PathBuf>, read::path, ""),
            "tensorrt-library-dir", "DIR",
            "folder of TensorRT's or TensorRT-RTX's libraries; empty searches the system",
            commands: &[Check, Bench, BuildEngine, Offline];
        /// `None` searches the system.
        cuda_library_dir: read(Option<PathBuf>, read::path, ""),
            "cuda-library-dir", "DIR", "folder of libcudart.so; empty searches the system",
            commands: &[Check, Bench, BuildEngine, Offline];
        build_plan: read(bool, read::word, "false"),
            "build-plan", "BOOL",
            "whether a start builds a plan for each GPU that the package has none for, which takes \
            minutes; the package must be writable",
            commands: &[Offline];
        /// A graph spares the time that launching a model's hundred kernels takes, which larger
        /// batches hide behind computing.
        graph_tokens: number(GraphTokens, 0..=65_536, "tokens", 4096),
            "cuda-graph-tokens", "N",
            "batches of at most this many padded tokens run from captured CUDA graphs, where that \
            is measured to save time; 0 captures none",
            commands: &[Bench, Offline];
    }

    /// What is done about batches that do not end.
    #[derive(Debug, Clone, Copy)]
    pub struct WatchdogConfig at |config| &mut config.watchdog, with [] {
        /// A text of thousands of tokens takes a large model about as long.
        stuck_after: number(WorkerStuckMs, 0..=3_600_000, "milliseconds", 30_000),
            "worker-stuck-ms", "MS",
            "a batch that runs for longer, and for four times as long as predicted, is answered \
            with 503 and fails readiness; 0 waits for ever";
        on_stuck: choice(OnStuck {
            /// Readiness fails until the batch ends after all.
            Wait = "false",
            /// The process ends, for its supervisor to start it again.
            Exit = "true",
        }),
            "exit-on-stuck", "BOOL", "whether such a batch ends the process, with code 1";
    }

    /// What bounds the queue, the batches and the cache.
    #[derive(Debug, Clone, Copy)]
    pub struct QueueConfig at |config| &mut config.queue, with [] {
        capacity: number(QueueCapacity, 1..=1_048_576, "items", 8192),
            "queue-capacity", "N",
            "items waiting or running; more are refused with 429. The last eighth is for requests \
            of few items";
        /// `None` is what suits the engine. The type's default is for engines that are not
        /// measured; see [`CPU_BATCH_TOKENS`](crate::limits::CPU_BATCH_TOKENS) and
        /// [`GPU_BATCH_TOKENS`](crate::limits::GPU_BATCH_TOKENS).
        max_batch_tokens: number_or_auto(MaxBatchTokens, 8..=1_048_576, "tokens", 512),
            "max-batch-tokens", "N",
            "tokens of one batch (rows × length), of which a longer text has one of its own; auto \
            is measured at the start, up to 2048 on a CPU, 8192 on a GPU",
            commands: &[Bench, Offline];
        interactive_p99: number(InteractiveP99Ms, 0..=60_000, "milliseconds", 0),
            "interactive-p99-ms", "MS",
            "interactive items get their rows in this time, 99 in 100 of them, as far as bulk \
            items can be kept back for it; 0 promises nothing, and bulk items run in the batches \
            that suit them best";
        cache_bytes: number(CacheBytes, 0..=1_099_511_627_776, "bytes", 0),
            "cache-bytes", "N",
            "memory for the vectors of texts that have run, so that the same text need not run \
            again; 0 keeps none",
            commands: &[Check];
    }

    /// What a request is asked before anything is done for it.
    #[derive(Debug, Clone, Copy)]
    pub struct DoorConfig at |config| &mut config.door, with [] {
        max_inflight_bytes: number(
            MaxInflightBytes, 65_536..=1_099_511_627_776, "bytes", 268_435_456
        ),
            "max-inflight-bytes", "N",
            "bytes that all requests hold at once: bodies, unpacked, then tokens, vectors and \
            answers until they are sent; beyond this, requests get 429. The last eighth is for \
            requests of up to 64 KiB";
        raised_priority: choice(RaisedPriority {
            /// The request stays bulk.
            Ignore = "false",
            /// The request is interactive.
            Obey = "true",
        }),
            "raise-priority", "BOOL",
            "whether `x-priority: interactive` makes a request interactive that is bulk by its \
            size";
    }

    /// What the HTTP side needs to know.
    #[derive(Debug, Clone)]
    pub struct HttpConfig at |config| &mut config.http, with [
        traces: TraceConfig,
        unix_socket: Option<UnixSocket>,
        tls: Option<TlsFiles>,
    ] {
        /// LangChain sends up to 1000, OpenAI's own limit is 2048.
        max_items: number(MaxItems, 1..=65_536, "items", 2048),
            "max-items", "N", "items of one request";
        /// The default is about 250,000 tokens; tokenizing it takes some 40 ms of one core.
        max_item_bytes: number(MaxItemBytes, 1..=1_073_741_824, "bytes", 1_048_576),
            "max-item-bytes", "N",
            "bytes of one text, or of a list of token ids at four bytes each; more is answered 400",
            commands: &[Offline];
        max_body_bytes: number(MaxBodyBytes, 1024..=1_073_741_824, "bytes", 33_554_432),
            "max-body-bytes", "N", "bytes of one request body, unpacked";
        truncate: choice(TruncateDefault { Truncate = "true", Refuse = "false" }),
            "truncate", "BOOL",
            "cut over-long items when a request does not say; false refuses them";
        request_timeout: number(RequestTimeoutMs, 1..=3_600_000, "milliseconds", 30_000),
            "request-timeout-ms", "MS", "time from a request's arrival to its answer";
        max_request_timeout: number(MaxRequestTimeoutMs, 1..=3_600_000, "milliseconds", 300_000),
            "max-request-timeout-ms", "MS",
            "the longest time that a client may ask for with `x-request-timeout-ms`";
        deep_health_timeout: number(DeepHealthTimeoutMs, 1..=600_000, "milliseconds", 5_000),
            "deep-health-timeout-ms", "MS", "time of /health/deep on all workers";
        /// Longer than the 60 s of common load balancers.
        keep_alive: number(KeepAliveS, 1..=3600, "seconds", 75),
            "keep-alive-s", "S", "how long an idle connection stays open";
        head_timeout: number(HeadTimeoutMs, 1..=600_000, "milliseconds", 10_000),
            "head-timeout-ms", "MS",
            "time from the first byte of a request's head to its last; of a TLS handshake";
        /// The default lets 32 MiB come at 13 Mbit/s.
        body_timeout: number(BodyTimeoutMs, 1..=3_600_000, "milliseconds", 20_000),
            "body-timeout-ms", "MS", "time to receive a request's body; 408 after that";
        write_timeout: number(WriteTimeoutMs, 1..=3_600_000, "milliseconds", 30_000),
            "write-timeout-ms", "MS",
            "a client that takes no byte of its answer for so long is cut";
        /// A poor mobile link gives a few kilobytes; what is slower holds memory for others' harm.
        min_read_rate: number(MinReadBytesPerS, 0..=1_073_741_824, "bytes", 1024),
            "min-read-bytes-per-s", "N",
            "a client that takes fewer bytes of its answers in a second, for longer than \
            write-timeout-ms, is cut; 0 lets it be as slow as it is";
        /// Of all threads; rounded up to a multiple of the threads.
        max_connections: number(MaxConnections, 1..=1_048_576, "connections", 16_384),
            "max-connections", "N", "open connections; more wait until one ends";
        /// actix-server panics over 512.
        threads: number_by(read::http_threads, "auto", HttpThreads, 1..=512, "threads"),
            "http-threads", "N", "threads that parse, tokenize and write; auto is one a core";
        /// NIM's words are sent to OpenAI's routes.
        dialects: read(Vec<Dialect>, read::words, "openai,nim,tei"),
            "dialects", "LIST",
            "families of clients whose routes and words are understood: openai, nim, which needs \
            openai, and tei",
            takes: Takes::ListInOneFlag;
        docs: choice(DocsRoutes {
            Serve = "true",
            /// They are answered like any unknown route.
            Omit = "false",
        }),
            "docs", "BOOL",
            "serve the pages: `/playground`, `/docs` and its `/openapi.json`; \
            without a key";
        /// Without it nothing is recorded.
        metrics: read(bool, read::word, "true"),
            "metrics", "BOOL", "whether GET /metrics answers, in Prometheus' text format";
        metrics_need_key: read(bool, read::word, "false"),
            "metrics-need-key", "BOOL", "whether /metrics asks for a key as well";
        /// Without any and without a file no key is asked for.
        api_keys: read(Vec<ApiKey>, read::api_keys, ""),
            "api-keys", "KEY",
            "key that clients must send as `Authorization: Bearer`; may be repeated; a process \
            list shows the flag",
            flag: "api-key", takes: Takes::ListOfFlags, secret: true;
        api_key_file: read(Option<PathBuf>, read::path_if_given, ""),
            "api-key-file", "FILE",
            "file with more keys, one a line, `#` starts a comment; read again when it changes";
        /// None = no page may.
        cors_origins: read(Vec<String>, read::origins, ""),
            "cors-origin", "ORIGIN",
            "origin of web pages that may read answers, or `*` for all; may be repeated",
            takes: Takes::ListOfFlags;
    }

    /// A socket in the file system.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UnixSocket at |config| config.http.unix_socket.get_or_insert_default(), with [] {
        path: read(PathBuf, read::path_if_given, ""),
            "unix-socket", "PATH", "Unix socket to listen on besides the port, with plain HTTP";
        mode: read(u32, read::mode, "660"),
            "unix-socket-mode", "MODE",
            "its permissions, octal; whoever may write to it may connect";
    }

    /// Where the certificate and its key are.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TlsFiles at |config| config.http.tls.get_or_insert_default(), with [] {
        /// The server's own certificate, then those between it and the root.
        cert: read(PathBuf, read::path_if_given, ""),
            "tls-cert", "FILE",
            "certificate chain in PEM, for HTTPS; read again when it changes";
        key: read(PathBuf, read::path_if_given, ""),
            "tls-key", "FILE", "the certificate's private key in PEM, without a passphrase";
    }

    /// What decides which traces are exported.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TraceConfig at |config| &mut config.http.traces, with [] {
        endpoint: read(TraceEndpoint, read::parsed, ""),
            "otlp-endpoint", "URL",
            "http:// URL of an OpenTelemetry collector that gets traces; empty turns traces off";
        sample_ratio: read(SampleRatio, read::parsed, "1"),
            "otlp-sample-ratio", "RATIO",
            "part of the requests without a `traceparent` that are traced, 0 to 1";
    }

    /// How the process reports.
    #[derive(Debug, Clone)]
    pub struct LogConfig at |config| &mut config.log, with [] {
        format: choice(LogFormat { Text = "text", Json = "json" }),
            "log-format", "FORMAT", "text or json",
            commands: &[Check, Bench, BuildEngine, Offline];
        level: read(String, read::log_level, "info"),
            "log-level", "LEVEL", "error, warn, info, debug, trace, or tracing directives",
            commands: &[Check, Bench, BuildEngine, Offline];
    }
}

choice!(
    /// A family of clients, with words and routes of its own.
    Dialect {
        /// `/v1/embeddings` and the routes beside it.
        OpenAi = "openai",
        /// NVIDIA NIM's words on those routes, and a few routes of its own.
        Nim = "nim",
        /// The routes of text-embeddings-inference.
        Tei = "tei",
    }
);

impl HttpConfig {
    /// Whether the clients of `dialect` are understood.
    pub fn speaks(&self, dialect: Dialect) -> bool {
        self.dialects.contains(&dialect)
    }
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

impl Words for Option<Normalization> {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", None),
        ("sentencepiece", Some(Normalization::Sentencepiece)),
        ("huggingface", Some(Normalization::Huggingface)),
    ];
}
