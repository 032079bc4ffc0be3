//! One deep check at a time: whoever asks while one runs gets its report.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::health::WorkerCheck;

/// What a check gives, for any number who wait for it.
type SharedReport = Shared<BoxFuture<'static, Vec<WorkerCheck>>>;

/// The check that runs, for those who come meanwhile: its task and what that gives.
#[derive(Debug, Default)]
pub(crate) struct SharedCheck {
    latest: Mutex<Option<(AbortHandle, SharedReport)>>,
}

impl SharedCheck {
    /// The report of the check that runs, else that of `check`, which begins now. It runs as a task
    /// of its own, so a caller that leaves does not end it for the others. Empty when the runtime
    /// of that task ends, as it does with the process.
    pub(crate) async fn join(
        &self,
        check: impl Future<Output = Vec<WorkerCheck>> + Send + 'static,
    ) -> Vec<WorkerCheck> {
        let begin = || {
            let task = tokio::spawn(check);
            (task.abort_handle(), task.map(Result::unwrap_or_default).boxed().shared())
        };
        let report = {
            let mut latest = self.latest.lock();
            let running = latest.take().filter(|(task, _)| !task.is_finished());
            latest.insert(running.unwrap_or_else(begin)).1.clone()
        };
        report.await
    }
}
