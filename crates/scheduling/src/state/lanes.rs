//! Which cores run the next batch.
//!
//! The cores of each NUMA node are halved again and again. Each part is a lane: one worker, whose
//! session has a thread for each core of the lane. Lanes share cores, so a lane starts a batch only
//! while no other one runs on its cores.
//!
//! One rule gives the width of the lane: the cores divided by what runs and waits, rounded down to
//! a power of two. So a text that is alone is done soonest, by all cores, and many texts get a core
//! each, where no thread waits for another. What runs and waits is that of now, or that of the
//! requests of late when it is more: those who follow soon find cores that are free.
//!
//! An example with four cores, hence lanes of widths 1, 2 and 4:
//!
//! | runs | waits | of late | the next batch has |
//! |---|---|---|---|
//! | | one text | 1 | all four cores |
//! | a batch on two cores | one text | 2 | the other two |
//! | | one text | 4 | one core |
//! | | 32 texts | 32 | one core and eight of the texts |
//!
//! A core that is free never waits for others, unless it is kept for a promise: where no lane of
//! that width is free, a narrower one starts, and a wider one where no narrower one lives. Workers
//! of a GPU are lanes of width 1.

use std::ops::Range;
use std::time::Duration;

use super::SchedulerState;
use crate::batch::cost::RunCost;
use clock::Moment;

/// How much the newest request counts among those of late.
const CROWD_WEIGHT: f64 = 0.2;

/// What requests found is forgotten over about this time.
const CROWD_SPAN: Duration = Duration::from_secs(1);

/// Neighbouring cores that run a batch together. One worker belongs to each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Number of its first core.
    pub first: usize,
    /// How many cores it has.
    pub width: usize,
}

impl Lane {
    /// All lanes of these widths, which ascend, on NUMA nodes of so many cores.
    pub fn tree(nodes: &[usize], widths: &[usize]) -> Vec<Self> {
        let mut lanes = Vec::new();
        for &width in widths {
            let mut node_first = 0;
            for &cores in nodes {
                let firsts = (0..cores / width).map(|place| node_first + place * width);
                lanes.extend(firsts.map(|first| Self { first, width }));
                node_first += cores;
            }
        }
        lanes
    }

    /// Workers that share nothing.
    pub fn apart(workers: usize) -> Vec<Self> {
        Self::tree(&[workers], &[1])
    }

    const fn cores(&self) -> Range<usize> {
        self.first..self.first + self.width
    }
}

/// What is known of the lanes of one width.
#[derive(Debug, Clone)]
pub struct Width {
    /// Cores of each lane.
    pub width: usize,
    /// How many lanes have this width.
    pub lanes: usize,
    /// Batches that they have started.
    pub batches: u64,
    /// What their runs cost.
    pub cost: RunCost,
}

/// The lane of each worker, and what is known of lanes of each width.
#[derive(Debug)]
pub(super) struct LaneTree {
    all: Vec<Lane>,
    /// Batches that run on each core. More than one do while a worker is warmed up or checked.
    taken: Vec<usize>,
    /// Ascending.
    pub(super) widths: Vec<Width>,
    /// What ran and waited when a request came, that request included: average of late.
    crowd: f64,
    updated: Moment,
}

impl LaneTree {
    pub(super) fn new(all: Vec<Lane>) -> Self {
        let cores = all.iter().map(|lane| lane.cores().end).max().unwrap_or(1);
        let same = all.chunk_by(|a, b| a.width == b.width);
        let width = |same: &[Lane]| {
            let (width, lanes) = (same[0].width, same.len());
            Width { width, lanes, batches: 0, cost: RunCost::new() }
        };
        let widths = same.map(width).collect();
        Self { taken: vec![0; cores], widths, all, crowd: 0.0, updated: Moment::START }
    }

    pub(super) fn width(&self, worker: usize) -> usize {
        self.all[worker].width
    }

    /// What is known of lanes that are as wide as a worker's.
    pub(super) fn of(&self, worker: usize) -> &Width {
        let same = self.widths.iter().find(|known| known.width == self.width(worker));
        same.expect("each lane has a width")
    }

    pub(super) fn of_mut(&mut self, worker: usize) -> &mut Width {
        let width = self.width(worker);
        let same = self.widths.iter_mut().find(|known| known.width == width);
        same.expect("each lane has a width")
    }

    /// A batch starts on a worker's cores.
    pub(super) fn take(&mut self, worker: usize) {
        self.taken[self.all[worker].cores()].iter_mut().for_each(|batches| *batches += 1);
    }

    /// A batch has ended on a worker's cores.
    pub(super) fn leave(&mut self, worker: usize) {
        self.taken[self.all[worker].cores()].iter_mut().for_each(|batches| *batches -= 1);
    }

    fn is_free(&self, lane: &Lane) -> bool {
        self.taken[lane.cores()].iter().all(|batches| *batches == 0)
    }

    fn crowd(&self, now: Moment) -> f64 {
        let spans = now.since(self.updated).as_secs_f64() / CROWD_SPAN.as_secs_f64();
        self.crowd * (-spans).exp()
    }
}

impl<T: Clone> SchedulerState<T> {
    /// What is known of the lanes of each width, ascending.
    pub fn widths(&self) -> &[Width] {
        &self.lanes.widths
    }

    /// Cost of runs on the narrowest lanes. Batches are planned and answers promised by it.
    pub(super) fn cost(&self) -> &RunCost {
        &self.lanes.widths[0].cost
    }

    /// Live lanes of the narrowest width; at least one, since a lost worker is replaced.
    pub(super) fn narrow_lanes(&self) -> f64 {
        self.narrow_workers().filter(|&worker| self.workers[worker].live).count().max(1) as f64
    }

    /// Workers of the narrowest width.
    pub(super) fn narrow_workers(&self) -> Range<usize> {
        0..self.lanes.widths[0].lanes
    }

    /// A request of so many items comes.
    pub(super) fn note_request(&mut self, now: Moment, items: usize) {
        let found = (self.runs_and_waits() + items).min(self.lanes.taken.len()) as f64;
        let crowd = self.lanes.crowd(now);
        self.lanes.crowd = crowd + CROWD_WEIGHT * (found - crowd);
        self.lanes.updated = now;
    }

    /// Whether the worker may run what waits now.
    pub(super) fn may_start(&self, now: Moment, worker: usize) -> bool {
        let width = |worker| self.lanes.width(worker);
        let open = self.open_lanes(now);
        open.contains(&worker)
            && self.next_lane(now, &open).is_some_and(|next| width(next) == width(worker))
    }

    /// Wakes the worker of the lane that is to run what waits. While a worker is on its way already
    /// none is woken: that one wakes the next one when it leaves something.
    pub(super) fn wake_for_waiting(&mut self, now: Moment) {
        if self.waiting.is_empty() || self.workers.iter().any(|worker| worker.told) {
            return;
        }
        let Some(worker) = self.next_lane(now, &self.open_lanes(now)) else { return };
        let state = &mut self.workers[worker];
        // A worker that does not idle is going to ask by itself.
        if std::mem::take(&mut state.idle) {
            state.told = true;
            self.effects.woken.push(worker);
        }
    }

    /// Whether a worker can start at once.
    pub(super) fn can_start(&self) -> bool {
        let is_ready =
            |worker: usize| self.is_free(worker) && self.workers[worker].checks.is_empty();
        (0..self.workers.len()).any(is_ready)
    }

    /// Tokens of what waits that are the part of a worker's lane in the cores that are free: each
    /// of them then gets its part.
    pub(super) fn share(&self, worker: usize) -> usize {
        let width = self.lanes.width(worker);
        let free = self.lanes.taken.iter().filter(|batches| **batches == 0).count();
        (self.waiting.tokens() * width).div_ceil(free.max(width))
    }

    /// Lanes on which the next batch may run: those that are free. A bulk text that takes too long
    /// for what is promised leaves a narrow one free. Where it cannot, it waits for the end of what
    /// runs; when nothing does, nobody would wake it later, so it has the narrowest.
    fn open_lanes(&self, now: Moment) -> Vec<usize> {
        let all = &self.lanes.all;
        let mut open: Vec<usize> = (0..all.len()).filter(|&lane| self.is_free(lane)).collect();
        if self.is_long_bulk(now) {
            let narrowest = open.first().copied();
            open.retain(|&lane| {
                let cores = all[lane].cores();
                let is_left = |other: usize| !cores.contains(&all[other].first);
                self.narrow_workers().any(|other| self.is_free(other) && is_left(other))
            });
            let runs = self.workers.iter().any(|worker| worker.running.is_some());
            if open.is_empty() && !runs {
                open.extend(narrowest);
            }
        }
        open
    }

    /// The one of the open lanes on which the next batch runs; `None` while there is none for it.
    fn next_lane(&self, now: Moment, open: &[usize]) -> Option<usize> {
        let LaneTree { all, taken, .. } = &self.lanes;
        let crowd = self.lanes.crowd(now).round() as usize;
        let most = taken.len() / self.runs_and_waits().max(crowd).max(1);
        let widths = || open.iter().map(|&worker| all[worker].width);
        let width = widths().filter(|&width| width <= most).max().or_else(|| widths().min())?;
        // The lane in the smallest part of the cores that is free as a whole: larger ones stay.
        let free_around = |worker: usize| {
            let around = all.iter().filter(|lane| lane.cores().contains(&all[worker].first));
            around.filter(|lane| self.lanes.is_free(lane)).count()
        };
        let same = open.iter().copied().filter(|&worker| all[worker].width == width);
        same.min_by_key(|&worker| (!self.workers[worker].idle, free_around(worker)))
    }

    /// Batches that run and items that wait.
    fn runs_and_waits(&self) -> usize {
        self.workers.iter().filter(|worker| worker.runs_items()).count() + self.waiting.len()
    }

    /// Whether a worker lives and none runs on its cores.
    pub(super) fn is_free(&self, worker: usize) -> bool {
        self.workers[worker].live && self.lanes.is_free(&self.lanes.all[worker])
    }
}

#[cfg(test)]
mod tests;
