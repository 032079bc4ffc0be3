//! Lanes: threads that run batches, each on a session of its own.
//!
//! They run no shape before it is needed. A lane ends the run with the first error of its session:
//! the command that is given again begins with new sessions, behind the last finished part.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::error::CorpusError;
use super::{LOOK_INTERVAL, Machine, Window};
use crate::scheduler::{Incidents, TextRow};
use crate::worker::runner::{RunNews, Runner};
use crate::worker::{panic_text, stood_still};
use clock::Moment;
use scheduling::batch::packing::{PackedBatch, pack};
use scheduling::batch::{Bucket, Priority, TokenIds};
use settings::limits::COMMON_LENGTH;

const END_TIME: Duration = Duration::from_secs(10);
const END_POLL: Duration = Duration::from_millis(5);

/// How many times as long as those before it say a batch may take: they may have been much shorter,
/// and the machine busier.
const MEASURED_TIMES: f64 = 20.0;

/// A window whose batches run.
pub(super) struct Running<P> {
    pub(super) index: usize,
    pub(super) digest: String,
    pub(super) prepared: P,
    rows: Mutex<Vec<Option<TextRow>>>,
    batches_left: AtomicUsize,
}

/// A window whose batches have run, or why one has not.
pub(super) type RanWindow<P> = Result<Arc<Running<P>>, CorpusError>;

/// One batch of a window.
pub(super) struct Task<P> {
    running: Arc<Running<P>>,
    bucket: Bucket,
    /// Which items of the window.
    places: Vec<usize>,
    items: Vec<TokenIds>,
    /// Bytes of the input, for the progress.
    span: f64,
}

/// Batches that wait. Lanes own it only while they wait for one, so that it is closed although one
/// of them is stuck.
pub(super) type TaskQueue<P> = Mutex<Receiver<Task<P>>>;

impl<P> Running<P> {
    /// Those of all items; once, when all batches have run.
    pub(super) fn take_rows(&self) -> Vec<TextRow> {
        let rows = std::mem::take(&mut *self.rows.lock());
        rows.into_iter().map(|row| row.expect("its batch has run")).collect()
    }
}

impl<P> Task<P> {
    /// Packs `items`, those of a window whose content is what is kept of it meanwhile; the same
    /// items give the same batches.
    ///
    /// # Errors
    /// When the engine has no shape for a text that the model takes.
    pub(super) fn pack(
        index: usize,
        window: Window<P>,
        items: &[TokenIds],
        machine: &Machine,
    ) -> Result<(Arc<Running<P>>, Vec<Self>), CorpusError> {
        let Window { content: prepared, digest, bytes, .. } = window;
        let lengths: Vec<usize> = items.iter().map(TokenIds::room).collect();
        let batches = pack(&lengths, &machine.shapes).ok_or_else(|| {
            CorpusError::Engine("it has no shape for the longest texts".to_owned())
        })?;
        let (rows, batches_left) = (Mutex::new(vec![None; items.len()]), batches.len().into());
        let running = Arc::new(Running { index, digest, prepared, rows, batches_left });
        let task = |PackedBatch { bucket, items: places }| {
            let span = (bytes * places.len() as u64) as f64 / items.len() as f64;
            let items = places.iter().map(|&place| items[place].clone()).collect();
            Self { running: Arc::clone(&running), bucket, places, items, span }
        };
        let tasks = batches.into_iter().map(task).collect();
        Ok((running, tasks))
    }

    /// Keeps the rows; gives the window when this was the last of its batches.
    fn end(self, rows: Vec<TextRow>, machine: &Machine) -> Option<Arc<Running<P>>> {
        let Self { running, bucket, places, items, span } = self;
        assert_eq!(rows.len(), places.len(), "each item has a row");
        let mut all = running.rows.lock();
        for (place, row) in places.iter().zip(rows) {
            all[*place] = Some(row);
        }
        drop(all);
        let tokens = items.iter().map(|ids| ids.len()).sum();
        machine.progress.ran(places.len(), tokens, bucket.tokens(), span);
        let last = running.batches_left.fetch_sub(1, Ordering::AcqRel) == 1;
        last.then_some(running)
    }
}

/// What a lane runs, since when, and how many times as long as a batch that may take.
type Busy = Mutex<Option<(Moment, Bucket, u32)>>;

struct LaneWatch {
    busy: Vec<Busy>,
    /// The longest time of a batch, as a part of its patience.
    slowest: Mutex<Duration>,
    /// When somebody last looked.
    looked: Mutex<Moment>,
}

pub(super) struct Lanes {
    machine: Arc<Machine>,
    watched: Arc<LaneWatch>,
    threads: Vec<JoinHandle<()>>,
}

impl Lanes {
    /// Starts all of them; each opens its session. They end with the queue or with its senders.
    pub(super) fn start<P: Send + Sync + 'static>(
        machine: &Arc<Machine>,
        queue: &Arc<TaskQueue<P>>,
        ran: &SyncSender<RanWindow<P>>,
    ) -> Result<Self, CorpusError> {
        let watched = Arc::new(LaneWatch::new(machine));
        let start = |lane: usize| {
            let (machine, watched) = (Arc::clone(machine), Arc::clone(&watched));
            let (queue, ran) = (Arc::downgrade(queue), ran.clone());
            let live = move || {
                let run = || run_all(lane, &machine, &watched, &queue, &ran);
                let ended = catch_unwind(AssertUnwindSafe(run));
                let panicked = |panic: &_| Err(format!("panic: {}", panic_text(panic)));
                if let Err(reason) = ended.unwrap_or_else(|panic| panicked(&*panic)) {
                    let _ = ran.send(Err(CorpusError::Engine(reason)));
                }
            };
            let named = thread::Builder::new().name(format!("duovec-lane-{lane}"));
            let fault = |error| CorpusError::Engine(format!("cannot start a thread: {error}"));
            named.spawn(live).map_err(fault)
        };
        let threads = (0..machine.workers).map(start).collect::<Result<_, _>>()?;
        Ok(Self { machine: Arc::clone(machine), watched, threads })
    }

    /// # Errors
    /// When a batch has run for so long that it may never end.
    pub(super) fn check(&self) -> Result<(), CorpusError> {
        let limit = Duration::from_millis(self.machine.watchdog.stuck_after.get());
        let now = self.machine.clock.now();
        let late = stood_still(&mut self.watched.looked.lock(), now, LOOK_INTERVAL);
        for busy in &self.watched.busy {
            let mut busy = busy.lock();
            let Some((started, bucket, patience)) = &mut *busy else { continue };
            *started = *started + late.unwrap_or_default();
            let (time, Bucket { rows, length }) = (now.since(*started), *bucket);
            if !limit.is_zero() && time >= self.watched.time_of(*bucket, limit) * *patience {
                return Err(CorpusError::Engine(format!(
                    "a batch of {rows} × {length} tokens has run for {} s and may never end \
                     (DUOVEC_WORKER_STUCK_MS gives it more time)",
                    time.as_secs()
                )));
            }
        }
        Ok(())
    }

    /// Waits for their ends. A thread that is stuck is left to the end of the process.
    pub(super) fn end(self) {
        let clock = &self.machine.clock;
        let end = clock.now() + END_TIME;
        while self.threads.iter().any(|thread| !thread.is_finished()) && clock.now() < end {
            thread::sleep(END_POLL);
        }
    }
}

impl LaneWatch {
    fn new(machine: &Machine) -> Self {
        Self {
            busy: (0..machine.workers).map(|_| Mutex::default()).collect(),
            slowest: Mutex::default(),
            looked: Mutex::new(machine.clock.now()),
        }
    }

    /// How long a batch may run: `limit` and its patience, but many times what the batches before
    /// it say is enough.
    fn time_of(&self, bucket: Bucket, limit: Duration) -> Duration {
        let (most, slowest) = (limit.mul_f64(patience(bucket)), *self.slowest.lock());
        match slowest.is_zero() {
            true => most,
            false => slowest.mul_f64(MEASURED_TIMES * patience(bucket)).clamp(limit, most),
        }
    }

    fn ran(&self, bucket: Bucket, time: Duration) {
        let mut slowest = self.slowest.lock();
        *slowest = slowest.max(time.div_f64(patience(bucket)));
    }
}

/// How many times as long as a batch of common texts a batch may run. Long texts come first, when
/// nothing was measured: what attention takes may grow with the square of a text's length.
fn patience(bucket: Bucket) -> f64 {
    let part = |tokens: usize| (tokens as f64 / COMMON_LENGTH as f64).max(1.0);
    part(bucket.tokens()) * part(bucket.length)
}

/// The life of a lane, up to its first fault.
fn run_all<P>(
    lane: usize,
    machine: &Machine,
    watched: &LaneWatch,
    queue: &Weak<TaskQueue<P>>,
    ran: &SyncSender<RanWindow<P>>,
) -> Result<(), String> {
    let session = machine.engine.open_session(machine.shapes.prepared());
    let mut session = session.map_err(|error| error.to_string())?;
    session.warmed_up();
    let (clock, incidents) = (Arc::clone(&machine.clock), Incidents::default());
    let mut runner = Runner::new(session, lane, machine.shapes.clone(), clock, &incidents);
    // Without a queue nobody wants rows any more.
    while let Some(waiting) = queue.upgrade() {
        let Ok(task) = waiting.lock().recv() else { break };
        drop(waiting);
        let begin = |patience| {
            *watched.busy[lane].lock() = Some((machine.clock.now(), task.bucket, patience));
        };
        begin(1);
        let tell = |news: RunNews<'_>| {
            if let RunNews::Again(patience) = news {
                begin(patience);
            }
        };
        let outcome = runner.run(task.bucket, Priority::Bulk, &task.items, &tell);
        let ended = watched.busy[lane].lock().take();
        // Of one that ran in parts, only the time of the last part is known.
        if let (Some((started, bucket, _)), false) = (ended, outcome.in_parts) {
            watched.ran(bucket, machine.clock.now().since(started));
        }
        if let Some(error) = outcome.error {
            return Err(error.to_string());
        }
        let rows = outcome.rows.into_iter().collect::<Result<Vec<_>, _>>();
        let window = task.end(rows.map_err(|error| error.to_string())?, machine);
        if window.is_some_and(|window| ran.send(Ok(window)).is_err()) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::corpus::CorpusProgress;
    use crate::engine::fake::{FakeEngine, FakeScript};
    use crate::worker::noting::Noting;
    use clock::{Clock, ManualClock};
    use scheduling::batch::plan::Shapes;
    use settings::Config;

    /// Lanes of which the first one has run `bucket` since now.
    fn lanes(clock: &Arc<ManualClock>, bucket: Bucket) -> Lanes {
        let machine = Arc::new(Machine {
            engine: Arc::new(FakeEngine::with_script(4, FakeScript::default())),
            shapes: Shapes::new(vec![bucket], false),
            workers: 1,
            watchdog: Config::default().watchdog,
            clock: Arc::clone(clock) as _,
            progress: CorpusProgress::default(),
        });
        let watched = Arc::new(LaneWatch::new(&machine));
        *watched.busy[0].lock() = Some((clock.now(), bucket, 1));
        Lanes { machine, watched, threads: Vec::new() }
    }

    /// Looks until the batch is taken for hung; after what time.
    fn hangs_after(lanes: &Lanes, clock: &ManualClock) -> Duration {
        let begun = clock.now();
        while lanes.check().is_ok() {
            clock.advance(LOOK_INTERVAL);
        }
        clock.now().since(begun)
    }

    #[test]
    fn a_process_that_stood_still_takes_no_batch_for_hung() {
        let clock = Arc::new(ManualClock::default());
        let lanes = lanes(&clock, Bucket { rows: 8, length: 64 });
        let limit = Duration::from_millis(lanes.machine.watchdog.stuck_after.get());
        for _ in 0..3 {
            clock.advance(limit * 2);
            lanes.check().expect("the batch stood still as well");
        }
        assert!(hangs_after(&lanes, &clock) <= limit, "it is seen nevertheless");
    }

    #[test]
    fn a_long_text_has_the_time_that_batches_before_it_make_likely() {
        let clock = Arc::new(ManualClock::default());
        let long = Bucket { rows: 1, length: 8192 };
        let lanes = lanes(&clock, long);
        let limit = Duration::from_millis(lanes.machine.watchdog.stuck_after.get());
        assert_eq!(lanes.watched.time_of(long, limit), limit.mul_f64(patience(long)));
        lanes.watched.ran(Bucket { rows: 1, length: 64 }, Duration::from_millis(5));
        assert_eq!(lanes.watched.time_of(long, limit), limit, "256 times 5 ms are not long");
        lanes.watched.ran(Bucket { rows: 1, length: 512 }, Duration::from_millis(100));
        let expected = Duration::from_millis(100 * 256 * 20);
        assert_eq!(lanes.watched.time_of(long, limit), expected);
    }

    #[test]
    fn a_batch_that_ran_in_halves_teaches_no_time() {
        let clock = Arc::new(ManualClock::default());
        for (memory_tokens, seconds) in [(512, 5), (256, 0)] {
            let run_time = Duration::from_secs(5);
            let engine = Noting { memory_tokens, run_time, ..Noting::new(&clock) };
            let shapes = [4, 8].map(|rows| Bucket { rows, length: 64 });
            let machine = Machine {
                engine: Arc::new(engine),
                shapes: Shapes::new(shapes.into(), false),
                workers: 1,
                watchdog: Config::default().watchdog,
                clock: Arc::clone(&clock) as _,
                progress: CorpusProgress::default(),
            };
            let items = vec![TokenIds::new(&[7; 64]); 8];
            let digest = String::new();
            let window = Window { place: digest.clone(), digest, bytes: 8, content: () };
            let (_, tasks) = Task::pack(0, window, &items, &machine).expect("they have a shape");
            let ((tasks_in, tasks_out), (ran, ended)) = (sync_channel(1), sync_channel(1));
            tasks.into_iter().for_each(|task| tasks_in.send(task).expect("there is room"));
            drop(tasks_in);
            let watched = LaneWatch::new(&machine);
            let queue = Arc::new(Mutex::new(tasks_out));
            run_all(0, &machine, &watched, &Arc::downgrade(&queue), &ran).expect("it runs");
            assert!(ended.try_recv().is_ok());
            assert_eq!(*watched.slowest.lock(), Duration::from_secs(seconds));
        }
    }

    #[test]
    fn a_long_text_has_the_time_that_its_attention_may_take() {
        let bucket = |rows, length| Bucket { rows, length };
        assert_eq!(patience(bucket(8, 64)), 1.0);
        assert_eq!(patience(bucket(128, 64)), 16.0, "more texts of a common length");
        assert_eq!(patience(bucket(1, 8192)), 16.0 * 16.0);
    }
}
