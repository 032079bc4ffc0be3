//! `manifest.json` of a package: its schema, and the checks that need no other file.

#![allow(missing_docs, reason = "the fields are those of the file")]

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use scheduling::batch::Pooling;
use settings::limits::MaxBatchTokens;

mod kind;
pub mod plan;
mod prompts;
mod quantized;

pub use kind::ModelKind;
use plan::PlanEntry;
pub use prompts::{PromptName, Prompts};
pub use quantized::Quantized;
use settings::Normalization;
use vectors::small::Ranges;

/// The only format this build reads. It is also the version of the graph's inputs and outputs:
/// `docs/decisions/0042-rows-hold-several-texts.md` lists them.
pub const FORMAT_VERSION: u32 = 2;

/// What the script that made the package wrote down about the model.
///
/// Unknown fields are refused at the top level, so that a typo is not a silent default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format_version: u32,
    /// Served name.
    pub model_id: String,
    #[serde(default)]
    pub aliases: Vec<String>,
    pub revision: String,
    pub license: String,
    #[serde(default)]
    pub kind: ModelKind,
    /// Floats of a dense vector.
    pub hidden_size: usize,
    /// Every token id is below it.
    pub vocab_size: usize,
    /// Special tokens included.
    pub max_input_tokens: usize,
    pub pad_token_id: u32,
    /// In front of every text, or null. There is this one or the next one, or both.
    pub bos_token_id: Option<u32>,
    /// Behind every text, or null.
    pub eos_token_id: Option<u32>,
    pub unk_token_id: u32,
    pub pooling: Pooling,
    /// Ascending; shorter prefixes of a dense vector that are vectors of their own.
    #[serde(default)]
    pub matryoshka_dimensions: Vec<usize>,
    #[serde(default)]
    pub prompts: Prompts,
    /// Which prompt a request without `input_type` gets.
    #[serde(default)]
    pub default_prompt: Option<PromptName>,
    #[serde(default)]
    pub tokenizer: TokenizerPart,
    /// Where the values of fields, and `weights`, come from: for people.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    /// Measured by the script, for the choice between fp16 and bf16.
    #[serde(default)]
    pub largest: Option<Largest>,
    /// Absent for a model without a sparse head.
    #[serde(default)]
    pub sparse: Option<SparseHead>,
    pub outputs: Outputs,
    /// For dense vectors of bytes and bits: the ranges of each length that has such vectors.
    #[serde(default)]
    pub small_vectors: Vec<Ranges>,
    /// Name → digest and size, of every other file that is needed.
    pub files: BTreeMap<String, FileEntry>,
    /// Built TensorRT plans; none of them is needed by the CPU engine.
    #[serde(default)]
    pub plans: Vec<PlanEntry>,
    /// The graph in 8 bits for CPUs, if the package has one.
    #[serde(default)]
    pub quantized: Option<Quantized>,
    /// That for GPUs, in floating point.
    #[serde(default)]
    pub fp8: Option<Quantized>,
    pub canary: Canary,
}

/// What `tokenizer.json` does not say about the tokenizer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerPart {
    /// Absent means sentencepiece's.
    #[serde(default)]
    pub normalization: Option<Normalization>,
}

/// What is known of the sparse head.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparseHead {
    /// Ids that never become lexical weights, ascending.
    pub dropped_token_ids: Vec<u32>,
    /// How the head was made, one sentence.
    #[serde(default)]
    pub head: String,
}

/// The largest numbers in each layer of the graph while texts ran through it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Largest {
    pub texts: usize,
    pub scores: Vec<f32>,
    pub feed_forward: Vec<f32>,
    pub values: Vec<f32>,
    pub other: Vec<f32>,
}

/// Types of the graph's outputs.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outputs {
    pub dense: FloatType,
    /// Absent for a model without a sparse head.
    pub token_weights: Option<FloatType>,
}

/// Types that the engines can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FloatType {
    Float32,
    Float16,
}

/// Digest and size of a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub bytes: u64,
}

/// The fixed input of the deep health check and what it must give.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    pub text: String,
    /// The ids to run, special tokens included.
    pub token_ids: Vec<u32>,
    /// Golden dense vector in f32, `hidden_size` floats.
    pub dense: Vec<f32>,
    /// Golden lexical weights, ascending by id; empty without a sparse head.
    #[serde(default)]
    pub sparse: Vec<(u32, f32)>,
    pub tolerances: Tolerances,
    /// For plans of GPUs. Absent in packages of earlier releases, and in those without a graph for
    /// GPUs.
    #[serde(default)]
    pub longest: Option<Longest>,
}

/// Golden numbers of [`long_text`](super::canary::long_text), a text of the greatest length.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Longest {
    /// Of the text.
    pub tokens: usize,
    /// As those of the canary.
    pub dense: Vec<f32>,
    pub sparse: Vec<(u32, f32)>,
}

/// How far an engine in half precision may be from the golden numbers.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerances {
    pub dense_cosine_min: f64,
    pub sparse_max_abs: f32,
}

impl Tolerances {
    fn are_usable(self) -> bool {
        (0.0..=1.0).contains(&self.dense_cosine_min) && self.sparse_max_abs >= 0.0
    }
}

/// What is wrong with a manifest.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("it is not a manifest this build can read")]
    Json(#[from] serde_json::Error),
    #[error(
        "format_version is {0}, this build reads {FORMAT_VERSION}, whose graphs take several texts \
         a row: make the package again, the default one with scripts/serve.sh, another one with \
         scripts/export_onnx.py"
    )]
    FormatVersion(u32),
    #[error("{field}: {problem}")]
    Field { field: &'static str, problem: String },
}

impl Manifest {
    /// Reads and checks a manifest.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        /// Read first: another format may have other fields.
        #[derive(Deserialize)]
        struct FormatOnly {
            format_version: u32,
        }
        let version: FormatOnly = serde_json::from_slice(json)?;
        if version.format_version != FORMAT_VERSION {
            return Err(ManifestError::FormatVersion(version.format_version));
        }
        let manifest: Self = serde_json::from_slice(json)?;
        manifest.check_numbers()?;
        kind::check(&manifest)?;
        manifest.check_sparse()?;
        manifest.check_files()?;
        manifest.check_canary()?;
        manifest.check_small_vectors()?;
        for (field, part) in [("quantized", &manifest.quantized), ("fp8", &manifest.fp8)] {
            part.iter().try_for_each(|part| part.check(field, &manifest.files))?;
        }
        plan::check(&manifest.plans, manifest.max_input_tokens)?;
        Ok(manifest)
    }

    /// Dense vector lengths that may be asked for, ascending; the hidden size is the last. None of
    /// a cross-encoder.
    pub fn dimensions(&self) -> Vec<usize> {
        if self.kind == ModelKind::CrossEncoder {
            return Vec::new();
        }
        let mut dimensions = self.matryoshka_dimensions.clone();
        if dimensions.last() != Some(&self.hidden_size) {
            dimensions.push(self.hidden_size);
        }
        dimensions
    }

    fn check_numbers(&self) -> Result<(), ManifestError> {
        require(!self.model_id.trim().is_empty(), "model_id", || "it is empty".into())?;
        require(self.hidden_size > 0, "hidden_size", || "it is zero".into())?;
        require(self.vocab_size > 0, "vocab_size", || "it is zero".into())?;
        require(self.max_input_tokens >= 3, "max_input_tokens", || {
            "a text needs room for two special tokens and one of its own".into()
        })?;
        let longest = MaxBatchTokens::MAX;
        require(self.max_input_tokens as u64 <= longest, "max_input_tokens", || {
            format!("it is over {longest}, the most tokens that a batch may have")
        })?;
        let around = [self.bos_token_id, self.eos_token_id];
        require(around != [None; 2], "bos/eos_token_id", || {
            "both are null, so that nothing would run for an empty text".into()
        })?;
        let mut ids =
            [self.pad_token_id, self.unk_token_id].into_iter().chain(around.into_iter().flatten());
        require(ids.all(|id| (id as usize) < self.vocab_size), "pad/bos/eos/unk_token_id", || {
            format!("an id is not below vocab_size {}", self.vocab_size)
        })?;
        let ascending = self.matryoshka_dimensions.windows(2).all(|pair| pair[0] < pair[1]);
        let within = self.matryoshka_dimensions.iter().all(|&d| d > 0 && d <= self.hidden_size);
        require(ascending && within, "matryoshka_dimensions", || {
            format!("they must ascend from 1 to at most {}", self.hidden_size)
        })?;
        let prompt = self.default_prompt.is_none_or(|name| self.prompts.text(name).is_some());
        require(prompt, "default_prompt", || "it names a prompt that `prompts` lacks".into())
    }

    fn check_sparse(&self) -> Result<(), ManifestError> {
        require(self.sparse.is_some() == self.outputs.token_weights.is_some(), "sparse", || {
            "`sparse` and the output `token_weights` must both be there or both be absent".into()
        })?;
        let dropped = self.sparse.iter().flat_map(|sparse| sparse.dropped_token_ids.windows(2));
        require(dropped.into_iter().all(|pair| pair[0] < pair[1]), "sparse", || {
            "dropped_token_ids must ascend".into()
        })
    }

    fn check_small_vectors(&self) -> Result<(), ManifestError> {
        let lengths = self.dimensions();
        for Ranges { reach, mean } in &self.small_vectors {
            require(lengths.contains(&mean.len()), "small_vectors", || {
                format!("{} means, and the model has no vectors of this length", mean.len())
            })?;
            let usable = reach.is_normal() && *reach > 0.0 && mean.iter().all(|m| m.is_finite());
            require(usable, "small_vectors", || {
                "the reach must be above zero, and the means must be finite".into()
            })?;
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), ManifestError> {
        for name in ["model.onnx", "tokenizer.json"] {
            require(self.files.contains_key(name), "files", || format!("{name} is not listed"))?;
        }
        for (name, entry) in &self.files {
            require(is_plain_name(name), "files", || format!("'{name}' is not a plain file name"))?;
            require(is_digest(&entry.sha256), "files", || {
                format!("the digest of {name} is not 64 lower-case hexadecimal digits")
            })?;
        }
        Ok(())
    }

    fn check_canary(&self) -> Result<(), ManifestError> {
        let Canary { token_ids, dense, sparse, tolerances, longest, .. } = &self.canary;
        let fits = (1..=self.max_input_tokens).contains(&token_ids.len());
        let known = token_ids.iter().all(|&id| (id as usize) < self.vocab_size);
        require(fits && known, "canary", || "its token ids do not fit the model".into())?;
        require(dense.len() == self.hidden_size, "canary", || {
            format!("{} golden floats, hidden_size is {}", dense.len(), self.hidden_size)
        })?;
        let ascends = |sparse: &[(u32, f32)]| sparse.windows(2).all(|pair| pair[0].0 < pair[1].0);
        require(ascends(sparse), "canary", || "its sparse ids must ascend".into())?;
        if let Some(Longest { tokens, dense, sparse }) = longest {
            let fits = (token_ids.len()..=self.max_input_tokens).contains(tokens);
            let whole = dense.len() == self.hidden_size && ascends(sparse);
            require(fits && whole, "canary/longest", || "it does not fit the model".into())?;
        }
        require(tolerances.are_usable(), "canary", || "its tolerances are not usable".into())
    }
}

/// Whether a file of this name can only lie in the package itself.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\'])
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn require(
    holds: bool,
    field: &'static str,
    problem: impl FnOnce() -> String,
) -> Result<(), ManifestError> {
    if holds { Ok(()) } else { Err(ManifestError::Field { field, problem: problem() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn valid() -> Value {
        let digest = "0".repeat(64);
        json!({
            "format_version": 2, "model_id": "m", "aliases": [], "revision": "r",
            "license": "MIT", "kind": "embedding", "hidden_size": 2, "vocab_size": 10,
            "max_input_tokens": 8, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
            "unk_token_id": 3, "pooling": "mean", "matryoshka_dimensions": [1],
            "prompts": {"query": "q: "}, "default_prompt": "query",
            "sparse": {"dropped_token_ids": [0, 1, 2, 3], "head": "by hand"},
            "outputs": {"dense": "float32", "token_weights": "float16"},
            "small_vectors": [{"reach": 0.5, "mean": [0.1, -0.1]}],
            "files": {"model.onnx": {"sha256": digest, "bytes": 1},
                      "tokenizer.json": {"sha256": digest, "bytes": 1}},
            "plans": [],
            "canary": {"text": "a", "token_ids": [0, 5, 2], "dense": [0.6, 0.8], "longest": null,
                       "sparse": [[5, 0.25]],
                       "tolerances": {"dense_cosine_min": 0.99, "sparse_max_abs": 0.05}}
        })
    }

    fn parse(value: &Value) -> Result<Manifest, ManifestError> {
        Manifest::parse(value.to_string().as_bytes())
    }

    #[test]
    fn one_special_token_is_enough_and_none_is_too_few() {
        let mut manifest = valid();
        manifest["bos_token_id"] = json!(null);
        let one = parse(&manifest).expect("there is one behind a text");
        assert_eq!((one.bos_token_id, one.eos_token_id), (None, Some(2)));
        manifest["eos_token_id"] = json!(null);
        let error = parse(&manifest).expect_err("there is none");
        assert!(error.to_string().contains("bos/eos_token_id"), "{error}");
    }

    #[test]
    fn a_complete_manifest_is_read() {
        let manifest = parse(&valid()).expect("it is complete");
        assert_eq!(manifest.dimensions(), [1, 2]);
        assert_eq!(manifest.outputs.token_weights, Some(FloatType::Float16));
    }

    #[test]
    fn each_wrong_field_is_named() {
        let cases = [
            ("/format_version", json!(1), "format_version is 1"),
            ("/format_version", json!(1), "scripts/export_onnx.py"),
            ("/model_id", json!(" "), "model_id"),
            ("/hidden_size", json!(0), "hidden_size"),
            ("/hidden_size", json!(3), "canary: 2 golden floats"),
            ("/max_input_tokens", json!(2), "max_input_tokens"),
            ("/max_input_tokens", json!(1_048_577), "max_input_tokens"),
            ("/pad_token_id", json!(10), "pad/bos/eos/unk_token_id"),
            ("/matryoshka_dimensions", json!([2, 1]), "matryoshka_dimensions"),
            ("/matryoshka_dimensions", json!([3]), "matryoshka_dimensions"),
            ("/default_prompt", json!("passage"), "default_prompt"),
            ("/kind", json!("cross-encoder"), "kind"),
            ("/kind", json!("classifier"), "not a manifest"),
            ("/sparse", json!(null), "sparse"),
            ("/sparse/dropped_token_ids", json!([2, 1]), "dropped_token_ids must ascend"),
            ("/outputs/dense", json!("int32"), "not a manifest"),
            ("/small_vectors/0/mean", json!([0.1, 0.1, 0.1]), "small_vectors: 3 means"),
            ("/small_vectors/0/reach", json!(0), "small_vectors: the reach"),
            ("/small_vectors/0/mean/0", json!(1e39), "small_vectors: the reach"),
            ("/files", json!({}), "model.onnx is not listed"),
            ("/files/model.onnx/sha256", json!("xyz"), "64 lower-case"),
            ("/canary/token_ids", json!([]), "its token ids"),
            ("/canary/token_ids", json!([10]), "its token ids"),
            ("/canary/sparse", json!([[6, 0.1], [5, 0.1]]), "must ascend"),
            ("/canary/longest", json!({"tokens": 9, "dense": [1.0], "sparse": []}), "longest"),
            ("/canary/tolerances/dense_cosine_min", json!(1.5), "tolerances"),
        ];
        for (pointer, value, expected) in cases {
            let mut manifest = valid();
            *manifest.pointer_mut(pointer).expect("the field is there") = value;
            let message = parse(&manifest).expect_err(pointer).to_string();
            assert!(message.contains(expected), "{pointer}: {message}");
        }
    }

    #[test]
    fn normalization_is_one_of_two_words_or_absent() {
        let said = |part: Value| {
            let mut manifest = valid();
            manifest["tokenizer"] = part;
            parse(&manifest).map(|manifest| manifest.tokenizer.normalization)
        };
        assert!(matches!(said(json!({})), Ok(None)));
        let huggingface = said(json!({"normalization": "huggingface"}));
        assert!(matches!(huggingface, Ok(Some(Normalization::Huggingface))));
        for wrong in [json!({"normalization": "nfkc"}), json!({"normalisation": "huggingface"})] {
            assert!(matches!(said(wrong), Err(ManifestError::Json(_))));
        }
    }

    #[test]
    fn a_graph_in_8_bits_is_a_listed_file_with_usable_tolerances() {
        let scores = json!({"dense": 0.47, "sparse": 0.27});
        for (field, precision) in [("quantized", "int8"), ("fp8", "fp8")] {
            let part = json!({
                "file": "tokenizer.json", "method": "by hand",
                "tolerances": {"dense_cosine_min": 0.99, "sparse_max_abs": 0.1},
                "retrieval": [{"collection": "c", "queries": 5, "f32": scores, precision: scores}]
            });
            let said = |pointer: &str, value: Value| {
                let mut manifest = valid();
                manifest[field] = part.clone();
                if let Some(slot) = manifest[field].pointer_mut(pointer) {
                    *slot = value;
                }
                parse(&manifest).map(|_| ()).map_err(|error| error.to_string())
            };
            assert_eq!(said("/absent", json!(null)), Ok(()));
            let unlisted = said("/file", json!("model.int8.xml")).expect_err("not listed");
            let expected = format!("{field}: its file 'model.int8.xml' is not");
            assert!(unlisted.contains(&expected), "{unlisted}");
            let loose = said("/tolerances/dense_cosine_min", json!(1.5)).expect_err("1.5");
            assert!(loose.contains(&format!("{field}: its tolerances")), "{loose}");
        }
    }

    #[test]
    fn files_outside_the_package_are_refused() {
        for name in ["../model.onnx", "a/b", "/etc/passwd", ".hidden", "a\\b", ""] {
            let mut manifest = valid();
            manifest["files"][name] = json!({"sha256": "0".repeat(64), "bytes": 1});
            assert!(parse(&manifest).is_err(), "{name}");
        }
    }

    #[test]
    fn unknown_and_missing_fields_are_refused() {
        let mut unknown = valid();
        unknown["poolling"] = json!("cls");
        assert!(matches!(parse(&unknown), Err(ManifestError::Json(_))));
        let mut missing = valid();
        missing.as_object_mut().expect("an object").remove("canary");
        assert!(matches!(parse(&missing), Err(ManifestError::Json(_))));
    }
}
