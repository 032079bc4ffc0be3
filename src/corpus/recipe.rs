//! Everything that a vector depends on: the model, the prompt, the choice of numbers, and how it is
//! run. Two runs of one recipe over one input give the same bytes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::error::CorpusError;
use crate::batch::{Bucket, Vectors};
use crate::engine::EngineInfo;
use crate::package::manifest::{Manifest, PromptName};
use crate::service::{EmbedError, InputType, prompt};
use crate::sparse::Selection;

/// How the floats of dense vectors are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenseFloat {
    F32,
    F16,
}

impl DenseFloat {
    /// The words of the flag.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("f32", Self::F32), ("f16", Self::F16)];
}

/// What is asked for, as far as the model decides whether it can be had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecipeOptions {
    pub(crate) vectors: Vectors,
    pub(crate) input_type: InputType,
    /// `None` is the model's hidden size.
    pub(crate) dimensions: Option<usize>,
    pub(crate) selection: Selection,
    pub(crate) float: DenseFloat,
}

/// How texts become vectors.
pub(crate) struct Recipe {
    pub(crate) manifest: Manifest,
    pub(crate) vectors: Vectors,
    pub(super) prompt: Option<PromptName>,
    pub(super) dimensions: usize,
    pub(super) selection: Selection,
    pub(super) float: DenseFloat,
    pub(super) buckets: Vec<Bucket>,
    /// Padded tokens of a batch, at most.
    pub(super) batch_tokens: usize,
}

impl Recipe {
    /// # Errors
    /// When the model does not give what is asked for.
    pub(crate) fn new(
        manifest: Manifest,
        asked: RecipeOptions,
        buckets: Vec<Bucket>,
        batch_tokens: usize,
    ) -> Result<Self, CorpusError> {
        let RecipeOptions { vectors, input_type, dimensions, selection, float } = asked;
        let wrong = |problem: String| Err(CorpusError::Options(problem));
        if vectors.sparse() && manifest.sparse.is_none() {
            return wrong("the model has no lexical weights; use --vectors dense".to_owned());
        }
        let prompt = match prompt(&manifest, input_type) {
            Ok(prompt) => prompt,
            Err(EmbedError::NoPrompt(_)) => {
                return wrong("the model has no such prompt; use another --input-type".to_owned());
            }
            Err(other) => return wrong(other.to_string()),
        };
        let allowed = manifest.dimensions();
        let dimensions = dimensions.unwrap_or(manifest.hidden_size);
        if !allowed.contains(&dimensions) {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            return wrong(format!(
                "dimensions {dimensions} is not supported; use {}",
                allowed.join(" or ")
            ));
        }
        Ok(Self { manifest, vectors, prompt, dimensions, selection, float, buckets, batch_tokens })
    }

    /// The text in front of each text; empty for none.
    fn prompt_text(&self) -> &str {
        let prompts = &self.manifest.prompts;
        let text = match self.prompt {
            Some(PromptName::Query) => prompts.query.as_deref(),
            Some(PromptName::Passage) => prompts.passage.as_deref(),
            None => None,
        };
        text.unwrap_or_default()
    }

    /// What the output says of itself.
    pub(crate) fn label(&self, engine: &EngineInfo) -> Label {
        let text = |value: Option<String>| value.unwrap_or_else(|| "all".to_owned());
        Label {
            model: self.manifest.model_id.clone(),
            revision: self.manifest.revision.clone(),
            files_sha256: files_digest(&self.manifest),
            prompt: self.prompt_text().to_owned(),
            vectors: match self.vectors {
                Vectors::Dense => "dense",
                Vectors::Sparse => "sparse",
                Vectors::Both => "both",
            }
            .to_owned(),
            dimensions: self.dimensions,
            dense_type: match self.float {
                DenseFloat::F32 => "f32",
                DenseFloat::F16 => "f16",
            }
            .to_owned(),
            sparse_top_k: text(self.selection.top_k.map(|most| most.to_string())),
            sparse_min_weight: text(self.selection.min_weight.map(|least| least.to_string())),
            engine: engine.kind.name().to_owned(),
            precision: engine.precision.clone(),
            batch_tokens: self.batch_tokens,
        }
    }
}

/// What the output says of the vectors in it; an output with another label is another output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) model: String,
    pub(crate) revision: String,
    /// Of the digests of the package's files.
    pub(crate) files_sha256: String,
    /// What is in front of each text.
    pub(crate) prompt: String,
    pub(crate) vectors: String,
    pub(crate) dimensions: usize,
    pub(crate) dense_type: String,
    pub(crate) sparse_top_k: String,
    pub(crate) sparse_min_weight: String,
    pub(crate) engine: String,
    pub(crate) precision: String,
    pub(crate) batch_tokens: usize,
}

fn files_digest(manifest: &Manifest) -> String {
    let mut hash = Sha256::new();
    for (name, entry) in &manifest.files {
        hash.update(format!("{name} {}\n", entry.sha256));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The fields of a flat structure as texts.
pub(super) fn named_values(fields: &impl Serialize) -> Vec<(String, String)> {
    let value = serde_json::to_value(fields).expect("it has names and plain values");
    let Value::Object(fields) = value else { return Vec::new() };
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    fields.into_iter().map(|(name, value)| (name, text(value))).collect()
}
