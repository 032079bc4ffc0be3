//! The border to the engines: what a loaded model can do, and how it fails.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use half::f16;
use half::slice::HalfFloatSliceExt;
use thiserror::Error;

use model::package::canary::{Comparison, among_neighbours, compare_all};
use model::package::manifest::Manifest;
use scheduling::batch::{Batch, Bucket, Place};
use vectors::dense::make_unit;

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
pub mod cuda;
pub mod fake;
#[cfg(feature = "openvino")]
pub mod openvino;
#[cfg(any(test, feature = "tensorrt", feature = "tensorrt-rtx"))]
mod places;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
pub mod tensorrt;

/// Which engine runs the model; the names of `/health` and of the flag `--engine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// OpenVINO on the CPU.
    OpenVino,
    /// TensorRT on data-centre GPUs.
    TensorRt,
    /// TensorRT-RTX on RTX GPUs.
    TensorRtRtx,
    /// A deterministic function of the token ids; for tests and for measuring the server itself.
    Fake,
}

impl EngineKind {
    /// The name in answers, logs and flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenVino => "openvino",
            Self::TensorRt => "tensorrt",
            Self::TensorRtRtx => "tensorrt-rtx",
            Self::Fake => "fake",
        }
    }

    /// Whether it runs plans on GPUs.
    pub(crate) const fn is_tensorrt(self) -> bool {
        matches!(self, Self::TensorRt | Self::TensorRtRtx)
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What an engine is and what it may be asked; fixed before the first worker has a session.
#[derive(Debug, Clone)]
pub struct EngineInfo {
    /// Which engine.
    pub kind: EngineKind,
    /// Version of the engine's library.
    pub version: String,
    /// The device's own name.
    pub device: String,
    /// Arithmetic of the matrix products: "f32", "bf16" or "f16".
    pub precision: String,
    /// Processor threads of one session; 0 where the device has no such notion.
    pub threads_per_session: usize,
    /// Floats of one dense row.
    pub hidden_size: usize,
    /// Ranges of shapes that a plan was built for, as they were typed; empty without a plan.
    pub profiles: Vec<String>,
}

/// How an engine fails; the kinds ask for different reactions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// The model's files cannot be used; another try cannot help.
    #[error("bad package: {0}")]
    BadPackage(String),
    /// The engine's library, driver or device cannot be used on this machine.
    #[error("{0}")]
    NotAvailable(String),
    /// The device or the host has no memory left; a smaller batch may run.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// This run failed; the session may be used again.
    #[error("run failed: {0}")]
    Transient(String),
    /// The session cannot be used again; a new one may work.
    #[error("session lost: {0}")]
    SessionLost(String),
    /// The whole process cannot use the device again (a CUDA error that sticks): fail health,
    /// answer what is queued, exit non-zero and let the supervisor restart.
    #[error("device lost: {0}")]
    ProcessPoisoned(String),
}

/// Time that a run took, by stage; zero for stages that the engine does not have. All are zero when
/// the run was not timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StageTimes {
    pub(crate) copy_in: Duration,
    pub compute: Duration,
    pub(crate) copy_out: Duration,
}

/// Times of the runs that were timed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StageSums {
    sums: StageTimes,
    runs: u32,
}

impl StageSums {
    /// Adds the times of a further run, if it was timed.
    pub(crate) fn add(&mut self, run: StageTimes) {
        self.sums.copy_in += run.copy_in;
        self.sums.compute += run.compute;
        self.sums.copy_out += run.copy_out;
        self.runs += u32::from(run != StageTimes::default());
    }

    /// Of a run that was timed.
    pub(crate) fn mean(&self) -> StageTimes {
        let runs = self.runs.max(1);
        StageTimes {
            copy_in: self.sums.copy_in / runs,
            compute: self.sums.compute / runs,
            copy_out: self.sums.copy_out / runs,
        }
    }
}

/// Numbers as an engine's graph leaves them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Floats<'a> {
    /// Single precision.
    Single(&'a [f32]),
    /// Half precision.
    Half(&'a [f16]),
}

impl Floats<'_> {
    /// A copy of these places, in single precision.
    fn copy(self, places: Range<usize>) -> Vec<f32> {
        match self {
            Self::Single(floats) => floats[places].to_vec(),
            Self::Half(floats) => floats[places].to_f32_vec(),
        }
    }
}

/// Rows of one run. They lie in the session's own memory, which the next run uses again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchOutput<'a> {
    dense: Floats<'a>,
    token_weights: Option<Floats<'a>>,
    hidden_size: usize,
    bucket: Bucket,
    pub(crate) times: StageTimes,
}

impl<'a> BatchOutput<'a> {
    /// `dense`: `[rows, spans, hidden]`, row-major, L2-normalized as far as the graph's precision
    /// allows: in bf16 a vector's length is off by up to some thousandths. `token_weights`:
    /// `[rows, length]`; those of no text are not read. `None` for a model without them.
    pub fn new(
        bucket: Bucket,
        hidden_size: usize,
        dense: Floats<'a>,
        token_weights: Option<Floats<'a>>,
    ) -> Self {
        Self { dense, token_weights, hidden_size, bucket, times: StageTimes::default() }
    }

    /// A copy of the dense vectors of a text, one behind the other: `hidden_size` floats each,
    /// whose length is one. A plain text has one.
    pub fn dense_of(&self, place: Place) -> Vec<f32> {
        let start = (place.row * self.bucket.spans() + place.span) * self.hidden_size;
        let mut dense = self.dense.copy(start..start + place.spans * self.hidden_size);
        dense.chunks_mut(self.hidden_size).for_each(make_unit);
        dense
    }

    /// A copy of the token weights of a text: one float for each of its `tokens` tokens, all zero
    /// for a model without them.
    pub fn weights_of(&self, place: Place, tokens: usize) -> Vec<f32> {
        let start = place.row * self.bucket.length + place.start;
        let copy = |weights: Floats<'_>| weights.copy(start..start + tokens);
        self.token_weights.map_or_else(|| vec![0.0; tokens], copy)
    }
}

/// One GPU that an engine runs on, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFigures {
    /// CUDA's number.
    pub index: usize,
    /// NVIDIA's own name.
    pub name: String,
    /// Memory that nobody has taken.
    pub free_bytes: u64,
    /// All of its memory.
    pub total_bytes: u64,
}

/// A loaded, immutable model on one device. Shared by all workers; called from their threads.
pub trait Engine: Send + Sync {
    /// What this engine is; the same while it serves.
    fn info(&self) -> &EngineInfo;

    /// Those of `buckets` that it can run, in their order: all, unless its shapes were fixed when
    /// it was built.
    fn supported(&self, buckets: &[Bucket]) -> Vec<Bucket> {
        buckets.to_vec()
    }

    /// Whether a session compiles a shape when it first runs it, which takes too long for a
    /// request. Else a first run takes some milliseconds more than later ones.
    fn compiles_shapes(&self) -> bool {
        true
    }

    /// Opens what one worker needs to run `buckets`, which are supported. A session compiles
    /// nothing for a shape once it has run it. Called on the worker's own thread, which keeps the
    /// session.
    fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError>;

    /// Numbers for operators that change while the engine runs; names carry their unit. Called from
    /// a thread that does nothing else, since it may wait for the device; must not wait for a run.
    fn figures(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The GPUs that the engine runs on; none on a CPU. Called as [`Engine::figures`] is.
    fn gpus(&self) -> Vec<GpuFigures> {
        Vec::new()
    }
}

/// What one worker owns to run an engine. Not `Send`: it never leaves the thread that opened it.
pub trait Session {
    /// Runs one batch, whose bucket the session was opened for, and lends its rows.
    ///
    /// # Errors
    /// See [`EngineError`].
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError>;

    /// Runs a batch again in a precision that rows overflow less easily in; `None` when there is
    /// none. Of any shape, slow, for the rare batch with a row that is not finite.
    fn rescue(&mut self, _batch: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
        None
    }

    /// The worker takes jobs from now on; what it was to run before has run.
    fn warmed_up(&mut self) {}
}

/// What a session must know of the package.
#[cfg(any(feature = "openvino", feature = "tensorrt", feature = "tensorrt-rtx"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct GraphFacts {
    pub(crate) hidden_size: usize,
    pub(crate) pad_token_id: u32,
    pub(crate) pooling: scheduling::batch::Pooling,
}

#[cfg(any(feature = "openvino", feature = "tensorrt", feature = "tensorrt-rtx"))]
impl GraphFacts {
    pub(crate) const fn of(manifest: &Manifest) -> Self {
        let &Manifest { hidden_size, pad_token_id, pooling, .. } = manifest;
        Self { hidden_size, pad_token_id, pooling }
    }
}

/// Runs the canary among other texts in a batch of this shape; gives the numbers that are the
/// furthest from the golden ones.
///
/// # Errors
/// `BadPackage` when the canary does not fit the shape; those of the session.
pub(crate) fn run_canary(
    session: &mut dyn Session,
    manifest: &Manifest,
    bucket: Bucket,
) -> Result<Comparison, EngineError> {
    let batch = among_neighbours(manifest, bucket)
        .map_err(|error| EngineError::BadPackage(format!("the canary: {error}")))?;
    let output = session.run(&batch)?;
    Ok(compare_all(manifest, &batch, |item| {
        let place = batch.places()[item];
        (output.dense_of(place), output.weights_of(place, batch.items()[item].len()))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vectors::dense::cosine;

    #[test]
    fn rows_are_copied_in_single_precision() {
        let single: [f32; 32] = std::array::from_fn(|place| place as f32);
        let half = single.map(f16::from_f32);
        let bucket = Bucket { rows: 2, length: 16 };
        let place = Place { row: 1, start: 5, segment: 2, span: 1, spans: 1 };
        for floats in [Floats::Single(&single), Floats::Half(&half)] {
            let output = BatchOutput::new(bucket, 3, floats, Some(floats));
            let length = 302_f32.sqrt();
            assert_eq!(output.dense_of(place), [9.0, 10.0, 11.0].map(|value| value / length));
            assert_eq!(output.weights_of(place, 2), [21.0, 22.0]);
            let both = output.dense_of(Place { span: 0, spans: 2, ..place });
            assert_eq!(both[3..], output.dense_of(place));
            assert!(cosine(&both[..3], &[6.0, 7.0, 8.0]) > 0.999_999);
            let dense_only = BatchOutput::new(bucket, 3, floats, None);
            assert_eq!(dense_only.weights_of(place, 2), [0.0, 0.0]);
        }
    }

    #[test]
    fn runs_that_were_not_timed_are_left_out_of_the_mean() {
        let run = |ms| StageTimes { compute: Duration::from_millis(ms), ..StageTimes::default() };
        let mut sums = StageSums::default();
        assert_eq!(sums.mean(), StageTimes::default());
        [run(2), run(0), run(0), run(4)].into_iter().for_each(|run| sums.add(run));
        assert_eq!(sums.mean(), run(3));
    }
}
