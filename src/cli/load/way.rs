//! How an engine is run, that is with which workers, threads and batch size: as they were named, or
//! the best of those that are measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Chosen;
use crate::engine::{Engine, EngineError, EngineKind, Split};
use crate::metrics::{available_memory, memory, waited_for_cores};
use crate::worker::tuning::Workload;
use crate::worker::tuning::choice::{Measured, choose, splits};
use clock::Clock;
use scheduling::batch::plan::Shapes;
use scheduling::state::Lane;
use settings::limits::{
    CPU_BATCH_TOKENS, CPU_WORKLOAD_BATCHES, CPU_WORKLOAD_TOKENS, GPU_BATCH_TOKENS, GPU_WORKERS,
    GPU_WORKLOAD_BATCHES, GPU_WORKLOAD_TOKENS, MaxBatchTokens, ThreadsPerWorker, WIDTH_GAIN_MIN,
    WIDTH_MEMORY_TIMES, WIDTH_TRIES, WIDTH_WAIT_PART, Workers,
};
use settings::{Config, OptimizeFor, node_cores};

/// What is done about settings that nobody named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Measuring {
    /// They are measured, which takes some seconds.
    Measure,
    /// Workers and threads are measured; batches get the default, the same at each start.
    MeasureWorkers,
    /// They get defaults.
    Skip,
}

/// A short text on one lane, while nothing else runs in this process.
#[derive(Debug, Clone, Copy)]
struct Alone {
    time: Duration,
    /// Whether other programs had a part of the lane's cores meanwhile.
    is_disturbed: bool,
}

/// Everything that may be tried; no list is empty.
pub(super) struct Ways {
    splits: Vec<Split>,
    /// Cores of each NUMA node.
    nodes: Vec<usize>,
    /// GPUs that were named, if each gets as many workers as the others.
    gpus: Option<usize>,
    /// Whether the engine is loaded for one split. A plan on a GPU runs any number of sessions.
    is_for_one_split: bool,
    /// Widths of lanes that may be held besides the best split, ascending.
    wider: Vec<usize>,
    budgets: Vec<MaxBatchTokens>,
    workload: Workload,
    goal: OptimizeFor,
}

impl Ways {
    pub(crate) fn of(config: &Config, kind: EngineKind, measuring: Measuring) -> Self {
        let nodes = node_cores();
        let mut ways = Self {
            splits: all_splits(config, kind, nodes.iter().sum()),
            wider: Vec::new(),
            nodes,
            gpus: (kind.is_tensorrt() && config.engine.workers.is_none())
                .then_some(config.engine.tensorrt.devices.len()),
            is_for_one_split: !kind.is_tensorrt(),
            budgets: all_budgets(config, kind),
            workload: if kind.is_tensorrt() {
                Workload { batches: GPU_WORKLOAD_BATCHES.to_vec(), lengths: GPU_WORKLOAD_TOKENS }
            } else {
                Workload { batches: CPU_WORKLOAD_BATCHES.to_vec(), lengths: CPU_WORKLOAD_TOKENS }
            },
            goal: config.engine.optimize_for,
        };
        if measuring == Measuring::Skip {
            ways.splits.truncate(1);
        }
        if ways.goal == OptimizeFor::Both && ways.splits.len() > 1 && !kind.is_tensorrt() {
            ways.hold_all_widths();
        }
        if measuring != Measuring::Measure {
            let default = if kind.is_tensorrt() { ways.largest() } else { MaxBatchTokens::DEFAULT };
            ways.budgets = vec![config.queue.max_batch_tokens.unwrap_or(default)];
        }
        ways
    }

    /// Has lanes of as few cores as there may be workers, and of each power of two above that.
    fn hold_all_widths(&mut self) {
        let most = Workers::MAX as usize;
        let mut widths = (0..).map(|power| 1 << power);
        let fits = |&width: &usize| self.lanes_of(width) <= most;
        let narrowest = widths.find(fits).expect("some width has no lanes");
        self.splits = vec![Split { workers: self.lanes_of(narrowest), threads: narrowest }];
        self.wider = widths.take_while(|&width| self.lanes_of(width) > 0).collect();
    }

    fn lanes_of(&self, width: usize) -> usize {
        Lane::tree(&self.nodes, &[width]).len()
    }

    /// Loads the engine in each way until one is not the best so far, and leaves the best. A later
    /// way that does not run on this machine ends the search: it is not needed.
    ///
    /// `shapes` gives those for a budget. `reason` says why it is this engine.
    pub(crate) fn best(
        &self,
        shapes: impl Fn(MaxBatchTokens) -> Shapes,
        mut open: impl FnMut(Split) -> Result<Box<dyn Engine>, EngineError>,
        reason: String,
        clock: &dyn Clock,
    ) -> Result<Chosen, EngineError> {
        let before = resident();
        let engine = open(self.splits[0])?;
        let taken = resident().saturating_sub(before);
        let splits = self.splits_without(engine.lost_gpus().len());
        let is_settled = splits.len() == 1 && self.budgets.len() == 1 && self.wider.is_empty();
        let widest = shapes(self.largest());
        let measure = |engine: &dyn Engine, split| {
            self.workload.measure(engine, &supported(engine, widest.clone()), split, clock)
        };
        let (engine, measured) = match is_settled {
            true => (engine, Vec::new()),
            false => self.measure(engine, &splits, &mut open, measure)?,
        };
        let best = measured.get(choose(&measured, &self.budgets, self.goal));
        let (split, max_batch_tokens) = match best {
            Some(best) => (best.split, best.budget(&self.budgets)),
            None => (splits[0], self.budgets[0]),
        };
        let shapes = supported(&*engine, shapes(max_batch_tokens));
        let time_alone = |engine: &dyn Engine, width: usize| {
            let (began, waited) = (clock.now(), waited_for_cores());
            let (time, total) = self.workload.alone(engine, &shapes, clock, waited_for_cores)?;
            let waited = total.saturating_sub(waited).as_secs_f64();
            let cores_s = clock.now().since(began).as_secs_f64() * width as f64;
            Ok(Alone { time, is_disturbed: waited > cores_s * WIDTH_WAIT_PART })
        };
        let wider = best.map(|best| self.open_wider(open, best.alone, taken, time_alone));
        let wider = wider.unwrap_or_default();
        let lanes = match self.wider.is_empty() {
            true => Lane::apart(split.workers),
            false => {
                let wider = wider.keys().copied();
                let widths: Vec<usize> = [split.threads].into_iter().chain(wider).collect();
                Lane::tree(&self.nodes, &widths)
            }
        };
        let engine = engine.into();
        Ok(Chosen { engine, wider, lanes, shapes, split, max_batch_tokens, reason, measured })
    }

    /// Measures `engine`, which was opened for the first of `splits`, then the engines of the
    /// others. Gives the engine of the best split, and all that was measured.
    fn measure(
        &self,
        engine: Box<dyn Engine>,
        splits: &[Split],
        mut open: impl FnMut(Split) -> Result<Box<dyn Engine>, EngineError>,
        measure: impl Fn(&dyn Engine, Split) -> Result<Measured, EngineError>,
    ) -> Result<(Box<dyn Engine>, Vec<Measured>), EngineError> {
        let mut measured = vec![measure(&*engine, splits[0])?];
        // That of the way that was measured last, or of all ways.
        let mut loaded = Some(engine);
        for &split in &splits[1..] {
            // One engine is dropped before the next is opened, so the weights are in memory once.
            let kept = loaded.take().filter(|_| !self.is_for_one_split);
            let tried = kept.map_or_else(|| open(split), Ok).and_then(|engine| {
                let one = measure(&*engine, split);
                loaded = Some(engine).filter(|_| one.is_ok() || !self.is_for_one_split);
                one
            });
            match tried {
                Ok(one) => measured.push(one),
                Err(error) => {
                    let Split { workers, threads } = split;
                    tracing::warn!(workers, threads, %error, "a way of running cannot be measured");
                    break;
                }
            }
            if choose(&measured, &self.budgets, self.goal) + 1 < measured.len() {
                break;
            }
        }
        let best = choose(&measured, &self.budgets, self.goal);
        let fits = !self.is_for_one_split || best + 1 == measured.len();
        let engine = match loaded.filter(|_| fits) {
            Some(engine) => engine,
            None => open(measured[best].split)?,
        };
        Ok((engine, measured))
    }

    /// The splits when so many of the GPUs are lost: those that are left get no further workers.
    fn splits_without(&self, lost_gpus: usize) -> Vec<Split> {
        let mut splits = self.splits.clone();
        let lost_of = |workers| self.gpus.map_or(0, |gpus| workers * lost_gpus / gpus);
        splits.iter_mut().for_each(|split| split.workers -= lost_of(split.workers));
        splits
    }

    /// Loads the engine once more for each wider lane that pays beside the widest held one, while
    /// there is memory for it. A width that does not pay is left out: a wider one may pay. One that
    /// was never measured undisturbed is held: left out, it costs a lone text a third of its speed
    /// until the next start. Of the narrowest lanes `alone` is the time of a short text, `taken`
    /// the memory.
    fn open_wider(
        &self,
        mut open: impl FnMut(Split) -> Result<Box<dyn Engine>, EngineError>,
        mut alone: Duration,
        mut taken: u64,
        time_alone: impl Fn(&dyn Engine, usize) -> Result<Alone, EngineError>,
    ) -> BTreeMap<usize, Arc<dyn Engine>> {
        let mut held = BTreeMap::new();
        for &width in &self.wider {
            let available = available_memory().unwrap_or(u64::MAX);
            if available < taken.saturating_mul(WIDTH_MEMORY_TIMES) {
                let available_mib = available >> 20;
                tracing::warn!(width, available_mib, "there is no memory for lanes of this width");
                break;
            }
            let before = resident();
            let split = Split { workers: self.lanes_of(width), threads: width };
            let most = alone.div_f64(WIDTH_GAIN_MIN);
            let opened = open(split).and_then(|engine| {
                let mut best = time_alone(&*engine, width)?;
                // Another program on one of its cores holds up the whole lane.
                for _ in 1..WIDTH_TRIES {
                    if best.time > most {
                        let again = time_alone(&*engine, width)?;
                        best.time = best.time.min(again.time);
                        best.is_disturbed &= again.is_disturbed;
                    }
                }
                Ok((engine, best))
            });
            let (engine, Alone { time, is_disturbed }) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    tracing::warn!(width, %error, "lanes of this width cannot be held");
                    break;
                }
            };
            taken = resident().saturating_sub(before);
            let (more_mib, is_held) = (taken >> 20, time <= most || is_disturbed);
            let short_text_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            tracing::info!(width, short_text_us, more_mib, is_held, "wider lanes were measured");
            if is_held {
                alone = alone.min(time);
                held.insert(width, engine.into());
            }
        }
        held
    }

    pub(crate) fn largest(&self) -> MaxBatchTokens {
        self.budgets.iter().max().copied().unwrap_or_default()
    }
}

/// Those of the shapes that the engine runs.
fn supported(engine: &dyn Engine, shapes: Shapes) -> Shapes {
    shapes.only(|all| engine.supported(all))
}

/// Memory of the process, in bytes.
fn resident() -> u64 {
    memory().unwrap_or_default().resident_bytes
}

fn all_splits(config: &Config, kind: EngineKind, cores: usize) -> Vec<Split> {
    let engine = &config.engine;
    let named = |workers: u64, threads: usize| {
        vec![Split { workers: Workers::new(workers).unwrap_or_default().as_usize(), threads }]
    };
    if kind.is_tensorrt() {
        let devices = engine.tensorrt.devices.len() as u64;
        let each = engine.tensorrt.workers_per_device;
        let each = each.map_or_else(|| GPU_WORKERS.to_vec(), |each| vec![each.get()]);
        let mut all: Vec<u64> =
            each.into_iter().map(|each| (each * devices).min(Workers::MAX)).collect();
        all.dedup();
        let all = engine.workers.map_or(all, |workers| vec![workers.get()]);
        return all.into_iter().flat_map(|workers| named(workers, 0)).collect();
    }
    let most = ThreadsPerWorker::MAX as usize;
    match (engine.workers, engine.threads_per_worker) {
        (None, None) if kind == EngineKind::OpenVino => {
            let possible =
                |split: &Split| split.workers <= Workers::MAX as usize && split.threads <= most;
            splits(cores).into_iter().filter(possible).collect()
        }
        (workers, None) => {
            let workers = workers.unwrap_or_default();
            named(workers.get(), (cores / workers.as_usize()).clamp(1, most))
        }
        (workers, Some(threads)) => named(workers.unwrap_or_default().get(), threads.as_usize()),
    }
}

fn all_budgets(config: &Config, kind: EngineKind) -> Vec<MaxBatchTokens> {
    match (config.queue.max_batch_tokens, kind) {
        (Some(named), _) => vec![named],
        // Its time says nothing of any machine.
        (None, EngineKind::Fake) => vec![MaxBatchTokens::DEFAULT],
        (None, EngineKind::OpenVino) => CPU_BATCH_TOKENS.to_vec(),
        (None, EngineKind::TensorRt | EngineKind::TensorRtRtx) => GPU_BATCH_TOKENS.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::worker::noting::Noting;
    use clock::ManualClock;

    fn fault() -> EngineError {
        EngineError::OutOfMemory("no session fits".to_owned())
    }

    fn ways(cores: usize, budgets: &[MaxBatchTokens]) -> Ways {
        Ways {
            splits: splits(cores),
            nodes: vec![cores],
            gpus: None,
            is_for_one_split: true,
            wider: Vec::new(),
            budgets: budgets.to_vec(),
            workload: Workload {
                batches: CPU_WORKLOAD_BATCHES.to_vec(),
                lengths: CPU_WORKLOAD_TOKENS,
            },
            goal: OptimizeFor::Throughput,
        }
    }

    fn shapes(max_tokens: MaxBatchTokens) -> Shapes {
        Shapes::on_cpu(128, max_tokens)
    }

    #[derive(Clone, Copy)]
    enum Trouble {
        Opening,
        Running,
    }

    /// The splits that were opened, and what is found. The way of this number has trouble whenever
    /// it is tried.
    fn best(
        ways: &Ways,
        failing: Option<(usize, Trouble)>,
    ) -> (Vec<Split>, Result<Chosen, EngineError>) {
        let engine = Noting { run_time: Duration::from_millis(1), ..Noting::new(&Arc::default()) };
        let mut opened = Vec::new();
        let open = |split| -> Result<Box<dyn Engine>, EngineError> {
            // Each engine has a share of the notes.
            assert_eq!(Arc::strong_count(&engine.runs), 1, "weights are there twice");
            let trouble = failing.filter(|(failing, _)| split == ways.splits[*failing]);
            match trouble {
                Some((_, Trouble::Opening)) => return Err(fault()),
                Some((_, Trouble::Running)) => {
                    return Ok(Box::new(Noting { memory_tokens: 0, ..engine.clone() }));
                }
                None => opened.push(split),
            }
            Ok(Box::new(engine.clone()))
        };
        let found = ways.best(shapes, open, String::new(), &*engine.clock);
        (opened, found)
    }

    #[test]
    fn a_later_way_that_fails_leaves_the_best_of_those_that_ran() {
        for trouble in [Trouble::Opening, Trouble::Running] {
            let (_, found) = best(&ways(4, &CPU_BATCH_TOKENS), Some((1, trouble)));
            let found = found.expect("the first way runs");
            assert_eq!(found.split, splits(4)[0]);
            assert_eq!(found.measured.len(), 1);
            let session = found.engine.open_session(found.shapes.prepared());
            assert!(session.is_ok(), "it is the engine of that way");
        }
    }

    #[test]
    fn the_workers_of_a_gpu_are_measured_on_one_plan() {
        // Runs of this engine take place one after the other: two workers leave less to wait for.
        let mut ways = ways(4, &CPU_BATCH_TOKENS);
        ways.splits = GPU_WORKERS.map(|of| Split { workers: of as usize, threads: 0 }).to_vec();
        (ways.is_for_one_split, ways.goal) = (false, OptimizeFor::Both);
        let clock = Arc::new(ManualClock::default());
        let mut opened = 0;
        let open = |_| -> Result<Box<dyn Engine>, EngineError> {
            opened += 1;
            Ok(Box::new(Noting { run_time: Duration::from_millis(20), ..Noting::new(&clock) }))
        };
        let found = ways.best(shapes, open, String::new(), &*clock).expect("it runs");
        assert_eq!(found.split.workers, 2, "{:?}", found.measured);
        assert_eq!((opened, found.measured.len()), (1, 3));
    }

    #[test]
    fn a_first_way_that_fails_ends_the_start() {
        for trouble in [Trouble::Opening, Trouble::Running] {
            let (_, found) = best(&ways(4, &CPU_BATCH_TOKENS), Some((0, trouble)));
            assert_eq!(found.err(), Some(fault()));
        }
    }

    #[test]
    fn the_engine_is_left_in_the_way_that_was_found() {
        let ways = ways(4, &CPU_BATCH_TOKENS);
        let (opened, found) = best(&ways, None);
        let found = found.expect("the engine runs");
        assert_eq!(opened.last(), Some(&found.split));
        assert!(ways.budgets.contains(&found.max_batch_tokens));
        assert_eq!(found.shapes, shapes(found.max_batch_tokens));
        let measured: Vec<Split> = found.measured.iter().map(|one| one.split).collect();
        assert!(measured.len() >= 2 && opened.starts_with(&measured), "{opened:?} {measured:?}");
    }

    /// The widths of the lanes that are held on these nodes, when a run takes so many milliseconds
    /// on lanes of 1, 2, 4 … cores; no time says that they cannot be opened.
    fn held(nodes: &[usize], times_ms: &[u64]) -> (Vec<usize>, Chosen) {
        let cores = nodes.iter().sum();
        let mut ways = Ways { nodes: nodes.to_vec(), ..ways(cores, &CPU_BATCH_TOKENS) };
        ways.hold_all_widths();
        let clock = Arc::new(ManualClock::default());
        let open = |split: Split| -> Result<Box<dyn Engine>, EngineError> {
            let time = times_ms.get(split.threads.ilog2() as usize).ok_or_else(fault)?;
            Ok(Box::new(Noting { run_time: Duration::from_millis(*time), ..Noting::new(&clock) }))
        };
        let found = ways.best(shapes, open, String::new(), &*clock);
        let found = found.expect("the narrowest lanes run");
        (found.wider.keys().copied().collect(), found)
    }

    #[test]
    fn lanes_are_held_of_each_width_that_pays() {
        let (wider, found) = held(&[16], &[120, 80, 60, 57, 56]);
        assert_eq!(wider, [2, 4], "more cores are hardly faster than four");
        assert_eq!(found.split, Split { workers: 16, threads: 1 });
        assert_eq!(found.lanes, Lane::tree(&[16], &[1, 2, 4]));
        let (wider, found) = held(&[16], &[120, 60, 57, 45, 30]);
        assert_eq!(wider, [2, 8, 16], "four cores are hardly faster than two, but eight are");
        assert_eq!(found.lanes, Lane::tree(&[16], &[1, 2, 8, 16]));
    }

    #[test]
    fn a_width_whose_times_were_disturbed_is_held() {
        for (times_ms, disturbed, is_held) in [
            ([150, 110, 109], 0, true),
            ([150, 110, 110], 0, false),
            ([150, 110, 110], WIDTH_TRIES - 1, false),
            ([150, 110, 110], WIDTH_TRIES, true),
        ] {
            let mut ways = ways(2, &CPU_BATCH_TOKENS);
            ways.hold_all_widths();
            let clock = Arc::new(ManualClock::default());
            let open =
                |_| -> Result<Box<dyn Engine>, EngineError> { Ok(Box::new(Noting::new(&clock))) };
            let asked = Cell::new(0);
            let time_alone = |_: &dyn Engine, _| {
                let place = asked.replace(asked.get() + 1);
                let time = Duration::from_millis(*times_ms.get(place).unwrap_or(&110));
                Ok(Alone { time, is_disturbed: place < disturbed })
            };
            let held = ways.open_wider(open, Duration::from_millis(120), 0, time_alone);
            assert_eq!(held.len(), usize::from(is_held), "{times_ms:?}, {disturbed}");
        }
    }

    #[test]
    fn a_lane_has_its_cores_on_one_node() {
        let (wider, found) = held(&[6, 2], &[120, 80, 60, 40]);
        assert_eq!(wider, [2, 4]);
        let of_width = |width| found.lanes.iter().filter(|lane| lane.width == width).count();
        assert_eq!([1, 2, 4].map(of_width), [8, 4, 1]);
    }

    #[test]
    fn wider_lanes_that_cannot_be_opened_are_done_without() {
        let (wider, found) = held(&[4], &[120]);
        assert_eq!((wider, found.lanes), (vec![], Lane::apart(4)));
    }

    #[test]
    fn what_is_named_is_not_measured() {
        let (opened, found) = best(&ways(1, &[MaxBatchTokens::DEFAULT]), None);
        let found = found.expect("the engine runs");
        assert_eq!(opened, [Split { workers: 1, threads: 1 }]);
        assert_eq!((found.measured.len(), found.max_batch_tokens), (0, MaxBatchTokens::DEFAULT));
        assert_eq!(found.shapes, shapes(MaxBatchTokens::DEFAULT));
    }
}
