//! What a worker gets to run, and what it returns.

use std::sync::Arc;

use super::Scheduler;
use super::ticket::{Pending, RunError, RunSpan};
use crate::engine::BatchOutput;
use clock::Moment;
use scheduling::batch::{Bucket, Place, Priority, TokenIds, Vectors};
use scheduling::state::{Digest, ItemAnswer, Run};
use vectors::ItemRows;
use vectors::dense::is_finite;

/// One item of a request, as it waits or runs. The queue keeps it until its batch has ended, so
/// that its request can be answered when the batch never ends.
#[derive(Debug, Clone)]
pub(super) struct QueuedItem {
    pub ids: TokenIds,
    /// Absent for an item that must not share a run.
    pub(crate) digest: Option<Digest>,
    pub vectors: Vectors,
    /// Its place in the request.
    pub(crate) slot: usize,
    pub pending: Arc<Pending>,
}

#[derive(Debug)]
pub(crate) struct JobItem {
    pub(crate) ids: TokenIds,
    digest: Option<Digest>,
    /// The priority of its job: interactive if the job has an interactive item.
    pub(crate) priority: Priority,
}

/// Both rows of a text that ran.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TextRow {
    pub(crate) rows: ItemRows,
    /// The rows with NaN or infinity.
    pub(crate) lost: Option<Vectors>,
    /// The text was run again, in the rescue precision.
    pub(crate) rescued: bool,
}

pub(crate) type RowOrError = Result<TextRow, RunError>;

/// The batch that a worker runs. The worker owns it. If it is dropped without an end, by a panic
/// for instance, its batch ends and its requests are answered with `NoWorker`.
#[derive(Debug)]
pub(crate) struct Job {
    pub bucket: Bucket,
    /// Its texts, in the order of the batch's rows. Empty once the batch has ended.
    pub items: Vec<JobItem>,
    /// The batch was run in parts.
    pub(crate) in_parts: bool,
    pub(super) started: Moment,
    worker: usize,
    scheduler: Scheduler,
}

impl Job {
    pub(super) fn new(scheduler: Scheduler, worker: usize, run: Run<QueuedItem>) -> Self {
        let Run { bucket, priority, items } = run;
        let item = |(_, QueuedItem { ids, digest, .. })| JobItem { ids, digest, priority };
        let (items, started) = (items.into_iter().map(item).collect(), scheduler.now());
        Self { bucket, items, in_parts: false, started, worker, scheduler }
    }

    /// Hands out the rows of the batch, in the order of its items.
    pub(crate) fn complete(mut self, rows: Vec<RowOrError>) {
        let span = RunSpan { started: self.started, ended: self.scheduler.now() };
        let items = std::mem::take(&mut self.items);
        self.scheduler.keep(&items, &rows);
        let lost = |row: &RowOrError| row.as_ref().map_or(Some(Vectors::Both), |row| row.lost);
        let failed = rows.iter().enumerate().filter_map(|(row, rows)| Some((row, lost(rows)?)));
        let failed: Vec<(usize, Vectors)> = failed.collect();
        let (worker, in_parts) = (self.worker, self.in_parts);
        // The state machine ends the batch before its requests are answered, so that their next
        // requests find an idle worker.
        let answers =
            self.scheduler.step(|state, now| state.complete_batch(now, worker, &failed, in_parts));
        hand_out(rows, answers, span);
    }

    /// Answers the items of a batch that gave no rows.
    pub(crate) fn fail(mut self, reason: &str) {
        self.items.clear();
        self.fail_with(&RunError::EngineFailed(reason.to_owned()));
    }

    fn fail_with(&self, error: &RunError) {
        for answer in self.scheduler.step(|state, _| state.fail_batch(self.worker)) {
            answer.content.pending.fail(error.clone());
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            self.fail_with(&RunError::NoWorker);
        }
    }
}

/// Answers items with their rows or errors.
fn hand_out(mut rows: Vec<RowOrError>, answers: Vec<ItemAnswer<QueuedItem>>, span: RunSpan) {
    let mut left = vec![0_usize; rows.len()];
    answers.iter().for_each(|answer| left[answer.row] += 1);
    for ItemAnswer { row, content, .. } in answers {
        left[row] -= 1;
        // The last item takes the row instead of a copy.
        let row = match left[row] {
            0 => std::mem::replace(&mut rows[row], Err(RunError::NoWorker)),
            _ => rows[row].clone(),
        };
        content.answer(row, span);
    }
}

impl QueuedItem {
    /// Only the rows that its request wants must be finite.
    fn answer(self, row: RowOrError, span: RunSpan) {
        let Self { vectors, slot, pending, .. } = self;
        match row.map(|row| row.wanted(vectors)) {
            Ok(Some(rows)) => pending.finish(slot, rows, Some(span)),
            Ok(None) => pending.fail(RunError::NonFinite { item: slot }),
            Err(error) => pending.fail(error),
        }
    }
}

impl TextRow {
    /// The rows of a text at its place in a batch. Both kinds are copied, whatever its request
    /// wants, since a request for the other kind may have joined during the run.
    pub(crate) fn of(output: &BatchOutput<'_>, place: Place, ids: &TokenIds) -> Self {
        let rows = output.rows_of(place, ids);
        let lost = match (is_finite(&rows.dense), is_finite(&rows.weights)) {
            // Whoever has the text's ids wants them.
            _ if !is_finite(&rows.token_vectors) => Some(Vectors::Both),
            (true, true) => None,
            (false, true) => Some(Vectors::Dense),
            (true, false) => Some(Vectors::Sparse),
            (false, false) => Some(Vectors::Both),
        };
        Self { rows, lost, rescued: false }
    }

    /// The wanted rows; `None` if they have NaN or infinity.
    pub(crate) fn wanted(self, vectors: Vectors) -> Option<ItemRows> {
        let is_lost = self.lost.is_some_and(|lost| lost.overlaps(vectors));
        (!is_lost).then(|| only(self.rows, vectors))
    }
}

/// The rows without those that are not wanted.
pub(super) fn only(rows: ItemRows, wanted: Vectors) -> ItemRows {
    ItemRows {
        dense: if wanted.dense() { rows.dense } else { Vec::new() },
        weights: if wanted.sparse() { rows.weights } else { Vec::new() },
        words: if wanted.sparse() { rows.words } else { Vec::new() },
        token_vectors: rows.token_vectors,
    }
}

impl Scheduler {
    /// Puts the rows into the cache that a later run would give as well, but for those with vectors
    /// of tokens, which would take the place of hundreds of others.
    fn keep(&self, items: &[JobItem], rows: &[RowOrError]) {
        let Some(cache) = &self.0.cache else { return };
        let texts = items.iter().zip(rows).filter(|(item, _)| !item.ids.wants_token_vectors());
        for (item, row) in texts {
            if let (Some(digest), Ok(TextRow { rows, lost: None, rescued: false })) =
                (item.digest, row)
            {
                cache.keep(digest, rows);
            }
        }
    }
}
