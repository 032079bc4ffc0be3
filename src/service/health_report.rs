//! What `/health` tells, in the application's own types.

use std::sync::Arc;
use std::time::Duration;

use super::ResidentModel;
use crate::clock::Moment;
use crate::config::TokenInput;
use crate::health::Status;
use crate::progress::Step;
use crate::scheduler::Snapshot;

/// Everything that `/health` tells.
pub(crate) struct HealthReport {
    pub status: Status,
    /// Absent until the manifest has been read.
    pub model: Option<String>,
    /// Absent until the manifest has been read.
    pub max_input_tokens: Option<usize>,
    pub(crate) uptime: Duration,
    pub(crate) now: Moment,
    /// Absent when nothing is loaded or warmed up any more.
    pub(crate) progress: Option<Step>,
    /// Why the model cannot be run, for the operator; only with `Status::Failed`.
    pub failure: Option<String>,
    /// Absent while loading.
    pub running: Option<RunReport>,
}

/// What the server runs with, and what it measured.
pub(crate) struct RunReport {
    pub(crate) token_input: TokenInput,
    pub resident: Arc<ResidentModel>,
    pub snapshot: Snapshot,
    /// The engine's latest figures; their names carry their units.
    pub engine_figures: Vec<(String, u64)>,
    /// Time since the engine was asked for them.
    pub(crate) engine_figures_age: Duration,
}
