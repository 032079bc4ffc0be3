//! The border to the engines: what a loaded model can do, and how it can fail.

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;
use thiserror::Error;

use crate::metrics::StageTimes;
use model::package::canary::{Comparison, among_neighbours, compare_all};
use model::package::manifest::Manifest;
use scheduling::batch::{Batch, Bucket, Place, TokenIds};
pub use settings::EngineKind;
use vectors::ItemRows;
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

/// What an engine is and which shapes it takes. It is fixed before the first worker has a session.
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
    /// Processor threads of one session; 0 for a GPU.
    pub threads_per_session: usize,
    /// Floats of one dense row.
    pub hidden_size: usize,
    /// Ranges of shapes that a plan was built for, as the user typed them; empty without a plan.
    pub profiles: Vec<String>,
}

/// How processor threads are divided among workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Sessions that run at the same time.
    pub workers: usize,
    /// Processor threads of each session.
    pub threads: usize,
}

/// How an engine fails. Each kind asks for its own reaction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// The model's files cannot be used; another try cannot help.
    #[error("bad package: {0}")]
    BadPackage(String),
    /// A plan fits by its entry in the manifest, and the library does not take it. A new plan may
    /// do.
    #[error("{message}")]
    PlanRefused {
        /// The plan's file in the package.
        plan: String,
        /// The whole message, with the command that builds a plan.
        message: String,
    },
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
    /// This session's GPU cannot be used by the process again, and others of the engine are left.
    #[error("GPU lost: {0}")]
    GpuLost(String),
    /// This process can run nothing any more, as after a lasting CUDA error: fail health, answer
    /// queued requests, exit non-zero and let the supervisor restart.
    #[error("{0}")]
    ProcessPoisoned(String),
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
    /// Copies a range, in single precision.
    fn copy(self, places: Range<usize>) -> Vec<f32> {
        match self {
            Self::Single(floats) => floats[places].to_vec(),
            Self::Half(floats) => floats[places].to_f32_vec(),
        }
    }
}

/// The strongest words of each span: `[rows, spans, kept]`, row-major. A word without a weight has
/// a zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpanWords<'a> {
    /// Of a span.
    pub kept: usize,
    /// Token ids.
    pub ids: &'a [i32],
    /// Their weights.
    pub weights: Floats<'a>,
}

/// Rows of one run. They lie in memory of the session, which the next run overwrites. Places
/// without a text are never read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchOutput<'a> {
    pub(crate) bucket: Bucket,
    pub(crate) hidden_size: usize,
    /// `[rows, spans, hidden]`, row-major, L2-normalized as far as the graph's precision allows: in
    /// bf16 a vector's length is off by up to some thousandths.
    pub(crate) dense: Floats<'a>,
    /// `[rows, length]`; `None` for a model without a sparse head.
    pub(crate) token_weights: Option<Floats<'a>>,
    /// The floats of one of them, and `[rows, length, size]`, L2-normalized as `dense` is.
    pub(crate) token_vectors: Option<(usize, Floats<'a>)>,
    /// Lexical weights of words that need not be in the texts.
    pub(crate) words: Option<SpanWords<'a>>,
    pub(crate) times: StageTimes,
}

impl BatchOutput<'_> {
    /// Copies the rows of a text at its place; vectors of its tokens only if it wants them.
    pub(crate) fn rows_of(&self, place: Place, ids: &TokenIds) -> ItemRows {
        let (words, weights) = match self.words {
            Some(_) => self.words_of(place),
            None => (Vec::new(), self.weights_of(place, ids.len())),
        };
        let token_vectors = match ids.wants_token_vectors() {
            true => self.token_vectors_of(place, ids.len()),
            false => Vec::new(),
        };
        ItemRows { dense: self.dense_of(place), weights, words, token_vectors }
    }

    /// Copies the dense vectors of a text, one behind the other. Each has `hidden_size` floats and
    /// length one. A plain text has one vector.
    pub fn dense_of(&self, place: Place) -> Vec<f32> {
        let start = (place.row * self.bucket.spans() + place.span) * self.hidden_size;
        let mut dense = self.dense.copy(start..start + place.spans * self.hidden_size);
        dense.chunks_mut(self.hidden_size).for_each(make_unit);
        dense
    }

    /// Copies the token weights of a text: one float for each of its `tokens` tokens, all zero for
    /// a model without a sparse head, and none for one that weighs words.
    pub fn weights_of(&self, place: Place, tokens: usize) -> Vec<f32> {
        if self.words.is_some() {
            return Vec::new();
        }
        let start = place.row * self.bucket.length + place.start;
        let copy = |weights: Floats<'_>| weights.copy(start..start + tokens);
        self.token_weights.map_or_else(|| vec![0.0; tokens], copy)
    }

    /// Copies the words of a text that have weights, and these; none if the run weighs tokens. An
    /// id below zero would be no word.
    pub fn words_of(&self, place: Place) -> (Vec<u32>, Vec<f32>) {
        let Some(SpanWords { kept, ids, weights }) = self.words else { return Default::default() };
        let start = (place.row * self.bucket.spans() + place.span) * kept;
        let weights = weights.copy(start..start + kept);
        let pairs = ids[start..start + kept].iter().zip(weights);
        let weighed = pairs.filter(|(_, weight)| *weight != 0.0);
        weighed.filter_map(|(&id, weight)| Some((u32::try_from(id).ok()?, weight))).unzip()
    }

    /// Copies the vectors of a text's `tokens` tokens, one behind the other, each of length one;
    /// none if the run has none.
    pub fn token_vectors_of(&self, place: Place, tokens: usize) -> Vec<f32> {
        let Some((size, vectors)) = self.token_vectors else { return Vec::new() };
        let start = place.row * self.bucket.length + place.start;
        let mut vectors = vectors.copy(start * size..(start + tokens) * size);
        vectors.chunks_mut(size).for_each(make_unit);
        vectors
    }
}

/// One GPU that an engine runs on, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFigures {
    /// CUDA's number.
    pub index: usize,
    /// NVIDIA's own name.
    pub name: String,
    /// Memory that no process has taken.
    pub free_bytes: u64,
    /// All memory of the GPU.
    pub total_bytes: u64,
}

/// A GPU that the engine was to run on and cannot, or can no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostGpu {
    /// CUDA's number.
    pub index: usize,
    /// What it said.
    pub reason: String,
}

/// A loaded, immutable model on one device. All workers share it and call it from their threads.
pub trait Engine: Send + Sync {
    /// What this engine is. It does not change while the engine serves.
    fn info(&self) -> &EngineInfo;

    /// The buckets that the engine can run, in their order: all of them, unless the engine was
    /// built for fixed shapes.
    fn supported(&self, buckets: &[Bucket]) -> Vec<Bucket> {
        buckets.to_vec()
    }

    /// Whether a session compiles a shape at its first run, which takes too long for a request.
    /// Otherwise a first run takes some milliseconds more than later runs.
    fn compiles_shapes(&self) -> bool {
        true
    }

    /// Opens a session for a worker to run `buckets`, which must be supported. After its first run
    /// of a shape the session compiles nothing for it. Called on the worker's own thread, which
    /// keeps the session.
    fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError>;

    /// Changing numbers for operators; each name ends with its unit. The call may wait for the
    /// device, so a thread of its own makes it. It must not wait for a run.
    fn figures(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The GPUs that the engine runs on; none on a CPU. Called as [`Engine::figures`] is.
    fn gpus(&self) -> Vec<GpuFigures> {
        Vec::new()
    }

    /// The named GPUs that the engine does not run on, or no longer. Never waits.
    fn lost_gpus(&self) -> Vec<LostGpu> {
        Vec::new()
    }
}

/// What one worker owns to run an engine. It is not `Send`: it never leaves the thread that opened
/// it.
pub trait Session {
    /// Runs one batch and lends its rows. The session must have been opened for the bucket of the
    /// batch.
    ///
    /// # Errors
    /// See [`EngineError`].
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError>;

    /// Runs a batch again in a precision in which rows overflow less easily; `None` if there is
    /// none. It takes any shape and is slow, since batches with NaN or infinity are rare.
    fn rescue(&mut self, _batch: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
        None
    }

    /// Asked before each job: where it fails, the texts of the job are not the cause.
    ///
    /// # Errors
    /// `GpuLost` or `ProcessPoisoned` if another session has found that the device is lost.
    fn check(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// The warm-up is over: the worker takes jobs from now on.
    fn warmed_up(&mut self) {}
}

/// What a session must know of the package.
#[cfg(any(feature = "openvino", feature = "tensorrt", feature = "tensorrt-rtx"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct GraphFacts {
    pub(crate) hidden_size: usize,
    pub(crate) token_vector_size: Option<usize>,
    /// Of a span.
    pub(crate) words: Option<usize>,
    pub(crate) pad_token_id: u32,
    pub(crate) pooling: scheduling::batch::Pooling,
}

#[cfg(any(feature = "openvino", feature = "tensorrt", feature = "tensorrt-rtx"))]
impl GraphFacts {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let &Manifest { hidden_size, token_vector_size, pad_token_id, pooling, .. } = manifest;
        let words = manifest.words();
        Self { hidden_size, token_vector_size, words, pad_token_id, pooling }
    }
}

/// Runs the canary among other texts in a batch of this shape. Returns the comparison with the
/// golden numbers that is furthest off.
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
    let rows = |item: usize| output.rows_of(batch.places()[item], &batch.items()[item]);
    Ok(compare_all(manifest, &batch, rows))
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
            let output = BatchOutput {
                bucket,
                hidden_size: 3,
                dense: floats,
                token_weights: Some(floats),
                token_vectors: None,
                words: None,
                times: StageTimes::default(),
            };
            let length = 302_f32.sqrt();
            assert_eq!(output.dense_of(place), [9.0, 10.0, 11.0].map(|value| value / length));
            assert_eq!(output.weights_of(place, 2), [21.0, 22.0]);
            let both = output.dense_of(Place { span: 0, spans: 2, ..place });
            assert_eq!(both[3..], output.dense_of(place));
            assert!(cosine(&both[..3], &[6.0, 7.0, 8.0]) > 0.999_999);
            let of_tokens = BatchOutput { token_vectors: Some((1, floats)), ..output };
            let of_tokens = of_tokens.token_vectors_of(place, 2);
            assert_eq!((of_tokens, output.token_vectors_of(place, 2)), (vec![1.0; 2], vec![]));
            let ids: [i32; 32] = std::array::from_fn(|place| place as i32);
            let words = Some(SpanWords { kept: 8, ids: &ids, weights: floats });
            let of_words = BatchOutput { words, ..output };
            assert!(of_words.weights_of(place, 2).is_empty());
            let (first, second) = (Place { row: 0, span: 0, ..place }, place);
            let found = of_words.words_of(first);
            assert_eq!(found, ((1..8).collect(), single[1..8].to_vec()), "zero is no weight");
            assert_eq!(of_words.words_of(second).0, (24..32).collect::<Vec<u32>>());
            let dense_only = BatchOutput { token_weights: None, ..output };
            assert_eq!(dense_only.weights_of(place, 2), [0.0, 0.0]);
        }
    }
}
