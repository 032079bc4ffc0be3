//! What the workers' runs tell `/health` and the metrics.

use std::sync::Arc;
use std::time::Duration;

use super::{Job, JobItem, Scheduler};
use crate::batch::Bucket;
use crate::engine::StageTimes;
use crate::metrics::{BatchFigures, Metrics};

impl Scheduler {
    /// Records batches from now on; only the first call counts.
    pub(crate) fn set_metrics(&self, metrics: Arc<Metrics>) {
        let _ = self.0.metrics.set(metrics);
    }

    /// Records a run of a job's items in `bucket`: all of them, or a part.
    pub(crate) fn record_run(
        &self,
        job: &Job,
        bucket: Bucket,
        items: &[JobItem],
        times: StageTimes,
    ) {
        self.0.stages.lock().add(times);
        if let Some(metrics) = self.0.metrics.get() {
            let now = self.0.clock.now();
            metrics.ran(&figures(items, bucket, times, now.since(job.started)));
        }
    }
}

fn figures(items: &[JobItem], bucket: Bucket, times: StageTimes, whole: Duration) -> BatchFigures {
    BatchFigures {
        items: items.len(),
        real_tokens: items.iter().map(|item| item.ids().len()).sum(),
        padded_tokens: bucket.tokens(),
        whole,
        stages: [times.copy_in, times.compute, times.copy_out],
    }
}
