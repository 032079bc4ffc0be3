//! Plans that a package lacks for the GPUs of a server.

use std::path::Path;

use crate::engine::EngineError;
use crate::engine::cuda::CudaDevice;
use clock::Clock;
use model::package::ModelPackage;
use model::package::edit::PackageEditor;
use model::package::manifest::plan::PlanFlavour;

use super::build::{BuildError, BuildOptions, build};
use super::ffi::{Library, Observer};
use super::machine::{GpuMachine, target};
use super::{TensorRtOptions, choose};

/// The GPUs of the options for which the package has no fitting plan.
///
/// # Errors
/// `NotAvailable` without library, driver or GPU.
pub(crate) fn without_plan(
    package: &ModelPackage,
    options: &TensorRtOptions,
) -> Result<Vec<CudaDevice>, EngineError> {
    let GpuMachine { library, devices, .. } = GpuMachine::open(options)?;
    let lacks = |device: &CudaDevice| lacks_plan(package, options, &library, device);
    Ok(devices.into_iter().filter(lacks).collect())
}

fn lacks_plan(
    package: &ModelPackage,
    options: &TensorRtOptions,
    library: &Library,
    device: &CudaDevice,
) -> bool {
    let target = target(options, library, device);
    choose::fitting(package.manifest(), &target, &options.buckets).is_err()
}

/// Builds a plan for each GPU of `engine` for which the package has none, and adds it to the
/// package. Waits for another process that is changing the package, since that may add the missing
/// plans. Returns the package as it is then. Blocks for seconds to minutes.
///
/// The library has refused the plan in the file `refused`: it counts as missing, and a plan that is
/// built takes its place.
///
/// # Errors
/// See [`BuildError`]. The package keeps the plans that were built before.
pub(crate) fn build_missing(
    directory: &Path,
    engine: &TensorRtOptions,
    refused: Option<&str>,
    observer: &Observer,
    clock: &dyn Clock,
) -> Result<ModelPackage, BuildError> {
    let editor = PackageEditor::wait(directory)?;
    let open = || ModelPackage::open(directory)?.in_precision(engine.precision);
    let mut package = open()?;
    let plans = package.manifest().plans.iter();
    let usable = plans.filter(|plan| Some(plan.file.as_str()) != refused).cloned().collect();
    package = package.with_plans(usable);
    let GpuMachine { library, devices, .. } =
        GpuMachine::open(engine).map_err(BuildError::Engine)?;
    for device in &devices {
        // A plan that was built for one GPU may fit the next.
        if lacks_plan(&package, engine, &library, device) {
            let options = for_gpu(engine, device);
            let built = build(&editor, &package, &options, observer, clock)?;
            for warning in &built.warnings {
                tracing::warn!("{warning}");
            }
            package = open()?;
        }
    }
    Ok(package)
}

/// Options for that GPU alone, with the libraries that will run the plan.
fn for_gpu(engine: &TensorRtOptions, device: &CudaDevice) -> BuildOptions {
    let compute_capabilities = match engine.flavour {
        PlanFlavour::TensorRtRtx => vec![device.capability],
        PlanFlavour::TensorRt => Vec::new(),
    };
    BuildOptions {
        library_dir: engine.library_dir.clone(),
        cuda_library_dir: engine.cuda_library_dir.clone(),
        compute_capabilities,
        device: device.index,
        precision: engine.precision,
        ..BuildOptions::new(engine.flavour)
    }
}
