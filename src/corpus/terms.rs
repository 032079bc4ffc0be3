//! What two runs must have in common to make one output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::engine::EngineInfo;
use model::package::digest;
use model::package::manifest::Manifest;
use settings::{Config, PrecisionChoice};

/// Names and values. The output says them of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Terms(BTreeMap<String, String>);

impl Terms {
    /// What every row of the model depends on. How it is run is among them only where it is named:
    /// the rest is known when the engine is.
    pub(crate) fn of_model(config: &Config, manifest: &Manifest) -> Self {
        let mut files = PieceDigest::default();
        for (name, entry) in &manifest.files {
            files.add(name);
            files.add(&entry.sha256);
        }
        let dropped = manifest.sparse.iter().flat_map(|head| &head.dropped_token_ids);
        let dropped: Vec<String> = dropped.map(ToString::to_string).collect();
        let normalization = config.normalization.or(manifest.tokenizer.normalization);
        // All of them: a text that begins with one of them gets no other.
        let prompts = &manifest.prompts;
        let mut terms = Self::default()
            .and("model", &manifest.model_id)
            .and("prompt_query", prompts.query.as_deref().unwrap_or_default())
            .and("prompt_passage", prompts.passage.as_deref().unwrap_or_default())
            .and("revision", &manifest.revision)
            .and("files_sha256", files.finish())
            .and("max_input_tokens", manifest.max_input_tokens)
            .and("dropped_token_ids", dropped.join(","))
            .and("tokenizer_normalization", normalization.map_or("auto", |way| way.name()))
            .and("escape_special_tokens", config.special_token_text.name())
            .and("rescue_precision", config.engine.rescue.name())
            .and("max_item_bytes", config.http.max_item_bytes);
        if let Some(kind) = config.engine.choice {
            terms = terms.and("engine", kind);
        }
        if config.engine.precision != PrecisionChoice::Auto {
            terms = terms.and("precision", config.engine.precision.name());
        }
        match config.queue.max_batch_tokens {
            Some(tokens) => terms.and("batch_tokens", tokens),
            None => terms,
        }
    }

    /// Also how the model is run.
    pub(crate) fn run_by(self, engine: &EngineInfo, batch_tokens: usize) -> Self {
        let terms = self.and("engine", engine.kind.name()).and("precision", &engine.precision);
        terms.and("batch_tokens", batch_tokens)
    }

    pub(crate) fn and(mut self, name: &str, value: impl ToString) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter()
    }

    /// What of `asked` is something else here, in words; empty when nothing is.
    pub(super) fn differing(&self, asked: &Self) -> String {
        let differ = asked.pairs().filter(|(name, value)| self.0.get(*name) != Some(value));
        let word = |(name, asked): (&String, &String)| {
            let begun = self.0.get(name).map_or("not known", String::as_str);
            format!("its {name} is \"{begun}\", not \"{asked}\"")
        };
        differ.map(word).collect::<Vec<_>>().join(", ")
    }
}

/// A digest of pieces, in which no piece can pass for a part of another one.
#[derive(Default)]
pub(crate) struct PieceDigest(Sha256);

impl PieceDigest {
    pub(crate) fn add(&mut self, piece: impl AsRef<[u8]>) {
        let piece = piece.as_ref();
        self.0.update((piece.len() as u64).to_le_bytes());
        self.0.update(piece);
    }

    /// In hexadecimal.
    pub(crate) fn finish(self) -> String {
        digest::in_hexadecimal(self.0)
    }
}
