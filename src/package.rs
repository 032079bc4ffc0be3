//! A model package: one directory, verified whole before anything is loaded from it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

pub mod canary;
pub mod edit;
pub mod manifest;

use manifest::{FileEntry, Manifest, ManifestError};

/// Bytes read at once while a digest is made.
const READ_BUFFER_BYTES: usize = 1 << 20;

/// Why a directory is not a usable package.
#[derive(Debug, Error)]
pub enum PackageError {
    #[error("{} is not a package: there is no manifest.json in it", .0.display())]
    NoManifest(PathBuf),
    #[error("cannot use {}", path.display())]
    Manifest { path: PathBuf, source: ManifestError },
    #[error("{} is missing, the manifest lists it", .0.display())]
    MissingFile(PathBuf),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has {found} bytes, the manifest says {expected}", path.display())]
    WrongSize { path: PathBuf, found: u64, expected: u64 },
    #[error("{} has SHA-256 {found}, the manifest says {expected}", path.display())]
    WrongDigest { path: PathBuf, found: String, expected: String },
}

/// One verified directory: every file that the manifest lists is there with its size and digest.
#[derive(Debug, Clone)]
pub struct ModelPackage {
    directory: PathBuf,
    manifest: Manifest,
}

impl ModelPackage {
    /// Reads the manifest and checks every file it lists. Takes about a second for each GB.
    ///
    /// # Errors
    /// The first file that is missing or differs; see [`PackageError`].
    pub fn open(directory: &Path) -> Result<Self, PackageError> {
        let package = Self::read_manifest(directory)?;
        for (name, entry) in &package.manifest.files {
            verify(&package.directory.join(name), entry)?;
        }
        Ok(package)
    }

    /// Reads the manifest alone, so that the model's name is known while its files are verified.
    pub fn read_manifest(directory: &Path) -> Result<Self, PackageError> {
        let path = directory.join("manifest.json");
        let json = fs::read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PackageError::NoManifest(directory.to_owned()),
            _ => PackageError::Read { path: path.clone(), source },
        })?;
        let manifest =
            Manifest::parse(&json).map_err(|source| PackageError::Manifest { path, source })?;
        Ok(Self { directory: directory.to_owned(), manifest })
    }

    /// What the package says of itself.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The directory itself.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The graph, in ONNX.
    pub fn model_path(&self) -> PathBuf {
        self.directory.join("model.onnx")
    }

    /// The tokenizer, in the `tokenizers` library's JSON.
    pub fn tokenizer_path(&self) -> PathBuf {
        self.directory.join("tokenizer.json")
    }
}

fn verify(path: &Path, expected: &FileEntry) -> Result<(), PackageError> {
    let read = |source| PackageError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => PackageError::MissingFile(path.to_owned()),
        _ => read(source),
    })?;
    let found = file.metadata().map_err(read)?.len();
    if found != expected.bytes {
        return Err(PackageError::WrongSize {
            path: path.to_owned(),
            found,
            expected: expected.bytes,
        });
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        match file.read(&mut buffer).map_err(read)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == expected.sha256 {
        return Ok(());
    }
    Err(PackageError::WrongDigest {
        path: path.to_owned(),
        found,
        expected: expected.sha256.clone(),
    })
}
