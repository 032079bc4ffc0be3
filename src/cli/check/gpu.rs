//! The lines of plans, libraries, driver and GPUs.

use crate::engine::cuda::{Cuda, CudaDevice};
use crate::engine::tensorrt::choose::{Target, fitting, misfit, stale, unfit};
use crate::engine::tensorrt::ffi::{Library, Version};
use crate::engine::tensorrt::{NO_GPU, no_plan};
use model::package::ModelPackage;
use model::package::manifest::plan::{PlanEntry, PlanFlavour};
use scheduling::batch::plan::Shapes;
use settings::limits::GPU_BATCH_TOKENS;
use settings::{Config, EngineKind};

use super::{Findings, Verdict};

/// Flavours that this program can run.
const FLAVOURS: &[PlanFlavour] = &[
    #[cfg(feature = "tensorrt")]
    PlanFlavour::TensorRt,
    #[cfg(feature = "tensorrt-rtx")]
    PlanFlavour::TensorRtRtx,
];

pub(super) fn check(config: &Config, package: &ModelPackage, findings: &mut Findings) {
    for plan in &package.manifest().plans {
        check_plan(package, plan, findings);
    }
    let mut libraries = Vec::new();
    for &flavour in FLAVOURS {
        if let Some(version) = check_library(config, flavour, findings) {
            libraries.push((flavour, version));
        }
    }
    for device in check_driver(config, findings) {
        check_device(config, package, &libraries, &device, findings);
    }
}

/// The verdict when it is absent: bad only when it was asked for by name.
fn absent(config: &Config, flavours: &[PlanFlavour]) -> Verdict {
    let named = config.engine.choice.map(EngineKind::name);
    let needed = flavours.iter().any(|flavour| named == Some(flavour.name()));
    if needed { Verdict::Bad } else { Verdict::NotNeeded }
}

fn check_plan(package: &ModelPackage, plan: &PlanEntry, findings: &mut Findings) {
    let subject = format!("plan {}", plan.file);
    let rebuild = format!(
        "build it again with: duovec build-engine {} --flavour {}",
        package.directory().display(),
        plan.flavour
    );
    if let Some(problem) = stale(plan, package.manifest()) {
        return findings.say(Verdict::Bad, &subject, &format!("it {problem}; {rebuild}"));
    }
    let found = match package.verify_plan(plan) {
        Ok(()) => {
            let profiles: Vec<String> = plan.profiles.iter().map(ToString::to_string).collect();
            Ok(format!(
                "{} {}, {}, {} bytes, digest as listed, profiles {}",
                plan.flavour,
                plan.version,
                plan.precision,
                plan.bytes,
                profiles.join(", ")
            ))
        }
        Err(error) => Err(format!("{:#}; {rebuild}", anyhow::Error::from(error))),
    };
    findings.tell(Verdict::Bad, &subject, &found);
}

fn check_library(
    config: &Config,
    flavour: PlanFlavour,
    findings: &mut Findings,
) -> Option<Version> {
    let library = Library::open(flavour.into(), config.engine.tensorrt.library_dir.as_deref());
    let version = library.map(|library| library.version());
    findings.tell(absent(config, &[flavour]), &format!("library {flavour}"), &version);
    version.ok()
}

fn check_driver(config: &Config, findings: &mut Findings) -> Vec<CudaDevice> {
    let verdict = absent(config, FLAVOURS);
    let cuda = match Cuda::open(config.engine.tensorrt.cuda_library_dir.as_deref()) {
        Ok(cuda) => cuda,
        Err(error) => {
            findings.say(verdict, "library cuda", &error.to_string());
            return Vec::new();
        }
    };
    findings.tell(verdict, "library cuda", &cuda.runtime_version());
    match cuda.driver_version() {
        Ok(Some(version)) if cuda.suits_the_driver() => {
            findings.say(Verdict::Well, "driver", &format!("for CUDA up to {version}"));
        }
        Ok(Some(version)) => {
            let text = format!(
                "for CUDA up to {version}, which is older than the runtime: install a newer \
                 driver, or CUDA 12's runtime (libcudart.so.12) when the driver is for that"
            );
            findings.say(verdict, "driver", &text);
        }
        Ok(None) => findings.say(verdict, "driver", "none; a GPU needs NVIDIA's driver"),
        Err(error) => findings.say(verdict, "driver", &error.to_string()),
    }
    match cuda.devices() {
        Ok(devices) => {
            if devices.count() == 0 {
                findings.say(verdict, "device", NO_GPU);
            }
            for (index, error) in devices.sick {
                let used = config.engine.tensorrt.devices.contains(&index);
                let verdict = if used { verdict } else { Verdict::NotNeeded };
                findings.say(verdict, &format!("device {index}"), &error.to_string());
            }
            devices.well
        }
        Err(error) => {
            findings.say(verdict, "device", &error.to_string());
            Vec::new()
        }
    }
}

fn check_device(
    config: &Config,
    package: &ModelPackage,
    libraries: &[(PlanFlavour, Version)],
    device: &CudaDevice,
    findings: &mut Findings,
) {
    const MIB: u64 = 1 << 20;
    let subject = format!("device {}", device.index);
    let used = config.engine.tensorrt.devices.contains(&device.index);
    let what = format!(
        "{}, compute capability {}, {} MiB",
        device.name,
        device.capability,
        device.memory_bytes / MIB
    );
    let mut verdict = Verdict::Well;
    let mut texts = vec![what];
    let length = package.manifest().max_input_tokens;
    let most = config.queue.max_batch_tokens.or_else(|| GPU_BATCH_TOKENS.into_iter().max());
    let shapes = Shapes::on_gpu(length, most.unwrap_or_default());
    for (flavour, version) in libraries {
        let (flavour, version, precision) = (*flavour, *version, config.engine.precision);
        let target = Target { flavour, version, device, precision };
        match fitting(package.manifest(), &target, shapes.prepared()) {
            Ok(plans) => texts.push(format!("runs {}", plans[0].file)),
            Err(refusal) => {
                let never = unfit(&target);
                texts.push(never.unwrap_or_else(|| no_plan(&target, package, &refusal)));
                if used && absent(config, &[flavour]) == Verdict::Bad {
                    verdict = Verdict::Bad;
                }
            }
        }
    }
    findings.say(verdict, &subject, &texts.join("; "));
    check_plans(config, package, libraries, device, findings);
}

/// Says of every plan of an opened library whether it fits the device.
fn check_plans(
    config: &Config,
    package: &ModelPackage,
    libraries: &[(PlanFlavour, Version)],
    device: &CudaDevice,
    findings: &mut Findings,
) {
    for plan in &package.manifest().plans {
        let opened = libraries.iter().find(|(flavour, _)| *flavour == plan.flavour);
        let Some(&(flavour, version)) = opened else { continue };
        let precision = config.engine.precision;
        let target = Target { flavour, version, device, precision };
        let subject = format!("plan {} on device {}", plan.file, device.index);
        match misfit(plan, package.manifest(), &target) {
            None => findings.say(Verdict::Well, &subject, "it fits library and GPU"),
            Some(problem) => {
                findings.say(Verdict::NotNeeded, &subject, &format!("it {problem}"));
            }
        }
    }
}
