//! The kernels that TensorRT-RTX compiled for a plan on one GPU, in a file beside the plan for the
//! next start.
//!
//! The file begins with a key, so that the library never gets kernels of another plan, GPU, driver
//! or release, or of a file that was cut short. Without the file the library compiles all kernels.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fs, io};

use parking_lot::Mutex;

use super::choose::Target;
use crate::engine::cuda::{Cuda, CudaDevice};
use model::package::digest;
use model::package::edit::{kernels_name, write_kernels};
use model::package::manifest::plan::{PlanEntry, PlanFlavour};

/// The first words of every file of kernels.
const HEADER: &str = "duovec kernels 1";
/// Hexadecimal digits of the key's digest in the file name.
const DIGEST_IN_NAME: usize = 16;

pub(super) struct KernelFile {
    directory: PathBuf,
    plan: String,
    /// Digest of the key, for the file's name.
    key_digest: String,
    key: String,
    device: usize,
    /// Digest of the kernels in the file; empty if the file has no usable kernels.
    kept: Mutex<String>,
}

impl KernelFile {
    /// `None` for TensorRT, whose plans have all their kernels.
    pub(super) fn of(
        directory: &Path,
        plan: &PlanEntry,
        target: &Target<'_>,
        cuda: &Cuda,
    ) -> Option<Self> {
        if plan.flavour == PlanFlavour::TensorRt {
            return None;
        }
        let driver = cuda.driver_version().ok().flatten();
        let driver = driver.map_or_else(|| "unknown".to_owned(), |driver| driver.to_string());
        let CudaDevice { name, capability, index, .. } = target.device;
        let key = format!(
            "plan {}, GPU {name} of {capability}, driver for CUDA {driver}, release {}",
            plan.sha256, target.version
        );
        let mut key_digest = digest::of_bytes(key.as_bytes());
        key_digest.truncate(DIGEST_IN_NAME);
        let (directory, plan) = (directory.to_owned(), plan.file.clone());
        let kept = Mutex::new(String::new());
        Some(Self { directory, plan, key_digest, key, device: *index, kept })
    }

    /// The kernels of an earlier start; empty if there are none or the file cannot be used. The log
    /// tells which.
    pub(super) fn read(&self) -> Vec<u8> {
        let path = self.directory.join(self.name());
        let found = match fs::read(&path) {
            Ok(file) => self.parse(&file).map(<[u8]>::to_vec),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("none are kept for this plan, GPU, driver and release".to_owned())
            }
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        };
        let device = self.device;
        match found {
            Ok(kernels) => {
                let bytes = kernels.len();
                tracing::info!(
                    "kernels of GPU {device}: {bytes} bytes of an earlier start are used"
                );
                *self.kept.lock() = digest::of_bytes(&kernels);
                kernels
            }
            Err(reason) => {
                tracing::info!("kernels of GPU {device}: {reason}; they are compiled now");
                Vec::new()
            }
        }
    }

    fn name(&self) -> String {
        kernels_name(&self.plan, &self.key_digest)
    }

    fn parse<'a>(&self, file: &'a [u8]) -> Result<&'a [u8], String> {
        let mut parts = file.splitn(4, |&byte| byte == b'\n');
        let mut part = || parts.next().unwrap_or_default();
        if part() != HEADER.as_bytes() || part() != self.key.as_bytes() {
            return Err(format!("{} is for another plan or machine", self.name()));
        }
        let (sha256, kernels) = (part(), part());
        if digest::of_bytes(kernels).as_bytes() != sha256 {
            return Err(format!("{} is not whole", self.name()));
        }
        Ok(kernels)
    }

    /// Writes the kernels if the file does not have them yet. If the package cannot be written to,
    /// the log says so, and the next start compiles the kernels again.
    pub(super) fn keep(&self, kernels: &[u8]) {
        let sha256 = digest::of_bytes(kernels);
        let mut kept = self.kept.lock();
        if kernels.is_empty() || *kept == sha256 {
            return;
        }
        let mut file = format!("{HEADER}\n{}\n{sha256}\n", self.key).into_bytes();
        file.extend_from_slice(kernels);
        match write_kernels(&self.directory, &self.plan, &self.key_digest, &file) {
            Ok(()) => *kept = sha256,
            Err(error) => {
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(cause, "kernels are not kept for the next start: {error}");
            }
        }
    }
}
