//! Plans: the profiles they are built with, and between manifest and bridge. Pure.

use crate::package::manifest::plan::{PlanFlavour, PlanProfile, SizeRange};
use crate::package::manifest::{Element, Manifest, Tensor};

use super::ffi;

/// Rows and length up to which a batch counts as one quick query or a few.
const LATENCY_ROWS_MAX: u32 = 8;
const LATENCY_LENGTH_MAX: u32 = 128;
/// Rows and length of batches that are filled for throughput.
const THROUGHPUT_ROWS_MAX: u32 = 64;
const THROUGHPUT_LENGTH_MAX: u32 = 512;

/// The graph that TensorRT takes when the manifest lists it: precision is the graph's own, and half
/// precision is what makes a GPU worth its price.
pub const HALF_PRECISION_MODEL: &str = "model.fp16.onnx";
/// The graph that every package has.
pub const MODEL: &str = "model.onnx";

/// The name of the graph that plans of this package are built from.
pub fn model_file(manifest: &Manifest) -> &'static str {
    if manifest.files.contains_key(HALF_PRECISION_MODEL) { HALF_PRECISION_MODEL } else { MODEL }
}

/// Profiles for a model of this length: few short texts, full batches, and long texts with as many
/// rows as give the tokens of a full batch, so that they cost no further scratch memory.
pub fn default_profiles(max_input_tokens: usize) -> Vec<PlanProfile> {
    let longest = u32::try_from(max_input_tokens).unwrap_or(u32::MAX);
    let profile = |name: &str, usual: (u32, u32), largest: (u32, u32)| {
        let length_max = largest.1.min(longest);
        PlanProfile {
            name: name.to_owned(),
            rows: SizeRange { min: 1, opt: usual.0.min(largest.0), max: largest.0 },
            length: SizeRange { min: 1, opt: usual.1.min(length_max), max: length_max },
        }
    };
    let mut profiles = vec![
        profile("latency", (1, 32), (LATENCY_ROWS_MAX, LATENCY_LENGTH_MAX)),
        profile("throughput", (32, 128), (THROUGHPUT_ROWS_MAX, THROUGHPUT_LENGTH_MAX)),
    ];
    if longest > THROUGHPUT_LENGTH_MAX {
        let tokens = THROUGHPUT_ROWS_MAX * THROUGHPUT_LENGTH_MAX;
        let rows = (tokens / longest).clamp(1, LATENCY_ROWS_MAX);
        profiles.push(profile("long", (1, longest.min(2048)), (rows, longest)));
    }
    profiles
}

/// Profiles as they are typed, separated by commas.
pub fn parse_profiles(text: &str) -> Result<Vec<PlanProfile>, String> {
    text.split(',').map(|one| one.trim().parse()).collect()
}

/// The manifest's tensors in the bridge's words, inputs first.
pub(super) fn tensors(manifest: &Manifest) -> (Vec<ffi::Tensor>, Vec<ffi::Tensor>) {
    let tensor = |tensor: &Tensor, columns: usize| ffi::Tensor {
        name: tensor.name.clone(),
        element: tensor.element.into(),
        columns: size(columns),
    };
    let inputs = [&manifest.inputs.input_ids, &manifest.inputs.attention_mask];
    let weights = manifest.outputs.token_weights.iter().map(|weights| tensor(weights, 0));
    let dense = tensor(&manifest.outputs.dense, manifest.hidden_size);
    (inputs.map(|input| tensor(input, 0)).to_vec(), std::iter::once(dense).chain(weights).collect())
}

/// A count for the bridge; everything that is too large is refused there by name.
pub(super) fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl From<Element> for ffi::Element {
    fn from(element: Element) -> Self {
        match element {
            Element::Int32 => Self::Int32,
            Element::Int64 => Self::Int64,
            Element::Float32 => Self::Float32,
            Element::Float16 => Self::Float16,
        }
    }
}

impl From<PlanFlavour> for ffi::Flavour {
    fn from(flavour: PlanFlavour) -> Self {
        match flavour {
            PlanFlavour::TensorRt => Self::TensorRt,
            PlanFlavour::TensorRtRtx => Self::TensorRtRtx,
        }
    }
}

impl From<&PlanProfile> for ffi::Profile {
    fn from(profile: &PlanProfile) -> Self {
        let number = |size: u32| i32::try_from(size).unwrap_or(i32::MAX);
        Self {
            name: profile.name.clone(),
            rows_min: number(profile.rows.min),
            rows_opt: number(profile.rows.opt),
            rows_max: number(profile.rows.max),
            length_min: number(profile.length.min),
            length_opt: number(profile.length.opt),
            length_max: number(profile.length.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(max_input_tokens: usize) -> Vec<String> {
        default_profiles(max_input_tokens).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn default_profiles_end_at_the_models_length() {
        assert_eq!(
            shown(8192),
            ["latency=1x1:1x32:8x128", "throughput=1x1:32x128:64x512", "long=1x1:1x2048:4x8192"]
        );
        assert_eq!(shown(512), ["latency=1x1:1x32:8x128", "throughput=1x1:32x128:64x512"]);
        assert_eq!(shown(16), ["latency=1x1:1x16:8x16", "throughput=1x1:32x16:64x16"]);
    }

    #[test]
    fn default_profiles_can_be_typed() {
        for length in [3, 64, 513, 8192, 1_000_000] {
            let text = shown(length).join(", ");
            assert_eq!(parse_profiles(&text).expect("they are valid"), default_profiles(length));
        }
    }
}
