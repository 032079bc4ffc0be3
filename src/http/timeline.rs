//! When the stages of a request with vectors ended.

use std::time::Duration;

use crate::clock::Moment;
use crate::metrics::Stage;
use crate::service::Milestones;

/// From the head of a request to the last byte of its answer; each moment is the end of one stage
/// and the start of the next, so that the stages add up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline {
    pub(super) arrival: Moment,
    pub(super) parsed: Moment,
    pub(super) milestones: Milestones,
    pub(super) written: Moment,
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
}
