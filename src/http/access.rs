//! One line in the log for each request; never texts, keys or vectors.

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::metrics::Metrics;

/// A request under way; logs that the client left when it is dropped unfinished.
pub(super) struct Record<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) metrics: Option<&'a Metrics>,
    pub(super) arrival: Moment,
    pub(super) request_id: &'a str,
    pub(super) route: &'static str,
    pub(super) finished: bool,
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) status: u16,
    pub(super) items: usize,
    pub(super) tokens: u64,
    /// An operator should see it: a fault on a route that is not polled all day.
    pub(super) notable: bool,
}

impl Record<'_> {
    /// The answer is ready to be sent.
    pub(super) fn finish(mut self, outcome: Outcome) {
        self.finished = true;
        let Outcome { status, items, tokens, notable } = outcome;
        let took = self.took();
        if let Some(metrics) = self.metrics {
            metrics.answered(self.route, status, took);
        }
        let (request_id, route, ms) = (self.request_id, self.route, millis(took));
        if notable {
            tracing::info!(request_id, route, status, items, tokens, ms, "request answered");
        } else {
            tracing::debug!(request_id, route, status, items, tokens, ms, "request answered");
        }
    }

    fn took(&self) -> Duration {
        self.clock.now().since(self.arrival)
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.finished {
            if let Some(metrics) = self.metrics {
                metrics.cancelled();
            }
            let (request_id, route, ms) = (self.request_id, self.route, millis(self.took()));
            tracing::debug!(request_id, route, ms, "the client left before its answer");
        }
    }
}
