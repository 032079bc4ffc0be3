//! Which of a package's plans a GPU can run, and why the others cannot. Pure.

use std::cmp::Reverse;

use crate::engine::cuda::{CudaDevice, CudaVersion};
use model::package::manifest::Manifest;
use model::package::manifest::plan::{ComputeCapability, PlanEntry, PlanFlavour};
use scheduling::batch::Bucket;
use settings::PrecisionChoice;

use super::ffi::Version;
use super::plan::serves;

/// The first GPUs that run TensorRT's hardware-compatible plans, and RTX's default plans.
const AMPERE: ComputeCapability = capability(8, 0);

/// The first GPUs with arithmetic in a precision that older ones lack.
const FIRST_WITH: [(PrecisionChoice, ComputeCapability); 2] =
    [(PrecisionChoice::Bf16, AMPERE), (PrecisionChoice::Fp8, capability(8, 9))];

/// The first GPUs that TensorRT 10.1 and drivers for earlier CUDA do not know.
const BLACKWELL: ComputeCapability = capability(10, 0);
const BLACKWELL_CUDA: CudaVersion = CudaVersion::new(12, 8);

/// The only GPUs for which TensorRT-RTX 1.7 builds and runs plans. It knows 7.5 (Turing) too, but
/// has no products in f32 there, and every graph has some: in the pooling and in the sparse head.
const RTX_CAPABILITIES: [ComputeCapability; 5] =
    [capability(8, 0), capability(8, 6), capability(8, 9), capability(12, 0), capability(12, 1)];

const fn capability(major: u32, minor: u32) -> ComputeCapability {
    ComputeCapability { major, minor }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The flavour of the plan.
    pub flavour: PlanFlavour,
    /// The version of the opened library.
    pub version: Version,
    /// Its GPU.
    pub device: &'a CudaDevice,
    /// If it names a precision, the plan must have that precision.
    pub precision: PrecisionChoice,
}

/// The plans that fit, the best first. A plan for exactly this GPU comes before a plan for many
/// GPUs, a plan for exactly this library version before a version-compatible plan, half precision
/// before other precisions. Then the plan that covers the most of `buckets` comes first, then the
/// latest.
///
/// # Errors
/// One sentence for each plan that does not fit, or one that the package has no plan.
pub(crate) fn fitting<'a>(
    manifest: &'a Manifest,
    target: &Target<'_>,
    buckets: &[Bucket],
) -> Result<Vec<&'a PlanEntry>, String> {
    let mut refusals = Vec::new();
    let mut fits = Vec::new();
    for plan in manifest.plans.iter().rev().filter(|plan| plan.flavour == target.flavour) {
        match misfit(plan, manifest, target) {
            Some(problem) => refusals.push(format!("{} {problem}", plan.file)),
            None => fits.push(plan),
        }
    }
    if fits.is_empty() {
        return Err(match refusals.is_empty() {
            true => "the manifest lists none".to_owned(),
            false => refusals.join("; "),
        });
    }
    let worth = |plan: &&PlanEntry| {
        let exact = plan.compute_capabilities == [target.device.capability];
        let half = plan.precision != "f32";
        let own = exact && !plan.hardware_compatible;
        let runs = |bucket: &&Bucket| {
            plan.profiles.iter().any(|profile| profile.covers(bucket.rows, bucket.length))
        };
        let covered = buckets.iter().filter(runs).count();
        (own, !plan.same_compute_capability, !plan.version_compatible, half, covered)
    };
    fits.sort_by_key(|plan| Reverse(worth(plan)));
    Ok(fits)
}

/// The best plan for each target, out of plans with equal profiles and precision: all workers of a
/// server need equal buckets, and it names one precision.
///
/// # Errors
/// Those of [`fitting`], or that the plans differ.
pub(crate) fn fitting_all<'a>(
    manifest: &'a Manifest,
    targets: &[Target<'_>],
    buckets: &[Bucket],
) -> Result<Vec<&'a PlanEntry>, String> {
    let of_each = |target| fitting(manifest, target, buckets);
    let fits: Vec<_> = targets.iter().map(of_each).collect::<Result<_, _>>()?;
    let alike = |first: &&PlanEntry| {
        let same = |other: &&&PlanEntry| {
            other.profiles == first.profiles && other.precision == first.precision
        };
        fits.iter().map(|plans| plans.iter().find(same).copied()).collect::<Option<Vec<_>>>()
    };
    let found = fits.first().and_then(|plans| plans.iter().find_map(alike));
    found.ok_or_else(|| {
        "the GPUs of one server need plans of the same profiles and precision, and those that fit \
         them have others"
            .to_owned()
    })
}

/// Why no plan of that flavour and precision can ever run on the GPU, and which plan can.
pub(crate) fn unfit(target: &Target<'_>) -> Option<String> {
    let CudaDevice { capability, name, .. } = target.device;
    unknown_to_rtx(target.flavour, target.device)
        .or_else(|| too_old(target))
        .or_else(|| lacked(target.precision.name(), *capability, name))
}

/// Why library or driver are older than the GPU.
pub(crate) fn too_old(target: &Target<'_>) -> Option<String> {
    let CudaDevice { capability, name, driver, .. } = target.device;
    if *capability < BLACKWELL {
        return None;
    }
    let minor = if capability.minor == 0 { 8 } else { 14 };
    let Version { major, minor: own, .. } = target.version;
    if target.flavour == PlanFlavour::TensorRt && (major, own) < (10, minor) {
        return Some(format!(
            "{name} has compute capability {capability}, which TensorRT knows from version \
             10.{minor} on, and the library is {}: install a newer one, or name its folder with \
             --tensorrt-library-dir",
            target.version
        ));
    }
    let old = driver.filter(|driver| *driver < BLACKWELL_CUDA)?;
    Some(format!(
        "{name} has compute capability {capability}, which needs a driver for CUDA \
         {BLACKWELL_CUDA} or later (branch 570), and this one is for CUDA {old}: install a newer \
         driver"
    ))
}

/// That the GPU `name` has no arithmetic in that precision, unless it has.
fn lacked(precision: &str, capability: ComputeCapability, name: &str) -> Option<String> {
    let (_, first) = FIRST_WITH.iter().find(|(one, _)| one.name() == precision)?;
    (capability < *first).then(|| {
        format!(
            "{precision} needs compute capability {first} or later, {name} has {capability}: use \
             --precision f16"
        )
    })
}

fn unknown_to_rtx(flavour: PlanFlavour, device: &CudaDevice) -> Option<String> {
    let CudaDevice { capability, name, .. } = device;
    (flavour == PlanFlavour::TensorRtRtx && !rtx_knows(*capability)).then(|| {
        format!(
            "TensorRT-RTX runs on compute capability {}, {name} has {capability}: use TensorRT, \
             with --engine tensorrt",
            rtx_capabilities()
        )
    })
}

/// Whether TensorRT-RTX builds and runs plans for such GPUs.
pub(crate) fn rtx_knows(capability: ComputeCapability) -> bool {
    RTX_CAPABILITIES.contains(&capability)
}

/// The compute capabilities that TensorRT-RTX knows, for a message.
pub(crate) fn rtx_capabilities() -> String {
    RTX_CAPABILITIES.map(|capability| capability.to_string()).join(", ")
}

/// Why a plan of the target's flavour cannot run there, as the second half of a sentence. `None` if
/// it can.
pub(crate) fn misfit(plan: &PlanEntry, manifest: &Manifest, target: &Target<'_>) -> Option<String> {
    stale(plan, manifest)
        .or_else(|| other_version(plan, target.version))
        .or_else(|| lacks_precision(plan, target.device))
        .or_else(|| other_device(plan, target.device))
        .or_else(|| other_model(plan, target.device))
        .or_else(|| too_short(plan, manifest))
        .or_else(|| other_precision(plan, target.precision))
}

/// Why a plan no longer belongs to its package.
pub(crate) fn stale(plan: &PlanEntry, manifest: &Manifest) -> Option<String> {
    match manifest.files.get(&plan.model_file) {
        Some(graph) if graph.sha256 == plan.model_sha256 => None,
        Some(_) => Some(format!("was built from another {} than the package has", plan.model_file)),
        None => Some(format!("was built from {}, which the package lacks", plan.model_file)),
    }
}

/// A plan of TensorRT-RTX belongs to one release. A plan of TensorRT belongs to the version that
/// built it, down to the number of the build, unless it was built for later versions too.
fn other_version(plan: &PlanEntry, version: Version) -> Option<String> {
    let built: Vec<i32> = plan.version.split('.').map_while(|part| part.parse().ok()).collect();
    let built = [0, 1, 2, 3].map(|part| built.get(part).copied().unwrap_or(0));
    let here = [version.major, version.minor, version.patch, version.build];
    let fits = match plan.flavour {
        PlanFlavour::TensorRtRtx => here[..3] == built[..3],
        PlanFlavour::TensorRt => here == built || plan.version_compatible && here > built,
    };
    let needed = if plan.version_compatible { "that one or a later one" } else { "that one" };
    (!fits).then(|| {
        let built = &plan.version;
        format!("was built by version {built} and needs {needed}, the library is {version}")
    })
}

fn other_device(plan: &PlanEntry, device: &CudaDevice) -> Option<String> {
    let CudaDevice { capability, name, .. } = device;
    let listed = &plan.compute_capabilities;
    if let Some(unknown) = unknown_to_rtx(plan.flavour, device) {
        return Some(format!("cannot run there: {unknown}"));
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

/// Why a plan for one model of GPU is not for this one. A slice of a GPU (MIG) has a name and
/// multiprocessors of its own. Entries of earlier releases have the name alone.
fn other_model(plan: &PlanEntry, device: &CudaDevice) -> Option<String> {
    let CudaDevice { name, multiprocessors: count, .. } = device;
    if !plan.is_for_one_model() {
        return None;
    }
    let Some(built_for) = &plan.device else {
        return Some(format!("does not say for which GPU it was built, this one is {name}"));
    };
    let fits = built_for == name && plan.multiprocessors.is_none_or(|own| own == *count);
    let counted = |own| format!(" with {own} multiprocessors");
    let own_count = plan.multiprocessors.map_or_else(String::new, counted);
    (!fits)
        .then(|| format!("was built for {built_for}{own_count}, this GPU is {name} with {count}"))
}

/// A plan must cover every text that the model takes.
fn too_short(plan: &PlanEntry, manifest: &Manifest) -> Option<String> {
    let longest = plan.profiles.iter().map(|profile| profile.length.max as usize).max();
    let needed = manifest.max_input_tokens;
    (longest < Some(needed))
        .then(|| format!("ends at {} tokens, the model takes {needed}", longest.unwrap_or(0)))
}

fn other_precision(plan: &PlanEntry, wanted: PrecisionChoice) -> Option<String> {
    let (own, name) = (&plan.precision, wanted.name());
    let problem = || match wanted {
        PrecisionChoice::Auto => format!("computes in {own}: name it with --precision {own}"),
        _ => format!("computes in {own}, as the graph it was built from, not in {name}"),
    };
    (!serves(wanted, own)).then(problem)
}

/// Refuses a build in a precision that an older GPU lacks, which could never run the plan.
///
/// # Errors
/// One sentence that names the GPU.
pub(crate) fn check_precision(
    precision: PrecisionChoice,
    built_for: &[ComputeCapability],
    device: Option<&CudaDevice>,
) -> Result<(), String> {
    let problem = built_for.iter().find_map(|&capability| {
        let its = device.filter(|device| device.capability == capability);
        let name = its.map_or("the named GPU", |device| device.name.as_str());
        lacked(precision.name(), capability, name)
    });
    problem.map_or(Ok(()), Err)
}

fn lacks_precision(plan: &PlanEntry, device: &CudaDevice) -> Option<String> {
    let problem = lacked(&plan.precision, device.capability, &device.name)?;
    Some(format!("cannot run there: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::package::ModelPackage;
    use serde_json::json;

    const VERSION: Version = Version { major: 11, minor: 4, patch: 0, build: 1 };

    fn manifest(plans: &[(&str, &str, u32)]) -> Manifest {
        let package = ModelPackage::read_manifest(&testing::tiny()).expect("it is one");
        let length = package.manifest().max_input_tokens;
        let graph = &package.manifest().files["model.onnx"].sha256;
        let plan = |&(file, capability, rows): &(&str, &str, u32)| {
            serde_json::from_value(json!({
                "file": file, "sha256": "0".repeat(64), "bytes": 1, "flavour": "tensorrt",
                "version": VERSION.to_string(), "model_file": "model.onnx", "model_sha256": graph,
                "precision": "f16", "compute_capabilities": [capability], "build_seconds": 1.0,
                "device": "a GPU", "multiprocessors": 1,
                "profiles": [{
                    "name": "all", "rows": {"min": 1, "opt": 1, "max": rows},
                    "length": {"min": 1, "opt": 8, "max": length},
                }],
            }))
        };
        let plans = plans.iter().map(plan).collect::<Result<_, _>>().expect("they are entries");
        package.with_plans(plans).manifest().clone()
    }

    fn gpu(index: usize, major: u32, minor: u32) -> CudaDevice {
        CudaDevice {
            index,
            name: "a GPU".to_owned(),
            capability: ComputeCapability { major, minor },
            memory_bytes: 1,
            multiprocessors: 1,
            driver: None,
        }
    }

    fn chosen(manifest: &Manifest, gpus: &[CudaDevice]) -> Result<Vec<String>, String> {
        let target = |device| Target {
            flavour: PlanFlavour::TensorRt,
            version: VERSION,
            device,
            precision: PrecisionChoice::Auto,
        };
        let targets: Vec<_> = gpus.iter().map(target).collect();
        let buckets = [1, 8, 16].map(|rows| Bucket { rows, length: 8 });
        let plans = fitting_all(manifest, &targets, &buckets)?;
        Ok(plans.into_iter().map(|plan| plan.file.clone()).collect())
    }

    #[test]
    fn of_plans_for_one_gpu_the_latest_counts_that_covers_the_most_shapes() {
        let of = |plans: &[(&str, &str, u32)]| chosen(&manifest(plans), &[gpu(0, 9, 0)]);
        let (old, wide, few) = (("old", "9.0", 16), ("wide", "9.0", 32), ("few", "9.0", 8));
        assert_eq!(of(&[old, wide, few]), Ok(vec!["wide".to_owned()]));
        assert_eq!(of(&[wide, few, old]), Ok(vec!["old".to_owned()]));
        assert_eq!(of(&[few]), Ok(vec!["few".to_owned()]));
    }

    #[test]
    fn gpus_of_one_server_run_plans_of_the_same_profiles_and_precision() {
        let gpus = [gpu(0, 9, 0), gpu(1, 8, 9)];
        let (first, other) = (("first", "9.0", 16), ("other", "8.9", 16));
        let both = chosen(&manifest(&[first, other, ("latest", "9.0", 32)]), &gpus);
        assert_eq!(both, Ok(vec!["first".to_owned(), "other".to_owned()]));
        let differ = chosen(&manifest(&[("latest", "9.0", 32), other]), &gpus);
        let said = "need plans of the same profiles and precision";
        assert!(differ.is_err_and(|error| error.contains(said)));
        // Two in f32 are better than one in f16 beside one in f32.
        let in_f32 = |plans: &[(&str, &str, u32)], which: &[usize]| {
            let mut manifest = manifest(plans);
            which.iter().for_each(|&plan| manifest.plans[plan].precision = "f32".to_owned());
            chosen(&manifest, &gpus)
        };
        let both = in_f32(&[first, other, ("single", "9.0", 16)], &[1, 2]);
        assert_eq!(both, Ok(vec!["single".to_owned(), "other".to_owned()]));
        assert!(in_f32(&[first, other], &[1]).is_err_and(|error| error.contains(said)));
    }
}
