//! The profiles that plans are built with, and conversions between manifest and bridge. Pure.

use model::package::manifest::plan::{PlanFlavour, PlanProfile, SizeRange};
use model::package::manifest::{FloatType, Manifest, Outputs};
use scheduling::batch::plan::{ROW_TOKENS, SEVERAL_ROWS_TOKENS};
use settings::PrecisionChoice;

use super::ffi;

/// Tokens of a full batch.
const BATCH_TOKENS: u32 = 8192;
/// The shortest row, and the usual length of a lone row with short texts.
const ROW_MIN: u32 = 8;
const QUERY_TOKENS: u32 = 48;

/// Graphs that a package may have besides `model.onnx`, with their precisions. TensorRT computes in
/// the precision of the graph, and a GPU is fast in half precision.
const OTHER_MODELS: [(&str, PrecisionChoice); 3] = [
    ("model.fp16.onnx", PrecisionChoice::F16),
    ("model.bf16.onnx", PrecisionChoice::Bf16),
    ("model.fp8.onnx", PrecisionChoice::Fp8),
];
/// The graph that every package has. Only the graph itself tells its precision.
const MODEL: &str = "model.onnx";

/// Whether a plan of precision `own` is what was asked for. Plans in 8 bits run only if they are
/// named, since their vectors differ more from f32 than vectors in half precision do.
pub fn serves(wanted: PrecisionChoice, own: &str) -> bool {
    match wanted {
        PrecisionChoice::Auto => own != PrecisionChoice::Fp8.name(),
        _ => own == wanted.name(),
    }
}

/// The graph to build a plan of this precision from: the first graph in half precision if any
/// precision will do.
pub fn model_file(manifest: &Manifest, precision: PrecisionChoice) -> &'static str {
    let listed = |&(name, own): &(&'static str, PrecisionChoice)| {
        (serves(precision, own.name()) && manifest.files.contains_key(name)).then_some(name)
    };
    OTHER_MODELS.iter().find_map(listed).unwrap_or(MODEL)
}

/// The precision of a graph, if its name tells.
pub(super) fn precision_of(model_file: &str) -> PrecisionChoice {
    let found = OTHER_MODELS.iter().find(|(name, _)| *name == model_file);
    found.map_or(PrecisionChoice::Auto, |(_, precision)| *precision)
}

/// Profiles for a model of this length: one for a lone row of short texts, one for batches of rows,
/// and one for a lone row of a long text. They cover all shapes of
/// [`Shapes::on_gpu`](scheduling::batch::plan::Shapes::on_gpu).
pub fn default_profiles(max_input_tokens: usize) -> Vec<PlanProfile> {
    let tokens = |count: usize| u32::try_from(count.min(max_input_tokens)).unwrap_or(u32::MAX);
    let (shared, several) = (tokens(ROW_TOKENS), tokens(SEVERAL_ROWS_TOKENS));
    let longest = tokens(usize::MAX);
    let range = |min, opt, max| SizeRange { min, opt, max };
    let full = |length: u32| (BATCH_TOKENS / length).max(1);
    let profile = |name: &str, rows, length| PlanProfile { name: name.to_owned(), rows, length };
    let mut profiles = vec![
        profile(
            "query",
            range(1, 1, 1),
            range(ROW_MIN.min(shared), QUERY_TOKENS.min(shared), shared),
        ),
        profile("rows", range(1, full(2 * shared), full(shared)), range(shared, shared, several)),
    ];
    if several < longest {
        profiles.push(profile("long", range(1, 1, 1), range(several + 1, longest, longest)));
    }
    profiles
}

/// Reads profiles that are separated by commas.
pub fn parse_profiles(text: &str) -> Result<Vec<PlanProfile>, String> {
    text.split(',').map(|one| one.trim().parse()).collect()
}

/// The outputs that the manifest says the graph has.
pub(super) fn outputs(manifest: &Manifest) -> Vec<ffi::OutputType> {
    let Outputs { dense, token_weights, word_weights, token_vectors } = manifest.outputs;
    let kept = manifest.words().unwrap_or(0);
    let float = |one: Option<FloatType>| match one? {
        FloatType::Float32 => Some(ffi::Element::Float32),
        FloatType::Float16 => Some(ffi::Element::Float16),
    };
    let all = [
        (ffi::Output::Dense, float(Some(dense)), manifest.hidden_size),
        (ffi::Output::TokenWeights, float(token_weights), 0),
        (ffi::Output::Words, word_weights.map(|_| ffi::Element::Int32), kept),
        (ffi::Output::WordWeights, float(word_weights), kept),
        (ffi::Output::TokenVectors, float(token_vectors), manifest.token_vector_size.unwrap_or(0)),
    ];
    let known = all.into_iter().filter_map(|(output, element, columns)| {
        Some(ffi::OutputType { output, element: element?, columns: size(columns) })
    });
    known.collect()
}

/// A count for the bridge. The bridge refuses counts that are too large, by name.
pub(super) fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl From<PlanFlavour> for ffi::Flavour {
    fn from(flavour: PlanFlavour) -> Self {
        match flavour {
            PlanFlavour::TensorRt => Self::TensorRt,
            PlanFlavour::TensorRtRtx => Self::TensorRtRtx,
        }
    }
}

impl ffi::Flavour {
    /// The name in manifests, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TensorRtRtx => "tensorrt-rtx",
            _ => "tensorrt",
        }
    }
}

impl std::fmt::Display for ffi::Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}.{}.{}", self.major, self.minor, self.patch, self.build)
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
    use scheduling::batch::plan::Shapes;
    use settings::limits::MaxBatchTokens;

    fn shown(max_input_tokens: usize) -> Vec<String> {
        default_profiles(max_input_tokens).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn default_profiles_end_at_the_models_length() {
        let all = ["query=1x8:1x48:1x128", "rows=1x128:32x128:64x512", "long=1x513:1x8192:1x8192"];
        assert_eq!(shown(8192), all);
        assert_eq!(shown(512), all[..2]);
        assert_eq!(shown(128), ["query=1x8:1x48:1x128", "rows=1x128:32x128:64x128"]);
        assert_eq!(shown(200)[1..], ["rows=1x128:32x128:64x200"]);
        assert_eq!(shown(16), ["query=1x8:1x16:1x16", "rows=1x16:256x16:512x16"]);
    }

    #[test]
    fn all_shapes_of_a_gpu_are_covered() {
        for length in (1..=700).chain([1024, 1500, 2048, 2049, 4096, 5000, 8192]) {
            let profiles = default_profiles(length);
            for most in [8, 512, u64::from(BATCH_TOKENS)] {
                let most = MaxBatchTokens::new(most).expect("in range");
                for bucket in Shapes::on_gpu(length, most).prepared() {
                    let covers = |one: &PlanProfile| one.covers(bucket.rows, bucket.length);
                    assert!(profiles.iter().any(covers), "{bucket:?} of {length}");
                }
            }
        }
    }

    #[test]
    fn default_profiles_can_be_typed() {
        for length in [3, 64, 513, 8192, 1_000_000] {
            let typed = parse_profiles(&shown(length).join(", ")).expect("they are valid");
            assert_eq!(typed, default_profiles(length));
        }
    }
}
