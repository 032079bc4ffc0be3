//! From a configuration to a verified package and an engine that passed the canary.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::batch::plan::bucket_ladder;
use crate::clock::Clock;
use crate::config::{Config, EngineChoice};
use crate::engine::Engine;
use crate::engine::fake::{FakeEngine, FakeScript};
use crate::package::ModelPackage;
use crate::tokenize::TextTokenizer;

/// What a process needs before it can open workers.
pub(super) struct Loaded {
    pub package: ModelPackage,
    pub tokenizer: TextTokenizer,
    pub engine: Arc<dyn Engine>,
}

/// Verifies the package's files, reads its tokenizer and loads the engine. Takes seconds.
pub(super) fn load(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<Loaded> {
    let package = ModelPackage::open(&config.package)?;
    let tokenizer = TextTokenizer::open(&package)?;
    let engine = engine(config, &package, clock)
        .with_context(|| format!("cannot load {}", config.package.display()))?;
    Ok(Loaded { package, tokenizer, engine })
}

fn engine(
    config: &Config,
    package: &ModelPackage,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Engine>> {
    let buckets = bucket_ladder(
        package.manifest().max_input_tokens,
        config.queue.max_batch_tokens,
        config.queue.max_batch_rows,
    );
    match config.engine.choice {
        EngineChoice::Fake => {
            let run_time = Duration::from_millis(config.engine.fake_run.get());
            let script = FakeScript { run_time, ..FakeScript::default() };
            let hidden_size = package.manifest().hidden_size;
            Ok(Arc::new(FakeEngine::with_script(hidden_size, buckets, script)))
        }
        #[cfg(feature = "openvino")]
        EngineChoice::Auto | EngineChoice::OpenVino => {
            use crate::engine::openvino::{OpenVinoEngine, OpenVinoOptions};
            let options = OpenVinoOptions {
                library_dir: config.engine.openvino_library_dir.clone(),
                precision: config.engine.precision,
                sessions: config.engine.workers.as_usize(),
                threads_per_session: config.engine.threads_per_worker.as_usize(),
                buckets,
            };
            Ok(Arc::new(OpenVinoEngine::load(package, options, Arc::clone(clock))?))
        }
        #[cfg(not(feature = "openvino"))]
        EngineChoice::Auto | EngineChoice::OpenVino => {
            let _ = (buckets, clock);
            anyhow::bail!("this binary was built without the feature `openvino`")
        }
    }
}
