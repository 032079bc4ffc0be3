//! The orderly end of `serve`: first `/health` says no, then new requests are refused, then what
//! was accepted is answered.

use std::time::Duration;

use crate::health::Phase;
use crate::service::EmbeddingService;
use clock::Clock;
use settings::Config;

/// A drain under way.
pub(super) struct Drain {
    signal: &'static str,
    delay: Duration,
    timeout: Duration,
}

impl Drain {
    /// A drain that `signal` asked for.
    pub(crate) fn of(config: &Config, signal: &'static str) -> Self {
        Self {
            signal,
            delay: Duration::from_millis(config.drain_delay.get()),
            timeout: Duration::from_millis(config.drain_timeout.get()),
        }
    }

    /// Resolves when everything that was accepted is answered; within delay and timeout. Gives
    /// what is left of the timeout, `None` when it passed with requests unanswered.
    pub(crate) async fn run(
        &self,
        service: &EmbeddingService,
        clock: &dyn Clock,
    ) -> Option<Duration> {
        let delay_ms = self.delay.as_millis();
        if service.phase() == Phase::Ready && delay_ms > 0 {
            // Load balancers ask for health now and then; until they have, requests still come.
            service.leave_rotation();
            tracing::info!(signal = self.signal, delay_ms, "not ready any more");
            tokio::time::sleep(self.delay).await;
        }
        service.begin_drain();
        let begin = clock.now();
        let timeout_ms = self.timeout.as_millis();
        tracing::info!(signal = self.signal, timeout_ms, "draining: answering what was accepted");
        if tokio::time::timeout(self.timeout, service.drained()).await.is_err() {
            service.abandon();
            tracing::warn!("the drain timeout passed with requests unanswered");
            return None;
        }
        Some(self.timeout.saturating_sub(clock.now().since(begin)))
    }
}
