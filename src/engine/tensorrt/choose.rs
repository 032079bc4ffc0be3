//! Which of a package's plans a GPU can run, and why the others cannot. Pure.

use crate::config::PrecisionChoice;
use crate::engine::cuda::CudaDevice;
use crate::package::manifest::Manifest;
use crate::package::manifest::plan::{ComputeCapability, PlanEntry, PlanFlavour};

use super::ffi::Version;

/// From here on plans with TensorRT's hardware compatibility run, and RTX's default ones.
const AMPERE: ComputeCapability = ComputeCapability { major: 8, minor: 0 };

/// The only GPUs that TensorRT-RTX 1.7 knows, for builds as for runs.
pub const RTX_CAPABILITIES: [(u32, u32); 6] = [(7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1)];

/// Where a plan is to run, and how.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Of the plan.
    pub flavour: PlanFlavour,
    /// Of the library that was opened.
    pub version: Version,
    /// Its GPU.
    pub device: &'a CudaDevice,
    /// The plan's own must be the one that is named.
    pub precision: PrecisionChoice,
}

/// The plan that fits best: one for exactly this GPU comes before one for many, one for exactly
/// this library before one for later ones, half precision before others, the latest at last.
///
/// # Errors
/// One sentence for each plan that does not fit, or that there is none.
pub fn fitting<'a>(manifest: &'a Manifest, target: &Target<'_>) -> Result<&'a PlanEntry, String> {
    let mut refusals = Vec::new();
    let mut fits = Vec::new();
    for plan in manifest.plans.iter().filter(|plan| plan.flavour == target.flavour) {
        match misfit(plan, manifest, target) {
            Some(problem) => refusals.push(format!("{} {problem}", plan.file)),
            None => fits.push(plan),
        }
    }
    let worth = |plan: &&PlanEntry| {
        let exact = plan.compute_capabilities == [target.device.capability];
        let half = plan.precision != "f32";
        let own = exact && !plan.hardware_compatible;
        (own, !plan.same_compute_capability, !plan.version_compatible, half)
    };
    fits.into_iter().max_by_key(worth).ok_or_else(|| match refusals.is_empty() {
        true => "the manifest lists none".to_owned(),
        false => refusals.join("; "),
    })
}

/// Why a plan of the target's flavour cannot run there, as it is said behind its name; `None` when
/// it can.
pub fn misfit(plan: &PlanEntry, manifest: &Manifest, target: &Target<'_>) -> Option<String> {
    stale(plan, manifest)
        .or_else(|| other_version(plan, target.version))
        .or_else(|| other_device(plan, target.device))
        .or_else(|| too_short(plan, manifest))
        .or_else(|| other_precision(plan, target.precision))
}

/// Why a plan does not belong to its package any more.
pub fn stale(plan: &PlanEntry, manifest: &Manifest) -> Option<String> {
    match manifest.files.get(&plan.model_file) {
        Some(graph) if graph.sha256 == plan.model_sha256 => None,
        Some(_) => Some(format!("was built from another {}", plan.model_file)),
        None => Some(format!("was built from {}, which the package lacks", plan.model_file)),
    }
}

/// TensorRT-RTX's plans belong to one release of it; TensorRT's to the version that built them,
/// unless they were built for later ones too.
fn other_version(plan: &PlanEntry, version: Version) -> Option<String> {
    let built: Vec<i32> = plan.version.split('.').map_while(|part| part.parse().ok()).collect();
    let built = [0, 1, 2].map(|part| built.get(part).copied().unwrap_or(0));
    let here = [version.major, version.minor, version.patch];
    let fits = match plan.flavour {
        PlanFlavour::TensorRtRtx => here == built,
        PlanFlavour::TensorRt => here == built || plan.version_compatible && here > built,
    };
    (!fits).then(|| format!("was built by version {}, the library is {version}", plan.version))
}

fn other_device(plan: &PlanEntry, device: &CudaDevice) -> Option<String> {
    let CudaDevice { capability, name, .. } = device;
    let listed = &plan.compute_capabilities;
    let rtx = plan.flavour == PlanFlavour::TensorRtRtx;
    if rtx && !RTX_CAPABILITIES.contains(&(capability.major, capability.minor)) {
        return Some(format!(
            "cannot run on {name}: TensorRT-RTX knows no GPU of compute capability {capability}"
        ));
    }
    let fits = match plan.flavour {
        _ if listed.contains(capability) => true,
        PlanFlavour::TensorRtRtx => listed.is_empty() && *capability >= AMPERE,
        PlanFlavour::TensorRt => plan.hardware_compatible && *capability >= AMPERE,
    };
    let built_for = || match listed.is_empty() {
        true => format!("{AMPERE} and later"),
        false => listed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    (!fits).then(|| {
        format!("was built for compute capability {}, {name} has {capability}", built_for())
    })
}

/// Every text that the model takes must be covered.
fn too_short(plan: &PlanEntry, manifest: &Manifest) -> Option<String> {
    let longest = plan.profiles.iter().map(|profile| profile.length.max as usize).max();
    let needed = manifest.max_input_tokens;
    (longest < Some(needed))
        .then(|| format!("ends at {} tokens, the model takes {needed}", longest.unwrap_or(0)))
}

fn other_precision(plan: &PlanEntry, wanted: PrecisionChoice) -> Option<String> {
    let fits = wanted == PrecisionChoice::Auto || wanted.name() == plan.precision;
    let (own, wanted) = (&plan.precision, wanted.name());
    (!fits).then(|| format!("computes in {own}, as the graph it was built from, not in {wanted}"))
}
