//! Which engine runs the model, and how.

use std::path::PathBuf;

use super::Reader;
use crate::limits::{FakeRunMs, GraphTokens, ThreadsPerWorker, Workers, WorkersPerDevice};

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

/// What is done with a row that is not finite in half precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescueChoice {
    /// Its request fails.
    None,
    /// It is run again in f32.
    F32,
}

/// What counts where one thing costs another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimizeFor {
    /// The time of a query that comes alone or with few others.
    Latency,
    /// Texts per second when there is always something to run.
    Throughput,
}

impl OptimizeFor {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        }
    }
}

/// What decides how the model is run.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub choice: EngineChoice,
    pub precision: PrecisionChoice,
    pub rescue: RescueChoice,
    /// What `workers`, `threads_per_worker` and the size of batches are chosen for.
    pub optimize_for: OptimizeFor,
    /// `None` is the engine's own number, or measured.
    pub workers: Option<Workers>,
    /// `None` shares the processor's cores.
    pub threads_per_worker: Option<ThreadsPerWorker>,
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

impl Reader<'_> {
    pub(super) fn engine(&mut self) -> EngineConfig {
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
            rescue: self.one_of(
                "rescue-precision",
                &[("none", RescueChoice::None), ("f32", RescueChoice::F32)],
            ),
            optimize_for: self.one_of(
                "optimize-for",
                &[("latency", OptimizeFor::Latency), ("throughput", OptimizeFor::Throughput)],
            ),
            workers: self.parsed_unless_auto("workers"),
            threads_per_worker: self.parsed_unless_auto("threads-per-worker"),
            openvino_library_dir: self.path("openvino-library-dir"),
            tensorrt: TensorRtConfig {
                devices: self.devices(),
                workers_per_device: self.parsed("workers-per-device", WorkersPerDevice::DEFAULT),
                library_dir: self.path("tensorrt-library-dir"),
                cuda_library_dir: self.path("cuda-library-dir"),
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
}
