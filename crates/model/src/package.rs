//! A model package: one directory, verified whole before anything is loaded from it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf, absolute};

use thiserror::Error;

pub mod canary;
pub mod digest;
pub mod edit;
pub mod manifest;

use manifest::plan::PlanEntry;
use manifest::{FileEntry, Manifest, ManifestError, PromptName};
use settings::{DefaultPrompt, PrecisionChoice};

const MODEL: &str = "model.onnx";

/// Why a directory is not a usable package.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum PackageError {
    #[error(
        "{} is not a package: there is no {}; give the folder of a package, for example with \
         --package or DUOVEC_PACKAGE; in a clone, scripts/serve.sh makes the default one, and with \
         --model NAME or --model FOLDER that of another model",
        absolute(.0).as_ref().unwrap_or(.0).display(),
        if .0.is_dir() { "manifest.json in it" } else { "such folder" }
    )]
    NoManifest(PathBuf),
    #[error("cannot use {}", path.display())]
    Manifest { path: PathBuf, source: ManifestError },
    #[error("{} is missing, the manifest lists it", .0.display())]
    MissingFile(PathBuf),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has {found} bytes, the manifest says {expected}", path.display())]
    WrongSize { path: PathBuf, found: u64, expected: u64 },
    #[error(
        "{} has no graph in 8 bits, which --precision {precision} needs: choose another precision, \
         or add one with scripts/quantize_package.py --precision {precision} --package {}",
        path.display(), path.display()
    )]
    NotQuantized { path: PathBuf, precision: &'static str },
    #[error(
        "{} has no prompt for --default-prompt {prompt}: leave the setting out, or use none",
        path.display()
    )]
    NoPrompt { path: PathBuf, prompt: &'static str },
    #[error("{} has SHA-256 {found}, the manifest says {expected}", path.display())]
    WrongDigest { path: PathBuf, found: String, expected: String },
}

/// One verified directory: every file that the manifest lists is there with its size and digest.
#[derive(Debug, Clone)]
pub struct ModelPackage {
    directory: PathBuf,
    manifest: Manifest,
    /// Name of the graph that is run.
    graph: String,
}

impl ModelPackage {
    /// Reads the manifest and checks every file it lists. Takes about a second for each GB.
    ///
    /// # Errors
    /// The first file that is missing or differs; see [`PackageError`].
    pub fn open(directory: &Path) -> Result<Self, PackageError> {
        Self::read_manifest(directory)?.verified()
    }

    /// The same package, every file of which is there with its size and digest.
    ///
    /// # Errors
    /// The first file that is missing or differs.
    pub fn verified(self) -> Result<Self, PackageError> {
        for (name, entry) in &self.manifest.files {
            self.verify_file(name, entry)?;
        }
        Ok(self)
    }

    /// The same package with other plans in its manifest, which are not verified yet.
    pub fn with_plans(&self, plans: Vec<PlanEntry>) -> Self {
        let manifest = Manifest { plans, ..self.manifest.clone() };
        Self { directory: self.directory.clone(), manifest, graph: self.graph.clone() }
    }

    /// Reads the manifest alone, so that the model's name is known while its files are verified.
    pub fn read_manifest(directory: &Path) -> Result<Self, PackageError> {
        let path = directory.join("manifest.json");
        let json = fs::read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                PackageError::NoManifest(directory.to_owned())
            }
            _ => PackageError::Read { path: path.clone(), source },
        })?;
        let manifest =
            Manifest::parse(&json).map_err(|source| PackageError::Manifest { path, source })?;
        Ok(Self { directory: directory.to_owned(), manifest, graph: MODEL.to_owned() })
    }

    /// The manifest.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The directory itself.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The same package as it runs in this precision: a graph in 8 bits is one of its own, with
    /// tolerances of its own for the canary.
    ///
    /// # Errors
    /// When the package has no such graph.
    pub fn in_precision(mut self, precision: PrecisionChoice) -> Result<Self, PackageError> {
        let quantized = match precision {
            PrecisionChoice::Int8 => &self.manifest.quantized,
            PrecisionChoice::Fp8 => &self.manifest.fp8,
            _ => return Ok(self),
        };
        let Some(quantized) = quantized else {
            let (path, precision) = (self.directory, precision.name());
            return Err(PackageError::NotQuantized { path, precision });
        };
        self.graph = quantized.file.clone();
        self.manifest.canary.tolerances = quantized.tolerances;
        Ok(self)
    }

    /// The same package with the prompt that requests get which ask for none.
    ///
    /// # Errors
    /// When the package has no such prompt.
    pub fn with_default_prompt(mut self, prompt: DefaultPrompt) -> Result<Self, PackageError> {
        let default = match prompt {
            DefaultPrompt::Manifest => return Ok(self),
            DefaultPrompt::None => None,
            DefaultPrompt::Query => Some(PromptName::Query),
            DefaultPrompt::Passage => Some(PromptName::Passage),
        };
        if default.is_some_and(|name| self.manifest.prompts.text(name).is_none()) {
            let (path, prompt) = (self.directory, prompt.name());
            return Err(PackageError::NoPrompt { path, prompt });
        }
        self.manifest.default_prompt = default;
        Ok(self)
    }

    /// The model's own graph, in ONNX.
    pub fn model_path(&self) -> PathBuf {
        self.directory.join(MODEL)
    }

    /// The graph that is run: the model's own, or one in 8 bits.
    pub fn graph_path(&self) -> PathBuf {
        self.directory.join(&self.graph)
    }

    /// Checks one of the files that the manifest lists.
    ///
    /// # Errors
    /// When it is missing or differs.
    pub fn verify_file(&self, name: &str, entry: &FileEntry) -> Result<(), PackageError> {
        verify(&self.directory.join(name), entry)
    }

    /// A plan's bytes, verified. Needs as much memory as the plan has bytes.
    ///
    /// # Errors
    /// When the file is missing or not what the manifest says.
    pub fn read_plan(&self, plan: &PlanEntry) -> Result<Vec<u8>, PackageError> {
        let path = self.directory.join(&plan.file);
        let bytes = fs::read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PackageError::MissingFile(path.clone()),
            _ => PackageError::Read { path: path.clone(), source },
        })?;
        let found = bytes.len() as u64;
        check_size(&path, found, plan.bytes)?;
        check_digest(&path, digest::of_bytes(&bytes), &plan.sha256)?;
        Ok(bytes)
    }

    /// Checks a plan's file without keeping it.
    ///
    /// # Errors
    /// As [`Self::read_plan`].
    pub fn verify_plan(&self, plan: &PlanEntry) -> Result<(), PackageError> {
        let entry = FileEntry { sha256: plan.sha256.clone(), bytes: plan.bytes };
        verify(&self.directory.join(&plan.file), &entry)
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
    check_size(path, file.metadata().map_err(read)?.len(), expected.bytes)?;
    check_digest(path, digest::of_file(&mut file).map_err(read)?, &expected.sha256)
}

fn check_size(path: &Path, found: u64, expected: u64) -> Result<(), PackageError> {
    match found == expected {
        true => Ok(()),
        false => Err(PackageError::WrongSize { path: path.to_owned(), found, expected }),
    }
}

fn check_digest(path: &Path, found: String, expected: &str) -> Result<(), PackageError> {
    if found == expected {
        return Ok(());
    }
    let expected = expected.to_owned();
    Err(PackageError::WrongDigest { path: path.to_owned(), found, expected })
}
