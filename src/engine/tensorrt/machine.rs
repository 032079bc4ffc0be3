//! The opened libraries with the GPUs that the options name.

use crate::engine::EngineError;
use crate::engine::cuda::{Cuda, CudaDevice};
use model::package::ModelPackage;
use model::package::manifest::plan::PlanEntry;
use settings::PrecisionChoice;

use super::ffi::Library;
use super::{TensorRtOptions, choose, fault};

/// The message for a driver without GPUs.
pub(crate) const NO_GPU: &str = "the driver shows no GPU: nvidia-smi -L lists those of the \
                                 machine; a container, or CUDA_VISIBLE_DEVICES, may hide them";

/// The libraries and GPUs of the options.
pub(super) struct GpuMachine {
    pub(super) library: Library,
    pub(super) cuda: Cuda,
    pub(super) devices: Vec<CudaDevice>,
}

impl GpuMachine {
    pub(super) fn open(options: &TensorRtOptions) -> Result<Self, EngineError> {
        let library =
            Library::open(options.flavour.into(), options.library_dir.as_deref()).map_err(fault)?;
        let cuda = Cuda::open(options.cuda_library_dir.as_deref())
            .map_err(|error| EngineError::NotAvailable(error.to_string()))?;
        let devices = find_devices(&cuda, &options.devices)?;
        Ok(Self { library, cuda, devices })
    }
}

pub(super) fn target<'a>(
    options: &TensorRtOptions,
    library: &Library,
    device: &'a CudaDevice,
) -> choose::Target<'a> {
    let (flavour, precision) = (options.flavour, options.precision);
    choose::Target { flavour, version: library.version(), device, precision }
}

fn find_devices(cuda: &Cuda, wanted: &[usize]) -> Result<Vec<CudaDevice>, EngineError> {
    let found = cuda.devices().map_err(|error| EngineError::NotAvailable(error.to_string()))?;
    if found.is_empty() {
        return Err(EngineError::NotAvailable(NO_GPU.to_owned()));
    }
    let device = |&index: &usize| {
        found.iter().find(|device| device.index == index).cloned().ok_or_else(|| {
            let count = found.len();
            EngineError::NotAvailable(format!(
                "there is no GPU {index}: the driver shows {count}, counted from 0; name others: \
                 --devices"
            ))
        })
    };
    wanted.iter().map(device).collect()
}

/// The message that no plan of the package fits, with the reason, and the command that builds one.
pub(crate) fn no_plan(target: &choose::Target<'_>, package: &ModelPackage, why: &str) -> String {
    let (flavour, directory) = (target.flavour, package.directory().display());
    let command = build_command(target, package);
    format!("no plan of {flavour} in {directory} fits: {why}; build one with: {command}")
}

/// The error that the library does not take a plan that fits by its entry.
pub(super) fn refused(
    target: &choose::Target<'_>,
    package: &ModelPackage,
    entry: &PlanEntry,
    why: &str,
) -> EngineError {
    let (plan, gpu) = (entry.file.clone(), target.device.index);
    let command = build_command(target, package);
    let message = format!(
        "the plan {plan} fits GPU {gpu} by its entry, and cannot be used: {why}; build it anew \
         with: {command}"
    );
    EngineError::PlanRefused { plan, message }
}

/// The command that builds a plan for the target.
fn build_command(target: &choose::Target<'_>, package: &ModelPackage) -> String {
    let (flavour, directory) = (target.flavour, package.directory().display());
    let precision = match target.precision {
        PrecisionChoice::Auto => String::new(),
        named => format!(" --precision {}", named.name()),
    };
    let device = match target.device.index {
        0 => String::new(),
        other => format!(" --device {other}"),
    };
    format!("duovec build-engine {directory} --flavour {flavour}{precision}{device}")
}

/// "NVIDIA H200" or "2 x NVIDIA H200, NVIDIA L4".
pub(super) fn names(devices: &[CudaDevice]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for device in devices {
        match counted.iter_mut().find(|(name, _)| *name == device.name) {
            Some((_, count)) => *count += 1,
            None => counted.push((&device.name, 1)),
        }
    }
    let text = |(name, count): &(&str, usize)| match count {
        1 => (*name).to_owned(),
        _ => format!("{count} x {name}"),
    };
    counted.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::package::manifest::plan::ComputeCapability;

    #[test]
    fn equal_gpus_are_counted() {
        let gpu = |index, name: &str| CudaDevice {
            index,
            name: name.to_owned(),
            capability: ComputeCapability { major: 9, minor: 0 },
            memory_bytes: 1,
            multiprocessors: 1,
        };
        assert_eq!(names(&[gpu(0, "A")]), "A");
        assert_eq!(names(&[gpu(0, "A"), gpu(1, "B"), gpu(2, "A")]), "2 x A, B");
    }
}
