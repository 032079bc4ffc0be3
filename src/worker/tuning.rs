//! How a model is run best on this machine: measured before it serves.
//!
//! All workers of a split run batches side by side, each shape after another one: an engine
//! prepares itself anew for each change of shape, as it will have to when it serves.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::Duration;

use super::catch_panic;
use super::warm_up::warm_up_batch;
use crate::engine::{Engine, EngineError, Session};
use clock::Clock;
use scheduling::batch::Bucket;
use scheduling::batch::cost::{Times, fit, keep_shortest};
use scheduling::batch::plan::{ROW_TOKENS, Shapes};

pub(crate) mod choice;

use choice::{Measured, Split};

/// Each shape runs so often again at least, after its first run, which prepares it.
const ROUNDS_MIN: usize = 3;
/// Short runs are repeated until they have taken this long together, or so often.
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
    /// Opens a session for each worker on a thread of its own and runs batches on them, of some of
    /// `shapes`.
    ///
    /// Larger batches than those that ran are passed over when the engine has no memory for them.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn measure(
        &self,
        engine: &dyn Engine,
        shapes: &Shapes,
        split: Split,
        clock: &dyn Clock,
    ) -> Result<Measured, EngineError> {
        let open = || engine.open_session(shapes.prepared());
        thread::scope(|scope| {
            let threads = MeasuringThreads::open(scope, &open, split.workers, clock)?;
            let alone = self.singles(&threads, shapes)?;
            let (first, memory_tokens) = self.first_runs(&threads, shapes)?;
            let times = threads.best(first, split.workers)?;
            let cost = fit(&times).map(|fit| fit.model).unwrap_or_default();
            let length = shared_rows(shapes, 0).length;
            Ok(Measured { split, alone, cost, length, memory_tokens })
        })
    }

    /// Time of a short text on one session while nothing else runs.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn alone(
        &self,
        engine: &dyn Engine,
        shapes: &Shapes,
        clock: &dyn Clock,
    ) -> Result<Duration, EngineError> {
        let open = || engine.open_session(shapes.prepared());
        thread::scope(|scope| {
            self.singles(&MeasuringThreads::open(scope, &open, 1, clock)?, shapes)
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

    /// The shapes that ran for once on all workers, and the tokens of the largest when there was no
    /// memory for more.
    fn first_runs(
        &self,
        threads: &MeasuringThreads<'_>,
        shapes: &Shapes,
    ) -> Result<(Times, Option<usize>), EngineError> {
        let mut times = Times::new();
        for &batch in [0].iter().chain(&self.batches) {
            let shape = shared_rows(shapes, batch);
            // A larger batch may be the same where there is no shape between them.
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

/// The most rows that short texts share within so many tokens, or one of them.
fn shared_rows(shapes: &Shapes, batch_tokens: usize) -> Bucket {
    let one = shapes.row(ROW_TOKENS);
    let alike = shapes.prepared().iter().filter(|shape| shape.length == one.length);
    alike.filter(|shape| shape.tokens() <= batch_tokens).max().copied().unwrap_or(one)
}

/// Opens a session on the thread that calls it.
type OpenSession<'a> = dyn Fn() -> Result<Box<dyn Session>, EngineError> + Sync + 'a;

/// Threads that run what they are told, each on a session of its own. They end with it.
struct MeasuringThreads<'a> {
    clock: &'a dyn Clock,
    orders: Vec<Sender<Bucket>>,
    outcomes: Receiver<Result<(), EngineError>>,
}

impl<'a> MeasuringThreads<'a> {
    /// Opens all sessions at the same time.
    fn open<'scope>(
        scope: &'scope Scope<'scope, '_>,
        open: &'scope OpenSession<'scope>,
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
                .spawn_scoped(scope, move || run_orders(open, &inbox, &tell))
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

    /// Shortest time of each shape, run by `workers` of the threads at once; shapes take turns.
    /// `best` are the times of their first runs.
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

    /// Outcomes of all that were told something, also when one of them failed: none may be left
    /// for the next order.
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

/// One thread's life: its first outcome is that of the opening.
fn run_orders(
    open: &OpenSession<'_>,
    inbox: &Receiver<Bucket>,
    tell: &Sender<Result<(), EngineError>>,
) {
    let mut session = None;
    let opened = catch_panic(|| {
        session = Some(open()?);
        Ok(())
    });
    // Nobody listens any more when the measuring has failed elsewhere.
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
