//! The cxx bridge to `cpp/bridge.h`: plain structs and bytes in, opaque handles and errors out.
//!
//! This file and `engine/cuda.rs` have the only unsafe code. Callers use what is below the bridge.

#![allow(unsafe_code, reason = "the bridge to C++")]
#![allow(missing_docs, unreachable_pub, reason = "cxx makes the items; cpp/bridge.h has the words")]

use std::path::Path;

use cxx::{SharedPtr, UniquePtr};
use thiserror::Error;

pub use bridge::{
    BuildReport, BuildRequest, Element, EngineRequest, Flavour, Fusion, LayerTime, Output,
    OutputType, Profile, RunTimes, RunWishes, SessionReport, SessionRequest, Shape, StagedInputs,
    Version,
};

#[cxx::bridge(namespace = "duovec::bridge")]
mod bridge {
    /// Which TensorRT; the class tables of the two differ.
    #[namespace = "duovec"]
    #[derive(Debug)]
    enum Flavour {
        /// For data-centre GPUs: `libnvinfer`.
        #[cxx_name = "kTensorRt"]
        TensorRt,
        /// For RTX GPUs: `libtensorrt_rtx`.
        #[cxx_name = "kTensorRtRtx"]
        TensorRtRtx,
    }

    #[namespace = "duovec"]
    enum Severity {
        #[cxx_name = "kError"]
        Error,
        #[cxx_name = "kWarning"]
        Warning,
        #[cxx_name = "kInfo"]
        Info,
        #[cxx_name = "kVerbose"]
        Verbose,
    }

    #[namespace = "duovec"]
    #[derive(Debug)]
    enum Element {
        #[cxx_name = "kInt32"]
        Int32,
        #[cxx_name = "kFloat32"]
        Float32,
        #[cxx_name = "kFloat16"]
        Float16,
    }

    /// In the order of `TensorName` in `cpp/layout.h`.
    #[derive(Debug)]
    enum Output {
        Dense,
        TokenWeights,
        Words,
        WordWeights,
        TokenVectors,
    }

    /// Whether attention is one kernel that never writes its scores to memory.
    #[namespace = "duovec"]
    #[derive(Debug)]
    enum Fusion {
        #[cxx_name = "kUnknown"]
        Unknown,
        #[cxx_name = "kFused"]
        Fused,
        #[cxx_name = "kNotFused"]
        NotFused,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Version {
        major: i32,
        minor: i32,
        patch: i32,
        build: i32,
    }

    /// Smallest, usual and largest shape that one optimization profile covers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Profile {
        name: String,
        rows_min: i32,
        rows_opt: i32,
        rows_max: i32,
        length_min: i32,
        length_opt: i32,
        length_max: i32,
    }

    /// How to build a plan; see `BuildRequest` in `cpp/backend.h`.
    #[derive(Debug, Clone)]
    struct BuildRequest {
        model_path: String,
        profiles: Vec<Profile>,
        outputs: Vec<OutputType>,
        length_max: i32,
        vocabulary_size: i32,
        compute_capabilities: Vec<i32>,
        hardware_compatible: bool,
        same_compute_capability: bool,
        version_compatible: bool,
        optimization_level: i32,
        workspace_bytes: i64,
        timing_cache: Vec<u8>,
    }

    /// What is known of a plan without a GPU; see `BuildReport` in `cpp/backend.h`.
    #[derive(Debug, Clone)]
    struct BuildReport {
        precision: String,
        scratch_bytes: Vec<i64>,
        position_rows: i32,
        heads: i32,
        layers: i32,
        fusion: Fusion,
        warnings: Vec<String>,
        timing_cache: Vec<u8>,
    }

    /// What a plan must be and where it runs; see `EngineRequest` in `cpp/backend.h`.
    #[derive(Debug, Clone)]
    struct EngineRequest {
        profiles: Vec<Profile>,
        outputs: Vec<OutputType>,
        /// Version-compatible plans bring code that runs on the host.
        host_code_allowed: bool,
        device: i32,
        /// The CUDA runtime's library.
        cuda_file: String,
    }

    /// An output that a plan has.
    #[derive(Debug, Clone, Copy)]
    struct OutputType {
        output: Output,
        element: Element,
        /// The size of its last axis, where a batch's shape does not tell it.
        columns: i32,
    }

    #[derive(Debug, Clone, Copy)]
    struct Shape {
        rows: i32,
        length: i32,
    }

    /// What a session must be able to run; see `SessionRequest` in `cpp/backend.h`.
    #[derive(Debug, Clone)]
    struct SessionRequest {
        shapes: Vec<Shape>,
        captured_tokens_max: i64,
    }

    /// Pinned memory of the staged shape; see `StagedInputs` in `cpp/backend.h`.
    struct StagedInputs<'a> {
        input_ids: &'a mut [i32],
        positions: &'a mut [i32],
        segments: &'a mut [i32],
        span_weights: &'a mut [f32],
    }

    /// How a session runs the shapes that it has seen.
    #[derive(Debug, Clone)]
    struct SessionReport {
        captured: i32,
        plain: i32,
        contexts: i32,
        contexts_ns: i64,
        contexts_bytes: i64,
        refused: String,
    }

    #[derive(Debug, Clone, Copy)]
    struct RunWishes {
        /// Before other batches.
        urgent: bool,
        /// The wait is no busy one, however short.
        asleep: bool,
        /// Whether vectors of tokens are copied from the device.
        token_vectors: bool,
    }

    /// Nanoseconds on the device; all zero if the run was not timed.
    #[derive(Debug, Clone, Copy)]
    struct RunTimes {
        copy_in: i64,
        compute: i64,
        copy_out: i64,
    }

    #[derive(Debug, Clone)]
    struct LayerTime {
        name: String,
        microseconds: f64,
    }

    extern "Rust" {
        type Observer;
        /// Called from the library's threads.
        fn progress(self: &Observer, permille: i32, phase: &[u8]) -> bool;
        /// Called from any thread.
        fn log_line(flavour: Flavour, severity: Severity, line: &[u8]);
    }

    #[namespace = "duovec"]
    unsafe extern "C++" {
        include!("duovec/cpp/bridge.h");
        type Flavour;
        type Severity;
        type Element;
        type Fusion;
        /// An opened flavour.
        type Backend;
        /// A plan on its device.
        type Engine;
        /// A stream with its buffers and contexts.
        type Session;
        /// A serialized plan in host memory.
        type Plan;
    }

    unsafe extern "C++" {
        fn open_library(flavour: Flavour, directory: &str) -> Result<SharedPtr<Backend>>;
        fn version_of(library: &Backend) -> Version;
        fn build_plan(
            library: &Backend,
            request: &BuildRequest,
            observer: &Observer,
        ) -> Result<UniquePtr<Plan>>;
        fn load(
            library: &Backend,
            request: &EngineRequest,
            plan: &[u8],
            kernels: &[u8],
        ) -> Result<SharedPtr<Engine>>;

        fn outputs_of(engine: &Engine) -> Vec<OutputType>;
        fn layers_of(engine: &Engine) -> Result<String>;
        fn layer_times(engine: &Engine, rows: i32, length: i32) -> Result<Vec<LayerTime>>;
        fn kernels_of(engine: &Engine) -> Vec<u8>;
        fn open_session(engine: &Engine, request: &SessionRequest) -> Result<UniquePtr<Session>>;

        /// Marked unsafe only because cxx wants that for a named lifetime.
        unsafe fn stage<'a>(
            session: Pin<&'a mut Session>,
            rows: i32,
            length: i32,
        ) -> Result<StagedInputs<'a>>;
        fn run(session: Pin<&mut Session>, wishes: RunWishes) -> Result<RunTimes>;
        unsafe fn integers<'a>(session: &'a Session, output: Output) -> Result<&'a [i32]>;
        unsafe fn floats<'a>(session: &'a Session, output: Output) -> Result<&'a [f32]>;
        unsafe fn halves<'a>(session: &'a Session, output: Output) -> Result<&'a [u16]>;
        fn how_it_runs(session: &Session) -> SessionReport;

        fn bytes_of(plan: &Plan) -> &[u8];
        fn report_of(plan: &Plan) -> BuildReport;
    }
}

/// How the C++ side fails; the kinds of `cpp/error.h`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BridgeError {
    /// A library is missing, of a wrong version, or lacks a function.
    #[error("{0}")]
    Library(String),
    /// No driver or GPU is usable.
    #[error("{0}")]
    Device(String),
    /// The graph or the plan cannot be used.
    #[error("{0}")]
    Model(String),
    /// The request contradicts itself.
    #[error("{0}")]
    Request(String),
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    #[error("{0}")]
    Cancelled(String),
    /// This run failed; the next one may succeed.
    #[error("{0}")]
    Transient(String),
    /// A lasting CUDA error: the process must end.
    #[error("{0}")]
    Poisoned(String),
    /// A mistake in this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<cxx::Exception> for BridgeError {
    /// Every message begins with its kind: see `trycatch` in `cpp/bridge.h`.
    fn from(exception: cxx::Exception) -> Self {
        let what = exception.what();
        let (kind, message) = what.split_once(':').unwrap_or(("internal", what));
        let message = message.to_owned();
        match kind {
            "library" => Self::Library(message),
            "device" => Self::Device(message),
            "model" => Self::Model(message),
            "request" => Self::Request(message),
            "out_of_memory" => Self::OutOfMemory(message),
            "cancelled" => Self::Cancelled(message),
            "transient" => Self::Transient(message),
            "poisoned" => Self::Poisoned(message),
            _ => Self::Internal(message),
        }
    }
}

/// Called with a build's progress: thousandths of the whole, and the phase's name. Returning
/// `false` stops the build.
type Listener = Box<dyn Fn(u32, &str) -> bool + Send + Sync>;

/// The listener of one build. Its closure must not panic, since a panic on the library's threads
/// aborts the process.
pub struct Observer {
    listener: Listener,
}

impl Observer {
    pub fn new(listener: impl Fn(u32, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { listener: Box::new(listener) }
    }

    fn progress(&self, permille: i32, phase: &[u8]) -> bool {
        let permille = u32::try_from(permille).unwrap_or(0).min(1000);
        (self.listener)(permille, &String::from_utf8_lossy(phase))
    }
}

/// One opened flavour. The libraries stay open until the process ends.
#[derive(Clone)]
pub struct Library {
    handle: SharedPtr<bridge::Backend>,
}

// SAFETY: `duovec::Backend` holds a table of functions that never changes after opening, and its
// shared pointer counts atomically; `cpp/backend.h` promises use from all threads.
unsafe impl Send for Library {}
// SAFETY: as above; all methods are const.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a flavour's libraries in `directory`, or where the system's loader looks.
    pub fn open(flavour: Flavour, directory: Option<&Path>) -> Result<Self, BridgeError> {
        let directory = match directory {
            None => "",
            Some(path) => path.to_str().ok_or_else(|| {
                BridgeError::Library(format!("the path {} is not UTF-8", path.display()))
            })?,
        };
        Ok(Self { handle: bridge::open_library(flavour, directory)? })
    }

    pub fn version(&self) -> Version {
        bridge::version_of(&self.handle)
    }

    /// Blocks for seconds to minutes.
    pub fn build_plan(
        &self,
        request: &BuildRequest,
        observer: &Observer,
    ) -> Result<Plan, BridgeError> {
        Ok(Plan { handle: bridge::build_plan(&self.handle, request, observer)? })
    }

    /// Loads a plan onto its device, and makes that the calling thread's current device. Takes
    /// seconds. `kernels` are compiled kernels of an earlier process, or empty.
    pub fn load(
        &self,
        request: &EngineRequest,
        plan: &[u8],
        kernels: &[u8],
    ) -> Result<PlanEngine, BridgeError> {
        Ok(PlanEngine { handle: bridge::load(&self.handle, request, plan, kernels)? })
    }
}

/// A plan on its device.
pub struct PlanEngine {
    handle: SharedPtr<bridge::Engine>,
}

// SAFETY: `cpp/backend.h` promises that an engine may be used from all threads: it is immutable
// once loaded, and its destructor makes its device current before it frees anything.
unsafe impl Send for PlanEngine {}
// SAFETY: as above; all methods are const.
unsafe impl Sync for PlanEngine {}

impl PlanEngine {
    /// With the types that the plan has them in.
    pub fn outputs(&self) -> Vec<OutputType> {
        bridge::outputs_of(&self.handle)
    }

    /// The plan's layers, as the library's own JSON.
    pub fn layers(&self) -> Result<String, BridgeError> {
        Ok(bridge::layers_of(&self.handle)?)
    }

    /// The time of each layer in a run of the shape, in the order of the layers: means of some
    /// runs.
    pub fn layer_times(&self, shape: Shape) -> Result<Vec<LayerTime>, BridgeError> {
        Ok(bridge::layer_times(&self.handle, shape.rows, shape.length)?)
    }

    /// Opens a session, with device memory for its largest shape and a context for each profile.
    /// Call it on the thread that will run the session.
    pub fn open_session(&self, request: &SessionRequest) -> Result<PlanSession, BridgeError> {
        let handle = bridge::open_session(&self.handle, request)?;
        Ok(PlanSession { handle, engine: self.handle.clone() })
    }
}

/// A stream with its buffers and contexts. It is not `Send`, since CUDA's current device belongs to
/// the thread.
pub struct PlanSession {
    handle: UniquePtr<bridge::Session>,
    /// Behind the session, which is dropped first.
    engine: SharedPtr<bridge::Engine>,
}

impl PlanSession {
    /// Chooses the shape of the next run, and lends its inputs to be filled.
    pub fn stage(&mut self, shape: Shape) -> Result<StagedInputs<'_>, BridgeError> {
        // SAFETY: the slices are parts of the session's pinned memory, which lie behind each other
        // and live as long as the session; it cannot be used while they are borrowed.
        Ok(unsafe { bridge::stage(self.handle.pin_mut(), shape.rows, shape.length) }?)
    }

    /// Runs the staged batch and waits for its end.
    pub fn run(&mut self, wishes: RunWishes) -> Result<RunTimes, BridgeError> {
        Ok(bridge::run(self.handle.pin_mut(), wishes)?)
    }

    /// Of the last run: the words that have weights, `[rows, spans, kept]`.
    pub fn integers(&self, output: Output) -> Result<&[i32], BridgeError> {
        // SAFETY: a part of the session's pinned memory, which no run changes while it is borrowed.
        Ok(unsafe { bridge::integers(&self.handle, output) }?)
    }

    /// Of the last run: dense vectors, `[rows, spans, hidden]`, weights of words, as these, or of
    /// tokens, `[rows, length]`, and vectors of tokens, `[rows, length, size]`.
    pub fn floats(&self, output: Output) -> Result<&[f32], BridgeError> {
        // SAFETY: as above.
        Ok(unsafe { bridge::floats(&self.handle, output) }?)
    }

    /// The same as bits of half-precision numbers.
    pub fn halves(&self, output: Output) -> Result<&[u16], BridgeError> {
        // SAFETY: as above.
        Ok(unsafe { bridge::halves(&self.handle, output) }?)
    }

    pub fn report(&self) -> SessionReport {
        bridge::how_it_runs(&self.handle)
    }

    /// The kernels that the library has compiled for the plan on this device so far, in all
    /// sessions. Empty for a library that compiles none.
    pub fn kernels(&self) -> Vec<u8> {
        bridge::kernels_of(&self.engine)
    }
}

/// A serialized plan in host memory.
pub struct Plan {
    handle: UniquePtr<bridge::Plan>,
}

impl Plan {
    pub fn bytes(&self) -> &[u8] {
        bridge::bytes_of(&self.handle)
    }

    pub fn report(&self) -> BuildReport {
        bridge::report_of(&self.handle)
    }
}

/// TensorRT is talkative. Its info lines help only somebody who looks for a fault in TensorRT.
fn log_line(flavour: Flavour, severity: bridge::Severity, line: &[u8]) {
    let (line, flavour) = (String::from_utf8_lossy(line), flavour.name());
    match severity {
        bridge::Severity::Error => tracing::error!(flavour, "{line}"),
        bridge::Severity::Warning => tracing::warn!(flavour, "{line}"),
        bridge::Severity::Info => tracing::debug!(flavour, "{line}"),
        _ => tracing::trace!(flavour, "{line}"),
    }
}
