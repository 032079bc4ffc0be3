//! From a configuration to a verified package and an engine that passed the canary.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::batch::Bucket;
use crate::batch::plan::bucket_ladder;
use crate::clock::Clock;
use crate::config::{Config, EngineChoice};
use crate::engine::fake::{FakeEngine, FakeScript};
use crate::engine::{Engine, EngineError, EngineKind};
use crate::limits::{GPU_BATCH_TOKENS, MaxBatchTokens, Workers};
use crate::package::ModelPackage;
use crate::tokenize::TextTokenizer;

/// What a process needs before it can open workers.
pub(super) struct Loaded {
    pub package: ModelPackage,
    pub tokenizer: TextTokenizer,
    pub chosen: Chosen,
}

/// The engine and what follows from it.
pub(super) struct Chosen {
    pub engine: Arc<dyn Engine>,
    pub workers: Workers,
    pub max_batch_tokens: MaxBatchTokens,
    /// Why it is this engine, in one sentence for the log and for `/health`.
    pub reason: String,
}

/// Verifies the package's files, reads its tokenizer and loads the engine. Takes seconds.
pub(super) fn load(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<Loaded> {
    let package = ModelPackage::open(&config.package)?;
    let tokenizer = TextTokenizer::open(&package, config.special_token_text)?;
    let loader = Loader { config, package: &package, clock };
    let chosen =
        loader.choose().with_context(|| format!("cannot load {}", config.package.display()))?;
    Ok(Loaded { package, tokenizer, chosen })
}

struct Loader<'a> {
    config: &'a Config,
    package: &'a ModelPackage,
    clock: &'a Arc<dyn Clock>,
}

impl Loader<'_> {
    /// A named engine or its error; `auto` is the first one that can be had.
    fn choose(&self) -> Result<Chosen, EngineError> {
        let named = |kind| self.load(kind, format!("{kind} was asked for"));
        match self.config.engine.choice {
            EngineChoice::Fake => named(EngineKind::Fake),
            EngineChoice::OpenVino => named(EngineKind::OpenVino),
            EngineChoice::TensorRt => named(EngineKind::TensorRt),
            EngineChoice::TensorRtRtx => named(EngineKind::TensorRtRtx),
            EngineChoice::Auto => self.first_of_all(),
        }
    }

    fn first_of_all(&self) -> Result<Chosen, EngineError> {
        let mut passed_over = Vec::new();
        for kind in [EngineKind::TensorRt, EngineKind::TensorRtRtx] {
            match self.load(kind, reason(kind, &passed_over)) {
                Ok(chosen) => return Ok(chosen),
                // Nothing of this process can be trusted on that device any more.
                Err(error @ EngineError::ProcessPoisoned(_)) => return Err(error),
                Err(error) => passed_over.push(format!("{kind}: {error}")),
            }
        }
        let last = EngineKind::OpenVino;
        self.load(last, reason(last, &passed_over))
    }

    fn load(&self, kind: EngineKind, reason: String) -> Result<Chosen, EngineError> {
        let queue = &self.config.queue;
        let fallback = if kind.is_tensorrt() { GPU_BATCH_TOKENS } else { MaxBatchTokens::DEFAULT };
        let max_batch_tokens = queue.max_batch_tokens.unwrap_or(fallback);
        let length = self.package.manifest().max_input_tokens;
        let buckets = bucket_ladder(length, max_batch_tokens, queue.max_batch_rows);
        let workers = self.workers(kind);
        let engine = match kind {
            EngineKind::Fake => self.fake(buckets),
            EngineKind::OpenVino => self.openvino(buckets, workers)?,
            EngineKind::TensorRt | EngineKind::TensorRtRtx => self.tensorrt(kind, buckets)?,
        };
        tracing::info!(engine = kind.name(), reason, "the engine is chosen");
        Ok(Chosen { engine, workers, max_batch_tokens, reason })
    }

    fn workers(&self, kind: EngineKind) -> Workers {
        let engine = &self.config.engine;
        let devices = engine.tensorrt.devices.len() as u64;
        let of_devices = engine.tensorrt.workers_per_device.get() * devices;
        let auto = if kind.is_tensorrt() {
            Workers::new(of_devices.min(Workers::MAX)).unwrap_or_default()
        } else {
            Workers::DEFAULT
        };
        engine.workers.unwrap_or(auto)
    }

    fn fake(&self, buckets: Vec<Bucket>) -> Arc<dyn Engine> {
        let run_time = Duration::from_millis(self.config.engine.fake_run.get());
        let script = FakeScript { run_time, ..FakeScript::default() };
        let hidden_size = self.package.manifest().hidden_size;
        Arc::new(FakeEngine::with_script(hidden_size, buckets, script))
    }

    #[cfg(feature = "openvino")]
    fn openvino(
        &self,
        buckets: Vec<Bucket>,
        workers: Workers,
    ) -> Result<Arc<dyn Engine>, EngineError> {
        use crate::engine::openvino::{OpenVinoModel, OpenVinoOptions};
        let engine = &self.config.engine;
        let mut model = OpenVinoModel::read(
            self.package,
            engine.openvino_library_dir.as_deref(),
            engine.precision,
            engine.rescue,
            Arc::clone(self.clock),
        )?;
        let options = OpenVinoOptions {
            sessions: workers.as_usize(),
            threads_per_session: engine.threads_per_worker.as_usize(),
            buckets,
        };
        Ok(Arc::new(model.compile(&options)?))
    }

    #[cfg(not(feature = "openvino"))]
    fn openvino(&self, _: Vec<Bucket>, _: Workers) -> Result<Arc<dyn Engine>, EngineError> {
        let _ = self.clock;
        Err(not_built("openvino"))
    }

    #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
    fn tensorrt(
        &self,
        kind: EngineKind,
        buckets: Vec<Bucket>,
    ) -> Result<Arc<dyn Engine>, EngineError> {
        use crate::engine::tensorrt::{TensorRtEngine, TensorRtOptions};
        use crate::package::manifest::plan::PlanFlavour;
        let (flavour, built) = match kind {
            EngineKind::TensorRt => (PlanFlavour::TensorRt, cfg!(feature = "tensorrt")),
            _ => (PlanFlavour::TensorRtRtx, cfg!(feature = "tensorrt-rtx")),
        };
        if !built {
            return Err(not_built(flavour.name()));
        }
        let config = &self.config.engine.tensorrt;
        let options = TensorRtOptions {
            flavour,
            library_dir: config.library_dir.clone(),
            cuda_library_dir: config.cuda_library_dir.clone(),
            devices: config.devices.clone(),
            graph_tokens: config.graph_tokens.as_usize(),
            precision: self.config.engine.precision,
            buckets,
        };
        Ok(Arc::new(TensorRtEngine::load(self.package, &options)?))
    }

    #[cfg(not(any(feature = "tensorrt", feature = "tensorrt-rtx")))]
    fn tensorrt(&self, kind: EngineKind, _: Vec<Bucket>) -> Result<Arc<dyn Engine>, EngineError> {
        Err(not_built(kind.name()))
    }
}

fn not_built(feature: &str) -> EngineError {
    EngineError::NotAvailable(format!("this program was built without the feature `{feature}`"))
}

/// "openvino; not tensorrt: <why>; not tensorrt-rtx: <why>".
fn reason(kind: EngineKind, passed_over: &[String]) -> String {
    let others = passed_over.iter().map(|other| format!("; not {other}"));
    format!("the first that can be had is {kind}{}", others.collect::<String>())
}
