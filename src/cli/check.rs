//! `duovec check`: is this package whole, and does this machine compute what it promises?

use std::sync::Arc;

use anyhow::bail;

use crate::batch::{Batch, Bucket, TokenIds};
use crate::clock::{Clock, RealClock};
use crate::config::{Config, EngineChoice};
use crate::engine::BatchOutput;
use crate::package::canary::compare;
use crate::telemetry;

use super::load::load;

/// Prints one line of what was found; any fault is the error.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    telemetry::init(&config.log);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let loaded = load(config, &clock)?;
    let manifest = loaded.package.manifest();
    let info = loaded.engine.info();
    let tokens = TokenIds::new(&manifest.canary.token_ids);
    let length = tokens.len();
    let batch = Batch::new(Bucket { rows: 1, length }, vec![tokens])?;
    let mut output = BatchOutput::default();
    loaded.engine.open_session()?.run(&batch, &mut output)?;
    let seen = compare(manifest, output.dense_row(0), output.weights_row(0, length));
    if !seen.passed() && config.engine.choice != EngineChoice::Fake {
        bail!(
            "the canary's dense cosine is {:.6}, a weight is off by {:.4}",
            seen.dense_cosine,
            seen.sparse_error
        );
    }
    println!(
        "{} is whole: {} revision {}, {} dimensions, {} tokens; {} {} in {} on {}: canary dense \
         cosine {:.6}, largest difference of a lexical weight {:.4}",
        loaded.package.directory().display(),
        manifest.model_id,
        manifest.revision,
        manifest.hidden_size,
        manifest.max_input_tokens,
        info.kind,
        info.version,
        info.precision,
        info.device,
        seen.dense_cosine,
        seen.sparse_error
    );
    Ok(())
}
