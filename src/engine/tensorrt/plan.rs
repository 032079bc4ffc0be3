//! Plans: the profiles they are built with, and between manifest and bridge. Pure.

use crate::config::PrecisionChoice;
use crate::package::manifest::plan::{PlanFlavour, PlanProfile, SizeRange};
use crate::package::manifest::{GraphTensor, Manifest, TensorType};

use super::ffi;

/// Name, usual and largest shape of a profile.
type ProfileShapes = (&'static str, (u32, u32), (u32, u32));

/// TensorRT chooses kernels for the usual shapes when it builds: one for each kind of traffic. A
/// batch runs in the smallest that covers it.
const TUNED: &[ProfileShapes] = &[
    ("query", (1, 32), (4, 64)),
    ("queries", (8, 64), (16, 64)),
    ("text", (1, 512), (4, 512)),
    ("texts", (16, 128), (32, 128)),
    ("batch", (64, 128), (64, 128)),
    ("full", (64, 512), (64, 512)),
];
/// TensorRT-RTX compiles for the shapes that are run, when they are.
const COMPILED: &[ProfileShapes] =
    &[("latency", (1, 32), (8, 128)), ("throughput", (32, 128), (64, 512))];
/// Rows of one more profile, for texts that are longer than all of these.
const LONG_ROWS_MAX: u32 = 8;
/// Its usual length.
const LONG_LENGTH: u32 = 2048;

/// Graphs that a package may have besides, with what they compute in: TensorRT takes the precision
/// that a graph has, and half precision is what makes a GPU worth its price.
const OTHER_MODELS: [(&str, PrecisionChoice); 3] = [
    ("model.fp16.onnx", PrecisionChoice::F16),
    ("model.bf16.onnx", PrecisionChoice::Bf16),
    ("model.fp8.onnx", PrecisionChoice::Fp8),
];
/// The graph that every package has, in a precision that only the graph tells.
const MODEL: &str = "model.onnx";

/// Whether what computes in `own`, a plan's word, is what was asked for. 8 bits are named or not
/// had: their vectors differ more from f32 than those in half precision do.
pub fn serves(wanted: PrecisionChoice, own: &str) -> bool {
    match wanted {
        PrecisionChoice::Auto => own != PrecisionChoice::Fp8.name(),
        _ => own == wanted.name(),
    }
}

/// The name of the graph that plans of this precision are built from: the first one in half
/// precision when any will do.
pub fn model_file(manifest: &Manifest, precision: PrecisionChoice) -> &'static str {
    let listed = |&(name, own): &(&'static str, PrecisionChoice)| {
        (serves(precision, own.name()) && manifest.files.contains_key(name)).then_some(name)
    };
    OTHER_MODELS.iter().find_map(listed).unwrap_or(MODEL)
}

/// Profiles for a model of this length; those of long texts have as many rows as give the tokens of
/// a full batch, so that they cost no further scratch memory.
pub fn default_profiles(flavour: PlanFlavour, max_input_tokens: usize) -> Vec<PlanProfile> {
    let longest = u32::try_from(max_input_tokens).unwrap_or(u32::MAX);
    let profile = |&(name, usual, largest): &ProfileShapes| {
        let length_max = largest.1.min(longest);
        PlanProfile {
            name: name.to_owned(),
            rows: SizeRange { min: 1, opt: usual.0.min(largest.0), max: largest.0 },
            length: SizeRange { min: 1, opt: usual.1.min(length_max), max: length_max },
        }
    };
    let ranges = match flavour {
        PlanFlavour::TensorRt => TUNED,
        PlanFlavour::TensorRtRtx => COMPILED,
    };
    let mut profiles: Vec<PlanProfile> = Vec::new();
    for made in ranges.iter().map(profile) {
        // For a short model several are the same; the first of them has the fewest usual rows.
        let largest = |one: &PlanProfile| (one.rows.max, one.length.max);
        if profiles.iter().all(|earlier| largest(earlier) != largest(&made)) {
            profiles.push(made);
        }
    }
    let full = ranges.iter().map(|(_, _, largest)| *largest).max_by_key(|size| size.0 * size.1);
    let (rows, length) = full.unwrap_or((1, 1));
    if longest > length {
        let rows = (rows * length / longest).clamp(1, LONG_ROWS_MAX);
        profiles.push(profile(&("long", (1, longest.min(LONG_LENGTH)), (rows, longest))));
    }
    profiles
}

/// Profiles as they are typed, separated by commas.
pub fn parse_profiles(text: &str) -> Result<Vec<PlanProfile>, String> {
    text.split(',').map(|one| one.trim().parse()).collect()
}

/// The manifest's tensors in the bridge's words, inputs first.
pub(super) fn tensors(manifest: &Manifest) -> (Vec<ffi::Tensor>, Vec<ffi::Tensor>) {
    let tensor = |tensor: &GraphTensor, columns: usize| ffi::Tensor {
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

impl From<TensorType> for ffi::Element {
    fn from(element: TensorType) -> Self {
        match element {
            TensorType::Int32 => Self::Int32,
            TensorType::Int64 => Self::Int64,
            TensorType::Float32 => Self::Float32,
            TensorType::Float16 => Self::Float16,
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

    fn shown(flavour: PlanFlavour, max_input_tokens: usize) -> Vec<String> {
        default_profiles(flavour, max_input_tokens).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn default_profiles_end_at_the_models_length() {
        let rtx = |length| shown(PlanFlavour::TensorRtRtx, length);
        assert_eq!(
            rtx(8192),
            ["latency=1x1:1x32:8x128", "throughput=1x1:32x128:64x512", "long=1x1:1x2048:4x8192"]
        );
        assert_eq!(rtx(512), ["latency=1x1:1x32:8x128", "throughput=1x1:32x128:64x512"]);
        assert_eq!(rtx(16), ["latency=1x1:1x16:8x16", "throughput=1x1:32x16:64x16"]);
    }

    #[test]
    fn where_kernels_are_chosen_at_the_build_each_kind_of_traffic_has_a_profile() {
        let tuned = |length| shown(PlanFlavour::TensorRt, length);
        let all = [
            "query=1x1:1x32:4x64",
            "queries=1x1:8x64:16x64",
            "text=1x1:1x512:4x512",
            "texts=1x1:16x128:32x128",
            "batch=1x1:64x128:64x128",
            "full=1x1:64x512:64x512",
            "long=1x1:1x2048:4x8192",
        ];
        assert_eq!(tuned(8192), all);
        assert_eq!(tuned(512), all[..6]);
        let short = ["query=1x1:1x16:4x16", "queries=1x1:8x16:16x16", "texts=1x1:16x16:32x16"];
        assert_eq!(tuned(16)[..3], short);
        assert_eq!(tuned(16)[3..], ["batch=1x1:64x16:64x16"]);
    }

    #[test]
    fn default_profiles_can_be_typed() {
        for flavour in [PlanFlavour::TensorRt, PlanFlavour::TensorRtRtx] {
            for length in [3, 64, 513, 8192, 1_000_000] {
                let text = shown(flavour, length).join(", ");
                let typed = parse_profiles(&text).expect("they are valid");
                assert_eq!(typed, default_profiles(flavour, length));
            }
        }
    }
}
