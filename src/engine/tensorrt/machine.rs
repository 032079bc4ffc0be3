//! The opened libraries with the GPUs that the options name.

use std::collections::HashSet;

use crate::engine::cuda::{Cuda, CudaDevice};
use crate::engine::{EngineError, LostGpu};
use model::package::ModelPackage;
use model::package::manifest::plan::PlanEntry;
use settings::PrecisionChoice;

use super::ffi::Library;
use super::{TensorRtOptions, choose, fault};

pub(crate) const NO_GPU: &str = "the driver shows no GPU: nvidia-smi -L lists those of the \
                                 machine; a container, or CUDA_VISIBLE_DEVICES, may hide them";

pub(super) struct GpuMachine {
    pub(super) library: Library,
    pub(super) cuda: Cuda,
    /// At least one.
    pub(super) devices: Vec<CudaDevice>,
    /// Those of the options that are not there or do not answer.
    pub(super) lost: Vec<LostGpu>,
}

impl GpuMachine {
    pub(super) fn open(options: &TensorRtOptions) -> Result<Self, EngineError> {
        let library =
            Library::open(options.flavour.into(), options.library_dir.as_deref()).map_err(fault)?;
        let cuda = Cuda::open(options.cuda_library_dir.as_deref())
            .map_err(|error| EngineError::NotAvailable(error.to_string()))?;
        let (devices, lost) = find_devices(&cuda, &options.devices)?;
        Ok(Self { library, cuda, devices, lost })
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

/// The named GPUs that answer, and the others.
fn find_devices(
    cuda: &Cuda,
    wanted: &[usize],
) -> Result<(Vec<CudaDevice>, Vec<LostGpu>), EngineError> {
    let found = cuda.devices().map_err(|error| EngineError::NotAvailable(error.to_string()))?;
    if found.count() == 0 {
        return Err(EngineError::NotAvailable(NO_GPU.to_owned()));
    }
    let (mut devices, mut lost) = (Vec::new(), Vec::new());
    for &index in wanted {
        let reason = if let Some(device) = found.well.iter().find(|one| one.index == index) {
            devices.push(device.clone());
            continue;
        } else if let Some((_, error)) = found.sick.iter().find(|(sick, _)| *sick == index) {
            error.to_string()
        } else {
            let count = found.count();
            format!("the driver shows {count}, counted from 0; name others: --devices")
        };
        lost.push(LostGpu { index, reason });
    }
    if devices.is_empty() {
        let reasons = lost.iter().map(|LostGpu { index, reason }| format!("GPU {index}: {reason}"));
        return Err(EngineError::NotAvailable(reasons.collect::<Vec<_>>().join("; ")));
    }
    Ok((devices, lost))
}

/// The message that no plan of the package fits, with the reason, and the command that builds one.
pub(crate) fn no_plan(target: &choose::Target<'_>, package: &ModelPackage, why: &str) -> String {
    let (flavour, directory) = (target.flavour, package.directory().display());
    let command = build_command(target, package);
    format!("no plan of {flavour} in {directory} fits: {why}; build one with: {command}")
}

/// The message that each GPU has a plan and that these differ, with the reason, and a command for
/// each model of GPU: what equal commands build does not differ, and which of the plans are so
/// already would be a guess.
pub(super) fn no_common_plan(
    targets: &[choose::Target<'_>],
    package: &ModelPackage,
    why: &str,
) -> String {
    let mut seen = HashSet::new();
    let models = targets
        .iter()
        .filter(|target| seen.insert((&target.device.name, target.device.multiprocessors)));
    let commands: Vec<_> = models.map(|target| build_command(target, package)).collect();
    let directory = package.directory().display();
    format!(
        "the plans in {directory} do not go together: {why}; build one for each model of GPU with: \
         {}",
        commands.join(" && ")
    )
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
pub(super) fn names<'a>(devices: impl Iterator<Item = &'a str>) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for device in devices {
        match counted.iter_mut().find(|(name, _)| *name == device) {
            Some((_, count)) => *count += 1,
            None => counted.push((device, 1)),
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

    #[test]
    fn equal_gpus_are_counted() {
        assert_eq!(names(["A"].into_iter()), "A");
        assert_eq!(names(["A", "B", "A"].into_iter()), "2 x A, B");
    }
}
