//! From a package's ONNX graph to a plan and its entry in the manifest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::engine::EngineError;
use crate::engine::cuda::{Cuda, CudaDevice};
use clock::Clock;
use model::package::canary::Comparison;
use model::package::edit::{EditError, PackageEditor};
use model::package::manifest::plan::{ComputeCapability, PlanEntry, PlanFlavour, PlanProfile};
use model::package::{ModelPackage, PackageError};
use scheduling::batch::Bucket;
use settings::PrecisionChoice;

use super::choose::{Target, check_precision, misfit, rtx_capabilities, rtx_knows, too_old};
use super::ffi::{BridgeError, BuildRequest, Library, Observer, Plan, Version};
use super::judge::judge;
use super::plan::{default_profiles, model_file, outputs, precision_of, serves, size};
use super::{NO_GPU, TensorRtEngine, TensorRtOptions};

/// How a plan is to be built.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Which TensorRT.
    pub flavour: PlanFlavour,
    /// Folder of TensorRT's libraries; `None` searches the system.
    pub library_dir: Option<PathBuf>,
    /// Folder of the CUDA runtime; `None` searches the system.
    pub cuda_library_dir: Option<PathBuf>,
    /// Chooses the package's graph. The plan must have this precision.
    pub precision: PrecisionChoice,
    /// `None` takes the default profiles for the model's length.
    pub profiles: Option<Vec<PlanProfile>>,
    /// TensorRT-RTX only; empty is its default, 8.0 and later.
    pub compute_capabilities: Vec<ComputeCapability>,
    /// TensorRT only: runs on GPUs of later generations too, slower.
    pub hardware_compatible: bool,
    /// TensorRT only: runs on other GPUs of the same compute capability too.
    pub same_compute_capability: bool,
    /// TensorRT only: runs with later versions too.
    pub version_compatible: bool,
    /// CUDA's number of the GPU that the plan is built and tried on.
    pub device: usize,
    /// TensorRT only: from 0, quick, to 5, all that is known.
    pub optimization_level: Option<i32>,
    /// TensorRT only: device memory that a kernel may take besides its inputs and outputs.
    pub workspace_bytes: Option<i64>,
}

impl BuildOptions {
    /// The flavour's defaults, with the system's libraries, on the first GPU.
    pub const fn new(flavour: PlanFlavour) -> Self {
        Self {
            flavour,
            library_dir: None,
            cuda_library_dir: None,
            precision: PrecisionChoice::Auto,
            profiles: None,
            compute_capabilities: Vec::new(),
            hardware_compatible: false,
            same_compute_capability: false,
            version_compatible: false,
            device: 0,
            optimization_level: None,
            workspace_bytes: None,
        }
    }
}

/// Why no plan was built. The package is unchanged.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum BuildError {
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("{}", .0)]
    Options(String),
    #[error("TensorRT builds on the GPU that the plan is for: {0}")]
    NoDevice(String),
    #[error("cannot use {flavour}: {source}", flavour = .flavour.name())]
    Library { flavour: PlanFlavour, source: BridgeError },
    #[error("cannot build a plan from {}", model.display())]
    Build { model: PathBuf, source: BridgeError },
    #[error(
        "attention was not fused: the plan would write the scores of all heads to memory, and take \
         {scratch_bytes} bytes beside its weights; export the graph with the scale inside the \
         query's weights, an additive mask, and heads of 16 to 256 columns"
    )]
    NotFused { scratch_bytes: u64 },
    #[error("the plan that was built is wrong on this GPU, the package is as it was: {source}")]
    WrongNumbers { source: EngineError },
    #[error(transparent)]
    Engine(EngineError),
}

impl BuildError {
    /// Whether the observer stopped the build.
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Build { source: BridgeError::Cancelled(_), .. })
    }
}

/// A plan that is now part of the package.
#[derive(Debug, Clone)]
pub struct BuiltPlan {
    /// Its entry in the manifest.
    pub entry: PlanEntry,
    /// Warnings as sentences; the plan is usable nevertheless.
    pub warnings: Vec<String>,
    /// Layers of all profiles together, if the library told.
    pub layers: Option<u32>,
    /// The GPU that the plan was tried on, and how far its numbers are from the golden ones.
    pub tried: Option<(String, Comparison)>,
}

/// Builds a plan and adds it to the package in `directory`. It replaces an earlier plan for the
/// same use ([`PlanEntry::replaces`]). Blocks for seconds to minutes.
///
/// # Errors
/// See [`BuildError`]. Whatever happens, even a kill, the package has either its old plans or the
/// new plan.
pub fn build_engine(
    directory: &Path,
    options: &BuildOptions,
    observer: &Observer,
    clock: &dyn Clock,
) -> Result<BuiltPlan, BuildError> {
    // A folder that is no package gets no lock.
    ModelPackage::read_manifest(directory)?;
    let editor = PackageEditor::open(directory)?;
    let package = ModelPackage::open(directory)?.in_precision(options.precision)?;
    build(&editor, &package, options, observer, clock)
}

/// Builds a plan for a package that is open already, with the right to change it.
pub(super) fn build(
    editor: &PackageEditor,
    package: &ModelPackage,
    options: &BuildOptions,
    observer: &Observer,
    clock: &dyn Clock,
) -> Result<BuiltPlan, BuildError> {
    let directory = package.directory();
    let device = find_device(options)?;
    let library = Library::open(options.flavour.into(), options.library_dir.as_deref())
        .map_err(|source| BuildError::Library { flavour: options.flavour, source })?;
    let target = BuildTarget::new(package, options, device.as_ref(), library.version())?;
    let cache = target.timing_cache.as_ref().map(|name| directory.join(name));
    let request = target.request(package, cache.as_deref());
    let model = package.directory().join(target.model_file);
    if model.to_str().is_none() {
        return Err(BuildError::Options(format!("the path {} is not UTF-8", model.display())));
    }

    let begin = clock.now();
    let plan = library
        .build_plan(&request, observer)
        .map_err(|source| BuildError::Build { model, source })?;
    let seconds = clock.now().since(begin);
    let report = plan.report();
    if !serves(options.precision, &report.precision) {
        return Err(BuildError::Options(format!(
            "{} computes in {}, not in {}: scripts/export_onnx.py adds a graph in fp16 or bf16 to \
             a package in f32",
            target.model_file,
            report.precision,
            options.precision.name()
        )));
    }
    let mut warnings = report.warnings.clone();
    warnings.extend(judge(options.flavour, &target.profiles, &report)?);

    if let Some(name) = target.timing_cache.as_ref().filter(|_| !report.timing_cache.is_empty()) {
        editor.write(name, &report.timing_cache)?;
    }
    let entry = target.write(editor, package, &plan, seconds)?;
    let mut tried = None;
    if let Some(device) = &device {
        let (version, precision) = (library.version(), options.precision);
        let target = Target { flavour: options.flavour, version, device, precision };
        match try_plan(package, options, &target, &entry) {
            Ok(seen) => tried = seen.map(|seen| (device.name.clone(), seen)),
            Err(source @ (EngineError::BadPackage(_) | EngineError::PlanRefused { .. })) => {
                let is_listed = |plan: &PlanEntry| plan.file == entry.file;
                if !package.manifest().plans.iter().any(is_listed) {
                    editor.remove(&entry.file)?;
                }
                return Err(BuildError::WrongNumbers { source });
            }
            Err(error) => {
                warnings.push(format!("the plan could not be tried on {}: {error}", device.name));
            }
        }
    }
    list(editor, package, &entry)?;
    let layers = u32::try_from(report.layers).ok().filter(|&layers| layers > 0);
    Ok(BuiltPlan { entry, warnings, layers, tried })
}

/// Runs the canary in each profile of the plan on this machine's GPU, before the manifest lists the
/// plan. `None` if this machine's GPU cannot run the plan.
fn try_plan(
    package: &ModelPackage,
    options: &BuildOptions,
    target: &Target<'_>,
    entry: &PlanEntry,
) -> Result<Option<Comparison>, EngineError> {
    if misfit(entry, package.manifest(), target).is_some() {
        return Ok(None);
    }
    let longest = entry.profiles.iter().map(|profile| profile.length.max as usize);
    let engine_options = TensorRtOptions {
        flavour: target.flavour,
        library_dir: options.library_dir.clone(),
        cuda_library_dir: options.cuda_library_dir.clone(),
        devices: vec![target.device.index],
        graph_tokens: 0,
        precision: target.precision,
        buckets: longest.map(|length| Bucket { rows: 1, length }).collect(),
    };
    let package = package.with_plans(vec![entry.clone()]);
    let engine = TensorRtEngine::load(&package, &engine_options)?;
    Ok(Some(engine.try_profiles(package.manifest())?))
}

/// Makes a written plan part of the package, by an entry in the manifest.
fn list(
    editor: &PackageEditor,
    package: &ModelPackage,
    entry: &PlanEntry,
) -> Result<(), BuildError> {
    let manifest = package.manifest();
    let current = |plan: &&PlanEntry| {
        let graph = manifest.files.get(&plan.model_file);
        let same_graph = graph.is_some_and(|graph| graph.sha256 == plan.model_sha256);
        same_graph && !entry.replaces(plan)
    };
    let kept = manifest.plans.iter().filter(current).cloned();
    let plans: Vec<PlanEntry> = kept.chain([entry.clone()]).collect();
    Ok(editor.replace_plans(&plans)?)
}

/// Finds the GPU with that number, and makes it the calling thread's current GPU. The data-centre
/// flavour measures kernels on it; RTX compiles for targets by name.
fn find_device(options: &BuildOptions) -> Result<Option<CudaDevice>, BuildError> {
    let opened = Cuda::open(options.cuda_library_dir.as_deref()).or_else(|_| Cuda::open(None));
    let found = opened.and_then(|cuda| Ok((cuda.devices()?, cuda)));
    match (options.flavour, found) {
        (_, Ok((devices, cuda))) if devices.count() > 0 => {
            let (count, wanted) = (devices.count(), options.device);
            if let Some((_, error)) = devices.sick.iter().find(|(index, _)| *index == wanted) {
                return Err(BuildError::NoDevice(error.to_string()));
            }
            let device = devices.well.into_iter().find(|device| device.index == wanted);
            let device = device.ok_or_else(|| {
                BuildError::Options(format!(
                    "there is no GPU {wanted}: the driver shows {count}, counted from 0; name \
                     another: --device"
                ))
            })?;
            let used = cuda.memory(device.index);
            used.map_err(|error| BuildError::NoDevice(error.to_string()))?;
            Ok(Some(device))
        }
        (PlanFlavour::TensorRtRtx, _) => Ok(None),
        (PlanFlavour::TensorRt, Ok(_)) => Err(BuildError::NoDevice(NO_GPU.to_owned())),
        (PlanFlavour::TensorRt, Err(error)) => Err(BuildError::NoDevice(error.to_string())),
    }
}

/// The parts of the manifest's entry that are known before the build.
struct BuildTarget<'a> {
    options: &'a BuildOptions,
    version: Version,
    model_file: &'static str,
    profiles: Vec<PlanProfile>,
    compute_capabilities: Vec<ComputeCapability>,
    device: Option<&'a CudaDevice>,
    /// Its file name in the package, for the flavour that measures kernels.
    timing_cache: Option<String>,
}

impl<'a> BuildTarget<'a> {
    fn new(
        package: &ModelPackage,
        options: &'a BuildOptions,
        device: Option<&'a CudaDevice>,
        version: Version,
    ) -> Result<Self, BuildError> {
        let manifest = package.manifest();
        let profiles = match &options.profiles {
            Some(profiles) => profiles.clone(),
            None => default_profiles(manifest.max_input_tokens),
        };
        let rtx = options.flavour == PlanFlavour::TensorRtRtx;
        let compute_capabilities = match device {
            Some(device) if !rtx => vec![device.capability],
            _ => options.compute_capabilities.clone(),
        };
        if rtx {
            check_rtx(options)?;
        } else if !options.compute_capabilities.is_empty() {
            let problem = "--compute-capability is for tensorrt-rtx; tensorrt builds for the GPU \
                           it runs on";
            return Err(BuildError::Options(problem.to_owned()));
        }
        let model_file = model_file(manifest, options.precision);
        for precision in [options.precision, precision_of(model_file)] {
            check_precision(precision, &compute_capabilities, device)
                .map_err(BuildError::Options)?;
        }
        let (flavour, precision) = (options.flavour, options.precision);
        let target = |device| Target { flavour, version, device, precision };
        if let Some(problem) = device.filter(|_| !rtx).map(target).as_ref().and_then(too_old) {
            return Err(BuildError::Options(problem));
        }
        let timing_cache = compute_capabilities
            .first()
            .filter(|_| !rtx)
            .map(|capability| format!(".tensorrt-{version}-sm{capability}.timing"));
        Ok(Self {
            options,
            version,
            model_file,
            profiles,
            compute_capabilities,
            device,
            timing_cache,
        })
    }

    fn request(&self, package: &ModelPackage, cache: Option<&Path>) -> BuildRequest {
        let (manifest, options) = (package.manifest(), self.options);
        let capability = |one: &ComputeCapability| size((one.major * 10 + one.minor) as usize);
        BuildRequest {
            model_path: package.directory().join(self.model_file).display().to_string(),
            profiles: self.profiles.iter().map(Into::into).collect(),
            outputs: outputs(manifest),
            length_max: size(manifest.max_input_tokens),
            vocabulary_size: size(manifest.vocab_size),
            compute_capabilities: options.compute_capabilities.iter().map(capability).collect(),
            hardware_compatible: options.hardware_compatible,
            same_compute_capability: options.same_compute_capability,
            version_compatible: options.version_compatible,
            optimization_level: options.optimization_level.unwrap_or(-1),
            workspace_bytes: options.workspace_bytes.unwrap_or(0),
            // The measurements of an earlier build only save time. Without them all kernels are
            // measured anew.
            timing_cache: cache.and_then(|path| fs::read(path).ok()).unwrap_or_default(),
        }
    }

    fn write(
        self,
        editor: &PackageEditor,
        package: &ModelPackage,
        plan: &Plan,
        seconds: Duration,
    ) -> Result<PlanEntry, BuildError> {
        let (manifest, options) = (package.manifest(), self.options);
        let written = editor.write_plan(options.flavour, plan.bytes())?;
        let report = plan.report();
        let unsigned = |&bytes: &i64| u64::try_from(bytes).unwrap_or(0);
        let scratch_bytes: Vec<u64> = report.scratch_bytes.iter().map(unsigned).collect();
        let known = scratch_bytes.len() == self.profiles.len();
        Ok(PlanEntry {
            file: written.file,
            sha256: written.sha256,
            bytes: written.bytes,
            flavour: options.flavour,
            version: self.version.to_string(),
            model_file: self.model_file.to_owned(),
            model_sha256: manifest.files[self.model_file].sha256.clone(),
            precision: report.precision,
            profiles: self.profiles,
            compute_capabilities: self.compute_capabilities,
            multiprocessors: self.device.map(|device| device.multiprocessors),
            device: self.device.map(|device| device.name.clone()),
            scratch_bytes: if known { scratch_bytes } else { Vec::new() },
            hardware_compatible: options.hardware_compatible,
            same_compute_capability: options.same_compute_capability,
            version_compatible: options.version_compatible,
            optimization_level: options.optimization_level,
            build_seconds: (seconds.as_secs_f64() * 100.0).round() / 100.0,
        })
    }
}

fn check_rtx(options: &BuildOptions) -> Result<(), BuildError> {
    let for_tensorrt = [
        ("--hardware-compatibility", options.hardware_compatible),
        ("--same-compute-capability", options.same_compute_capability),
        ("--version-compatible", options.version_compatible),
        ("--optimization-level", options.optimization_level.is_some()),
        ("--workspace-mib", options.workspace_bytes.is_some()),
    ];
    if let Some((flag, _)) = for_tensorrt.into_iter().find(|(_, named)| *named) {
        return Err(BuildError::Options(format!(
            "{flag} is for tensorrt; tensorrt-rtx compiles for its GPU when it loads a plan"
        )));
    }
    match options.compute_capabilities.iter().find(|one| !rtx_knows(**one)) {
        None => Ok(()),
        Some(capability) => Err(BuildError::Options(format!(
            "TensorRT-RTX builds no plans for compute capability {capability}, only for {}: \
             TensorRT builds for others",
            rtx_capabilities()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtx_knows_its_targets() {
        let mut options = BuildOptions::new(PlanFlavour::TensorRtRtx);
        options.compute_capabilities = vec!["8.6".parse().expect("it is one")];
        assert!(check_rtx(&options).is_ok());
        // Turing has no products in f32 there, and every graph has some.
        for unknown in ["9.0", "7.5"] {
            options.compute_capabilities.push(unknown.parse().expect("it is one"));
            let message = check_rtx(&options).expect_err("it has no such target").to_string();
            assert!(message.contains(&format!("{unknown}, only for 8.0")), "{message}");
            options.compute_capabilities.pop();
        }
        options.compute_capabilities.clear();
        options.hardware_compatible = true;
        assert!(check_rtx(&options).is_err());
    }
}
