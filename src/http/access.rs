//! One line in the log for each request; never texts, keys or vectors.

use crate::clock::{Clock, Moment, RealClock};

/// A request under way; logs that the client left when it is dropped unfinished.
pub(super) struct Record<'a> {
    pub(super) clock: &'a RealClock,
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
        let (request_id, route, ms) = (self.request_id, self.route, self.ms());
        if notable {
            tracing::info!(request_id, route, status, items, tokens, ms, "request answered");
        } else {
            tracing::debug!(request_id, route, status, items, tokens, ms, "request answered");
        }
    }

    fn ms(&self) -> f64 {
        self.clock.now().since(self.arrival).as_secs_f64() * 1000.0
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let (request_id, route, ms) = (self.request_id, self.route, self.ms());
            tracing::debug!(request_id, route, ms, "the client left before its answer");
        }
    }
}
