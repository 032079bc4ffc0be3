//! Lexical weights of questions without a run of the model, from a table of the model's own, or
//! from the scores of the tokenizer's vocabulary.

use super::chunking::TextsToRun;
use super::{EmbedError, EmbedOptions, InputType, Lexical};
use model::package::manifest::Manifest;
use model::tokenize::{TextTokenizer, Tokenized};
use vectors::{ItemRows, sparse};

/// Where the lexical weights of texts for this use come from. Refuses weights for which there is no
/// table. Scores of a tokenizer fit the head that weighs a text's own tokens.
pub(crate) fn source(
    manifest: &Manifest,
    tokenizer: &TextTokenizer,
    options: &EmbedOptions,
) -> Result<Lexical, EmbedError> {
    let has_scores = || manifest.words().is_none() && tokenizer.surprisal(0).is_some();
    match options.lexical {
        Lexical::Head => Ok(Lexical::Head),
        Lexical::Table if manifest.has_question_table() || has_scores() => Ok(Lexical::Table),
        Lexical::Table => Err(EmbedError::NoScores),
        Lexical::Model => {
            let is_question = options.input_type == InputType::Query;
            let has_table = manifest.has_question_table();
            Ok(if is_question && has_table { Lexical::Table } else { Lexical::Head })
        }
    }
}

/// What stands in the place of the rows of a run.
pub(crate) fn rows(tokenizer: &TextTokenizer, texts: &TextsToRun) -> Vec<ItemRows> {
    texts.run.iter().map(|text| row(tokenizer, text)).collect()
}

/// A weight for each token. Those in front of the text, which are of the prompt, weigh nothing.
pub(super) fn row(tokenizer: &TextTokenizer, text: &Tokenized) -> ItemRows {
    let surprisal = |id| tokenizer.surprisal(id).unwrap_or_default();
    let own = text.ids.split_at(text.ids.len().min(1 + text.prompt_tokens)).1;
    let mut weights = vec![0.0; text.ids.len() - own.len()];
    match tokenizer.question_table() {
        Some(table) => {
            let weight = |&id: &u32| table.get(id as usize).copied().unwrap_or_default();
            weights.extend(own.iter().map(weight));
        }
        None => weights.extend(sparse::by_surprisal(own, surprisal)),
    }
    ItemRows { weights, ..ItemRows::default() }
}
