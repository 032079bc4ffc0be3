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
    /// Floats of a token's vector; absent for a model without such vectors.
    #[serde(default)]
    pub token_vector_size: Option<usize>,
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
    /// How many words of a text have weights at most, if these need not be in the text. Absent for
    /// a head that weighs the tokens of a text.
    #[serde(default)]
    pub words: Option<usize>,
    /// The file with the weight of each token in a question, where questions need no run.
    #[serde(default)]
    pub questions: Option<String>,
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
    /// Absent for a model without a sparse head that weighs tokens.
    pub token_weights: Option<FloatType>,
    /// Absent for a model without one that weighs any words; their ids are whole numbers.
    #[serde(default)]
    pub word_weights: Option<FloatType>,
    /// Absent for a model without vectors of tokens; those with them have token weights too.
    #[serde(default)]
    pub token_vectors: Option<FloatType>,
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
    /// Golden vectors of some tokens, with the place of each; empty without such vectors.
    #[serde(default)]
    pub token_vectors: Vec<(usize, Vec<f32>)>,
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
        manifest.check_token_vectors()?;
        manifest.check_files()?;
        manifest.check_canary()?;
        manifest.check_small_vectors()?;
        for (field, part) in [("quantized", &manifest.quantized), ("fp8", &manifest.fp8)] {
            part.iter().try_for_each(|part| part.check(field, &manifest.files))?;
        }
        plan::check(&manifest.plans, manifest.max_input_tokens)?;
        Ok(manifest)
    }

    /// How many words of a text have weights at most, if these need not be in the text.
    pub fn words(&self) -> Option<usize> {
        self.sparse.as_ref()?.words
    }

    /// Whether questions are weighed by a table, so that only documents run.
    pub fn has_question_table(&self) -> bool {
        self.sparse.as_ref().is_some_and(|sparse| sparse.questions.is_some())
    }

    /// Dense vector lengths that may be asked for, ascending; the hidden size is the last. None of
    /// a model without vectors.
    pub fn dimensions(&self) -> Vec<usize> {
        if self.kind != ModelKind::Embedding {
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
        let Outputs { token_weights, word_weights, .. } = self.outputs;
        let outputs = usize::from(token_weights.is_some()) + usize::from(word_weights.is_some());
        require(usize::from(self.sparse.is_some()) == outputs, "sparse", || {
            "`sparse` and one of the outputs `token_weights` and `word_weights` must both be there \
             or both be absent"
                .into()
        })?;
        let words = self.words();
        let are_some = |words: usize| (1..=self.vocab_size).contains(&words);
        let fits = words.is_some() == word_weights.is_some() && words.is_none_or(are_some);
        require(fits, "sparse", || {
            format!("words must be from 1 to {}, with an output `word_weights`", self.vocab_size)
        })?;
        if let Some(name) = self.sparse.iter().find_map(|sparse| sparse.questions.as_ref()) {
            let due = (size_of::<f32>() * self.vocab_size) as u64;
            let is_whole = self.files.get(name).is_some_and(|file| file.bytes == due);
            require(is_whole && words.is_some(), "sparse", || {
                format!("{name} must be a listed file of {due} bytes, of a model with words")
            })?;
        }
        let dropped = self.sparse.iter().flat_map(|sparse| sparse.dropped_token_ids.windows(2));
        require(dropped.into_iter().all(|pair| pair[0] < pair[1]), "sparse", || {
            "dropped_token_ids must ascend".into()
        })
    }

    fn check_token_vectors(&self) -> Result<(), ManifestError> {
        let (size, outputs) = (self.token_vector_size, self.outputs);
        require(size.is_some() == outputs.token_vectors.is_some(), "token_vector_size", || {
            "it and the output `token_vectors` must both be there or both be absent".into()
        })?;
        // The first token has no part in it: without one, a token of the text would be lost.
        let (first, weights) = (self.bos_token_id.is_some(), outputs.token_weights.is_some());
        require(size.is_none_or(|size| size > 0 && first && weights), "token_vector_size", || {
            "it must be above zero, and there must be a bos_token_id and token weights".into()
        })?;
        let Canary { token_ids, token_vectors, .. } = &self.canary;
        let fits = |(place, vector): &(usize, Vec<f32>)| {
            *place < token_ids.len() && Some(vector.len()) == size
        };
        let are_there = size.is_some() != token_vectors.is_empty();
        require(are_there && token_vectors.iter().all(fits), "canary", || {
            "its token vectors do not fit the model".into()
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
mod tests;
