//! One deep check at a time: whoever asks while one runs gets its report.

use std::future::Future;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::health::WorkerCheck;

/// The checks of all workers, once the last one has ended.
type LatestChecks = Option<Vec<WorkerCheck>>;

/// The check that runs, for those who come meanwhile.
#[derive(Debug, Default)]
pub(crate) struct SharedCheck {
    latest: Mutex<Option<watch::Receiver<LatestChecks>>>,
}

impl SharedCheck {
    /// The report of the check that runs, else that of `check`, which begins now. It runs as a task
    /// of its own, so a caller that leaves does not end it for the others. Empty when the runtime
    /// of that task ends, as it does with the process.
    pub(crate) async fn join(
        &self,
        check: impl Future<Output = Vec<WorkerCheck>> + Send + 'static,
    ) -> Vec<WorkerCheck> {
        let mut report = self.running_or(check);
        let ended = report.wait_for(Option::is_some).await;
        ended.map_or_else(|_| Vec::new(), |report| report.clone().unwrap_or_default())
    }

    fn running_or(
        &self,
        check: impl Future<Output = Vec<WorkerCheck>> + Send + 'static,
    ) -> watch::Receiver<LatestChecks> {
        let mut latest = self.latest.lock();
        // A task that has ended has dropped its sender, with or without a report.
        let runs = |report: &watch::Receiver<LatestChecks>| {
            report.has_changed().is_ok() && report.borrow().is_none()
        };
        if let Some(report) = latest.as_ref().filter(|report| runs(report)) {
            return report.clone();
        }
        let (sender, report) = watch::channel(None);
        tokio::spawn(async move { sender.send_replace(Some(check.await)) });
        *latest = Some(report.clone());
        report
    }
}
