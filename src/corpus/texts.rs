//! Rows of texts become rows of vectors.

use serde::Serialize;

use super::destination::NewPart;
use super::error::CorpusError;
use super::job::Totals;
use super::output::{OutputFormat, PartContent, RowResult, line};
use super::recipe::Recipe;
use super::terms::Terms;
use super::window::RowWindow;
use super::{Maker, on_all_cores};
use crate::scheduler::TextRow;
use crate::service::chunking::{Cutter, TextsToRun};
use crate::service::{Assembly, EmbedError, Input};
use model::tokenize::{Offsets, TextTokenizer};
use scheduling::batch::TokenIds;
use vectors::ItemRows;

pub(crate) struct TextMaker {
    pub(crate) recipe: Recipe,
    pub(crate) tokenizer: TextTokenizer,
    pub(crate) terms: Terms,
    /// Names of the kept columns.
    pub(crate) kept: Vec<String>,
    pub(crate) format: OutputFormat,
}

/// A window, and the texts that run for its rows or why a row has none.
pub(crate) struct TokenizedRows {
    window: RowWindow,
    texts: Vec<Result<TextsToRun, String>>,
}

impl Maker for TextMaker {
    const ITEMS: &'static str = "rows";
    type Content = RowWindow;
    type Prepared = TokenizedRows;

    fn prepare(&self, window: RowWindow) -> Result<(TokenizedRows, Vec<TokenIds>), CorpusError> {
        let cutter = self.recipe.cutter();
        let texts = on_all_cores(&window.rows, |row| {
            let text = row.text.as_ref().map_err(Clone::clone)?;
            self.texts(cutter.as_ref(), text)
        })?;
        let items = texts.iter().flatten().flat_map(|texts| &texts.run);
        let items = items.map(|item| item.ids.clone()).collect();
        Ok((TokenizedRows { window, texts }, items))
    }

    fn part<'a>(&'a self, prepared: &'a TokenizedRows, rows: Vec<TextRow>) -> NewPart<'a> {
        let TokenizedRows { window, texts } = prepared;
        let mut rows = rows.into_iter();
        let outcome = |texts: &Result<TextsToRun, String>| {
            let texts = texts.as_ref().map_err(Clone::clone)?;
            self.outcome(texts, rows.by_ref().take(texts.run.len()).collect())
        };
        let outcomes: Vec<RowResult> = texts.iter().map(outcome).collect();
        let numbered = window.rows.iter().zip(&outcomes).zip(window.first_row..);
        let reasons: Vec<Reason<'_>> = numbered
            .filter_map(|((row, outcome), number)| {
                let reason = outcome.as_ref().err()?;
                Some(Reason { file: &row.file, number: row.number, row: number, reason })
            })
            .collect();
        let ran = texts.iter().flatten().flat_map(|texts| &texts.run);
        let totals = Totals {
            embedded: outcomes.iter().flatten().count() as u64,
            rejected: reasons.len() as u64,
            tokens: ran.map(|text| text.ids.len() as u64).sum(),
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
    fn texts(&self, cutter: Option<&Cutter>, text: &str) -> Result<TextsToRun, String> {
        let Some(cutter) = cutter else {
            let reading = self.recipe.reading();
            let whole = self.tokenizer.tokenize_with(text, reading, &|_| true);
            return Ok(TextsToRun::whole(vec![whole.map_err(|error| error.to_string())?]));
        };
        let input = Input::Text(text.into());
        let texts = cutter.cut(&self.tokenizer, (0, &input), &|_| true);
        texts.map_err(|error| match error {
            EmbedError::Chunks { fault, .. } => fault.to_string(),
            other => other.to_string(),
        })
    }

    fn outcome(&self, texts: &TextsToRun, rows: Vec<TextRow>) -> RowResult {
        let Recipe { manifest, vectors, dimensions, selection, .. } = &self.recipe;
        let rows = rows.into_iter().map(|row| row.wanted(*vectors));
        let rows: Option<Vec<ItemRows>> = rows.collect();
        let rows = rows.ok_or("the model returned NaN or infinity")?;
        let (dimensions, selection, offsets) = (*dimensions, *selection, Offsets::Skip);
        let token_vectors = None;
        let assembly = Assembly { manifest, dimensions, selection, offsets, token_vectors };
        let mut items = assembly.items(texts, rows);
        if self.recipe.chunks.is_some_and(|chunks| chunks.late) {
            // A text without tokens has run alone, with the special ones and the prompt.
            for item in &mut items {
                item.tokens = item.chunk.map_or(item.tokens, |chunk| chunk.tokens);
            }
        }
        Ok(items)
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
