//! Settings whose values are words: each an enum, with the word of each variant.

use std::fmt;

use serde::Deserialize;

use super::setting::{Words, choices};

choices! {
    DefaultPrompt {
        /// The manifest's, which may be none.
        Manifest = "auto",
        /// Texts are run as they are, as by most other servers.
        None = "none",
        Query = "query",
        Passage = "passage",
    }

    TokenInput {
        /// Refused, unless the request itself says whose ids they are.
        Reject = "reject",
        /// Ids of the served model, run as they are.
        Model = "model",
        /// Ids of OpenAI's older models, read as the text that they stand for.
        Cl100kBase = "cl100k_base",
        /// Ids of OpenAI's newer models, read as the text that they stand for.
        O200kBase = "o200k_base",
    }

    /// What `--escape-special-tokens` takes.
    SpecialTokenText {
        /// The special token, as in XLM-R's reference tokenizer.
        Special = "false",
        /// The tokens of its characters.
        Plain = "true",
    }

    /// Which engine runs the model: what `--engine` takes, and the names of `/health`.
    EngineKind {
        OpenVino = "openvino",
        TensorRt = "tensorrt",
        TensorRtRtx = "tensorrt-rtx",
        /// A deterministic function of the token ids; for tests and for measuring the server.
        Fake = "fake",
    }

    PrecisionChoice {
        /// The processor's half precision, when the canary agrees with f32; else f32.
        Auto = "auto",
        F32 = "f32",
        Bf16 = "bf16",
        F16 = "f16",
        /// The package's graph in 8 bits for CPUs.
        Int8 = "int8",
        /// That for GPUs, in floating point.
        Fp8 = "fp8",
    }

    RescueChoice {
        /// The request of a row that is not finite fails.
        None = "none",
        /// The row is run again in f32.
        F32 = "f32",
    }

    OptimizeFor {
        /// Both: lanes of several widths, wide ones for a text that is alone, one a core under
        /// load.
        Both = "both",
        /// The time of a query that comes alone or with few others.
        Latency = "latency",
        /// Texts per second when there is always something to run.
        Throughput = "throughput",
    }

    WarmUp {
        /// Shapes of up to 512 tokens of a text, for some seconds; others while workers idle.
        Common = "common",
        /// Every shape, however long that takes.
        All = "all",
        /// No shape, neither before nor after.
        None = "none",
    }

    /// What `--raise-priority` takes.
    RaisedPriority {
        /// The request stays bulk.
        Ignore = "false",
        /// The request is interactive.
        Obey = "true",
    }

    TruncateDefault {
        Truncate = "true",
        Refuse = "false",
    }

    DocsRoutes {
        Serve = "true",
        /// They are answered like any unknown route.
        Omit = "false",
    }

    LogFormat {
        Text = "text",
        Json = "json",
    }

    /// A family of clients, with words and routes of its own.
    Dialect {
        /// `/v1/embeddings` and the routes beside it.
        OpenAi = "openai",
        /// NVIDIA NIM's words on those routes, and a few routes of its own.
        Nim = "nim",
        /// The routes of text-embeddings-inference.
        Tei = "tei",
    }

    /// Whose way of reading unusual characters and white space the tokenizer follows.
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    Normalization {
        /// sentencepiece's, with which such models were trained.
        Sentencepiece = "sentencepiece",
        /// The crate `tokenizers`': that of most indexes which others have made.
        Huggingface = "huggingface",
    }
}

impl EngineKind {
    /// Whether it runs plans on GPUs.
    pub const fn is_tensorrt(self) -> bool {
        matches!(self, Self::TensorRt | Self::TensorRtRtx)
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
