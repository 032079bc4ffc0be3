//! From a package to plans on all GPUs, side by side. GPUs that fail are left out.

use std::panic::resume_unwind;
use std::thread;

use crate::engine::cuda::Cuda;
use crate::engine::{EngineError, LostGpu};
use model::package::ModelPackage;
use model::package::manifest::plan::PlanEntry;

use super::choose::{self, Target};
use super::ffi::{BridgeError, EngineRequest, Library, PlanEngine};
use super::kernels::KernelFile;
use super::machine::{GpuMachine, no_common_plan, no_plan, refused, target};
use super::plan::{outputs, size};
use super::{TensorRtOptions, fault};

/// A plan on one GPU.
pub(super) struct Device {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) engine: PlanEngine,
    /// Kernels of an earlier start; `None` for a library that compiles nothing on the device.
    pub(super) kernels: Option<KernelFile>,
    /// Free memory after the weights were loaded and before the first session.
    pub(super) free_bytes: u64,
}

pub(super) struct LoadedPlans {
    pub(super) library: Library,
    pub(super) cuda: Cuda,
    /// At least one.
    pub(super) devices: Vec<Device>,
    /// GPUs that were named and cannot be used.
    pub(super) lost: Vec<LostGpu>,
    /// Of one device; precision and profiles of all are alike.
    pub(super) entry: PlanEntry,
}

impl LoadedPlans {
    /// Opens the libraries and loads the plan that fits onto each GPU.
    ///
    /// # Errors
    /// See `TensorRtEngine::load`. The error of a single GPU counts only if no GPU is left.
    pub(super) fn load(
        package: &ModelPackage,
        options: &TensorRtOptions,
    ) -> Result<Self, EngineError> {
        let GpuMachine { library, cuda, devices: found, mut lost } = GpuMachine::open(options)?;
        let manifest = package.manifest();
        let targets: Vec<_> =
            found.iter().map(|device| target(options, &library, device)).collect();
        if let Some(reason) = targets.iter().find_map(choose::unfit) {
            return Err(EngineError::NotAvailable(reason));
        }
        let entries =
            choose::fitting_all(manifest, &targets, &options.buckets).map_err(|refusal| {
                let lacks = |target: &&Target<'_>| {
                    choose::fitting(manifest, target, &options.buckets).is_err()
                };
                EngineError::NotAvailable(match targets.iter().find(lacks) {
                    Some(lacking) => no_plan(lacking, package, &refusal),
                    None => no_common_plan(&targets, package, &refusal),
                })
            })?;
        let Some(&entry) = entries.first() else {
            return Err(EngineError::NotAvailable("no GPU is named".to_owned()));
        };
        // GPUs with one plan share its bytes.
        let mut files: Vec<&PlanEntry> = entries.clone();
        files.dedup_by_key(|entry| &entry.file);
        let read = side_by_side(&files, |entry| package.read_plan(entry));
        let places: Vec<_> = entries.iter().zip(&targets).collect();
        let loaded = side_by_side(&places, |&(&entry, target)| {
            let place = files.iter().position(|one| one.file == entry.file).expect("it is there");
            let plan = read[place].as_ref();
            let plan = plan.map_err(|error| refused(target, package, entry, &error.to_string()))?;
            load_one(package, entry, target, (&library, &cuda), plan)
        });
        let devices = keep_well(&found, loaded, &mut lost)?;
        Ok(Self { entry: entry.clone(), library, cuda, devices, lost })
    }
}

/// Does the work for each of them, on a thread of its own.
pub(super) fn side_by_side<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(move || work(one))).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|ended| ended.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

fn load_one(
    package: &ModelPackage,
    entry: &PlanEntry,
    target: &Target<'_>,
    (library, cuda): (&Library, &Cuda),
    plan: &[u8],
) -> Result<Device, EngineError> {
    let (manifest, device) = (package.manifest(), target.device);
    let kernels = KernelFile::of(package.directory(), entry, target, cuda);
    let compiled = kernels.as_ref().map(KernelFile::read).unwrap_or_default();
    let request = EngineRequest {
        profiles: entry.profiles.iter().map(Into::into).collect(),
        outputs: outputs(manifest),
        host_code_allowed: entry.version_compatible,
        device: size(device.index),
        cuda_file: cuda.file().to_owned(),
    };
    let engine = library.load(&request, plan, &compiled).map_err(|error| match error {
        BridgeError::Model(why) => refused(target, package, entry, &why),
        other => fault(other),
    })?;
    let free_bytes = cuda.memory(device.index).map_or(0, |memory| memory.free_bytes);
    Ok(Device { index: device.index, name: device.name.clone(), engine, kernels, free_bytes })
}

/// The devices that were loaded. The others are lost, but a plan that the library refuses is no
/// fault of a GPU.
fn keep_well(
    found: &[crate::engine::cuda::CudaDevice],
    loaded: Vec<Result<Device, EngineError>>,
    lost: &mut Vec<LostGpu>,
) -> Result<Vec<Device>, EngineError> {
    let (mut devices, mut first) = (Vec::new(), None);
    for (device, loaded) in found.iter().zip(loaded) {
        match loaded {
            Ok(device) => devices.push(device),
            Err(error @ EngineError::PlanRefused { .. }) => return Err(error),
            Err(error) => {
                lost.push(LostGpu { index: device.index, reason: error.to_string() });
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if devices.is_empty() => Err(error),
        _ => Ok(devices),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn work_for_each_gpu_is_done_at_the_same_time() {
        // A barrier lets nobody pass before all have come.
        let (gpus, all) = ([0, 1, 2], Barrier::new(3));
        let numbers = side_by_side(&gpus, |gpu| {
            all.wait();
            gpu * 10
        });
        assert_eq!(numbers, [0, 10, 20]);
    }
}
