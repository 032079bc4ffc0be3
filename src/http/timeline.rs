//! When the stages of a request with vectors ended.

use std::time::Duration;

use actix_web::http::header::{HeaderName, HeaderValue};

use crate::metrics::Stage;
use crate::service::{CacheUse, Milestones};
use clock::Moment;

/// The header with the stages, in milliseconds.
pub(super) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The header with the tokens as the model gets them.
pub(super) const X_COMPUTE_TOKENS: HeaderName = HeaderName::from_static("x-compute-tokens");

/// Bytes of a `Server-Timing` of a slow request.
const HEADER_BYTES: usize = 192;

/// From the head of a request to the last byte of its answer; each moment is the end of one stage
/// and the start of the next, so that the stages add up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline {
    pub(super) arrival: Moment,
    pub(super) parsed: Moment,
    pub(super) milestones: Milestones,
    pub(super) written: Moment,
    /// Where the rows came from; `None` when none are kept.
    pub(super) cache_use: Option<CacheUse>,
}

impl Timeline {
    /// The ends of the stages, in the order of [`Stage::ALL`].
    const fn ends(&self) -> [Moment; Stage::ALL.len()] {
        let Milestones { tokenized, started, ran, selected } = self.milestones;
        [self.parsed, tokenized, started, ran, selected, self.written]
    }

    /// How long each stage took, in the order of [`Stage::ALL`].
    pub(super) fn stages(&self) -> [Duration; Stage::ALL.len()] {
        let mut start = self.arrival;
        self.ends().map(|end| end.since(std::mem::replace(&mut start, end)))
    }

    /// `parse;dur=0.021, …, total;dur=3.402, cache;desc=hit`. Moments rather than spans are rounded
    /// down to microseconds, so that the parts add up to the total to the last digit.
    pub(super) fn server_timing(&self) -> HeaderValue {
        let mut text = String::with_capacity(HEADER_BYTES);
        let mut start = 0;
        for (stage, end) in Stage::ALL.into_iter().zip(self.ends()) {
            let end = micros(end.since(self.arrival));
            put(&mut text, stage.name(), end.saturating_sub(start));
            text.push_str(", ");
            start = end;
        }
        put(&mut text, "total", start);
        if let Some(cache_use) = self.cache_use {
            text.push_str(", cache;desc=");
            text.push_str(cache_use.name());
        }
        HeaderValue::try_from(text).expect("it is letters, digits and punctuation")
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Appends `name;dur=milliseconds`.
fn put(text: &mut String, name: &str, micros: u64) {
    let mut digits = itoa::Buffer::new();
    text.push_str(name);
    text.push_str(";dur=");
    text.push_str(digits.format(micros / 1000));
    text.push('.');
    // A leading digit keeps the zeros behind it.
    text.push_str(&digits.format(1000 + micros % 1000)[1..]);
}

/// In the unit of headers, answers and the log.
pub(super) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_digits_and_add_up_to_the_total() {
        let ends = [0, 999, 1_000, 1_234_567, 12_345_678_901, 3_600_000_000_000];
        let [parsed, tokenized, started, ran, selected, written] =
            ends.map(|nanos| Moment::from_nanos(7777 + nanos));
        let milestones = Milestones { tokenized, started, ran, selected };
        let (arrival, cache_use) = (Moment::from_nanos(7777), None);
        let timeline = Timeline { arrival, parsed, milestones, written, cache_use };
        assert_eq!(
            timeline.server_timing(),
            "parse;dur=0.000, tokenize;dur=0.000, queue;dur=0.001, compute;dur=1.233, \
             select;dur=12344.444, serialize;dur=3587654.322, total;dur=3600000.000"
        );
    }
}
