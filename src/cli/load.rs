//! From a configuration to a verified package and an engine that passed the canary.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use crate::engine::fake::{FakeEngine, FakeScript};
use crate::engine::{Engine, EngineError, EngineKind, Split};
use crate::progress::{Progress, StartStage};
use crate::worker::tuning::choice::Measured;
use clock::Clock;
use model::package::manifest::{Manifest, ModelKind};
use model::package::{ModelPackage, PackageError};
use model::tokenize::TextTokenizer;
use scheduling::batch::plan::Shapes;
use scheduling::state::Lane;
use settings::limits::MaxBatchTokens;
use settings::{Config, PrecisionChoice, RescueChoice, TensorRtConfig, cores};

mod way;

pub(super) use way::Measuring;
use way::Ways;

/// What a process needs before it can open workers.
pub(super) struct Loaded {
    pub package: ModelPackage,
    pub tokenizer: TextTokenizer,
    pub chosen: Chosen,
}

/// The engine, and how it is run.
pub(super) struct Chosen {
    pub engine: Arc<dyn Engine>,
    /// The same for wider lanes, by their width.
    pub wider: BTreeMap<usize, Arc<dyn Engine>>,
    /// The lane of each worker, narrow ones first.
    pub lanes: Vec<Lane>,
    /// The shapes that it is to run.
    pub shapes: Shapes,
    /// Workers of the narrowest lanes, and their threads.
    pub split: Split,
    pub max_batch_tokens: MaxBatchTokens,
    /// Why it is this engine, in one sentence for the log and for `/health`.
    pub reason: String,
    /// What workers and batches were chosen from; empty when all was named.
    pub measured: Vec<Measured>,
}

type Opener<'a> = Box<dyn FnMut(Split) -> Result<Box<dyn Engine>, EngineError> + 'a>;

/// The package that the settings name, of which the manifest alone is read.
pub(super) fn package(config: &Config) -> anyhow::Result<ModelPackage> {
    Ok(ModelPackage::read_manifest(&config.package)?.with_default_prompt(config.default_prompt)?)
}

/// Verifies the package's files, reads its tokenizer and loads the engine. Takes seconds.
pub(super) fn load(
    config: &Config,
    package: ModelPackage,
    measuring: Measuring,
    clock: &Arc<dyn Clock>,
    progress: &Arc<Progress>,
) -> anyhow::Result<Loaded> {
    progress.enter(StartStage::Verify, None, 0, clock.now());
    let package = package.verified().map_err(not_whole)?.in_precision(config.engine.precision)?;
    let tokenizer = TextTokenizer::open(&package, config.special_token_text, config.normalization)?;
    let loader = Loader { config, package: &package, measuring, clock, progress };
    let chosen =
        loader.choose().with_context(|| format!("cannot load {}", config.package.display()))?;
    Ok(Loaded { package, tokenizer, chosen })
}

/// A file of the package is not the one that the manifest lists, which no later start mends.
pub(super) fn not_whole(error: PackageError) -> anyhow::Error {
    anyhow!(
        "{:#}; make the package again: if a start made it, remove its folder and start again",
        anyhow::Error::from(error)
    )
}

/// Refuses a model without dense vectors for what compares them.
pub(super) fn need_vectors(manifest: &Manifest) -> anyhow::Result<()> {
    need_embeddings(manifest)?;
    if manifest.kind == ModelKind::Sparse {
        bail!("{} has lexical weights and no dense vectors to compare", manifest.model_id);
    }
    Ok(())
}

/// Refuses a model without vectors for what makes them.
pub(super) fn need_embeddings(manifest: &Manifest) -> anyhow::Result<()> {
    match manifest.kind {
        ModelKind::Embedding | ModelKind::Sparse => Ok(()),
        ModelKind::CrossEncoder => bail!(
            "{} is a cross-encoder, which has no vectors: start `duovec serve` with it, and send \
             query and documents to POST /v1/rerank",
            manifest.model_id
        ),
    }
}

struct Loader<'a> {
    config: &'a Config,
    package: &'a ModelPackage,
    measuring: Measuring,
    clock: &'a Arc<dyn Clock>,
    progress: &'a Arc<Progress>,
}

impl Loader<'_> {
    /// A named engine or its error; `auto` takes the first one that loads.
    fn choose(&self) -> Result<Chosen, EngineError> {
        match self.config.engine.choice {
            Some(kind) => self.load(kind, format!("{kind} was asked for")),
            None => self.first_of_all(),
        }
    }

    fn first_of_all(&self) -> Result<Chosen, EngineError> {
        let mut passed_over = Vec::new();
        for kind in [EngineKind::TensorRt, EngineKind::TensorRtRtx] {
            match self.load(kind, reason(kind, &passed_over)) {
                Ok(chosen) => return Ok(chosen),
                // No call of this process to that device can be trusted any more.
                Err(error @ EngineError::ProcessPoisoned(_)) => return Err(error),
                Err(error) => passed_over.push(format!("{kind}: {error}")),
            }
        }
        if self.config.engine.precision == PrecisionChoice::Fp8 {
            let reasons = passed_over.join("; ");
            return Err(EngineError::NotAvailable(format!(
                "--precision fp8 is for GPUs: {reasons}"
            )));
        }
        let last = EngineKind::OpenVino;
        self.load(last, reason(last, &passed_over))
    }

    fn load(&self, kind: EngineKind, reason: String) -> Result<Chosen, EngineError> {
        let length = self.package.manifest().max_input_tokens;
        let ways = Ways::of(self.config, kind, self.measuring);
        let shapes = |max_tokens| match kind.is_tensorrt() {
            true => Shapes::on_gpu(length, max_tokens),
            false => Shapes::on_cpu(length, max_tokens),
        };
        let compiles = kind == EngineKind::OpenVino;
        if compiles {
            self.enter(StartStage::ReadModel, kind);
        }
        let mut opener = self.opener(kind, shapes(ways.largest()))?;
        let open = |split| {
            if compiles {
                self.enter(StartStage::Compile, kind);
            }
            let engine = opener(split)?;
            self.enter(StartStage::Measure, kind);
            Ok(engine)
        };
        let chosen = ways.best(shapes, open, reason, &**self.clock)?;
        drop(opener);
        self.warn_of_misfits(kind, chosen.split);
        let (engine, reason) = (kind.name(), &chosen.reason);
        let is_auto = self.config.engine.choice.is_none();
        if is_auto && !kind.is_tensorrt() && self.has_gpu_driver() {
            tracing::warn!(engine, reason, "the engine is chosen: no GPU runs the model");
        } else {
            tracing::info!(engine, reason, "the engine is chosen");
        }
        for one in &chosen.measured {
            tracing::info!(
                workers = one.split.workers,
                threads_per_worker = one.split.threads,
                short_text_us = u64::try_from(one.alone.as_micros()).unwrap_or(u64::MAX),
                tokens_per_s = one.tokens_per_s(chosen.max_batch_tokens.as_usize()).round(),
                "a way of running it was measured"
            );
        }
        Ok(chosen)
    }

    /// Says which settings this engine does not use, or this machine cannot keep up with.
    fn warn_of_misfits(&self, kind: EngineKind, Split { workers, threads }: Split) {
        let gpus = &self.config.engine.tensorrt.devices;
        if !kind.is_tensorrt() && *gpus != TensorRtConfig::default().devices {
            tracing::warn!("--devices names GPUs, and {kind} uses none: it has no effect");
        }
        let (cores, threads) = (cores(), workers * threads);
        if kind == EngineKind::OpenVino && threads > cores {
            tracing::warn!(
                workers,
                threads,
                cores,
                "the workers have more processor threads than there are cores, and slow each \
                 other down: give fewer --workers or --threads-per-worker, or neither"
            );
        }
    }

    /// Whether this is a machine for GPUs, as far as its files and CUDA tell.
    fn has_gpu_driver(&self) -> bool {
        #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
        {
            use crate::engine::cuda::Cuda;
            let directory = self.config.engine.tensorrt.cuda_library_dir.as_deref();
            let driver = Cuda::open(directory).and_then(|cuda| cuda.driver_version());
            if matches!(driver, Ok(Some(_))) {
                return true;
            }
        }
        has_nvidia_driver()
    }

    fn not_built(&self, feature: &str) -> EngineError {
        let is_of_use = self.config.engine.choice.is_some() || has_nvidia_driver();
        EngineError::NotAvailable(if is_of_use {
            format!(
                "this program was built without the feature `{feature}`; build it with --features \
                 {feature}"
            )
        } else {
            format!(
                "this program was built without the feature `{feature}`, and there is no driver of \
                 an NVIDIA GPU here"
            )
        })
    }

    fn enter(&self, stage: StartStage, kind: EngineKind) {
        self.progress.enter(stage, Some(kind.name()), 0, self.clock.now());
    }

    /// What loads the engine with a split of threads, as often as it is called. It may be asked to
    /// run any of `shapes`.
    fn opener(&self, kind: EngineKind, shapes: Shapes) -> Result<Opener<'_>, EngineError> {
        Ok(match kind {
            EngineKind::Fake => Box::new(|_| Ok(self.fake())),
            EngineKind::OpenVino => {
                let engine = &self.config.engine;
                self.openvino(engine.precision, engine.rescue)?
            }
            EngineKind::TensorRt | EngineKind::TensorRtRtx => self.tensorrt(kind, shapes)?,
        })
    }

    fn fake(&self) -> Box<dyn Engine> {
        let run_time = Duration::from_millis(self.config.engine.fake_run.get());
        let manifest = self.package.manifest();
        let token_vector_size = manifest.token_vector_size.unwrap_or_default();
        let words = manifest.words().unwrap_or_default();
        let script = FakeScript { run_time, token_vector_size, words, ..FakeScript::default() };
        Box::new(FakeEngine::with_script(manifest.hidden_size, script))
    }

    #[cfg(feature = "openvino")]
    fn openvino(
        &self,
        precision: PrecisionChoice,
        rescue: RescueChoice,
    ) -> Result<Opener<'_>, EngineError> {
        use crate::engine::openvino::OpenVinoModel;
        let library_dir = self.config.engine.openvino_library_dir.as_deref();
        let clock = Arc::clone(self.clock);
        let mut model = OpenVinoModel::read(self.package, library_dir, precision, rescue, clock)?;
        Ok(Box::new(move |split| Ok(Box::new(model.compile(split)?))))
    }

    #[cfg(not(feature = "openvino"))]
    fn openvino(&self, _: PrecisionChoice, _: RescueChoice) -> Result<Opener<'_>, EngineError> {
        Err(self.not_built("openvino"))
    }

    #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
    fn tensorrt(&self, kind: EngineKind, shapes: Shapes) -> Result<Opener<'_>, EngineError> {
        use crate::engine::tensorrt::{TensorRtEngine, TensorRtOptions};
        use model::package::manifest::plan::PlanFlavour;
        let (flavour, built) = match kind {
            EngineKind::TensorRt => (PlanFlavour::TensorRt, cfg!(feature = "tensorrt")),
            _ => (PlanFlavour::TensorRtRtx, cfg!(feature = "tensorrt-rtx")),
        };
        if !built {
            return Err(self.not_built(flavour.name()));
        }
        let config = &self.config.engine.tensorrt;
        let options = TensorRtOptions {
            flavour,
            library_dir: config.library_dir.clone(),
            cuda_library_dir: config.cuda_library_dir.clone(),
            devices: config.devices.clone(),
            graph_tokens: config.graph_tokens.as_usize(),
            precision: self.config.engine.precision,
            buckets: shapes.prepared().to_vec(),
        };
        // Commands that only look at a package leave it as it is.
        let may_build = config.build_plan && self.measuring != Measuring::Skip;
        let mut built = if may_build { self.with_plans(kind, &options, None)? } else { None };
        Ok(Box::new(move |_| {
            let mut loaded = TensorRtEngine::load(built.as_ref().unwrap_or(self.package), &options);
            for _ in &options.devices {
                let Err(EngineError::PlanRefused { plan, message }) = &loaded else { break };
                if !may_build {
                    break;
                }
                tracing::warn!(plan, reason = message, "a plan is refused; it is built anew");
                built = self.with_plans(kind, &options, Some(plan))?;
                loaded = TensorRtEngine::load(built.as_ref().unwrap_or(self.package), &options);
            }
            let mut engine = loaded?;
            if self.config.engine.rescue == RescueChoice::F32 && engine.info().precision != "f32" {
                engine.rescue = Some(self.rescue_on_cpu()?);
            }
            Ok(Box::new(engine))
        }))
    }

    /// What runs rows of a GPU again in f32: a second plan would take the GPU's memory, and rows
    /// that are not finite are rare.
    #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
    fn rescue_on_cpu(&self) -> Result<Arc<dyn Engine>, EngineError> {
        let opened = self.openvino(PrecisionChoice::F32, RescueChoice::None);
        let opened = opened.and_then(|mut open| open(Split { workers: 1, threads: cores() }));
        opened.map(Arc::from).map_err(|error| {
            EngineError::NotAvailable(format!(
                "--rescue-precision f32 runs rows of a GPU again on the CPU: {error}"
            ))
        })
    }

    /// The package with plans that were built now; `None` when it had one for each GPU. A plan that
    /// the library has refused does not count.
    #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
    fn with_plans(
        &self,
        kind: EngineKind,
        options: &crate::engine::tensorrt::TensorRtOptions,
        refused: Option<&str>,
    ) -> Result<Option<ModelPackage>, EngineError> {
        use crate::engine::tensorrt::build::BuildError;
        use crate::engine::tensorrt::ffi::Observer;
        use crate::engine::tensorrt::missing::{build_missing, without_plan};
        if refused.is_none() && without_plan(self.package, options)?.is_empty() {
            return Ok(None);
        }
        self.enter(StartStage::BuildPlan, kind);
        let progress = Arc::clone(self.progress);
        let observer = Observer::new(move |permille, phase| {
            progress.build(permille, phase);
            true
        });
        let directory = self.package.directory();
        let built = build_missing(directory, options, refused, &observer, &**self.clock);
        built.map(Some).map_err(|error| match error {
            BuildError::Engine(error) => error,
            error => {
                let error = anyhow::Error::from(error);
                EngineError::NotAvailable(format!("no plan could be built: {error:#}"))
            }
        })
    }

    #[cfg(not(any(feature = "tensorrt", feature = "tensorrt-rtx")))]
    fn tensorrt(&self, kind: EngineKind, _: Shapes) -> Result<Opener<'_>, EngineError> {
        Err(self.not_built(kind.name()))
    }
}

/// Whether Linux, or Windows below it, has one.
fn has_nvidia_driver() -> bool {
    ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"]
        .iter()
        .any(|path| Path::new(path).exists())
}

/// "openvino; not tensorrt: <why>; not tensorrt-rtx: <why>".
fn reason(kind: EngineKind, passed_over: &[String]) -> String {
    let others = passed_over.iter().map(|other| format!("; not {other}"));
    format!("{kind} is the first engine that this machine can run{}", others.collect::<String>())
}
