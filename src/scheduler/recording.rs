//! What the workers' runs tell `/health` and the metrics.

use std::sync::Arc;
use std::time::Duration;

use super::Scheduler;
use crate::engine::StageTimes;
use crate::metrics::{BatchFigures, Metrics};
use scheduling::batch::{Bucket, TokenIds};

impl Scheduler {
    /// Records batches from now on; only the first call counts.
    pub(crate) fn set_metrics(&self, metrics: Arc<Metrics>) {
        let _ = self.0.metrics.set(metrics);
    }

    /// Records a run of all items of a job, or of a part of them.
    pub(crate) fn record_run(&self, ran: &Ran<'_>) {
        self.0.stages.lock().add(ran.times);
        if let Some(metrics) = self.0.metrics.get() {
            metrics.ran(&ran.figures());
        }
    }
}

/// A run that gave rows.
pub(crate) struct Ran<'a> {
    pub(crate) bucket: Bucket,
    pub(crate) items: &'a [TokenIds],
    pub(crate) times: StageTimes,
    /// Time from the start until the worker had the rows.
    pub(crate) whole: Duration,
}

impl Ran<'_> {
    fn figures(&self) -> BatchFigures {
        let Self { bucket, items, times, whole } = self;
        BatchFigures {
            items: items.len(),
            real_tokens: items.iter().map(|ids| ids.len()).sum(),
            padded_tokens: bucket.tokens(),
            whole: *whole,
            stages: [times.copy_in, times.compute, times.copy_out],
        }
    }
}
