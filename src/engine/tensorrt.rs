//! TensorRT and TensorRT-RTX: plans built from ONNX, behind the cxx bridge.
//!
//! Each GPU gets one plan once. A session is a stream with its buffers on one GPU.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::cuda::Cuda;
use crate::engine::{
    Engine, EngineError, EngineInfo, EngineKind, GpuFigures, GraphFacts, LostGpu, Session,
    run_canary,
};
use model::package::ModelPackage;
use model::package::canary::{Comparison, compare_long, long_text};
use model::package::manifest::Manifest;
use model::package::manifest::plan::{PlanFlavour, PlanProfile};
use scheduling::batch::{Batch, Bucket, TokenIds};
use settings::PrecisionChoice;
use vectors::dense::{cosine, is_finite};

pub mod build;
pub(crate) mod choose;
pub mod ffi;
mod judge;
mod kernels;
mod load;
mod machine;
pub(crate) mod missing;
pub mod plan;
mod session;
mod shared;

use ffi::{BridgeError, LayerTime, SessionRequest, Shape};
use kernels::KernelFile;
use load::{Device, LoadedPlans, side_by_side};
use machine::names;
pub(crate) use machine::{NO_GPU, no_plan};
use plan::size;
use session::TensorRtSession;
use shared::{Lease, Shared};

/// How to run the engine.
#[derive(Debug, Clone)]
pub struct TensorRtOptions {
    /// Which TensorRT.
    pub flavour: PlanFlavour,
    /// Folder of TensorRT's libraries; `None` searches the system.
    pub library_dir: Option<PathBuf>,
    /// Folder of the CUDA runtime; `None` searches the system.
    pub cuda_library_dir: Option<PathBuf>,
    /// CUDA's numbers of the GPUs, at least one, each once.
    pub devices: Vec<usize>,
    /// Buckets of at most so many tokens run from a captured CUDA graph.
    pub graph_tokens: usize,
    /// If it names a precision, the plan must have that precision.
    pub precision: PrecisionChoice,
    /// Shapes that batches may have. The canary runs in the smallest of them that the plan covers.
    pub buckets: Vec<Bucket>,
}

/// The model on its GPUs.
pub struct TensorRtEngine {
    info: EngineInfo,
    profiles: Vec<PlanProfile>,
    devices: Vec<Device>,
    cuda: Cuda,
    facts: GraphFacts,
    graph_tokens: usize,
    shared: Arc<Shared>,
    /// Runs rows with NaN or infinity again. It may be slow.
    pub(crate) rescue: Option<Arc<dyn Engine>>,
}

impl TensorRtEngine {
    /// Opens the libraries, loads the plan that fits onto each GPU, and runs the canary. Takes
    /// seconds.
    ///
    /// # Errors
    /// `NotAvailable` without library, driver or GPU, or if no plan fits; `PlanRefused` if a plan's
    /// file differs from the manifest, or the library does not take it; `BadPackage` if its numbers
    /// are off; `OutOfMemory`.
    pub fn load(package: &ModelPackage, options: &TensorRtOptions) -> Result<Self, EngineError> {
        let LoadedPlans { library, cuda, mut devices, lost, entry } =
            LoadedPlans::load(package, options)?;
        let manifest = package.manifest();
        let indexes = devices.iter().map(|device| device.index).collect();
        let kernels = devices.iter_mut().map(|device| device.kernels.take()).collect();
        let engine = Self {
            info: EngineInfo {
                kind: kind(options.flavour),
                version: library.version().to_string(),
                device: names(devices.iter().map(|device| device.name.as_str())),
                precision: entry.precision.clone(),
                threads_per_session: 0,
                hidden_size: manifest.hidden_size,
                profiles: entry.profiles.iter().map(ToString::to_string).collect(),
            },
            shared: Arc::new(Shared::new(indexes, kernels, lost)),
            profiles: entry.profiles,
            devices,
            cuda,
            facts: GraphFacts::of(manifest),
            graph_tokens: options.graph_tokens,
            rescue: None,
        };
        engine.check_canary(manifest, &options.buckets)?;
        Ok(engine)
    }

    /// Runs the canary on every device, alone in a row and in several rows.
    fn check_canary(&self, manifest: &Manifest, buckets: &[Bucket]) -> Result<(), EngineError> {
        let length = manifest.canary.token_ids.len();
        let supported = self.supported(buckets);
        let smallest = |has_several: bool| {
            let fits =
                |bucket: &&Bucket| (bucket.rows > 1) == has_several && bucket.length >= length;
            supported.iter().filter(fits).min_by_key(|bucket| bucket.tokens()).copied()
        };
        let mut buckets: Vec<Bucket> = [false, true].into_iter().filter_map(smallest).collect();
        if buckets.is_empty() {
            return Err(EngineError::BadPackage(format!(
                "no profile of the plan covers the canary's {length} tokens; build it again with: \
                 duovec build-engine"
            )));
        }
        let holds = supported.iter().filter(|bucket| bucket.length >= length);
        let largest = holds.max_by_key(|bucket| (bucket.tokens(), bucket.length));
        buckets.extend(largest.filter(|largest| !buckets.contains(largest)));
        let longest = supported.iter().max_by_key(|bucket| (bucket.length, bucket.rows)).copied();
        let places: Vec<usize> = (0..self.devices.len()).collect();
        let check = |&place: &usize| -> Result<Comparison, EngineError> {
            let seen = self.run_canary(place, &buckets, manifest)?;
            longest.map_or(Ok(()), |longest| self.check_long(place, longest, manifest))?;
            Ok(seen)
        };
        let seen = side_by_side(&places, check);
        let mut first = None;
        for (place, seen) in seen.into_iter().enumerate() {
            match seen {
                Ok(seen) => tracing::info!(
                    device = self.devices[place].index,
                    dense_cosine = seen.dense_cosine,
                    sparse_error = seen.sparse_error,
                    "the canary agrees with the golden numbers"
                ),
                Err(error) => {
                    self.shared.lose(place, error.to_string());
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            Some(error) if self.shared.places.open() == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs batches of canaries in each profile's usual and largest shape on the first device, and
    /// texts of each profile's greatest length.
    ///
    /// Returns the comparison with the golden numbers that is furthest off.
    ///
    /// # Errors
    /// `BadPackage` if a canary is off; the errors of a session.
    pub fn try_profiles(&self, manifest: &Manifest) -> Result<Comparison, EngineError> {
        let length = manifest.canary.token_ids.len();
        let usual = |profile: &PlanProfile| {
            let Bucket { rows, length: own } = usual(profile);
            Bucket { rows, length: own.max(length) }
        };
        let largest = |profile: &PlanProfile| Bucket {
            rows: profile.rows.max as usize,
            length: profile.length.max as usize,
        };
        let longest: Vec<Bucket> = self.profiles.iter().map(largest).collect();
        let usual = self.profiles.iter().map(usual);
        let holds = |bucket: &Bucket| bucket.length >= length;
        let buckets: Vec<Bucket> = usual.chain(longest.clone()).filter(holds).collect();
        let buckets = self.supported(&buckets);
        if buckets.is_empty() {
            return Err(EngineError::BadPackage(format!(
                "no profile takes the canary's {length} tokens"
            )));
        }
        let worst = self.run_canary(0, &buckets, manifest)?;
        longest.into_iter().try_for_each(|bucket| self.check_long(0, bucket, manifest))?;
        Ok(worst)
    }

    /// Runs texts that fill the rows of `bucket`. All numbers must be finite. If the manifest has
    /// golden numbers for that length, they are compared. Another end must give other numbers, and
    /// a text alone the numbers that it has in a full batch.
    fn check_long(
        &self,
        place: usize,
        bucket: Bucket,
        manifest: &Manifest,
    ) -> Result<(), EngineError> {
        let alone = Bucket { rows: 1, ..bucket };
        let [text, other] = [false, true].map(|end| long_text(manifest, bucket.length, end));
        if text == other {
            return Ok(());
        }
        let mut shapes = self.supported(&[bucket, alone]);
        shapes.dedup();
        let mut session = self.open(Lease::at(&self.shared, place), &shapes)?;
        let (gpu, tokens) = (self.devices[place].index, bucket.length);
        // The rows of the text in the last row; the other rows have the other text.
        let mut run = |bucket: Bucket, last: &TokenIds| {
            let mut items = vec![other.clone(); bucket.rows - 1];
            items.push(last.clone());
            let wrong = |error| EngineError::BadPackage(format!("a long text: {error}"));
            let batch = Batch::new(bucket, items).map_err(wrong)?;
            let output = session.run(&batch)?;
            let rows = output.rows_of(batch.places()[bucket.rows - 1], last);
            // NaN differs from everything, so two texts of NaN seem to differ at their ends.
            match is_finite(&rows.dense) && is_finite(&rows.weights) {
                true => Ok(rows),
                false => Err(EngineError::BadPackage(format!(
                    "on GPU {gpu} the plan gives a text of {tokens} tokens numbers that are not \
                     finite, in a batch of {} rows",
                    bucket.rows
                ))),
            }
        };
        let whole = run(bucket, &text)?;
        let golden = compare_long(manifest, &text, &whole);
        if let Some(off) = golden.filter(|seen| !seen.passed()) {
            return Err(EngineError::BadPackage(format!(
                "on GPU {gpu} the plan does not give the manifest's golden numbers of a text of \
                 {tokens} tokens: {off}"
            )));
        }
        if whole.dense == run(bucket, &other)?.dense {
            return Err(EngineError::BadPackage(format!(
                "on GPU {gpu} the plan does not read the last tokens of a text of {tokens} tokens"
            )));
        }
        if shapes.len() > 1 {
            let similar = cosine(&whole.dense, &run(alone, &text)?.dense);
            if similar < manifest.canary.tolerances.dense_cosine_min {
                return Err(EngineError::BadPackage(format!(
                    "on GPU {gpu} the plan gives a text of {tokens} tokens other numbers in a \
                     batch of {} rows than alone: cosine {similar:.6}",
                    bucket.rows
                )));
            }
        }
        Ok(())
    }

    /// The layers of the first device's plan, as the library's own JSON.
    ///
    /// # Errors
    /// `BadPackage` if the library tells no layers.
    pub fn layers(&self) -> Result<String, EngineError> {
        self.devices[0].engine.layers().map_err(fault)
    }

    /// The time of each layer of the first device's plan, in the usual shape of each profile: names
    /// and microseconds, in the order of the layers.
    ///
    /// # Errors
    /// `BadPackage` if the library tells no times; the errors of a session.
    pub fn layer_times(&self) -> Result<Vec<(Bucket, Vec<LayerTime>)>, EngineError> {
        let engine = &self.devices[0].engine;
        let times = |bucket: Bucket| Ok((bucket, engine.layer_times(bucket.into())?));
        self.profiles.iter().map(usual).map(times).collect::<Result<_, _>>().map_err(fault)
    }

    /// Fills each bucket with canaries and other texts, and returns the comparison of the worst
    /// canary, which still passed.
    fn run_canary(
        &self,
        place: usize,
        buckets: &[Bucket],
        manifest: &Manifest,
    ) -> Result<Comparison, EngineError> {
        let lease = Lease::at(&self.shared, place);
        let mut session = self.open(lease, buckets)?;
        let mut worst: Option<Comparison> = None;
        for &bucket in buckets {
            let seen = run_canary(&mut session, manifest, bucket)?;
            if !seen.passed() {
                let (gpu, Bucket { rows, length }) = (self.devices[place].index, bucket);
                return Err(EngineError::BadPackage(format!(
                    "on GPU {gpu} the plan does not give the manifest's golden numbers in a batch \
                     of {rows}x{length}: {seen}"
                )));
            }
            worst = Some(worst.map_or(seen, |worst| worst.worse(seen)));
        }
        worst.ok_or_else(|| EngineError::BadPackage("the plan covers no shape".to_owned()))
    }

    fn open(&self, lease: Lease, buckets: &[Bucket]) -> Result<TensorRtSession, EngineError> {
        let tokens = |most: usize| i64::try_from(most).unwrap_or(i64::MAX);
        let request = SessionRequest {
            shapes: buckets.iter().copied().map(Shape::from).collect(),
            captured_tokens_max: tokens(self.graph_tokens),
        };
        let engine = &self.devices[lease.place].engine;
        let session = engine.open_session(&request).map_err(|error| lease.fault(error))?;
        Ok(TensorRtSession::new(session, engine.outputs(), self.facts, lease))
    }
}

impl Engine for TensorRtEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn supported(&self, buckets: &[Bucket]) -> Vec<Bucket> {
        let covers = |bucket: &&Bucket| {
            self.profiles.iter().any(|profile| profile.covers(bucket.rows, bucket.length))
        };
        buckets.iter().filter(covers).copied().collect()
    }

    /// A plan of TensorRT has all its kernels. TensorRT-RTX compiles them for each shape.
    fn compiles_shapes(&self) -> bool {
        self.info.kind == EngineKind::TensorRtRtx
    }

    fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
        let lease = Lease::on_emptiest(&self.shared)?;
        let mut session = self.open(lease, buckets)?;
        if let Some(engine) = &self.rescue {
            session.rescue = Some(engine.open_session(buckets)?);
        }
        Ok(Box::new(session))
    }

    fn figures(&self) -> Vec<(String, u64)> {
        let counts = self.shared.counters.each_ref().map(|count| count.load(Ordering::Relaxed));
        let [captured, refused, contexts, contexts_ns, contexts_bytes] = counts;
        let mut figures = vec![
            ("captured_graphs".to_owned(), captured),
            ("refused_graphs".to_owned(), refused),
            ("contexts".to_owned(), contexts),
            ("contexts_ms".to_owned(), contexts_ns / 1_000_000),
            ("contexts_bytes".to_owned(), contexts_bytes),
        ];
        for device in &self.devices {
            // A device that does not answer has no figures. Health reports the loss elsewhere.
            if let Ok(memory) = self.cuda.memory(device.index) {
                let name = |what: &str| format!("device_{}_memory_{what}_bytes", device.index);
                figures.push((name("free"), memory.free_bytes));
                figures.push((name("total"), memory.total_bytes));
                let sessions_bytes = device.free_bytes.saturating_sub(memory.free_bytes);
                figures.push((name("sessions"), sessions_bytes));
            }
        }
        figures
    }

    fn gpus(&self) -> Vec<GpuFigures> {
        let figures = |device: &Device| {
            let memory = self.cuda.memory(device.index).ok()?;
            Some(GpuFigures {
                index: device.index,
                name: device.name.clone(),
                free_bytes: memory.free_bytes,
                total_bytes: memory.total_bytes,
            })
        };
        self.devices.iter().filter_map(figures).collect()
    }

    fn lost_gpus(&self) -> Vec<LostGpu> {
        self.shared.lost.lock().clone()
    }
}

const fn usual(profile: &PlanProfile) -> Bucket {
    Bucket { rows: profile.rows.opt as usize, length: profile.length.opt as usize }
}

const fn kind(flavour: PlanFlavour) -> EngineKind {
    match flavour {
        PlanFlavour::TensorRt => EngineKind::TensorRt,
        PlanFlavour::TensorRtRtx => EngineKind::TensorRtRtx,
    }
}

/// The kind of an error of the bridge, which tells the worker how to react.
fn fault(error: BridgeError) -> EngineError {
    let text = error.to_string();
    match error {
        BridgeError::Library(_) | BridgeError::Device(_) => EngineError::NotAvailable(text),
        BridgeError::Model(_) | BridgeError::Request(_) => EngineError::BadPackage(text),
        BridgeError::OutOfMemory(memory) => EngineError::OutOfMemory(memory),
        BridgeError::Transient(_) => EngineError::Transient(text),
        BridgeError::Poisoned(_) => EngineError::ProcessPoisoned(text),
        BridgeError::Cancelled(_) | BridgeError::Internal(_) => EngineError::SessionLost(text),
    }
}

impl From<Bucket> for Shape {
    fn from(bucket: Bucket) -> Self {
        Self { rows: size(bucket.rows), length: size(bucket.length) }
    }
}
