//! What is made of a text: the prompt in front of it, and the choice of numbers.

use super::error::CorpusError;
use super::terms::Terms;
use crate::service::chunking::{ChunkBy, Chunking, Cutter};
use crate::service::{EmbedError, InputType, OverLong, prompt};
use model::package::manifest::{Manifest, ModelKind, PromptName};
use model::tokenize::{Keep, Offsets, TokenizeOptions};
use scheduling::batch::Vectors;
use vectors::small::{self, NumberList, NumberType, Ranges};
use vectors::sparse::Selection;

/// Which vectors are written, and the words of the flag for it.
pub(crate) const VECTORS: [(&str, Vectors); 3] =
    [("dense", Vectors::Dense), ("sparse", Vectors::Sparse), ("both", Vectors::Both)];

/// What dense vectors consist of, and the words of the flag for it.
pub(crate) const DENSE_TYPES: [(&str, NumberType); 6] = [
    ("f32", NumberType::Float),
    ("f16", NumberType::Float16),
    ("int8", NumberType::Int8),
    ("uint8", NumberType::Uint8),
    ("binary", NumberType::Binary),
    ("ubinary", NumberType::Ubinary),
];

#[derive(Debug, Clone, Copy)]
pub(crate) struct CorpusChunks {
    /// Tokens of a chunk, at most.
    pub(crate) tokens: usize,
    /// So many of them are the last ones of the chunk before.
    pub(crate) overlap: usize,
    /// Whether they are pooled out of the run of their whole text.
    pub(crate) late: bool,
}

/// How texts become vectors.
pub(crate) struct Recipe {
    pub(crate) manifest: Manifest,
    pub(crate) vectors: Vectors,
    pub(crate) prompt: Option<PromptName>,
    /// Floats of a dense vector.
    pub(crate) dimensions: usize,
    pub(crate) selection: Selection,
    pub(crate) numbers: NumberType,
    /// How texts are cut into chunks; `None` when they are not.
    pub(crate) chunks: Option<CorpusChunks>,
}

impl Recipe {
    /// The prompt of texts for this use.
    ///
    /// # Errors
    /// When the model has other prompts, or needs none because nothing runs.
    pub(crate) fn prompt(
        manifest: &Manifest,
        input_type: InputType,
    ) -> Result<Option<PromptName>, CorpusError> {
        let problem = if manifest.has_question_table() && input_type == InputType::Query {
            "a table weighs the model's queries, which need no run; ask a server of it".to_owned()
        } else {
            match prompt(manifest, input_type) {
                Ok(prompt) => return Ok(prompt),
                Err(EmbedError::NoPrompt { .. }) => {
                    "the model has no such prompt; use another --input-type".to_owned()
                }
                Err(other) => other.to_string(),
            }
        };
        Err(CorpusError::Options(problem))
    }

    /// # Errors
    /// When the model cannot give what it asks for.
    pub(crate) fn check(&self) -> Result<(), CorpusError> {
        let Self { manifest, vectors, dimensions, numbers, chunks, .. } = self;
        let wrong = |problem: String| Err(CorpusError::Options(problem));
        if vectors.sparse() && manifest.sparse.is_none() {
            return wrong("the model has no lexical weights; use --vectors dense".to_owned());
        }
        if vectors.dense() && manifest.kind == ModelKind::Sparse {
            return wrong("the model has no dense vectors; use --vectors sparse".to_owned());
        }
        if chunks.is_some_and(|chunks| chunks.late) && manifest.kind == ModelKind::Sparse {
            return wrong("the model weighs words by whole texts; leave --late out".to_owned());
        }
        let allowed = manifest.dimensions();
        if vectors.dense() && !allowed.contains(dimensions) {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            return wrong(format!(
                "dimensions {dimensions} is not supported; use {}",
                allowed.join(" or ")
            ));
        }
        if vectors.dense() && numbers.needs_ranges() && self.ranges().is_none() {
            return wrong(format!(
                "the package has no ranges for bytes and bits of vectors of {dimensions} numbers; \
                 use --dense-type f16"
            ));
        }
        Ok(())
    }

    /// Where the numbers of its vectors lie; `None` when the package does not say.
    fn ranges(&self) -> Option<&Ranges> {
        Ranges::of(&self.manifest.small_vectors, self.dimensions)
    }

    /// A dense vector as it is stored, little-endian.
    pub(super) fn bytes(&self, row: &[f32]) -> Vec<u8> {
        small::to_bytes(row, self.numbers, self.ranges())
    }

    /// A dense vector as it is stored, one number after the other.
    pub(super) fn numbers(&self, row: &[f32]) -> NumberList {
        small::to_numbers(row, self.numbers, self.ranges())
    }

    /// Cuts texts into chunks; `None` when they run whole.
    pub(super) fn cutter(&self) -> Option<Cutter> {
        let CorpusChunks { tokens: size, overlap, late } = self.chunks?;
        let by = ChunkBy::Tokens { size, overlap };
        Some(Cutter {
            chunking: Chunking { by, late, of_inputs: false, most: usize::MAX },
            reading: self.reading(),
            vectors: self.vectors,
            over_long: OverLong::Truncate,
            limit: self.manifest.max_input_tokens,
        })
    }

    /// How texts that run whole are tokenized.
    pub(super) const fn reading(&self) -> TokenizeOptions {
        let (prompt, keep, offsets) = (self.prompt, Keep::ModelLimit, Offsets::Skip);
        TokenizeOptions { prompt, keep, offsets }
    }

    /// The text in front of each text; empty for none.
    fn prompt_text(&self) -> &str {
        self.prompt.and_then(|name| self.manifest.prompts.text(name)).unwrap_or_default()
    }

    /// Adds what it decides to `terms`.
    pub(crate) fn complete(&self, terms: Terms) -> Terms {
        let text = |value: Option<String>| value.unwrap_or_else(|| "all".to_owned());
        terms
            .and("prompt", self.prompt_text())
            .and("vectors", word(&VECTORS, self.vectors))
            .and("chunk_tokens", self.chunks.map_or("none".to_owned(), |c| c.tokens.to_string()))
            .and("chunk_overlap", self.chunks.map_or(0, |chunks| chunks.overlap))
            .and("late", self.chunks.is_some_and(|chunks| chunks.late))
            .and("dimensions", self.dimensions)
            .and("dense_type", word(&DENSE_TYPES, self.numbers))
            .and("sparse_top_k", text(self.selection.top_k.map(|most| most.to_string())))
            .and("sparse_min_weight", text(self.selection.min_weight.map(|l| l.to_string())))
    }
}

/// The word of a flag for what is meant.
pub(super) fn word<T: PartialEq>(words: &[(&'static str, T)], meant: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meant).map_or("", |(word, _)| word)
}
