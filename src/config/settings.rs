//! The table of settings: the flags, variables and file keys are all made from it.

/// How many values a setting takes. In a variable the values of a list have commas between them,
/// in the file they are a list of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    One,
    /// A list, all of it in one flag, with commas.
    ListInOneFlag,
    /// A list with a flag for each value, in which a comma is a character like others.
    ListOfFlags,
}

/// One setting: `--max-items`, `DUOVEC_MAX_ITEMS` and the file's `max_items` are the same.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Names the variable and the file's key.
    pub name: &'static str,
    /// The flag without its dashes; another word than the name where a flag gives one of many.
    pub flag: &'static str,
    /// What stands behind the flag in the help.
    pub value: &'static str,
    /// What is taken when nothing is configured, as it would be typed.
    pub default: &'static str,
    pub help: &'static str,
    pub takes: Takes,
}

impl Setting {
    /// Whether its value is never shown.
    pub fn is_secret(&self) -> bool {
        self.name == "api-keys"
    }

    /// The environment variable's name.
    pub fn variable(&self) -> String {
        format!("DUOVEC_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// The key in the configuration file.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// The setting of that name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

const fn flag(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name, flag: name, value, default, help, takes: Takes::One }
}

/// Every setting of `duovec serve`, in the order of the help and of `docs/settings.md`.
pub const SETTINGS: &[Setting] = &[
    flag("package", "DIR", "engines/multilingual-e5-small", "model package to serve"),
    flag("host", "ADDRESS", "127.0.0.1", "address to listen on; 0.0.0.0 for all"),
    flag("port", "PORT", "8080", "port to listen on; 0 takes a free one and logs it"),
    flag(
        "engine",
        "ENGINE",
        "auto",
        "auto, openvino, tensorrt, tensorrt-rtx, or fake (no model; measures the server)",
    ),
    flag(
        "precision",
        "PRECISION",
        "auto",
        "auto, f32, bf16 or f16 arithmetic; auto takes the \
        processor's half precision when the canary agrees with f32, or a plan's own",
    ),
    flag(
        "rescue-precision",
        "PRECISION",
        "none",
        "none, or f32: rows that are not finite in half precision are run again in it (OpenVINO; \
        holds the weights once more)",
    ),
    flag(
        "optimize-for",
        "GOAL",
        "latency",
        "latency or throughput: what decides where workers, their threads or the size of batches \
        are auto",
    ),
    flag(
        "workers",
        "N",
        "auto",
        "workers, each with one session; auto is measured at the start on a CPU, 1 with \
        threads-per-worker, and workers-per-device for each GPU",
    ),
    flag(
        "worker-stuck-ms",
        "MS",
        "30000",
        "a batch that runs for longer is answered with 503 and fails readiness; 0 waits for ever",
    ),
    flag("exit-on-stuck", "BOOL", "false", "whether such a batch ends the process, with code 1"),
    flag("threads-per-worker", "N", "auto", "processor threads of a worker; auto shares all cores"),
    flag(
        "openvino-library-dir",
        "DIR",
        "",
        "folder of libopenvino_c.so; empty searches the system",
    ),
    Setting {
        takes: Takes::ListInOneFlag,
        ..flag("devices", "LIST", "0", "GPUs that TensorRT uses, as CUDA counts them, such as 0,1")
    },
    flag("workers-per-device", "N", "2", "workers of each GPU, each with one CUDA stream"),
    flag(
        "tensorrt-library-dir",
        "DIR",
        "",
        "folder of TensorRT's or TensorRT-RTX's libraries; empty searches the system",
    ),
    flag("cuda-library-dir", "DIR", "", "folder of libcudart.so.13; empty searches the system"),
    flag(
        "cuda-graph-tokens",
        "N",
        "1024",
        "batches of up to so many padded tokens run from captured CUDA graphs; 0 captures none",
    ),
    flag("fake-run-ms", "MS", "0", "time of a run of the fake engine"),
    Setting {
        takes: Takes::ListInOneFlag,
        ..flag("model-aliases", "A,B", "", "further names that clients may send as `model`")
    },
    flag("token-input", "MODE", "accept", "accept or reject lists of token ids as input"),
    flag(
        "escape-special-tokens",
        "BOOL",
        "false",
        "whether `<s>`, `</s>`, `<mask>` and the like in a text are plain text; false makes them \
        the special tokens",
    ),
    flag(
        "tokenizer-normalization",
        "WAY",
        "auto",
        "auto, sentencepiece or huggingface: which way an XLM-R tokenizer reads unusual \
        characters; auto is what the manifest says",
    ),
    flag(
        "truncate",
        "BOOL",
        "true",
        "cut over-long items when a request does not say; false \
        refuses them",
    ),
    flag("max-items", "N", "2048", "items of one request"),
    flag(
        "max-item-bytes",
        "N",
        "1048576",
        "bytes of one text, or of a list of token ids at four bytes each; more is answered 400",
    ),
    flag("max-body-bytes", "N", "33554432", "bytes of one request body, unpacked"),
    flag(
        "max-inflight-bytes",
        "N",
        "268435456",
        "bytes of all request bodies held at once, unpacked; more are answered 429. The last \
        eighth is for requests of up to 64 KiB",
    ),
    flag("request-timeout-ms", "MS", "30000", "time from a request's arrival to its answer"),
    flag(
        "max-request-timeout-ms",
        "MS",
        "300000",
        "the longest time that a client may ask for with `x-request-timeout-ms`",
    ),
    flag(
        "raise-priority",
        "BOOL",
        "false",
        "whether `x-priority: interactive` makes a request interactive that is bulk by its size",
    ),
    flag("deep-health-timeout-ms", "MS", "5000", "time of /health/deep on all workers"),
    flag(
        "drain-delay-ms",
        "MS",
        "500",
        "time after SIGTERM in which /health says 503 and requests are still taken",
    ),
    flag(
        "drain-timeout-ms",
        "MS",
        "30000",
        "time after that to answer what was accepted; new requests get 503",
    ),
    flag("keep-alive-s", "S", "75", "how long an idle connection stays open"),
    flag(
        "head-timeout-ms",
        "MS",
        "10000",
        "time from the first byte of a request's head to its last; of a TLS handshake",
    ),
    flag("body-timeout-ms", "MS", "20000", "time of a request's body; later is answered 408"),
    flag(
        "write-timeout-ms",
        "MS",
        "30000",
        "a client that takes no byte of its answer for so long is cut",
    ),
    flag("max-connections", "N", "16384", "open connections; more wait until one ends"),
    flag(
        "docs",
        "BOOL",
        "true",
        "serve the API's description: `/openapi.json`, and `/docs` to read and try it; without a \
        key",
    ),
    flag("http-threads", "N", "auto", "threads that parse, tokenize and write; auto is one a core"),
    flag("queue-capacity", "N", "8192", "items waiting or running; more are refused with 429"),
    flag(
        "max-batch-tokens",
        "N",
        "auto",
        "padded tokens (rows × length) of one batch; auto is measured at the start, up to 2048 on \
        a CPU, 8192 on a GPU",
    ),
    flag("max-batch-rows", "N", "64", "rows of one batch"),
    flag("max-age-ms", "MS", "50", "after this wait an item leads the next batch of its class"),
    flag("metrics", "BOOL", "true", "whether GET /metrics answers, in Prometheus' text format"),
    flag(
        "otlp-endpoint",
        "URL",
        "",
        "http:// URL of an OpenTelemetry collector that gets traces; empty makes none",
    ),
    flag(
        "otlp-sample-ratio",
        "RATIO",
        "1",
        "part of the requests without a `traceparent` that are traced, 0 to 1",
    ),
    flag("log-format", "FORMAT", "text", "text or json"),
    flag("log-level", "LEVEL", "info", "error, warn, info, debug, trace, or tracing directives"),
    Setting {
        flag: "api-key",
        takes: Takes::ListOfFlags,
        ..flag(
            "api-keys",
            "KEY",
            "",
            "key that clients must send as `Authorization: Bearer`; may be repeated; a process \
            list shows the flag",
        )
    },
    flag(
        "api-key-file",
        "FILE",
        "",
        "file with more keys, one a line, `#` starts a comment; read again when it changes",
    ),
    flag("unix-socket", "PATH", "", "Unix socket to listen on besides the port, with plain HTTP"),
    flag("unix-socket-mode", "MODE", "660", "its permissions, octal; who may write may connect"),
    flag("tls-cert", "FILE", "", "certificate chain in PEM, for HTTPS; read again when it changes"),
    flag("tls-key", "FILE", "", "the certificate's private key in PEM, without a passphrase"),
    Setting {
        takes: Takes::ListOfFlags,
        ..flag(
            "cors-origin",
            "ORIGIN",
            "",
            "origin of web pages that may read answers, or `*` for all; may be repeated",
        )
    },
    flag("metrics-need-key", "BOOL", "false", "whether /metrics asks for a key as well"),
];
