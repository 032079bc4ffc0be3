//! What a worker is given to run, and what it hands back.

use std::sync::Arc;

use super::Scheduler;
use super::state::Event;
use super::ticket::{ItemRows, Pending, RunError, RunSpan};
use crate::batch::plan::Sequence;
use crate::batch::{Bucket, TokenIds, Vectors};
use crate::clock::Moment;
use crate::dense::is_finite;
use crate::engine::BatchOutput;

/// One item of a request, as it waits. The queue keeps it until its batch has ended, so that its
/// request can be answered when the batch never ends.
#[derive(Debug, Clone)]
pub(super) struct QueuedItem {
    pub ids: TokenIds,
    pub vectors: Vectors,
    /// Its place in the request.
    pub(crate) slot: usize,
    pub pending: Arc<Pending>,
}

/// An item that runs. Whoever drops it unanswered answers its request with `NoWorker`.
#[derive(Debug)]
pub(crate) struct JobItem {
    queued: QueuedItem,
    sequence: Sequence,
    answered: bool,
}

/// What a worker is to run. It belongs to the worker: when it is dropped without an end, by a panic
/// for instance, its batch ends and its requests are answered with `NoWorker`.
#[derive(Debug)]
pub(crate) struct Job {
    pub bucket: Bucket,
    /// In the order of the batch's rows. Empty once the batch has ended.
    pub items: Vec<JobItem>,
    pub(super) started: Moment,
    worker: usize,
    scheduler: Scheduler,
}

/// What an item of a job gave.
pub(crate) type RowsOrError = Result<ItemRows, RunError>;

impl Job {
    pub(super) fn new(
        scheduler: Scheduler,
        worker: usize,
        bucket: Bucket,
        items: Vec<(Sequence, QueuedItem)>,
    ) -> Self {
        let item = |(sequence, queued)| JobItem { queued, sequence, answered: false };
        let (items, started) = (items.into_iter().map(item).collect(), scheduler.now());
        Self { bucket, items, started, worker, scheduler }
    }

    /// Hands out the rows of the batch, in the order of its items.
    pub(crate) fn complete(mut self, rows: Vec<RowsOrError>) {
        let span = RunSpan { started: self.started, ended: self.scheduler.now() };
        let bad = self.items.iter().zip(&rows).filter(|(_, rows)| rows.is_err());
        let failed: Vec<Sequence> = bad.map(|(item, _)| item.sequence).collect();
        self.end(&Event::BatchDone { worker: self.worker, failed: &failed });
        for (item, rows) in std::mem::take(&mut self.items).into_iter().zip(rows) {
            item.answer(rows, span);
        }
    }

    /// Answers the items of a batch that gave nothing.
    pub(crate) fn fail(mut self, reason: &str) {
        self.end(&Event::BatchFailed { worker: self.worker });
        for item in std::mem::take(&mut self.items) {
            item.fail(RunError::EngineFailed(reason.to_owned()));
        }
    }

    /// The batch is over before its requests hear of it, so that what they do next finds a worker.
    fn end(&self, event: &Event<'_, QueuedItem>) {
        self.scheduler.handle(event);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            self.end(&Event::BatchFailed { worker: self.worker });
            self.items.clear();
        }
        self.scheduler.notify_if_empty();
    }
}

impl JobItem {
    /// Its token ids.
    pub(crate) const fn ids(&self) -> &TokenIds {
        &self.queued.ids
    }

    /// This item's rows of a run, row `row` of its batch. Those that its request wants must be
    /// finite.
    pub(crate) fn rows(&self, output: &BatchOutput, row: usize) -> RowsOrError {
        let vectors = self.queued.vectors;
        let dense = if vectors.dense() { output.dense_row(row) } else { &[] };
        let tokens = self.ids().len();
        let weights = if vectors.sparse() { output.weights_row(row, tokens) } else { &[] };
        if !is_finite(dense) || !is_finite(weights) {
            return Err(RunError::NonFinite { item: self.queued.slot });
        }
        Ok(ItemRows { dense: dense.to_vec(), weights: weights.to_vec() })
    }

    /// Hands over the rows, of a batch that ran for `span`.
    fn answer(mut self, rows: RowsOrError, span: RunSpan) {
        match rows {
            Ok(rows) => {
                self.queued.pending.finish(self.queued.slot, rows, span);
                self.answered = true;
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(mut self, error: RunError) {
        self.queued.pending.fail(error);
        self.answered = true;
    }
}

impl Drop for JobItem {
    fn drop(&mut self) {
        if !self.answered {
            self.queued.pending.fail(RunError::NoWorker);
        }
    }
}
