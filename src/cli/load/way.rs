//! How an engine is run, that is with which workers, threads and batch size: as they were named, or
//! the best of those that are measured.

use crate::batch::plan::Shapes;
use crate::clock::Clock;
use crate::config::{Config, OptimizeFor, cores};
use crate::engine::{Engine, EngineError, EngineKind};
use crate::limits::{
    CPU_BATCH_TOKENS, CPU_WORKLOAD_BATCHES, CPU_WORKLOAD_TOKENS, GPU_BATCH_TOKENS,
    GPU_WORKLOAD_BATCHES, GPU_WORKLOAD_TOKENS, MaxBatchTokens, ThreadsPerWorker, Workers,
};
use crate::metrics::memory;
use crate::worker::tuning::Workload;
use crate::worker::tuning::choice::{Measured, Split, choose, splits};

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

/// Everything that may be tried; no list is empty.
pub(super) struct Ways {
    splits: Vec<Split>,
    /// Is held besides the best split.
    wide: Option<Split>,
    budgets: Vec<MaxBatchTokens>,
    workload: Workload,
    goal: OptimizeFor,
}

/// The best of them.
pub(super) struct ChosenWay {
    pub engine: Box<dyn Engine>,
    /// For a text that is alone.
    pub wide: Option<Box<dyn Engine>>,
    /// The shapes that it is to run.
    pub shapes: Shapes,
    pub split: Split,
    pub max_batch_tokens: MaxBatchTokens,
    /// What it was chosen from; empty when there was nothing to choose.
    pub measured: Vec<Measured>,
}

impl Ways {
    pub(crate) fn of(config: &Config, kind: EngineKind, measuring: Measuring) -> Self {
        let mut ways = Self {
            splits: all_splits(config, kind),
            wide: None,
            budgets: all_budgets(config, kind),
            workload: if kind.is_tensorrt() {
                Workload { batches: GPU_WORKLOAD_BATCHES.to_vec(), lengths: GPU_WORKLOAD_TOKENS }
            } else {
                Workload { batches: CPU_WORKLOAD_BATCHES.to_vec(), lengths: CPU_WORKLOAD_TOKENS }
            },
            goal: config.engine.optimize_for,
        };
        let (first, last) = (ways.splits[0], ways.splits[ways.splits.len() - 1]);
        if ways.goal == OptimizeFor::Both && ways.splits.len() > 1 {
            (ways.splits, ways.wide) = (vec![last], Some(first));
        }
        if measuring == Measuring::Skip {
            (ways.splits, ways.wide) = (vec![first], None);
        }
        if measuring != Measuring::Measure {
            let default = if kind.is_tensorrt() { ways.largest() } else { MaxBatchTokens::DEFAULT };
            ways.budgets = vec![config.queue.max_batch_tokens.unwrap_or(default)];
        }
        ways
    }

    /// Loads the engine in each way until one is not the best so far, and leaves the best. A later
    /// way that does not run on this machine ends the search: it is not needed.
    ///
    /// `shapes` gives those for a budget.
    ///
    /// # Errors
    /// Those of the first way, and of the best one when it is loaded again.
    pub(crate) fn best(
        &self,
        shapes: impl Fn(MaxBatchTokens) -> Shapes,
        mut open: impl FnMut(Split) -> Result<Box<dyn Engine>, EngineError>,
        clock: &dyn Clock,
    ) -> Result<ChosenWay, EngineError> {
        let widest = shapes(self.largest());
        let supported =
            |engine: &dyn Engine, shapes: Shapes| shapes.only(|all| engine.supported(all));
        let engine = open(self.splits[0])?;
        if self.splits.len() == 1 && self.budgets.len() == 1 {
            let (split, max_batch_tokens) = (self.splits[0], self.budgets[0]);
            let (shapes, measured) = (supported(&*engine, widest), Vec::new());
            let wide = self.open_wide(open);
            return Ok(ChosenWay { engine, wide, shapes, split, max_batch_tokens, measured });
        }
        let measure = |engine: &dyn Engine, split| {
            let shapes = supported(engine, widest.clone());
            self.workload.measure(engine, &shapes, split, clock)
        };
        let mut measured = vec![measure(&*engine, self.splits[0])?];
        // The one of the way that was measured last.
        let mut loaded = Some(engine);
        for &split in &self.splits[1..] {
            // One engine is dropped before the next is opened, so the weights are in memory once.
            loaded = None;
            let tried = open(split).and_then(|engine| {
                let measured = measure(&*engine, split)?;
                Ok((engine, measured))
            });
            match tried {
                Ok((engine, one)) => {
                    loaded = Some(engine);
                    measured.push(one);
                }
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
        let split = measured[best].split;
        let engine = match loaded.filter(|_| best + 1 == measured.len()) {
            Some(engine) => engine,
            None => open(split)?,
        };
        let max_batch_tokens = measured[best].budget(&self.budgets);
        let shapes = supported(&*engine, shapes(max_batch_tokens));
        let wide = self.open_wide(open);
        Ok(ChosenWay { engine, wide, shapes, split, max_batch_tokens, measured })
    }

    /// Loads the engine once more. The server runs without it where that fails.
    fn open_wide(
        &self,
        mut open: impl FnMut(Split) -> Result<Box<dyn Engine>, EngineError>,
    ) -> Option<Box<dyn Engine>> {
        let split = self.wide?;
        let before = memory().unwrap_or_default().resident_bytes;
        match open(split) {
            Ok(engine) => {
                let after = memory().unwrap_or_default().resident_bytes;
                let more_mib = after.saturating_sub(before) >> 20;
                let threads = split.threads;
                tracing::info!(threads, more_mib, "a session over all cores is held besides");
                Some(engine)
            }
            Err(error) => {
                tracing::warn!(%error, "the model cannot be held twice: a text gets one core");
                None
            }
        }
    }

    /// The largest budget that may be chosen.
    pub(crate) fn largest(&self) -> MaxBatchTokens {
        self.budgets.iter().max().copied().unwrap_or_default()
    }
}

fn all_splits(config: &Config, kind: EngineKind) -> Vec<Split> {
    let engine = &config.engine;
    let named = |workers: u64, threads: usize| {
        vec![Split { workers: Workers::new(workers).unwrap_or_default().as_usize(), threads }]
    };
    if kind.is_tensorrt() {
        let devices = engine.tensorrt.devices.len() as u64;
        let of_devices = engine.tensorrt.workers_per_device.get() * devices;
        return named(engine.workers.map_or(of_devices.min(Workers::MAX), Workers::get), 0);
    }
    let cores = cores();
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::batch::Bucket;
    use crate::clock::RealClock;
    use crate::engine::fake::FakeEngine;
    use crate::engine::{EngineInfo, Session};

    /// Says how many of its kind there are.
    struct Counted {
        engine: FakeEngine,
        alive: Arc<AtomicUsize>,
        /// Whether it has sessions.
        works: bool,
    }

    impl Engine for Counted {
        fn info(&self) -> &EngineInfo {
            self.engine.info()
        }

        fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
            if self.works { self.engine.open_session(buckets) } else { Err(fault()) }
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn fault() -> EngineError {
        EngineError::Transient("scripted".to_owned())
    }

    fn ways(cores: usize, budgets: &[MaxBatchTokens]) -> Ways {
        Ways {
            splits: splits(cores),
            wide: None,
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

    /// The splits that were opened, and what was found.
    fn best(ways: &Ways) -> (Vec<Split>, ChosenWay) {
        let alive = Arc::new(AtomicUsize::new(0));
        let mut opened = Vec::new();
        let open = |split| -> Result<Box<dyn Engine>, EngineError> {
            assert_eq!(alive.fetch_add(1, Ordering::SeqCst), 0, "weights are there twice");
            opened.push(split);
            let engine = FakeEngine::new(4);
            Ok(Box::new(Counted { engine, alive: Arc::clone(&alive), works: true }))
        };
        let found = ways.best(shapes, open, &RealClock::new()).expect("the engine runs");
        (opened, found)
    }

    #[derive(Clone, Copy)]
    enum Trouble {
        Opening,
        Running,
    }

    /// What is found when the way of this number has trouble whenever it is tried.
    fn best_but(failing: usize, trouble: Trouble) -> Result<ChosenWay, EngineError> {
        let ways = ways(4, &CPU_BATCH_TOKENS);
        let alive = Arc::new(AtomicUsize::new(0));
        let open = |split| -> Result<Box<dyn Engine>, EngineError> {
            let fails = split == ways.splits[failing];
            if fails && matches!(trouble, Trouble::Opening) {
                return Err(fault());
            }
            assert_eq!(alive.fetch_add(1, Ordering::SeqCst), 0, "weights are there twice");
            let (engine, alive) = (FakeEngine::new(4), Arc::clone(&alive));
            Ok(Box::new(Counted { engine, alive, works: !fails }))
        };
        ways.best(shapes, open, &RealClock::new())
    }

    #[test]
    fn a_later_way_that_fails_leaves_the_best_of_those_that_ran() {
        for trouble in [Trouble::Opening, Trouble::Running] {
            let found = best_but(1, trouble).expect("the first way runs");
            assert_eq!(found.split, splits(4)[0]);
            assert_eq!(found.measured.len(), 1);
            let session = found.engine.open_session(found.shapes.prepared());
            assert!(session.is_ok(), "it is the engine of that way");
        }
    }

    #[test]
    fn a_first_way_that_fails_ends_the_start() {
        for trouble in [Trouble::Opening, Trouble::Running] {
            assert_eq!(best_but(0, trouble).err(), Some(fault()));
        }
    }

    #[test]
    fn the_engine_is_left_in_the_way_that_was_found() {
        let ways = ways(4, &CPU_BATCH_TOKENS);
        let (opened, found) = best(&ways);
        assert_eq!(opened.last(), Some(&found.split));
        assert!(ways.budgets.contains(&found.max_batch_tokens));
        assert_eq!(found.shapes, shapes(found.max_batch_tokens));
        let measured: Vec<Split> = found.measured.iter().map(|one| one.split).collect();
        assert!(measured.len() >= 2 && opened.starts_with(&measured), "{opened:?} {measured:?}");
    }

    /// The splits that are opened, the wide one last, and whether that succeeded.
    fn with_wide(wide_opens: bool) -> (Vec<Split>, ChosenWay) {
        let (wide, each) = (splits(4)[0], splits(4)[2]);
        let ways = Ways { splits: vec![each], wide: Some(wide), ..ways(4, &CPU_BATCH_TOKENS) };
        let mut opened = Vec::new();
        let open = |split| -> Result<Box<dyn Engine>, EngineError> {
            opened.push(split);
            let fails = split == wide && !wide_opens;
            if fails { Err(fault()) } else { Ok(Box::new(FakeEngine::new(4))) }
        };
        let found = ways.best(shapes, open, &RealClock::new()).expect("the other way runs");
        (opened, found)
    }

    #[test]
    fn a_wide_engine_is_held_besides_the_others() {
        let (opened, found) = with_wide(true);
        assert_eq!(opened, [splits(4)[2], splits(4)[0]]);
        assert_eq!(found.split, splits(4)[2], "requests are measured and planned for that");
        assert!(found.wide.is_some());
    }

    #[test]
    fn a_wide_engine_that_fails_is_done_without() {
        let (_, found) = with_wide(false);
        assert_eq!((found.split, found.wide.is_none()), (splits(4)[2], true));
    }

    #[test]
    fn what_is_named_is_not_measured() {
        let (opened, found) = best(&ways(1, &[MaxBatchTokens::DEFAULT]));
        assert_eq!(opened, [Split { workers: 1, threads: 1 }]);
        assert_eq!((found.measured.len(), found.max_batch_tokens), (0, MaxBatchTokens::DEFAULT));
        assert_eq!(found.shapes, shapes(MaxBatchTokens::DEFAULT));
    }
}
