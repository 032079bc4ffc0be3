//! Tells a service manager such as systemd when the server is ready, when it ends, and that its
//! workers live.
//!
//! Without the manager's variables (`NOTIFY_SOCKET`, `WATCHDOG_USEC`) nothing happens.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use crate::service::EmbeddingService;

/// The shortest time between two signs of life; a manager that asks for less gets no more.
const SIGN_MIN: Duration = Duration::from_millis(1);

/// Requests are taken from now on.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The process is about to end.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Sends a sign of life twice in each period that the manager asks for, as long as a worker lives
/// and no worker is stuck. Never resolves.
pub(crate) async fn keep_alive(service: Arc<EmbeddingService>) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    let mut signs = interval((period / 2).max(SIGN_MIN));
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        signs.tick().await;
        if service.workers_live() {
            tell(NotifyState::Watchdog);
        }
    }
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
