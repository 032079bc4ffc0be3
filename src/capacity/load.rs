//! The load of a simulation: requests at random times, or those of a trace.

use std::time::Duration;

use fastrand::Rng;

use super::simulation::Request;
use crate::batch::Priority;
use crate::clock::Moment;

/// How many tokens texts have, and how often.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lengths(Vec<(usize, f64)>);

impl Lengths {
    /// Tokens with their weight; `None` without one that has any.
    pub(crate) fn new(weights: Vec<(usize, f64)>) -> Option<Self> {
        let usable = weights.iter().all(|(_, weight)| weight.is_finite() && *weight >= 0.0);
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        (usable && sum > 0.0).then_some(Self(weights))
    }

    /// The same with longer texts cut.
    pub(crate) fn cut(&self, length_max: usize) -> Self {
        Self(self.0.iter().map(|&(tokens, weight)| (tokens.min(length_max), weight)).collect())
    }

    /// Tokens of a text.
    pub(crate) fn draw(&self, random: &mut Rng) -> usize {
        let sum: f64 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut left = random.f64() * sum;
        for &(tokens, weight) in &self.0 {
            left -= weight;
            if left < 0.0 {
                return tokens;
            }
        }
        // Rounding left a little; the last one with a weight is meant.
        let last = self.0.iter().rev().find(|(_, weight)| *weight > 0.0);
        last.map_or(1, |(tokens, _)| *tokens)
    }
}

/// A request of a trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Traced {
    /// Since the trace began.
    pub at: Duration,
    /// Of each text; at least one.
    pub tokens: Vec<usize>,
    /// `None` lets its size decide.
    pub priority: Option<Priority>,
}

/// Requests at random times, which know nothing of each other.
#[derive(Debug, Clone)]
pub(crate) struct RandomLoad {
    /// On average.
    pub requests_per_s: f64,
    /// Of a request.
    pub texts: usize,
    /// Of each text.
    pub lengths: Lengths,
    /// Of all requests.
    pub priority: Option<Priority>,
    /// How long it lasts.
    pub span: Duration,
}

/// Where requests come from.
#[derive(Debug, Clone)]
pub(crate) enum Load {
    /// From many clients.
    Random(RandomLoad),
    /// From a record, by time; at least one.
    Trace(Vec<Traced>),
}

/// A part of a load, quicker than it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portion {
    /// Of the requests.
    pub(super) part: f64,
    /// Times as many in the same time.
    pub(super) speed: f64,
    pub(super) seed: u64,
    /// Of each request.
    pub(super) timeout: Duration,
}

/// A random load is simulated with about so many requests at least, and texts at most: the slowest
/// hundredth of fewer requests says little, and more take long.
const REQUESTS_MIN: f64 = 10_000.0;
const TEXTS_MAX: f64 = 100_000.0;

impl Load {
    /// Requests a second, on average.
    pub(crate) fn requests_per_s(&self) -> f64 {
        match self {
            Self::Random(load) => load.requests_per_s,
            Self::Trace(requests) => {
                let span = self.span().as_secs_f64();
                let gaps = requests.len().saturating_sub(1) as f64;
                // Of one moment there is no rate: as if all came within a second.
                if span > 0.0 { gaps / span } else { requests.len() as f64 }
            }
        }
    }

    /// Texts of a request, on average.
    pub(crate) fn texts(&self) -> f64 {
        match self {
            Self::Random(load) => load.texts as f64,
            Self::Trace(requests) => {
                let texts: usize = requests.iter().map(|request| request.tokens.len()).sum();
                texts as f64 / requests.len().max(1) as f64
            }
        }
    }

    /// Tokens of some of its texts, which are like all of them.
    pub(super) fn sample(&self, seed: u64) -> Vec<usize> {
        match self {
            Self::Random(load) => {
                let mut random = Rng::with_seed(seed);
                (0..REQUESTS_MIN as usize).map(|_| load.lengths.draw(&mut random)).collect()
            }
            Self::Trace(requests) => {
                requests.iter().flat_map(|request| &request.tokens).copied().collect()
            }
        }
    }

    /// How many servers of `all` are simulated, with their part of the load. The others would show
    /// the same, and take time.
    pub(super) fn simulated_servers(&self, all: usize) -> usize {
        /// With so many, the next request nearly always finds one of the least loaded.
        const MOST: usize = 32;
        /// With fewer, the choice among servers would look worse than it is.
        const LEAST: usize = 4;
        let most = match self {
            Self::Random(load) => {
                let of_one = load.requests_per_s / all as f64 * load.texts as f64;
                let affordable = TEXTS_MAX / (of_one * load.span.as_secs_f64());
                (affordable as usize).clamp(LEAST, MOST)
            }
            Self::Trace(_) => MOST,
        };
        all.min(most)
    }

    /// The requests of a portion, by time. Those of a random load last for its span, unless that
    /// would be too few or too many.
    pub(super) fn requests(&self, portion: Portion) -> Vec<(Moment, Request)> {
        let Portion { part, speed, seed, timeout } = portion;
        let mut random = Rng::with_seed(seed);
        match self {
            Self::Random(load) => {
                let rate = load.requests_per_s * part * speed;
                let most = (TEXTS_MAX / load.texts as f64).max(REQUESTS_MIN / 10.0);
                let least = REQUESTS_MIN.min(most);
                let count = (rate * load.span.as_secs_f64()).clamp(least, most) as usize;
                let mut seconds = 0.0;
                let mut next = || {
                    seconds += -(1.0 - random.f64()).ln() / rate;
                    let at = Moment::START + Duration::from_secs_f64(seconds);
                    let tokens = (0..load.texts).map(|_| load.lengths.draw(&mut random)).collect();
                    (at, Request { tokens, priority: load.priority, deadline: at + timeout })
                };
                (0..count).map(|_| next()).collect()
            }
            Self::Trace(requests) => {
                let chosen = requests.iter().filter(|_| part >= 1.0 || random.f64() < part);
                chosen
                    .map(|request| {
                        let at = Moment::START + request.at.div_f64(speed);
                        let Traced { tokens, priority, .. } = request.clone();
                        (at, Request { tokens, priority, deadline: at + timeout })
                    })
                    .collect()
            }
        }
    }

    /// From the first request of a trace to its last; how long a random load lasts.
    fn span(&self) -> Duration {
        match self {
            Self::Random(load) => load.span,
            Self::Trace(requests) => {
                let ends = requests.first().zip(requests.last());
                ends.map_or(Duration::ZERO, |(first, last)| last.at.saturating_sub(first.at))
            }
        }
    }
}
