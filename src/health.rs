//! The health of the process: its phase, its readiness, and the results of the deep check.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde::Serialize;

pub(crate) mod canary;
pub(crate) mod shared_check;

pub(crate) use crate::scheduler::WorkerCounts;

/// The phase of the process. It only goes forward, from top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The port is bound; the model is being loaded or warmed up.
    Loading,
    /// Requests are taken.
    Ready,
    /// `/health` says 503, so that load balancers turn away. Requests are still taken.
    LameDuck,
    /// No new request is taken. Accepted requests are answered.
    Draining,
    /// The model cannot be run; the process is about to exit.
    Failed,
}

impl Phase {
    const ALL: [Self; 5] =
        [Self::Loading, Self::Ready, Self::LameDuck, Self::Draining, Self::Failed];
}

/// The phase as all threads see it. Every answer reads it, so there is no lock.
#[derive(Debug)]
pub(crate) struct CurrentPhase(AtomicU8);

impl Default for CurrentPhase {
    fn default() -> Self {
        Self(AtomicU8::new(Phase::Loading as u8))
    }
}

impl CurrentPhase {
    pub(crate) fn get(&self) -> Phase {
        Phase::ALL[usize::from(self.0.load(Ordering::Acquire))]
    }

    /// Goes on to `phase`. Does nothing if the process is past it.
    pub(crate) fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::AcqRel);
    }
}

settings::named! {
    /// The one word of `/health`.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Status {
        /// Every worker lives.
        Ok = "ok",
        /// Requests are answered, but not every worker lives, or a GPU is lost.
        Degraded = "degraded",
        /// The model is being loaded or warmed up.
        Loading = "loading",
        /// The process is about to exit.
        Draining = "draining",
        /// No worker can run the model.
        Failed = "failed",
    }
}

impl Status {
    /// A ready process is ok with all workers, degraded with some, and failed with none. It is
    /// failed too while a worker is stuck, since the device may hang.
    pub(crate) const fn of(phase: Phase, workers: WorkerCounts, lost_gpus: usize) -> Self {
        match phase {
            Phase::Loading => Self::Loading,
            Phase::LameDuck | Phase::Draining => Self::Draining,
            Phase::Failed => Self::Failed,
            Phase::Ready if workers.live == 0 || workers.stuck > 0 => Self::Failed,
            Phase::Ready if workers.live < workers.total || lost_gpus > 0 => Self::Degraded,
            Phase::Ready => Self::Ok,
        }
    }

    /// Whether a load balancer should send requests here.
    pub(crate) const fn takes_requests(self) -> bool {
        matches!(self, Self::Ok | Self::Degraded)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkerCheck {
    pub worker: usize,
    pub latency: Duration,
    /// Cosine to the golden dense vector; absent if the run gave no vector.
    pub dense_cosine: Option<f64>,
    /// Whether the sparse weights agree with the golden ones within the manifest's tolerance;
    /// absent if the run gave no weights.
    pub sparse_ok: Option<bool>,
    /// The failing stage and the reason; `None` if the check passed.
    pub failure: Option<CheckFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckFailure {
    /// "queue", "run", "finite", "dense" or "sparse".
    pub stage: &'static str,
    pub reason: String,
}

/// What `/health/deep` tells.
#[derive(Debug, Clone)]
pub struct DeepReport {
    pub(crate) phase: Phase,
    /// One for each configured worker; empty while loading.
    pub(crate) checks: Vec<WorkerCheck>,
}

impl DeepReport {
    /// Whether every worker answered, in time, with the golden numbers.
    pub fn passed(&self) -> bool {
        self.phase == Phase::Ready
            && !self.checks.is_empty()
            && self.checks.iter().all(|check| check.failure.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_follows_phase_and_live_workers() {
        let of = |phase, live| {
            Status::of(phase, WorkerCounts { live, total: 2, ..WorkerCounts::default() }, 0)
        };
        let stuck = WorkerCounts { live: 1, total: 2, stuck: 1, ..WorkerCounts::default() };
        assert_eq!(Status::of(Phase::Ready, stuck, 0), Status::Failed);
        let all = WorkerCounts { live: 2, total: 2, ..WorkerCounts::default() };
        assert_eq!(Status::of(Phase::Ready, all, 1), Status::Degraded);
        assert_eq!(of(Phase::Ready, 2), Status::Ok);
        assert_eq!(of(Phase::Ready, 1), Status::Degraded);
        assert_eq!(of(Phase::Ready, 0), Status::Failed);
        assert_eq!(of(Phase::Loading, 0), Status::Loading);
        assert_eq!(of(Phase::Draining, 2), Status::Draining);
        assert_eq!(of(Phase::LameDuck, 2), Status::Draining);
        assert!(!of(Phase::Draining, 2).takes_requests());
    }

    #[test]
    fn the_phase_goes_only_forward() {
        let current = CurrentPhase::default();
        assert_eq!(current.get(), Phase::Loading);
        for phase in Phase::ALL {
            current.advance(phase);
            current.advance(Phase::Loading);
            assert_eq!(current.get(), phase);
        }
    }

    #[test]
    fn a_deep_report_without_checks_has_not_passed() {
        assert!(!DeepReport { phase: Phase::Ready, checks: vec![] }.passed());
    }
}
