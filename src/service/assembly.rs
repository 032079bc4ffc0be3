//! The answer to a request, from the texts that ran and their rows.

use std::ops::Range;

use super::chunking::{RunPart, TextsToRun};
use super::{EmbedOptions, EmbedReply, EmbeddedItem, Milestones, Occurrence};
use model::package::manifest::Manifest;
use model::tokenize::{Offsets, Tokenized};
use vectors::ItemRows;
use vectors::dense;
use vectors::sparse::{self, Selection, SparseVector};
use vectors::tokens::TokenVectors;

/// The answer to a request, from the rows of the texts that ran for it.
pub(crate) fn assemble(
    manifest: &Manifest,
    options: &EmbedOptions,
    texts: &TextsToRun,
    rows: Vec<ItemRows>,
) -> EmbedReply {
    let EmbedOptions { dimensions, selection, offsets, .. } = *options;
    let dimensions = dimensions.unwrap_or(manifest.hidden_size);
    let token_vectors = manifest.token_vector_size.filter(|_| options.token_vectors);
    let assembly = Assembly { manifest, dimensions, selection, offsets, token_vectors };
    let items = assembly.items(texts, rows);
    let prompt_tokens = texts.run.iter().map(|text| text.ids.len() as u64).sum();
    EmbedReply { items, prompt_tokens, milestones: Milestones::default(), cache_use: None }
}

/// How rows become vectors.
pub(crate) struct Assembly<'a> {
    pub(crate) manifest: &'a Manifest,
    /// Floats of a dense vector.
    pub(crate) dimensions: usize,
    pub(crate) selection: Selection,
    pub(crate) offsets: Offsets,
    /// Floats of a token's vector, if those are wanted.
    pub(crate) token_vectors: Option<usize>,
}

impl Assembly<'_> {
    /// What is answered of the texts that ran.
    pub(crate) fn items(&self, texts: &TextsToRun, rows: Vec<ItemRows>) -> Vec<EmbeddedItem> {
        let Some(parts) = &texts.parts else {
            return texts.run.iter().zip(rows).map(|(text, rows)| self.whole(text, rows)).collect();
        };
        let item = |part: &RunPart| self.part(part, &texts.run[part.text], &rows[part.text]);
        parts.iter().map(item).collect()
    }

    fn whole(&self, text: &Tokenized, mut rows: ItemRows) -> EmbeddedItem {
        // The prompt is ours, not the client's, and every text would share its words.
        let start = if text.prompt_tokens == 0 { 0 } else { text.own.start };
        let tokens = start..text.ids.len();
        let sparse = match rows.words.is_empty() {
            true => self.of_tokens(text, tokens, &rows.weights),
            false => self.of_words(&rows),
        };
        let token_vectors = self.token_vectors.map(|size| {
            // The first token stands for the whole text.
            rows.token_vectors.drain(..size * start.max(1));
            TokenVectors::new(size, rows.token_vectors)
        });
        EmbeddedItem {
            token_vectors,
            dense: dense::cut(rows.dense, self.dimensions),
            tokens: text.ids.len(),
            truncated_from: text.is_truncated().then_some(text.full_count),
            ..sparse
        }
    }

    /// The vectors of a chunk, which is one of the parts of `text`.
    fn part(&self, part: &RunPart, text: &Tokenized, rows: &ItemRows) -> EmbeddedItem {
        let Some((vector, tokens)) = part.within.clone() else {
            return EmbeddedItem { chunk: part.chunk, ..self.whole(text, rows.clone()) };
        };
        let hidden_size = self.manifest.hidden_size;
        let dense = rows.dense.chunks(hidden_size).nth(vector).unwrap_or_default();
        let own = |size: usize| rows.token_vectors[size * tokens.start..size * tokens.end].to_vec();
        EmbeddedItem {
            token_vectors: self.token_vectors.map(|size| TokenVectors::new(size, own(size))),
            dense: dense::cut(dense.to_vec(), self.dimensions),
            chunk: part.chunk,
            tokens: tokens.len(),
            truncated_from: part.truncated_from,
            ..self.of_tokens(text, tokens, &rows.weights)
        }
    }

    /// The lexical weights of words that the text need not have.
    fn of_words(&self, rows: &ItemRows) -> EmbeddedItem {
        let sparse = sparse::select(&rows.words, &rows.weights, self.dropped(), self.selection);
        EmbeddedItem { sparse, ..EmbeddedItem::default() }
    }

    fn dropped(&self) -> &[u32] {
        self.manifest.sparse.as_ref().map_or(&[][..], |head| &head.dropped_token_ids)
    }

    /// The lexical weights of some tokens of a text, and their places.
    fn of_tokens(&self, text: &Tokenized, tokens: Range<usize>, weights: &[f32]) -> EmbeddedItem {
        let dropped = self.dropped();
        // None, when no weights are wanted.
        let own = weights.get(tokens.clone()).unwrap_or_default();
        let sparse = sparse::select(&text.ids[tokens.clone()], own, dropped, self.selection);
        let occurrences =
            (self.offsets == Offsets::Find).then(|| occurrences(text, tokens, weights, &sparse));
        EmbeddedItem { sparse, occurrences, ..EmbeddedItem::default() }
    }
}

/// The places of those of `tokens` whose ids are in `kept`, in the text's order. `weights` are of
/// all positions of the text, the special tokens and the prompt among them.
fn occurrences(
    text: &Tokenized,
    tokens: Range<usize>,
    weights: &[f32],
    kept: &SparseVector,
) -> Vec<Occurrence> {
    let first = text.own.start;
    let places = tokens.skip_while(|&token| token < first).map_while(|token| {
        let (&weight, &span) = (weights.get(token)?, text.spans.get(token - first)?);
        // A place may have no weight above zero where another place of the same id has one.
        Some(Occurrence { id: text.ids[token], span, weight: weight.max(0.0) })
    });
    places.filter(|place| kept.indices.binary_search(&place.id).is_ok()).collect()
}
