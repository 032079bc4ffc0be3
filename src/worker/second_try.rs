//! What a worker does before it gives up items: a batch that did not fit memory is run in halves, a
//! row that is not finite is run alone in the rescue precision. Each once.

use super::{Worker, batch, catch_panic, run};
use crate::engine::{BatchOutput, EngineError, Session};
use crate::scheduler::{Job, JobItem, RowOrError, RunError, TextRow};

/// Rows of a run, in the order of its items.
pub(super) fn rows(items: &[JobItem], output: &BatchOutput<'_>) -> Vec<RowOrError> {
    items.iter().enumerate().map(|(row, item)| Ok(item.row(output, row))).collect()
}

impl Worker {
    /// Runs the halves of a job, or its only item, once more. The error is the last one; the
    /// session is not used any more after one that it does not survive.
    pub(super) fn run_halves(
        &self,
        session: &mut dyn Session,
        job: &Job,
    ) -> (Vec<RowOrError>, Option<EngineError>) {
        self.scheduler.incidents().batches_split.add(1);
        let half = job.items.len().div_ceil(2);
        let mut all = Vec::with_capacity(job.items.len());
        let mut last: Option<EngineError> = None;
        for items in job.items.chunks(half) {
            let lost = last.clone().filter(|error| !survived(error));
            let longest = items.iter().map(|item| item.ids().len()).max().unwrap_or_default();
            let bucket = self.scheduler.bucket(items.len(), longest);
            match lost.map_or_else(|| run(session, bucket, items), Err) {
                Ok(output) => {
                    let mut rows = rows(items, &output);
                    self.scheduler.record_run(job, bucket, items, output.times);
                    self.rescue(session, items, &mut rows);
                    all.extend(rows);
                }
                Err(error) => {
                    let reason = error.to_string();
                    all.extend(items.iter().map(|_| Err(RunError::EngineFailed(reason.clone()))));
                    last = Some(error);
                }
            }
        }
        (all, last)
    }

    /// Runs items whose rows are not finite in the rescue precision, one by one.
    pub(super) fn rescue(
        &self,
        session: &mut dyn Session,
        items: &[JobItem],
        rows: &mut [RowOrError],
    ) {
        for (item, rows) in items.iter().zip(rows) {
            if !matches!(rows, Ok(row) if row.lost.is_some()) {
                continue;
            }
            self.scheduler.incidents().rows_not_finite.add(1);
            match self.run_rescue(session, item) {
                None => {}
                Some(Ok(rescued)) => {
                    let finite = rescued.lost.is_none();
                    self.scheduler.incidents().rows_rescued.add(u64::from(finite));
                    tracing::warn!(worker = self.index, finite, "a row was run again");
                    *rows = Ok(rescued);
                }
                Some(Err(error)) => {
                    tracing::warn!(worker = self.index, %error, "a row cannot be run again");
                }
            }
        }
    }

    fn run_rescue(
        &self,
        session: &mut dyn Session,
        item: &JobItem,
    ) -> Option<Result<TextRow, EngineError>> {
        let bucket = self.scheduler.bucket(1, item.ids().len());
        let batch = match batch(bucket, std::slice::from_ref(item)) {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let ran = catch_panic(|| session.rescue(&batch).transpose()).transpose()?;
        Some(ran.map(|output| TextRow { rescued: true, ..item.row(&output, 0) }))
    }
}

/// Whether the session may be used after this error.
const fn survived(error: &EngineError) -> bool {
    matches!(error, EngineError::OutOfMemory(_) | EngineError::Transient(_))
}
