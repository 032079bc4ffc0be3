//! The table of settings. Each entry is all there is to a setting: its field in the configuration,
//! with the type that has its range or its words, its default, flag, variable, file key and help.
//! The macro `settings!` in `setting` says how an entry is written.

use std::net::IpAddr;
use std::path::PathBuf;

use super::numbers::*;
use super::read;
use super::secret::ApiKey;
use super::setting::Command::{Bench, BuildEngine, Check, Offline};
use super::setting::{RawValue, settings};

pub use super::choices::*;
pub use super::setting::{Command, Origin, Setting, Takes};

settings! {
    /// Where the server listens.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Address at |config| &mut config.address, with [] {
        host: IpAddr = "127.0.0.1", read::host,
            "host", "ADDRESS", "address to listen on; 0.0.0.0 for all";
        port: u16 = "8080", read::port,
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
        package: PathBuf = "engines/multilingual-e5-small", read::package,
            "package", "DIR", "folder of the model's package",
            commands: &[Check, Bench, BuildEngine, Offline];
        model_aliases: Vec<String> = "", read::list,
            "model-aliases", "A,B", "further names that clients may send as `model`",
            takes: Takes::ListInOneFlag;
        default_prompt: DefaultPrompt = "auto", read::word,
            "default-prompt", "PROMPT",
            "auto, none, query or passage: which of the model's prompts a request gets that asks \
            for none; auto is what the manifest says",
            commands: &[Check, Offline];
        token_input: TokenInput = "reject", read::word,
            "token-input", "ENCODING",
            "tokenizer of token-id input when a request does not name one: model, cl100k_base or \
            o200k_base; reject refuses them",
            commands: &[Check, Offline];
        special_token_text: SpecialTokenText = "false", read::word,
            "escape-special-tokens", "BOOL",
            "whether `<s>`, `</s>`, `<mask>` and the like in a text are plain text; false makes \
            them the special tokens",
            commands: &[Offline];
        normalization: Option<Normalization> = "auto", read::word,
            "tokenizer-normalization", "WAY",
            "auto, sentencepiece or huggingface: which way an XLM-R tokenizer reads unusual \
            characters; auto is what the manifest says",
            commands: &[Offline];
        drain_delay: DrainDelayMs = "500", read::number("milliseconds"),
            "drain-delay-ms", "MS",
            "time after SIGTERM in which /health says 503 and requests are still taken";
        drain_timeout: DrainTimeoutMs = "30000", read::number("milliseconds"),
            "drain-timeout-ms", "MS",
            "time after that to answer what was accepted; new requests get 503";
    }

    /// What decides how the model is run.
    #[derive(Debug, Clone)]
    pub struct EngineConfig at |config| &mut config.engine, with [tensorrt: TensorRtConfig] {
        /// `None` is the best one that this machine can run.
        choice: Option<EngineKind> = "auto", read::word,
            "engine", "ENGINE",
            "auto, openvino, tensorrt, tensorrt-rtx, or fake (no model; measures the server)",
            commands: &[Check, Bench, Offline];
        /// It is that of the matrix products.
        precision: PrecisionChoice = "auto", read::word,
            "precision", "PRECISION",
            "auto, f32, bf16, f16, int8 or fp8 arithmetic; auto takes the processor's half \
            precision when the canary agrees with f32, or a plan's own, but never 8 bits; int8 and \
            fp8 take a package's graph in 8 bits, for CPUs and for GPUs",
            commands: &[Check, Bench, BuildEngine, Offline];
        rescue: RescueChoice = "none", read::word,
            "rescue-precision", "PRECISION",
            "none, or f32: rows that are not finite in half precision, also those of a GPU, are \
            run again in it on the CPU (OpenVINO; holds the weights once more)",
            commands: &[Offline];
        optimize_for: OptimizeFor = "both", read::word,
            "optimize-for", "GOAL",
            "both, latency or throughput: what decides where workers, their threads or the size of \
            batches are auto. On a CPU with several cores, both holds the model once for each \
            width of lanes: a text that is alone gets many cores, many texts get one each";
        warm_up: WarmUp = "common", read::word,
            "warm-up", "SHAPES",
            "common, all or none: the shapes of batches that are run before the server is ready; \
            with common the others follow while it idles. All where an engine compiles shapes";
        /// `None` is the engine's own number, or measured.
        workers: Option<Workers> = "auto", read::number_or_auto("workers"),
            "workers", "N",
            "workers, each with one session; auto is measured at the start on a CPU, 1 with \
            threads-per-worker, and workers-per-device for each GPU",
            commands: &[Bench, Offline];
        threads_per_worker: Option<ThreadsPerWorker> = "auto", read::number_or_auto("threads"),
            "threads-per-worker", "N", "processor threads of a worker; auto shares all cores",
            commands: &[Check, Bench, Offline];
        openvino_library_dir: Option<PathBuf> = "", read::path,
            "openvino-library-dir", "DIR", "folder of libopenvino_c.so; empty searches the system",
            commands: &[Check, Bench, Offline];
        fake_run: FakeRunMs = "0", read::number("milliseconds"),
            "fake-run-ms", "MS", "time of a run of the fake engine",
            commands: &[Bench, Offline];
    }

    /// What decides how plans are run.
    #[derive(Debug, Clone)]
    pub struct TensorRtConfig at |config| &mut config.engine.tensorrt, with [] {
        /// At least one, each once.
        devices: Vec<usize> = "0", read::devices,
            "devices", "LIST", "GPUs that TensorRT uses, as CUDA counts them, such as 0,1",
            takes: Takes::ListInOneFlag, commands: &[Check, Bench, Offline];
        /// While one copies, another computes. `None` is measured.
        workers_per_device: Option<WorkersPerDevice> = "auto", read::number_or_auto("workers"),
            "workers-per-device", "N",
            "workers of each GPU; auto is measured at the start, up to 4", commands: &[Offline];
        library_dir: Option<PathBuf> = "", read::path,
            "tensorrt-library-dir", "DIR",
            "folder of TensorRT's or TensorRT-RTX's libraries; empty searches the system",
            commands: &[Check, Bench, BuildEngine, Offline];
        cuda_library_dir: Option<PathBuf> = "", read::path,
            "cuda-library-dir", "DIR", "folder of libcudart.so; empty searches the system",
            commands: &[Check, Bench, BuildEngine, Offline];
        build_plan: bool = "false", read::word,
            "build-plan", "BOOL",
            "whether a start builds a plan for each GPU that the package has none for, which takes \
            minutes; the package must be writable",
            commands: &[Offline];
        /// A graph spares the time that launching a model's hundred kernels takes, which larger
        /// batches hide behind computing.
        graph_tokens: GraphTokens = "4096", read::number("tokens"),
            "cuda-graph-tokens", "N",
            "batches of at most this many padded tokens run from captured CUDA graphs, where that \
            is measured to save time; 0 captures none",
            commands: &[Bench, Offline];
    }

    /// What is done about batches that do not end.
    #[derive(Debug, Clone, Copy)]
    pub struct WatchdogConfig at |config| &mut config.watchdog, with [] {
        /// A text of thousands of tokens takes a large model about as long.
        stuck_after: WorkerStuckMs = "30000", read::number("milliseconds"),
            "worker-stuck-ms", "MS",
            "a batch that runs for longer, and for four times as long as predicted, is answered \
            with 503 and fails readiness; 0 waits for ever";
        /// Its supervisor starts it again. Else readiness fails until the batch ends after all.
        exit_on_stuck: bool = "false", read::word,
            "exit-on-stuck", "BOOL",
            "whether such a batch ends the process, with code 1, or a failed session that its \
            driver keeps for as long";
    }

    /// What bounds the queue, the batches and the cache.
    #[derive(Debug, Clone, Copy)]
    pub struct QueueConfig at |config| &mut config.queue, with [] {
        capacity: QueueCapacity = "8192", read::number("items"),
            "queue-capacity", "N",
            "items waiting or running; more are refused with 429. The last eighth is for requests \
            of few items";
        /// `None` is what suits the engine. The type's default is for engines that are not
        /// measured; see [`CPU_BATCH_TOKENS`](crate::limits::CPU_BATCH_TOKENS) and
        /// [`GPU_BATCH_TOKENS`](crate::limits::GPU_BATCH_TOKENS).
        max_batch_tokens: Option<MaxBatchTokens> = "auto", read::number_or_auto("tokens"),
            "max-batch-tokens", "N",
            "tokens of one batch (rows × length); a longer text is a batch of its own; auto is \
            what serve measures at its start, up to 2048 on a CPU and 8192 on a GPU; other \
            commands take 512 and 8192",
            commands: &[Bench, Offline];
        interactive_p99: InteractiveP99Ms = "0", read::number("milliseconds"),
            "interactive-p99-ms", "MS",
            "interactive items get their rows in this time, 99 in 100 of them, as far as bulk \
            items can be kept back for it; 0 promises nothing, and bulk items run in the batches \
            that suit them best";
        cache_bytes: CacheBytes = "0", read::number("bytes"),
            "cache-bytes", "N",
            "memory for the vectors of texts that have run, so that the same text need not run \
            again; 0 keeps none",
            commands: &[Check];
    }

    /// What a request is asked before anything is done for it.
    #[derive(Debug, Clone, Copy)]
    pub struct DoorConfig at |config| &mut config.door, with [] {
        max_inflight_bytes: MaxInflightBytes = "268435456", read::number("bytes"),
            "max-inflight-bytes", "N",
            "bytes that all requests hold at once: bodies, unpacked, then tokens, vectors and \
            answers until they are sent; beyond this, requests get 429. The last eighth is for \
            requests of up to 64 KiB";
        raised_priority: RaisedPriority = "false", read::word,
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
        max_items: MaxItems = "2048", read::number("items"),
            "max-items", "N", "items of one request";
        /// The default is about 250,000 tokens; tokenizing it takes some 40 ms of one core.
        max_item_bytes: MaxItemBytes = "1048576", read::number("bytes"),
            "max-item-bytes", "N",
            "bytes of one text, or of a list of token ids at four bytes each; serve answers 400 to \
            more, embed and batch leave it out",
            commands: &[Offline];
        max_body_bytes: MaxBodyBytes = "33554432", read::number("bytes"),
            "max-body-bytes", "N", "bytes of one request body, unpacked";
        truncate: TruncateDefault = "true", read::word,
            "truncate", "BOOL",
            "cut over-long items when a request does not say; false refuses them";
        request_timeout: RequestTimeoutMs = "30000", read::number("milliseconds"),
            "request-timeout-ms", "MS", "time from a request's arrival to its answer";
        max_request_timeout: MaxRequestTimeoutMs = "300000", read::number("milliseconds"),
            "max-request-timeout-ms", "MS",
            "the longest time that a client may ask for with `x-request-timeout-ms`";
        deep_health_timeout: DeepHealthTimeoutMs = "5000", read::number("milliseconds"),
            "deep-health-timeout-ms", "MS", "time of /health/deep on all workers";
        /// Longer than the 60 s of common load balancers.
        keep_alive: KeepAliveS = "75", read::number("seconds"),
            "keep-alive-s", "S", "how long an idle connection stays open";
        head_timeout: HeadTimeoutMs = "10000", read::number("milliseconds"),
            "head-timeout-ms", "MS",
            "time from the first byte of a request's head to its last; of a TLS handshake";
        /// The default lets 32 MiB come at 13 Mbit/s.
        body_timeout: BodyTimeoutMs = "20000", read::number("milliseconds"),
            "body-timeout-ms", "MS", "time to receive a request's body; 408 after that";
        write_timeout: WriteTimeoutMs = "30000", read::number("milliseconds"),
            "write-timeout-ms", "MS",
            "a client that takes no byte of its answer for so long is cut";
        /// A poor mobile link gives a few kilobytes; what is slower holds memory for others' harm.
        min_read_rate: MinReadBytesPerS = "1024", read::number("bytes"),
            "min-read-bytes-per-s", "N",
            "a client that takes fewer bytes of its answers in a second, for longer than \
            write-timeout-ms, is cut; 0 lets it be as slow as it is";
        /// Of all threads; rounded up to a multiple of the threads.
        max_connections: MaxConnections = "16384", read::number("connections"),
            "max-connections", "N", "open connections; more wait until one ends";
        /// actix-server panics over 512.
        threads: HttpThreads = "auto", read::http_threads,
            "http-threads", "N", "threads that parse, tokenize and write; auto is one a core";
        /// NIM's words are sent to OpenAI's routes.
        dialects: Vec<Dialect> = "openai,nim,tei", read::words,
            "dialects", "LIST",
            "families of clients whose routes and words are understood: openai, nim, which needs \
            openai, and tei",
            takes: Takes::ListInOneFlag;
        docs: DocsRoutes = "true", read::word,
            "docs", "BOOL",
            "serve the pages: `/playground`, `/docs` and its `/openapi.json`; \
            without a key";
        /// Without it nothing is recorded.
        metrics: bool = "true", read::word,
            "metrics", "BOOL", "whether GET /metrics answers, in Prometheus' text format";
        metrics_need_key: bool = "false", read::word,
            "metrics-need-key", "BOOL", "whether /metrics asks for a key as well";
        /// Without any and without a file no key is asked for.
        api_keys: Vec<ApiKey> = "", read::api_keys,
            "api-keys", "KEY",
            "key that clients must send as `Authorization: Bearer`; may be repeated; a process \
            list shows the flag",
            flag: "api-key", takes: Takes::ListOfFlags, secret: true;
        api_key_file: Option<PathBuf> = "", read::path_if_given,
            "api-key-file", "FILE",
            "file with more keys, one a line; lines that begin with `#` are comments; read again \
            when it changes";
        /// None = no page may.
        cors_origins: Vec<String> = "", read::origins,
            "cors-origin", "ORIGIN",
            "origin of web pages that may read answers, or `*` for all; may be repeated",
            takes: Takes::ListOfFlags;
    }

    /// A socket in the file system.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UnixSocket at |config| config.http.unix_socket.get_or_insert_default(), with [] {
        path: PathBuf = "", read::path_if_given,
            "unix-socket", "PATH", "Unix socket to listen on besides the port, with plain HTTP";
        mode: u32 = "660", read::mode,
            "unix-socket-mode", "MODE",
            "its permissions, octal; whoever may write to it may connect";
    }

    /// Where the certificate and its key are.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TlsFiles at |config| config.http.tls.get_or_insert_default(), with [] {
        /// The server's own certificate, then those between it and the root.
        cert: PathBuf = "", read::path_if_given,
            "tls-cert", "FILE",
            "certificate chain in PEM, for HTTPS; read again when it changes";
        key: PathBuf = "", read::path_if_given,
            "tls-key", "FILE", "the certificate's private key in PEM, without a passphrase";
    }

    /// What decides which traces are exported.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TraceConfig at |config| &mut config.http.traces, with [] {
        /// The whole URL.
        endpoint: Option<String> = "", read::trace_endpoint,
            "otlp-endpoint", "URL",
            "http:// URL of an OpenTelemetry collector that gets traces; empty turns traces off";
        sample_ratio: f64 = "1", read::ratio,
            "otlp-sample-ratio", "RATIO",
            "part of the requests without a `traceparent` that are traced, 0 to 1";
    }

    /// How the process reports.
    #[derive(Debug, Clone)]
    pub struct LogConfig at |config| &mut config.log, with [] {
        format: LogFormat = "text", read::word,
            "log-format", "FORMAT", "text or json",
            commands: &[Check, Bench, BuildEngine, Offline];
        level: String = "info", read::log_level,
            "log-level", "LEVEL", "error, warn, info, debug, trace, or tracing directives",
            commands: &[Check, Bench, BuildEngine, Offline];
    }
}

impl HttpConfig {
    /// Whether the clients of `dialect` are understood.
    pub fn speaks(&self, dialect: Dialect) -> bool {
        self.dialects.contains(&dialect)
    }
}
