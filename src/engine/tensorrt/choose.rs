//! Which of a package's plans a GPU can run, and why the others cannot. Pure.

use crate::engine::cuda::CudaDevice;
use crate::package::manifest::Manifest;
use crate::package::manifest::plan::{ComputeCapability, PlanEntry, PlanFlavour};

use super::ffi::Version;

/// From here on plans with TensorRT's hardware compatibility run, and RTX's default ones.
const AMPERE: ComputeCapability = ComputeCapability { major: 8, minor: 0 };

/// The plan of that flavour that fits the device: one that was built for exactly its compute
/// capability comes before one for many.
///
/// # Errors
/// One sentence for each plan that does not fit, or that there is none.
pub fn fitting<'a>(
    manifest: &'a Manifest,
    flavour: PlanFlavour,
    version: Version,
    device: &CudaDevice,
) -> Result<&'a PlanEntry, String> {
    let mut refusals = Vec::new();
    let mut best: Option<&PlanEntry> = None;
    for plan in manifest.plans.iter().filter(|plan| plan.flavour == flavour) {
        match misfit(plan, manifest, version, device) {
            Some(problem) => refusals.push(format!("{} {problem}", plan.file)),
            None if best.is_some_and(|best| is_exact(best, device) || !is_exact(plan, device)) => {}
            None => best = Some(plan),
        }
    }
    best.ok_or_else(|| match refusals.is_empty() {
        true => "the manifest lists none".to_owned(),
        false => refusals.join("; "),
    })
}

/// Why a plan cannot run there, as it is said behind its name; `None` when it can.
pub fn misfit(
    plan: &PlanEntry,
    manifest: &Manifest,
    version: Version,
    device: &CudaDevice,
) -> Option<String> {
    stale(plan, manifest)
        .or_else(|| other_version(plan, version))
        .or_else(|| other_device(plan, device))
        .or_else(|| too_short(plan, manifest))
}

/// Why a plan does not belong to its package any more.
pub fn stale(plan: &PlanEntry, manifest: &Manifest) -> Option<String> {
    match manifest.files.get(&plan.model_file) {
        Some(graph) if graph.sha256 == plan.model_sha256 => None,
        Some(_) => Some(format!("was built from another {}", plan.model_file)),
        None => Some(format!("was built from {}, which the package lacks", plan.model_file)),
    }
}

/// TensorRT's plans belong to the version that built them; RTX's say themselves what they need, and
/// are asked when they are loaded.
fn other_version(plan: &PlanEntry, version: Version) -> Option<String> {
    let built: Vec<i32> = plan.version.split('.').map_while(|part| part.parse().ok()).collect();
    let [major, minor, patch] = [0, 1, 2].map(|part| built.get(part).copied().unwrap_or(0));
    let same = (major, minor, patch) == (version.major, version.minor, version.patch);
    let later = (version.major, version.minor, version.patch) >= (major, minor, patch);
    let fits = match plan.flavour {
        PlanFlavour::TensorRtRtx => version.major == major,
        PlanFlavour::TensorRt => same || plan.version_compatible && later,
    };
    (!fits).then(|| format!("was built by version {}, the library is {version}", plan.version))
}

fn other_device(plan: &PlanEntry, device: &CudaDevice) -> Option<String> {
    let CudaDevice { capability, name, .. } = device;
    let listed = &plan.compute_capabilities;
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

fn is_exact(plan: &PlanEntry, device: &CudaDevice) -> bool {
    plan.compute_capabilities == [device.capability]
}
