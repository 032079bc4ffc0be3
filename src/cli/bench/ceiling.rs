//! What the GPU's matrix units reach at most, and how much arithmetic one token needs.

use serde::Serialize;

use super::{Bench, Loaded};

/// The device's limit and the model's need.
#[derive(Debug, Serialize)]
pub(super) struct CeilingReport {
    /// Half-precision operations a second of large matrix products, in 10^12.
    pub(crate) teraflops: f64,
    /// Operations of one token in the products with weights, from the graph's size; attention
    /// between tokens is left out. Absent when the plan was not built from a half-precision graph.
    pub(crate) flops_per_token: Option<f64>,
}

impl CeilingReport {
    /// The part of the ceiling that this many tokens a second reach.
    pub(super) fn part(&self, tokens_per_s: f64) -> Option<f64> {
        self.flops_per_token.map(|flops| tokens_per_s * flops / (self.teraflops * 1e12))
    }

    pub(super) fn print(&self) {
        println!("matrix products reach {:.1} TFLOP/s on this device", self.teraflops);
        if let Some(flops) = self.flops_per_token {
            println!("one token of this model is {:.1} MFLOP, attention left out", flops / 1e6);
        }
    }
}

impl Bench<'_> {
    #[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
    pub(super) fn ceiling(&self, loaded: &Loaded) -> anyhow::Result<CeilingReport> {
        use crate::engine::EngineKind;
        use crate::engine::cuda::Cuda;
        use crate::engine::tensorrt::ffi::{Flavour, Library};
        let kind = loaded.chosen.engine.info().kind;
        let flavour = match kind {
            EngineKind::TensorRt => Flavour::TensorRt,
            EngineKind::TensorRtRtx => Flavour::TensorRtRtx,
            EngineKind::OpenVino | EngineKind::Fake => {
                anyhow::bail!("--ceiling: {kind} runs on no GPU")
            }
        };
        let config = &self.config.engine.tensorrt;
        let library = Library::open(flavour, config.library_dir.as_deref())?;
        let device = config.devices.first().copied().unwrap_or(0);
        let cuda = Cuda::open(config.cuda_library_dir.as_deref())?;
        let flops = library.measure_ceiling(device, cuda.file())?;
        let flops_per_token = flops_per_token(loaded);
        Ok(CeilingReport { teraflops: flops / 1e12, flops_per_token })
    }

    #[cfg(not(any(feature = "tensorrt", feature = "tensorrt-rtx")))]
    pub(super) fn ceiling(&self, _: &Loaded) -> anyhow::Result<CeilingReport> {
        anyhow::bail!("--ceiling: this program was built without TensorRT")
    }
}

/// Two operations for each weight that a token meets: all but the tables of embeddings.
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
fn flops_per_token(loaded: &Loaded) -> Option<f64> {
    use crate::config::PrecisionChoice;
    use crate::engine::tensorrt::plan::model_file;
    const BYTES_PER_WEIGHT: u64 = 2;
    if loaded.chosen.engine.info().precision != "f16" {
        return None;
    }
    let manifest = loaded.package.manifest();
    let name = model_file(manifest, PrecisionChoice::F16);
    // The graph itself, and the weights that lie beside it.
    let graph = manifest.files.iter().filter(|(file, _)| file.starts_with(name));
    let weights = graph.map(|(_, file)| file.bytes).sum::<u64>() / BYTES_PER_WEIGHT;
    let rows = (manifest.vocab_size + manifest.max_input_tokens) as u64;
    let tables = rows * manifest.hidden_size as u64;
    (weights > tables).then(|| 2.0 * (weights - tables) as f64)
}
