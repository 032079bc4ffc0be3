//! Lexical weights of questions without a run of the model, from the scores of the tokenizer's own
//! vocabulary.

use super::chunking::TextsToRun;
use super::{EmbedError, EmbedOptions, Lexical};
use crate::scheduler::ItemRows;
use model::tokenize::{TextTokenizer, Tokenized};
use vectors::sparse;

/// Refuses a request for weights that the tokenizer has no scores for.
pub(super) fn check(tokenizer: &TextTokenizer, options: &EmbedOptions) -> Result<(), EmbedError> {
    match (options.lexical, tokenizer.surprisal(0)) {
        (Lexical::Table, None) => Err(EmbedError::NoScores),
        _ => Ok(()),
    }
}

/// What stands in the place of the rows of a run: a weight for each token. Those in front of the
/// text, which are of the prompt, weigh nothing.
pub(crate) fn rows(tokenizer: &TextTokenizer, texts: &TextsToRun) -> Vec<ItemRows> {
    let surprisal = |id| tokenizer.surprisal(id).unwrap_or_default();
    let of = |text: &Tokenized| {
        let own = text.ids.split_at(1 + text.prompt_tokens).1;
        let mut weights = vec![0.0; text.ids.len() - own.len()];
        weights.extend(sparse::by_surprisal(own, surprisal));
        ItemRows { weights, ..ItemRows::default() }
    };
    texts.run.iter().map(of).collect()
}
