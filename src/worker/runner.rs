//! A session, with second tries before a text fails. A batch that does not fit memory is run in
//! halves, in quarters and so on. A row with NaN or infinity is run again alone, and then once in
//! the rescue precision.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::engine::{BatchOutput, EngineError, Session};
use crate::metrics::BatchFigures;
use crate::scheduler::{Incidents, RowOrError, RunError, TextRow};
use clock::Clock;
use scheduling::batch::plan::Shapes;
use scheduling::batch::{Batch, Bucket, Place, Priority, TokenIds};
use settings::limits::RESCUE_FACTOR;

/// The turn to run in the rescue precision, whose model takes one text at a time for all workers.
/// Its owners are those that run or wait. It goes round in the order in which they came.
static RESCUES: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// Runs batches on one session.
pub(crate) struct Runner<'a> {
    pub(crate) session: Box<dyn Session>,
    /// For the log.
    worker: usize,
    shapes: Shapes,
    clock: Arc<dyn Clock>,
    incidents: &'a Incidents,
}

/// What a runner tells while it runs items.
pub(crate) enum RunNews<'a> {
    /// A run of all of them, or of a part, gave rows.
    Ran(&'a BatchFigures),
    /// A part of them is about to run again. That may take so many times as long as a batch.
    Again(u32),
}

/// The outcome of a batch.
pub(crate) struct RunOutcome {
    /// The result of each item, in the order of the items.
    pub(crate) rows: Vec<RowOrError>,
    /// The last error of the session.
    pub(crate) error: Option<EngineError>,
    /// The batch ran in parts, or some of its texts ran again. So its time does not fit the cost
    /// model.
    pub(crate) in_parts: bool,
}

impl<'a> Runner<'a> {
    /// A runner for a session that was opened for `shapes`.
    pub(crate) fn new(
        session: Box<dyn Session>,
        worker: usize,
        shapes: Shapes,
        clock: Arc<dyn Clock>,
        incidents: &'a Incidents,
    ) -> Self {
        Self { session, worker, shapes, clock, incidents }
    }

    /// Runs items as one batch. After an error that the session does not survive, the session must
    /// not be used again.
    pub(crate) fn run(
        &mut self,
        bucket: Bucket,
        priority: Priority,
        items: &[TokenIds],
        tell: &dyn Fn(RunNews<'_>),
    ) -> RunOutcome {
        match self.run_once(bucket, priority, items, tell) {
            Err(EngineError::OutOfMemory(reason)) => {
                tracing::warn!(worker = self.worker, reason, "a batch is run again in halves");
                self.incidents.batches_split.add(1);
                self.run_halves(bucket, priority, items, tell)
            }
            once => of_all(once, items.len()),
        }
    }

    /// Runs the halves of a batch, which may be halved again, or the only item once more.
    fn run_halves(
        &mut self,
        whole: Bucket,
        priority: Priority,
        items: &[TokenIds],
        tell: &dyn Fn(RunNews<'_>),
    ) -> RunOutcome {
        let (mut all, mut last) = (Vec::with_capacity(items.len()), None::<EngineError>);
        for half in items.chunks(items.len().div_ceil(2)) {
            let lengths: Vec<usize> = half.iter().map(TokenIds::room).collect();
            let bucket = self.shapes.smallest(&lengths, whole);
            tell(RunNews::Again(1));
            let ended = match &last {
                Some(error) if !survived(error) => of_all(Err(error.clone()), half.len()),
                _ if half.len() < items.len() => self.run(bucket, priority, half, tell),
                _ => of_all(self.run_once(bucket, priority, half, tell), half.len()),
            };
            all.extend(ended.rows);
            last = ended.error.or(last);
        }
        RunOutcome { rows: all, error: last, in_parts: true }
    }

    fn run_once(
        &mut self,
        bucket: Bucket,
        priority: Priority,
        items: &[TokenIds],
        tell: &dyn Fn(RunNews<'_>),
    ) -> Result<RunOutcome, EngineError> {
        let started = self.clock.now();
        let batch = batch(bucket, priority, items)?;
        let session = &mut *self.session;
        let output = catch_panic(|| session.run(&batch))?;
        let row = |(ids, place): (&TokenIds, &Place)| Ok(TextRow::of(&output, *place, ids));
        let mut rows: Vec<RowOrError> = items.iter().zip(batch.places()).map(row).collect();
        tell(RunNews::Ran(&BatchFigures {
            items: items.len(),
            real_tokens: items.iter().map(|ids| ids.len()).sum(),
            padded_tokens: bucket.tokens(),
            whole: self.clock.now().since(started),
            stages: output.times,
        }));
        let (mut end, mut in_parts) = (None, false);
        for (item, row) in rows.iter_mut().enumerate().filter(|(_, row)| is_lost(row)) {
            in_parts = true;
            let ids = std::slice::from_ref(&items[item]);
            let alone = self::batch(self.shapes.row(ids[0].room()), priority, ids)?;
            if !batch.is_alone(item) {
                tell(RunNews::Again(1));
                self.run_alone(&alone, row, &mut end);
            }
            if is_lost(row) {
                let turn = Arc::clone(&RESCUES);
                let this_and_those_before = Arc::strong_count(&turn) - 1;
                tell(RunNews::Again(RESCUE_FACTOR * this_and_those_before as u32));
                let _mine = turn.lock();
                self.rescue(&alone, row, &mut end);
            }
        }
        Ok(RunOutcome { rows, error: end, in_parts })
    }

    /// Runs a text whose row has NaN or infinity alone, since they spread over a row to its other
    /// texts. `end` is the error that the session did not survive.
    fn run_alone(&mut self, alone: &Batch, row: &mut RowOrError, end: &mut Option<EngineError>) {
        if let Some(again) = self.try_again(alone, end, |s, b| s.run(b).map(Some)) {
            // Where the run failed, nobody knows whether this text is at fault.
            *row = again;
        }
    }

    /// Runs such a text in the rescue precision, if there is one.
    fn rescue(&mut self, alone: &Batch, row: &mut RowOrError, end: &mut Option<EngineError>) {
        self.incidents.rows_not_finite.add(1);
        let rescued =
            self.try_again(alone, end, |session, alone| session.rescue(alone).transpose());
        if let Some(Ok(rescued)) = rescued {
            let finite = rescued.lost.is_none();
            self.incidents.rows_rescued.add(u64::from(finite));
            tracing::warn!(worker = self.worker, finite, "a row was run again");
            *row = Ok(TextRow { rescued: true, ..rescued });
        }
    }

    /// The row of a batch of one text; `None` if the session cannot run it in this way.
    fn try_again(
        &mut self,
        alone: &Batch,
        end: &mut Option<EngineError>,
        run: impl for<'s> FnOnce(
            &'s mut dyn Session,
            &Batch,
        ) -> Result<Option<BatchOutput<'s>>, EngineError>,
    ) -> Option<RowOrError> {
        let failed = |error: &EngineError| Some(Err(RunError::EngineFailed(error.to_string())));
        if let Some(error) = end {
            return failed(error);
        }
        let session = &mut *self.session;
        match catch_panic(|| run(session, alone)) {
            Ok(output) => {
                let row = |output| Ok(TextRow::of(&output, alone.places()[0], &alone.items()[0]));
                output.map(row)
            }
            Err(error) => {
                tracing::warn!(worker = self.worker, %error, "a row cannot be run again");
                let failed = failed(&error);
                *end = (!survived(&error)).then_some(error);
                failed
            }
        }
    }
}

const fn is_lost(row: &RowOrError) -> bool {
    matches!(row, Ok(TextRow { lost: Some(_), .. }))
}

/// The outcome for each item of one run.
fn of_all(ran: Result<RunOutcome, EngineError>, items: usize) -> RunOutcome {
    ran.unwrap_or_else(|error| {
        let failed = Err(RunError::EngineFailed(error.to_string()));
        RunOutcome { rows: vec![failed; items], error: Some(error), in_parts: false }
    })
}

/// Whether the session can be used after this error.
pub(super) const fn survived(error: &EngineError) -> bool {
    matches!(error, EngineError::OutOfMemory(_) | EngineError::Transient(_))
}

fn batch(bucket: Bucket, priority: Priority, items: &[TokenIds]) -> Result<Batch, EngineError> {
    Batch::new(bucket, items.to_vec())
        .map(|batch| batch.with_priority(priority))
        .map_err(|error| EngineError::Transient(format!("the plan does not fit: {error}")))
}

/// Turns a panic of the session into an error.
pub(super) fn catch_panic<T>(
    run: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(EngineError::SessionLost(format!("panic: {}", panic_text(&*panic))))
    })
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::engine::fake::{FakeEngine, RowBuffers};
    use crate::scheduler::{Scheduler, SchedulerConfig, Submission, Work};
    use crate::worker::Worker;
    use clock::{ManualClock, Moment};
    use scheduling::batch::Vectors;
    use scheduling::batch::warm_up::WarmUpPlan;
    use settings::limits::Workers;

    /// Each run takes a second. A run of more than two rows finds no memory.
    struct Tight {
        clock: Arc<ManualClock>,
        rows: RowBuffers,
        /// The value of each number in a run of several texts.
        value: f32,
    }

    impl Tight {
        fn new(clock: &Arc<ManualClock>, value: f32) -> Box<Self> {
            Box::new(Self { clock: Arc::clone(clock), rows: RowBuffers::new(4, 0), value })
        }
    }

    impl Session for Tight {
        fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
            self.clock.advance(Duration::from_secs(1));
            if batch.bucket().rows > 2 {
                return Err(EngineError::OutOfMemory("scripted".to_owned()));
            }
            self.rows.resize(batch.bucket());
            self.rows.dense.fill(if batch.items().len() > 1 { self.value } else { 1.0 });
            self.rows.token_weights.fill(1.0);
            Ok(self.rows.output())
        }
    }

    /// What comes of running so many texts as one batch of the last of `shapes`.
    struct SeenRun {
        outcome: RunOutcome,
        /// Texts and time of each run that gave rows.
        runs: Vec<(usize, Duration)>,
        splits: u64,
        seconds: u64,
    }

    fn run(shapes: &[Bucket], texts: u32, value: f32) -> SeenRun {
        let (clock, incidents) = (Arc::new(ManualClock::default()), Incidents::default());
        let (session, shared) = (Tight::new(&clock, value), Arc::clone(&clock) as _);
        let all = Shapes::new(shapes.to_vec(), false);
        let mut runner = Runner::new(session, 0, all, shared, &incidents);
        let items: Vec<TokenIds> = (0..texts).map(|id| TokenIds::new(&[0, 1 + id, 2])).collect();
        let runs = RefCell::new(Vec::new());
        let tell = |news: RunNews<'_>| {
            if let RunNews::Ran(ran) = news {
                runs.borrow_mut().push((ran.items, ran.whole));
            }
        };
        let outcome = runner.run(shapes[shapes.len() - 1], Priority::Bulk, &items, &tell);
        let is_whole = |row: &RowOrError| row.as_ref().is_ok_and(|row| row.lost.is_none());
        assert!(outcome.rows.iter().all(is_whole) && outcome.error.is_none());
        assert_eq!(outcome.rows.len(), items.len());
        let seconds = clock.now().since(clock::Moment::START).as_secs();
        SeenRun { outcome, runs: runs.take(), splits: incidents.batches_split.get(), seconds }
    }

    const fn shape(rows: usize, length: usize) -> Bucket {
        Bucket { rows, length }
    }

    #[test]
    fn texts_that_ran_again_leave_a_batch_that_teaches_nothing() {
        for (value, ran_again, took) in [(1.0, false, 1), (f32::INFINITY, true, 3)] {
            let SeenRun { outcome, seconds, .. } = run(&[shape(1, 8), shape(1, 16)], 2, value);
            assert_eq!((outcome.in_parts, seconds), (ran_again, took));
        }
    }

    /// Each row is infinite, and the rescue fails in this way.
    struct Hopeless {
        rows: RowBuffers,
        rescue: fn() -> EngineError,
        tried: Rc<Cell<u64>>,
    }

    impl Session for Hopeless {
        fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
            self.rows.resize(batch.bucket());
            self.rows.dense.fill(f32::INFINITY);
            self.rows.token_weights.fill(1.0);
            Ok(self.rows.output())
        }

        fn rescue(&mut self, _: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
            self.tried.set(self.tried.get() + 1);
            Some(Err((self.rescue)()))
        }
    }

    #[test]
    fn a_session_that_does_not_survive_a_rescue_is_not_used_again() {
        let rescues: [(fn() -> EngineError, u64); 3] = [
            (|| EngineError::Transient("scripted".to_owned()), 2),
            (|| EngineError::SessionLost("scripted".to_owned()), 1),
            (|| panic!("scripted"), 1),
        ];
        for (rescue, tried) in rescues {
            let (clock, incidents) = (Arc::new(ManualClock::default()), Incidents::default());
            let tries = Rc::new(Cell::new(0));
            let counted = Rc::clone(&tries);
            let session =
                Box::new(Hopeless { rows: RowBuffers::new(4, 0), rescue, tried: counted });
            let shapes = Shapes::new(vec![shape(1, 8), shape(2, 8)], false);
            let mut runner = Runner::new(session, 0, shapes, clock, &incidents);
            // Each has a row of its own.
            let items = [TokenIds::new(&[7; 8]), TokenIds::new(&[8; 8])];
            let outcome = runner.run(shape(2, 8), Priority::Bulk, &items, &|_| {});
            let is_lost = |row: &RowOrError| row.as_ref().is_ok_and(|row| row.lost.is_some());
            assert!(outcome.rows.len() == 2 && outcome.rows.iter().all(is_lost));
            assert_eq!((outcome.error.is_some(), outcome.in_parts), (tried == 1, true));
            assert_eq!((tries.get(), incidents.rows_not_finite.get()), (tried, 2));
        }
    }

    #[test]
    fn a_rescue_has_also_the_time_of_those_before_it() {
        let before = Arc::clone(&RESCUES);
        let running = before.lock();
        let (news, told) = mpsc::channel();
        let waiting = std::thread::spawn(move || {
            let (clock, incidents) = (Arc::new(ManualClock::default()), Incidents::default());
            let (rows, tried) = (RowBuffers::new(4, 0), Rc::default());
            let rescue = || EngineError::Transient("scripted".to_owned());
            let session = Box::new(Hopeless { rows, rescue, tried });
            let shapes = Shapes::new(vec![shape(1, 8)], false);
            let mut runner = Runner::new(session, 0, shapes, clock, &incidents);
            let tell = |one: RunNews<'_>| {
                if let RunNews::Again(patience) = one {
                    news.send(patience).expect("somebody listens");
                }
            };
            runner.run(shape(1, 8), Priority::Bulk, &[TokenIds::new(&[7; 8])], &tell);
        });
        assert!(told.recv().expect("it waits for its turn") >= 2 * RESCUE_FACTOR);
        drop(running);
        waiting.join().expect("it ends");
    }

    #[test]
    fn each_run_of_a_half_is_recorded_with_its_own_time() {
        let SeenRun { outcome, runs, splits, .. } = run(&[shape(2, 8), shape(4, 8)], 3, 1.0);
        let second = Duration::from_secs(1);
        assert_eq!((runs, splits), (vec![(2, second), (1, second)], 1));
        assert!(outcome.in_parts);
    }

    #[test]
    fn a_batch_whose_halves_do_not_fit_memory_is_run_in_quarters() {
        let seen = run(&[shape(2, 8), shape(4, 8), shape(8, 8)], 8, 1.0);
        assert_eq!((seen.runs.iter().map(|run| run.0).collect(), seen.splits), (vec![2; 4], 3));
    }

    /// A run takes 20 seconds, and gives infinite rows or finds no memory for more than two. In the
    /// rescue precision it takes ten times as long. Before it ends, the watchdog looks.
    struct SlowRescue {
        clock: Arc<ManualClock>,
        scheduler: Scheduler,
        rows: RowBuffers,
    }

    impl SlowRescue {
        fn take(&mut self, seconds: u64, batch: &Batch, value: f32) -> BatchOutput<'_> {
            self.clock.advance(Duration::from_secs(seconds));
            self.scheduler.give_up_stuck(Duration::from_secs(30));
            self.rows.resize(batch.bucket());
            self.rows.dense.fill(value);
            self.rows.token_weights.fill(1.0);
            self.rows.output()
        }
    }

    impl Session for SlowRescue {
        fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
            let output = self.take(20, batch, f32::INFINITY);
            match batch.bucket().rows {
                ..=2 => Ok(output),
                _ => Err(EngineError::OutOfMemory("scripted".to_owned())),
            }
        }

        fn rescue(&mut self, batch: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
            Some(Ok(self.take(200, batch, 1.0)))
        }
    }

    #[test]
    fn each_run_of_a_batch_has_the_watchdogs_time() {
        let clock = Arc::new(ManualClock::default());
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let shapes = Shapes::new([1, 2, 4].map(|rows| shape(rows, 16)).into(), false);
        let config = SchedulerConfig::new(Workers::DEFAULT);
        let scheduler = Scheduler::new(config, shapes.clone(), Arc::clone(&shared));
        scheduler.worker_opened(0);
        let items = (0..8).map(|id| TokenIds::new(&[0, 1 + id, 2])).collect();
        let (vectors, deadline) = (Vectors::Both, Moment::from_nanos(u64::MAX));
        let submission = Submission { items, vectors, priority: None, deadline };
        let ticket = scheduler.submit(submission).expect("there is room");
        let Some(Work::Run(job)) = scheduler.next_work(0, None) else { panic!("it waits") };
        let session =
            SlowRescue { clock, scheduler: scheduler.clone(), rows: RowBuffers::new(4, 0) };
        let incidents = Incidents::default();
        let mut runner = Runner::new(Box::new(session), 0, shapes, Arc::clone(&shared), &incidents);
        let worker = Worker {
            index: 0,
            engine: Arc::new(FakeEngine::new(4)),
            scheduler: scheduler.clone(),
            clock: shared,
            plan: WarmUpPlan::default(),
            is_replacement: false,
            progress: Arc::default(),
            events: mpsc::channel().0,
        };
        assert!(worker.run_job(&mut runner, job).is_none());
        assert_eq!((incidents.batches_split.get(), incidents.rows_rescued.get()), (1, 8));
        assert_eq!(scheduler.incidents().batches_stuck.get(), 0);
        assert!(ticket.now_or_never().is_some_and(|rows| rows.is_ok()));
    }
}
