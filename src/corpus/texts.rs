//! Rows of texts become rows of vectors.

use serde::Serialize;

use super::destination::{NewPart, Totals};
use super::error::CorpusError;
use super::output::{OutputFormat, PartContent, line};
use super::recipe::Recipe;
use super::terms::Terms;
use super::window::RowWindow;
use super::{Maker, on_all_cores};
use crate::batch::TokenIds;
use crate::scheduler::TextRow;
use crate::service::{Assembly, EmbeddedItem};
use crate::tokenize::{Offsets, TextTokenizer, Tokenized};

/// What became of a row; else why it has no vectors.
pub(super) type RowResult = Result<EmbeddedItem, String>;

/// Makes parts of vectors.
pub(crate) struct TextMaker {
    pub(crate) recipe: Recipe,
    pub(crate) tokenizer: TextTokenizer,
    pub(crate) terms: Terms,
    /// Names of the kept columns.
    pub(crate) kept: Vec<String>,
    pub(crate) format: OutputFormat,
}

/// A window, and the ids of its rows or why a row has none.
pub(crate) struct TokenizedRows {
    window: RowWindow,
    tokens: Vec<Result<Tokenized, String>>,
}

impl Maker for TextMaker {
    type Window = RowWindow;
    type Prepared = TokenizedRows;

    fn prepare(&self, window: RowWindow) -> Result<(TokenizedRows, Vec<TokenIds>), CorpusError> {
        let tokens = on_all_cores(&window.rows, |row| {
            let text = row.text.as_ref().map_err(Clone::clone)?;
            let tokenized = self.tokenizer.tokenize(text, self.recipe.prompt, &|| true);
            tokenized.map_err(|error| error.to_string())
        })?;
        let items = tokens.iter().flatten().map(|item| item.ids.clone()).collect();
        Ok((TokenizedRows { window, tokens }, items))
    }

    fn part<'a>(&'a self, prepared: &'a TokenizedRows, rows: Vec<TextRow>) -> NewPart<'a> {
        let TokenizedRows { window, tokens } = prepared;
        let mut rows = rows.into_iter();
        let outcome = |tokens: &Result<Tokenized, String>| {
            let tokens = tokens.as_ref().map_err(Clone::clone)?;
            self.outcome(tokens, rows.next().expect("each text that ran has a row"))
        };
        let outcomes: Vec<RowResult> = tokens.iter().map(outcome).collect();
        let numbered = window.rows.iter().zip(&outcomes).zip(window.first_row..);
        let reasons: Vec<Reason<'_>> = numbered
            .filter_map(|((row, outcome), number)| {
                let reason = outcome.as_ref().err()?;
                Some(Reason { file: &row.file, number: row.number, row: number, reason })
            })
            .collect();
        let embedded = outcomes.iter().flatten();
        let totals = Totals {
            embedded: embedded.clone().count() as u64,
            rejected: reasons.len() as u64,
            tokens: embedded.map(|item| item.tokens as u64).sum(),
        };
        let reasons = reasons.iter().flat_map(line).collect();
        let write = Box::new(move |path: &std::path::Path| {
            let Self { recipe, terms, kept, .. } = self;
            let part = PartContent { window, outcomes: &outcomes, recipe, terms, kept };
            part.write(self.format, path)
        });
        NewPart { totals, reasons, write }
    }
}

impl TextMaker {
    fn outcome(&self, tokens: &Tokenized, row: TextRow) -> RowResult {
        let Recipe { manifest, vectors, dimensions, selection, .. } = &self.recipe;
        let rows = row.wanted(*vectors).ok_or("the model returned NaN or infinity")?;
        let (dimensions, selection, offsets) = (*dimensions, *selection, Offsets::Skip);
        Ok(Assembly { manifest, dimensions, selection, offsets }.whole(tokens, rows))
    }
}

/// A line of the side file.
#[derive(Serialize)]
struct Reason<'a> {
    file: &'a str,
    /// Of the file, from 1.
    number: u64,
    /// Of the whole input, from 0.
    row: u64,
    reason: &'a str,
}
