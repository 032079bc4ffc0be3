//! Measures, before a model serves, how to run it best on this machine.
//!
//! All workers of a split run batches at the same time, and the shapes take turns. An engine
//! prepares itself anew for each change of shape, as it must do when it serves.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::Duration;

use super::{catch_panic, warm_up_batch};
use crate::engine::{Engine, EngineError, Session, Split};
use clock::Clock;
use scheduling::batch::Bucket;
use scheduling::batch::cost::{Times, fit, keep_shortest};
use scheduling::batch::plan::{ROW_TOKENS, Shapes};

pub(crate) mod choice;

use choice::Measured;

/// Each shape runs at least this often after its first run, which prepares it.
const ROUNDS_MIN: usize = 3;
/// Short runs are repeated until they have taken `SPAN_MIN` together, or `ROUNDS_MAX` times.
const SPAN_MIN: Duration = Duration::from_millis(200);
const ROUNDS_MAX: usize = 50;

/// What is measured of each split.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// Tokens of batches of shared rows, ascending.
    pub batches: Vec<usize>,
    /// Tokens of single texts, ascending.
    pub(crate) lengths: [usize; 2],
}

impl Workload {
    /// Opens a session for each worker on a thread of its own, and runs batches of some of `shapes`
    /// on all of them.
    ///
    /// If the engine has no memory for a batch, larger batches are passed over.
    pub(crate) fn measure(
        &self,
        engine: &dyn Engine,
        shapes: &Shapes,
        split: Split,
        clock: &dyn Clock,
    ) -> Result<Measured, EngineError> {
        thread::scope(|scope| {
            let threads = MeasuringThreads::open(scope, engine, shapes, split.workers, clock)?;
            let alone = self.singles(&threads, shapes)?;
            let (first, memory_tokens) = self.first_runs(&threads, shapes)?;
            let times = threads.best(first, split.workers)?;
            let cost = fit(&times).map(|fit| fit.model).unwrap_or_default();
            let length = shared_rows(shapes, 0).length;
            Ok(Measured { split, alone, cost, length, memory_tokens })
        })
    }

    /// The time of a short text on one session while nothing else runs, and what `at_end` gives.
    /// That is asked while the thread which has run the texts lives: Linux forgets what it told of
    /// a thread when the thread ends.
    pub(crate) fn alone<T>(
        &self,
        engine: &dyn Engine,
        shapes: &Shapes,
        clock: &dyn Clock,
        at_end: impl FnOnce() -> T,
    ) -> Result<(Duration, T), EngineError> {
        thread::scope(|scope| {
            let threads = MeasuringThreads::open(scope, engine, shapes, 1, clock)?;
            Ok((self.singles(&threads, shapes)?, at_end()))
        })
    }

    fn singles(
        &self,
        threads: &MeasuringThreads<'_>,
        shapes: &Shapes,
    ) -> Result<Duration, EngineError> {
        let singles = self.lengths.map(|length| shapes.row(length));
        let times = threads.best(threads.round(&singles, 1)?, 1)?;
        Ok(times.iter().map(|(_, time)| time).sum::<Duration>() / times.len() as u32)
    }

    /// Runs each shape once on all workers. Returns the times, and the tokens of the largest batch
    /// if there was no memory for a larger one.
    fn first_runs(
        &self,
        threads: &MeasuringThreads<'_>,
        shapes: &Shapes,
    ) -> Result<(Times, Option<usize>), EngineError> {
        let mut times = Times::new();
        for &batch in [0].iter().chain(&self.batches) {
            let shape = shared_rows(shapes, batch);
            // A larger batch may have the shape of the one before, if no shape lies between them.
            let last = times.last().map(|(last, _)| *last);
            if last == Some(shape) {
                continue;
            }
            match threads.round(&[shape], threads.workers()) {
                Ok(first) => times.extend(first),
                Err(EngineError::OutOfMemory(reason)) if last.is_some() => {
                    tracing::warn!(tokens = shape.tokens(), reason, "batches stay smaller");
                    return Ok((times, last.map(Bucket::tokens)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((times, None))
    }
}

/// The most shared rows of short texts within `batch_tokens`, at least one row.
fn shared_rows(shapes: &Shapes, batch_tokens: usize) -> Bucket {
    let one = shapes.row(ROW_TOKENS);
    let alike = shapes.prepared().iter().filter(|shape| shape.length == one.length);
    alike.filter(|shape| shape.tokens() <= batch_tokens).max().copied().unwrap_or(one)
}

/// Threads that run the batches that they are told to, each on a session of its own. They end when
/// this is dropped.
struct MeasuringThreads<'a> {
    clock: &'a dyn Clock,
    orders: Vec<Sender<Bucket>>,
    outcomes: Receiver<Result<(), EngineError>>,
}

impl<'a> MeasuringThreads<'a> {
    /// Opens all sessions at the same time.
    fn open<'scope>(
        scope: &'scope Scope<'scope, '_>,
        engine: &'scope dyn Engine,
        shapes: &'scope Shapes,
        workers: usize,
        clock: &'a dyn Clock,
    ) -> Result<Self, EngineError> {
        let (tell, outcomes) = channel();
        let mut orders = Vec::with_capacity(workers);
        for worker in 0..workers {
            let (order, inbox) = channel();
            let tell = tell.clone();
            thread::Builder::new()
                .name(format!("duovec-measure-{worker}"))
                .spawn_scoped(scope, move || run_orders(engine, shapes, &inbox, &tell))
                .map_err(|error| {
                    EngineError::NotAvailable(format!("cannot start a thread: {error}"))
                })?;
            orders.push(order);
        }
        let threads = Self { clock, orders, outcomes };
        threads.wait_for(workers)?;
        Ok(threads)
    }

    fn workers(&self) -> usize {
        self.orders.len()
    }

    /// The shortest time of each shape, run by `workers` threads at once; shapes take turns. `best`
    /// has the times of the first runs.
    fn best(&self, mut best: Times, workers: usize) -> Result<Times, EngineError> {
        let shapes: Vec<Bucket> = best.iter().map(|(shape, _)| *shape).collect();
        let mut spent = Duration::ZERO;
        for round in 0..ROUNDS_MAX {
            if round >= ROUNDS_MIN && spent >= SPAN_MIN {
                break;
            }
            let again = self.round(&shapes, workers)?;
            keep_shortest(&mut best, &again);
            spent += again.iter().map(|(_, time)| time).sum::<Duration>();
        }
        Ok(best)
    }

    fn round(&self, shapes: &[Bucket], workers: usize) -> Result<Times, EngineError> {
        let mut times = Vec::with_capacity(shapes.len());
        for &shape in shapes {
            let start = self.clock.now();
            for order in &self.orders[..workers] {
                order.send(shape).map_err(|_| thread_lost())?;
            }
            self.wait_for(workers)?;
            times.push((shape, self.clock.now().since(start)));
        }
        Ok(times)
    }

    /// Waits for the outcomes of all threads that run, even if one of them fails: no outcome may be
    /// left for the next order.
    fn wait_for(&self, workers: usize) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        for _ in 0..workers {
            outcome = outcome.and(self.outcomes.recv().map_err(|_| thread_lost())?);
        }
        outcome
    }
}

fn thread_lost() -> EngineError {
    EngineError::SessionLost("a measuring thread has ended".to_owned())
}

/// The life of one thread. Its first outcome is that of opening the session.
fn run_orders(
    engine: &dyn Engine,
    shapes: &Shapes,
    inbox: &Receiver<Bucket>,
    tell: &Sender<Result<(), EngineError>>,
) {
    let mut session = None;
    let opened = catch_panic(|| {
        session = Some(engine.open_session(shapes.prepared())?);
        Ok(())
    });
    // Nobody listens if another thread has failed.
    let _ = tell.send(opened);
    let Some(mut session) = session else { return };
    for bucket in inbox {
        let _ = tell.send(run(&mut *session, bucket));
    }
}

fn run(session: &mut dyn Session, bucket: Bucket) -> Result<(), EngineError> {
    let batch = warm_up_batch(bucket)?;
    catch_panic(|| session.run(&batch).map(|_| ()))
}

#[cfg(test)]
mod tests;
