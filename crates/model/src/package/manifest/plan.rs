//! What a manifest says of a built TensorRT plan. A plan cannot be inspected without a GPU, so this
//! entry is its only description.

#![allow(missing_docs, reason = "the fields are those of the file")]

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ManifestError, is_digest, is_plain_name, require};

/// One plan of the package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanEntry {
    /// Plain name of a file in the package.
    pub file: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub bytes: u64,
    pub flavour: PlanFlavour,
    /// Version of the library that built it, such as "1.7.1.116".
    pub version: String,
    /// The graph it was built from; a plan of another graph is refused.
    pub model_file: String,
    pub model_sha256: String,
    /// Arithmetic of the matrix products: "f32", "f16", "bf16", "fp8" or "mixed".
    pub precision: String,
    /// In the plan's own order.
    pub profiles: Vec<PlanProfile>,
    /// What it was built for; empty is TensorRT-RTX's default, 8.0 and later.
    pub compute_capabilities: Vec<ComputeCapability>,
    /// Name of the GPU it was built on, if there was one.
    #[serde(default)]
    pub device: Option<String>,
    /// That GPU's streaming multiprocessors. Plans of earlier releases do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiprocessors: Option<u32>,
    /// For each profile, device memory that its largest shape takes beside weights, inputs and
    /// outputs; empty when the library did not say.
    #[serde(default)]
    pub scratch_bytes: Vec<u64>,
    #[serde(default)]
    pub hardware_compatible: bool,
    /// For other models of GPUs with the same compute capability.
    #[serde(default)]
    pub same_compute_capability: bool,
    #[serde(default)]
    pub version_compatible: bool,
    /// How hard the builder looked for the best kernels, when it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimization_level: Option<i32>,
    /// How long the build took.
    pub build_seconds: f64,
}

impl PlanEntry {
    /// Whether this plan takes an earlier one's place: it is for the same GPUs, library and shapes,
    /// and computes alike.
    pub fn replaces(&self, earlier: &Self) -> bool {
        let flags = |plan: &Self| {
            (plan.hardware_compatible, plan.same_compute_capability, plan.version_compatible)
        };
        let same_gpu = is_equal_if_known(&self.device, &earlier.device)
            && is_equal_if_known(&self.multiprocessors, &earlier.multiprocessors);
        flags(self) == flags(earlier)
            && (same_gpu || !self.is_for_one_model())
            && self.flavour == earlier.flavour
            && self.optimization_level == earlier.optimization_level
            && self.compute_capabilities == earlier.compute_capabilities
            && self.version == earlier.version
            && self.precision == earlier.precision
            && self.profiles == earlier.profiles
    }

    /// Whether the plan is for one model of GPU alone. TensorRT chose its kernels there by their
    /// times, and promises nothing for other models, even of the same compute capability.
    /// TensorRT-RTX chooses kernels where a plan runs.
    pub fn is_for_one_model(&self) -> bool {
        self.flavour == PlanFlavour::TensorRt
            && !self.hardware_compatible
            && !self.same_compute_capability
    }
}

/// What an entry of an earlier release does not say cannot differ.
fn is_equal_if_known<T: PartialEq>(own: &Option<T>, earlier: &Option<T>) -> bool {
    earlier.is_none() || own == earlier
}

settings::named! {
    /// Which TensorRT runs the plan; the word is that of manifests, flags and logs.
    #[derive(Serialize, Deserialize)]
    pub enum PlanFlavour {
        #[serde(rename = "tensorrt")]
        TensorRt = "tensorrt",
        #[serde(rename = "tensorrt-rtx")]
        TensorRtRtx = "tensorrt-rtx",
    }
}

impl fmt::Display for PlanFlavour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Shapes that one optimization profile covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanProfile {
    pub name: String,
    pub rows: SizeRange,
    pub length: SizeRange,
}

impl PlanProfile {
    /// Whether a batch of this shape may run with the profile.
    pub const fn covers(&self, rows: usize, length: usize) -> bool {
        self.rows.contains(rows) && self.length.contains(length)
    }
}

/// Smallest, usual and largest size of one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    pub min: u32,
    pub opt: u32,
    pub max: u32,
}

impl SizeRange {
    const fn ascends(self) -> bool {
        1 <= self.min && self.min <= self.opt && self.opt <= self.max
    }

    const fn contains(self, size: usize) -> bool {
        self.min as usize <= size && size <= self.max as usize
    }
}

/// `name=1x1:4x64:8x128`: smallest, usual and largest rows × length.
impl fmt::Display for PlanProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rows, length } = self;
        write!(
            formatter,
            "{name}={}x{}:{}x{}:{}x{}",
            rows.min, length.min, rows.opt, length.opt, rows.max, length.max
        )
    }
}

impl FromStr for PlanProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not a profile: NAME=ROWSxLENGTH:ROWSxLENGTH:ROWSxLENGTH (smallest, \
                 usual, largest), such as latency=1x1:1x32:8x128"
            )
        };
        let (name, shapes) = text.split_once('=').ok_or_else(wrong)?;
        let shape = |shape: &str| -> Option<(u32, u32)> {
            let (rows, length) = shape.split_once('x')?;
            Some((rows.parse().ok()?, length.parse().ok()?))
        };
        let shapes: Vec<Option<(u32, u32)>> = shapes.split(':').map(shape).collect();
        let [Some(min), Some(opt), Some(max)] = shapes[..] else { return Err(wrong()) };
        let profile = Self {
            name: name.to_owned(),
            rows: SizeRange { min: min.0, opt: opt.0, max: max.0 },
            length: SizeRange { min: min.1, opt: opt.1, max: max.1 },
        };
        if name.is_empty() || !profile.rows.ascends() || !profile.length.ascends() {
            return Err(format!("profile '{text}': its sizes must ascend from 1"));
        }
        Ok(profile)
    }
}

/// What a GPU can execute, written as "8.6".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ComputeCapability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('.').and_then(|(major, minor)| {
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        parsed
            .filter(|capability| capability.major < 100 && capability.minor < 10)
            .ok_or_else(|| format!("'{text}' is not a compute capability such as 8.6"))
    }
}

impl Serialize for ComputeCapability {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ComputeCapability {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What can be checked of the entries without their files.
pub(super) fn check(plans: &[PlanEntry], max_input_tokens: usize) -> Result<(), ManifestError> {
    for plan in plans {
        let PlanEntry { file, profiles, scratch_bytes, .. } = plan;
        require(is_plain_name(file), "plans", || format!("'{file}' is not a plain file name"))?;
        require(is_digest(&plan.sha256) && is_digest(&plan.model_sha256), "plans", || {
            format!("a digest of {file} is not 64 lower-case hexadecimal digits")
        })?;
        let ascends = |profile: &PlanProfile| profile.rows.ascends() && profile.length.ascends();
        require(!profiles.is_empty() && profiles.iter().all(ascends), "plans", || {
            format!("the profiles of {file} must be there and ascend from 1")
        })?;
        let fits = |profile: &PlanProfile| profile.length.max as usize <= max_input_tokens;
        require(profiles.iter().all(fits), "plans", || {
            format!("a profile of {file} is longer than max_input_tokens {max_input_tokens}")
        })?;
        let known = scratch_bytes.is_empty() || scratch_bytes.len() == profiles.len();
        require(known, "plans", || format!("scratch_bytes of {file} are not one a profile"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    fn entry() -> PlanEntry {
        from_value(json!({
            "file": "a.plan", "sha256": "0".repeat(64), "bytes": 7, "flavour": "tensorrt-rtx",
            "version": "1.7.1.116", "model_file": "model.onnx", "model_sha256": "1".repeat(64),
            "precision": "f16", "compute_capabilities": ["8.6", "12.0"], "build_seconds": 1.5,
            "profiles": [{"name": "a", "rows": {"min": 1, "opt": 2, "max": 4},
                          "length": {"min": 1, "opt": 8, "max": 16}}],
        }))
        .expect("the entry is valid")
    }

    #[test]
    fn an_entry_survives_the_way_through_json() {
        let value = to_value(entry()).expect("an entry is JSON");
        assert_eq!(value["compute_capabilities"], json!(["8.6", "12.0"]));
        assert_eq!(from_value::<PlanEntry>(value).expect("it is read back"), entry());
    }

    #[test]
    fn a_plan_takes_the_place_only_of_one_that_does_the_same() {
        type Change = fn(&mut PlanEntry);
        let changed = |change: Change| {
            let mut plan = entry();
            change(&mut plan);
            plan.replaces(&entry())
        };
        assert!(changed(|plan| {
            plan.file = "b.plan".into();
            plan.sha256 = "2".repeat(64);
            plan.model_sha256 = "3".repeat(64);
            plan.build_seconds = 2.5;
        }));
        let others: [(&str, Change); 9] = [
            ("flavour", |plan| plan.flavour = PlanFlavour::TensorRt),
            ("version", |plan| plan.version = "1.7.1.117".into()),
            ("precision", |plan| plan.precision = "f32".into()),
            ("profiles", |plan| plan.profiles[0].rows.max = 8),
            ("compute_capabilities", |plan| plan.compute_capabilities.clear()),
            ("hardware_compatible", |plan| plan.hardware_compatible = true),
            ("same_compute_capability", |plan| plan.same_compute_capability = true),
            ("version_compatible", |plan| plan.version_compatible = true),
            ("optimization_level", |plan| plan.optimization_level = Some(5)),
        ];
        for (field, change) in others {
            assert!(!changed(change), "{field}");
        }
    }

    #[test]
    fn a_plan_for_one_model_of_gpu_leaves_those_of_other_models() {
        let of = |device: Option<&str>, multiprocessors| PlanEntry {
            flavour: PlanFlavour::TensorRt,
            device: device.map(str::to_owned),
            multiprocessors,
            ..entry()
        };
        let new = of(Some("NVIDIA L4"), Some(58));
        assert!(new.replaces(&new));
        assert!(!new.replaces(&of(Some("NVIDIA L40S"), Some(142))));
        assert!(!new.replaces(&of(Some("NVIDIA L4"), Some(29))));
        // Entries of earlier releases: what is not known cannot differ.
        assert!(new.replaces(&of(Some("NVIDIA L4"), None)));
        assert!(new.replaces(&of(None, None)));
        let for_all = |plan| PlanEntry { same_compute_capability: true, ..plan };
        assert!(for_all(new).replaces(&for_all(of(Some("NVIDIA L40S"), Some(142)))));
    }

    #[test]
    fn profiles_read_as_they_are_written() {
        for text in ["latency=1x1:1x32:8x128", "one=7x7:7x7:7x7"] {
            assert_eq!(text.parse::<PlanProfile>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_no_profiles() {
        for text in ["", "a", "a=1x1", "a=1x1:2x2", "a=1x1:2x2:3", "a=1x1:2x2:3xx", "=1x1:1x1:1x1"]
        {
            assert!(text.parse::<PlanProfile>().is_err(), "{text}");
        }
        for text in ["a=2x1:1x1:3x1", "a=0x1:1x1:1x1", "a=1x9:1x8:1x10", "a=1x1:1x1:-1x1"] {
            assert!(text.parse::<PlanProfile>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_capability_has_two_numbers() {
        let capability = ComputeCapability { major: 12, minor: 0 };
        assert_eq!("12.0".parse(), Ok(capability));
        for text in ["", "8", "8.", "8.60", "a.b", "8.6.1", "100.0"] {
            assert!(text.parse::<ComputeCapability>().is_err(), "{text}");
        }
    }

    #[test]
    fn entries_that_contradict_themselves_are_refused() {
        let refused = |change: fn(&mut PlanEntry)| {
            let mut plan = entry();
            change(&mut plan);
            check(&[plan], 16).expect_err("it is refused").to_string()
        };
        assert!(check(&[entry()], 16).is_ok());
        assert!(refused(|plan| plan.file = "../a.plan".into()).contains("plain file name"));
        assert!(refused(|plan| plan.sha256 = "x".into()).contains("digest"));
        assert!(refused(|plan| plan.profiles.clear()).contains("profiles"));
        assert!(refused(|plan| plan.profiles[0].rows.min = 9).contains("ascend"));
        assert!(refused(|plan| plan.profiles[0].length.max = 17).contains("max_input_tokens"));
        assert!(refused(|plan| plan.scratch_bytes = vec![1, 2]).contains("scratch_bytes"));
    }
}
