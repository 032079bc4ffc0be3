//! A window on its way: its texts become ids, ids become batches, batches become vectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::error::CorpusError;
use super::lanes::{Lane, RowsOrReason};
use super::progress::CorpusProgress;
use super::recipe::Recipe;
use super::window::Window;
use crate::batch::TokenIds;
use crate::batch::packing::{PackedBatch, pack};
use crate::config::cores;
use crate::service::{EmbeddedItem, embedded_item};
use crate::tokenize::{TextTokenizer, Tokenized};

/// What became of a row.
pub(super) type RowResult = Result<EmbeddedItem, String>;

/// A window whose batches run.
pub(super) struct Running {
    pub(super) window: Window,
    /// `None` for a row without ids.
    tokens: Vec<Option<Tokenized>>,
    outcomes: Mutex<Vec<Option<RowResult>>>,
    batches_left: AtomicUsize,
}

/// One batch of a window.
pub(super) struct Task {
    running: Arc<Running>,
    /// Rows of the window.
    rows: Vec<usize>,
    padded_tokens: usize,
}

impl Running {
    /// Tokenizes a window on all cores, and packs it. The same window gives the same batches.
    ///
    /// # Errors
    /// When the engine has no shape for a text that the model takes.
    pub(super) fn prepare(
        window: Window,
        tokenizer: &TextTokenizer,
        recipe: &Recipe,
    ) -> Result<(Arc<Self>, Vec<Task>), CorpusError> {
        let (tokens, outcomes): (Vec<_>, Vec<_>) =
            tokenize(&window, tokenizer, recipe).into_iter().map(split).unzip();
        let length = |row: usize| tokens[row].as_ref().map_or(0, |item: &Tokenized| item.ids.len());
        let mut rows: Vec<usize> = (0..tokens.len()).filter(|&row| tokens[row].is_some()).collect();
        // Rows of one length stay in their order.
        rows.sort_by_key(|&row| length(row));
        let lengths: Vec<usize> = rows.iter().map(|&row| length(row)).collect();
        let batches = pack(&lengths, &recipe.buckets, recipe.batch_tokens);
        let batches = batches.ok_or_else(|| {
            CorpusError::Engine("it has no shape for the longest texts".to_owned())
        })?;
        let batches_left = AtomicUsize::new(batches.len());
        let outcomes = Mutex::new(outcomes);
        let running = Arc::new(Self { window, tokens, outcomes, batches_left });
        let task = |batch: PackedBatch| Task {
            running: Arc::clone(&running),
            rows: rows[batch.items].to_vec(),
            padded_tokens: batch.bucket.tokens(),
        };
        let tasks = batches.into_iter().map(task).collect();
        Ok((running, tasks))
    }

    /// What became of each row; once, when all batches have run.
    pub(super) fn take_outcomes(&self) -> Vec<RowResult> {
        let outcomes = std::mem::take(&mut *self.outcomes.lock());
        let lost = || Err("it was not run".to_owned());
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(lost)).collect()
    }
}

/// A row's ids, or what became of it without any.
fn split(tokenized: Result<Tokenized, String>) -> (Option<Tokenized>, Option<RowResult>) {
    match tokenized {
        Ok(item) => (Some(item), None),
        Err(reason) => (None, Some(Err(reason))),
    }
}

impl Task {
    /// Runs the batch; gives the window when this was the last of its batches.
    pub(super) fn run(
        self,
        lane: &mut Lane,
        recipe: &Recipe,
        progress: &CorpusProgress,
    ) -> Result<Option<Arc<Running>>, CorpusError> {
        let Self { running, rows, padded_tokens } = self;
        let tokens =
            |row: &usize| running.tokens[*row].as_ref().expect("only such rows are packed");
        let items: Vec<TokenIds> = rows.iter().map(|row| tokens(row).ids.clone()).collect();
        let ran = lane.run(&items)?;
        let outcome = |(row, rows): (&usize, RowsOrReason)| {
            let (dimensions, selection) = (recipe.dimensions, recipe.selection);
            rows.map(|rows| {
                embedded_item(&recipe.manifest, tokens(row), rows, dimensions, selection)
            })
        };
        let outcomes: Vec<RowResult> = rows.iter().zip(ran).map(outcome).collect();
        let mut all = running.outcomes.lock();
        for (&row, outcome) in rows.iter().zip(outcomes) {
            all[row] = Some(outcome);
        }
        drop(all);
        let real_tokens = items.iter().map(|ids| ids.len()).sum();
        let part = rows.len() as f64 / running.window.rows.len() as f64;
        let span = (running.window.span.end - running.window.span.start) as f64;
        progress.ran(rows.len(), real_tokens, padded_tokens, part * span);
        let last = running.batches_left.fetch_sub(1, Ordering::AcqRel) == 1;
        Ok(last.then_some(running))
    }
}

/// Token ids of every row, or why it has none.
fn tokenize(
    window: &Window,
    tokenizer: &TextTokenizer,
    recipe: &Recipe,
) -> Vec<Result<Tokenized, String>> {
    let share = window.rows.len().div_ceil(cores()).max(1);
    let one = |text: &Result<String, String>| {
        let text = text.as_ref().map_err(Clone::clone)?;
        let tokenized = tokenizer.tokenize(text, recipe.prompt, &|| true);
        tokenized.map_err(|error| error.to_string())
    };
    thread::scope(|scope| {
        let parts = window.rows.chunks(share).map(|rows| {
            scope.spawn(move || rows.iter().map(|row| one(&row.text)).collect::<Vec<_>>())
        });
        let parts: Vec<_> = parts.collect();
        let lost = |_| Vec::new();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(lost)).collect()
    })
}
