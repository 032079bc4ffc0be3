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

use super::Machine;
use super::error::CorpusError;
use crate::batch::packing::{PackedBatch, pack};
use crate::batch::{Bucket, Priority, TokenIds};
use crate::clock::Moment;
use crate::limits::COMMON_LENGTH;
use crate::scheduler::{Incidents, TextRow};
use crate::worker::panic_text;
use crate::worker::runner::Runner;

/// How long the threads may take to end.
const END_TIME: Duration = Duration::from_secs(10);
const END_POLL: Duration = Duration::from_millis(5);

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
    /// Packs the items of a window; the same items give the same batches.
    ///
    /// # Errors
    /// When the engine has no shape for a text that the model takes.
    pub(super) fn pack(
        (index, digest, span): (usize, String, u64),
        (prepared, items): (P, Vec<TokenIds>),
        machine: &Machine,
    ) -> Result<(Arc<Running<P>>, Vec<Self>), CorpusError> {
        let mut places: Vec<usize> = (0..items.len()).collect();
        // Items of one length stay in their order.
        places.sort_by_key(|&place| items[place].len());
        let lengths: Vec<usize> = places.iter().map(|&place| items[place].len()).collect();
        let batches = pack(&lengths, &machine.buckets, machine.batch_tokens).ok_or_else(|| {
            CorpusError::Engine("it has no shape for the longest texts".to_owned())
        })?;
        let (rows, batches_left) = (Mutex::new(vec![None; items.len()]), batches.len().into());
        let running = Arc::new(Running { index, digest, prepared, rows, batches_left });
        let task = |PackedBatch { bucket, items: range }| {
            let span = (span * range.len() as u64) as f64 / items.len() as f64;
            let places = places[range].to_vec();
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

/// What a lane runs, and since when.
type Busy = Mutex<Option<(Moment, Bucket)>>;

/// The threads.
pub(super) struct Lanes {
    machine: Arc<Machine>,
    busy: Arc<[Busy]>,
    threads: Vec<JoinHandle<()>>,
}

impl Lanes {
    /// Starts all of them; each opens its session. They end with the queue or with its senders.
    pub(super) fn start<P: Send + Sync + 'static>(
        machine: &Arc<Machine>,
        queue: &Arc<TaskQueue<P>>,
        ran: &SyncSender<RanWindow<P>>,
    ) -> Result<Self, CorpusError> {
        let busy: Arc<[Busy]> = (0..machine.workers).map(|_| Mutex::default()).collect();
        let start = |lane: usize| {
            let (machine, busy) = (Arc::clone(machine), Arc::clone(&busy));
            let (queue, ran) = (Arc::downgrade(queue), ran.clone());
            let live = move || {
                let run = || run_all(lane, &machine, &busy[lane], &queue, &ran);
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
        Ok(Self { machine: Arc::clone(machine), busy, threads })
    }

    /// # Errors
    /// When a batch has run for so long that it may never end.
    pub(super) fn check(&self) -> Result<(), CorpusError> {
        let limit = Duration::from_millis(self.machine.watchdog.stuck_after.get());
        let now = self.machine.clock.now();
        for busy in &*self.busy {
            let Some((started, bucket)) = *busy.lock() else { continue };
            let (time, Bucket { rows, length }) = (now.since(started), bucket);
            if !limit.is_zero() && time >= limit.mul_f64(patience(bucket)) {
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
    busy: &Busy,
    queue: &Weak<TaskQueue<P>>,
    ran: &SyncSender<RanWindow<P>>,
) -> Result<(), String> {
    let session = machine.engine.open_session(&machine.buckets);
    let mut session = session.map_err(|error| error.to_string())?;
    session.warmed_up();
    let (clock, incidents) = (Arc::clone(&machine.clock), Incidents::default());
    let mut runner = Runner::new(session, lane, &machine.buckets, clock, &incidents);
    // Without a queue nobody wants rows any more.
    while let Some(waiting) = queue.upgrade() {
        let Ok(task) = waiting.lock().recv() else { break };
        drop(waiting);
        *busy.lock() = Some((machine.clock.now(), task.bucket));
        let rows = runner.run(task.bucket, Priority::Bulk, &task.items, &|_| ()).rows;
        *busy.lock() = None;
        let rows = rows.into_iter().collect::<Result<Vec<_>, _>>();
        let window = task.end(rows.map_err(|error| error.to_string())?, machine);
        if window.is_some_and(|window| ran.send(Ok(window)).is_err()) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_has_the_time_that_its_attention_may_take() {
        let bucket = |rows, length| Bucket { rows, length };
        assert_eq!(patience(bucket(8, 64)), 1.0);
        assert_eq!(patience(bucket(128, 64)), 16.0, "more texts of a common length");
        assert_eq!(patience(bucket(1, 8192)), 16.0 * 16.0);
    }
}
