//! A file of texts or of requests in one run, on the server's own engine and tokenizer: windows of
//! it in, parts of the output out. `duovec embed` and `duovec batch` differ in what a window is and
//! in what a part holds; see [`Maker`].
//!
//! | thread | does | hands on |
//! |---|---|---|
//! | the caller's | reads windows, makes token ids on all cores, packs them | batches, two a lane |
//! | one a lane | runs batches | windows whose batches have run |
//! | the writer | makes parts of windows; looks whether a lane is stuck | |
//!
//! What waits between them is bounded, so memory is too: of four windows at most. What shares a
//! batch depends on the window alone, and the last bits of a vector depend on its batch. So a run
//! that is started again gives the same bytes, with any number of lanes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rayon::prelude::*;

use crate::engine::Engine;
use crate::scheduler::TextRow;
use crate::worker::panic_text;
use clock::Clock;
use scheduling::batch::TokenIds;
use scheduling::batch::plan::Shapes;
use settings::WatchdogConfig;

mod destination;
mod error;
mod input;
mod job;
mod kept;
mod lanes;
mod output;
mod progress;
mod recipe;
mod target;
mod terms;
mod texts;
mod window;

pub(crate) use destination::{Destination, NewPart};
pub(crate) use error::CorpusError;
pub(crate) use input::{Columns, InputFile, InputFormat, InputRows, Lines};
pub(crate) use job::Totals;
use lanes::{Lanes, RanWindow, Task};
pub(crate) use output::{OutputFormat, is_folder, stream};
pub(crate) use progress::{CorpusProgress, Done};
pub(crate) use recipe::{CorpusChunks, DENSE_TYPES, Recipe, VECTORS};
pub(crate) use target::OutputTarget;
pub(crate) use terms::{PieceDigest, Terms};
pub(crate) use texts::TextMaker;
pub(crate) use window::{WindowLimits, Windows};

/// Batches that wait for each lane.
const WAITING_BATCHES: usize = 2;
/// Windows in memory, from the moment when one is read until its part is written.
const WINDOWS: usize = 4;
/// How often somebody looks whether a lane is stuck.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// A piece of the input, which becomes a part of the output. Where it ends depends on the input
/// alone, so that a run which is started again makes the same parts.
pub(crate) struct Window<C> {
    pub(crate) content: C,
    /// Tells whether a later run sees the same.
    pub(crate) digest: String,
    /// Where it begins, for people: `line 7 of in.jsonl`.
    pub(crate) place: String,
    /// Bytes of the input from the end of the window before to its own.
    pub(crate) bytes: u64,
}

/// What one of the commands makes of windows.
pub(crate) trait Maker: Sync {
    /// What a window consists of, for people: `rows`.
    const ITEMS: &'static str;
    /// Of a window.
    type Content;
    /// The same when its texts have become token ids.
    type Prepared: Send + Sync + 'static;

    /// Gives the texts that are to run, in their order.
    ///
    /// # Errors
    /// What ends the run: a fault of the program, not of a text.
    fn prepare(
        &self,
        content: Self::Content,
    ) -> Result<(Self::Prepared, Vec<TokenIds>), CorpusError>;

    /// The part of a window; `rows` has one for each text that ran.
    fn part<'a>(&'a self, prepared: &'a Self::Prepared, rows: Vec<TextRow>) -> NewPart<'a>;
}

pub(crate) struct Machine {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) shapes: Shapes,
    pub(crate) workers: usize,
    pub(crate) watchdog: WatchdogConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) progress: CorpusProgress,
}

/// Makes all parts that `destination` does not have, and the whole output of them.
///
/// # Errors
/// See [`CorpusError`]. Finished parts stay valid.
pub(crate) fn run<M: Maker>(
    windows: impl Iterator<Item = Result<Window<M::Content>, CorpusError>>,
    maker: &M,
    destination: &mut Destination,
    machine: &Arc<Machine>,
) -> Result<Totals, CorpusError> {
    let (tasks, queue) = sync_channel(WAITING_BATCHES * machine.workers);
    let (ran, to_write) = sync_channel(WINDOWS);
    // Whoever reads a window takes one of these, and whoever has written its part puts it back.
    let (put_back, places) = sync_channel(WINDOWS);
    (0..WINDOWS).try_for_each(|_| put_back.send(())).expect("the channel has room");
    let queue = Arc::new(Mutex::new(queue));
    let lanes = Lanes::start(machine, &queue, &ran)?;
    let (shared, watched, ends) = (&*destination, &lanes, (tasks, ran, places));
    let outcome = thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let written = write_all(&to_write, &put_back, maker, shared, watched);
            // Its end is that of the lanes, and of the thread that fills it.
            drop(queue);
            written
        });
        let read = read_all(windows, maker, shared, machine, &ends);
        // Without these the others come to their ends.
        drop(ends);
        let lost = |_| Err(CorpusError::Engine("the thread that writes panicked".to_owned()));
        writer.join().unwrap_or_else(lost).and(read)
    });
    lanes.end();
    match outcome? {
        0 => Err(CorpusError::Empty("the input is empty")),
        parts => destination.finish(parts),
    }
}

/// What hands batches to the lanes, and windows to the writer, which puts places back.
type Ends<P> = (SyncSender<Task<P>>, SyncSender<RanWindow<P>>, Receiver<()>);

/// Hands out every window that has no part yet; gives the number of all windows.
fn read_all<M: Maker>(
    mut windows: impl Iterator<Item = Result<Window<M::Content>, CorpusError>>,
    maker: &M,
    destination: &Destination,
    machine: &Machine,
    (tasks, ran, places): &Ends<M::Prepared>,
) -> Result<usize, CorpusError> {
    let mut parts = 0;
    // A window that is passed over leaves its place to the next one.
    let mut has_place = false;
    // The writer knows why it puts none back any more.
    while has_place || places.recv().is_ok() {
        let Some(window) = windows.next() else { break };
        let Window { content, digest, place, bytes } = window?;
        let index = parts;
        parts += 1;
        has_place = destination.has_part::<M>(index, &digest, &place)?;
        if has_place {
            machine.progress.passed(bytes);
            continue;
        }
        let (prepared, items) = maker.prepare(content)?;
        let window = Window { content: prepared, digest, place, bytes };
        let (running, batches) = Task::pack(index, window, &items, machine)?;
        // The writer knows why nobody takes them.
        let taken = match batches.is_empty() {
            true => ran.send(Ok(running)).is_ok(),
            false => batches.into_iter().all(|batch| tasks.send(batch).is_ok()),
        };
        if !taken {
            break;
        }
    }
    Ok(parts)
}

fn write_all<M: Maker>(
    to_write: &Receiver<RanWindow<M::Prepared>>,
    put_back: &SyncSender<()>,
    maker: &M,
    destination: &Destination,
    lanes: &Lanes,
) -> Result<(), CorpusError> {
    loop {
        lanes.check()?;
        match to_write.recv_timeout(LOOK_INTERVAL) {
            Ok(running) => {
                let running = running?;
                let part = maker.part(&running.prepared, running.take_rows());
                destination.write_part(running.index, &running.digest, part)?;
                drop(running);
                // Nobody takes it when all windows are read.
                let _ = put_back.send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Does `work` for each of `items` on all cores, and gives the results in their order.
///
/// # Errors
/// When it panics: without its result every later one would stand for another item.
pub(crate) fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>, CorpusError> {
    let done = catch_unwind(AssertUnwindSafe(|| items.par_iter().map(&work).collect()));
    done.map_err(|panic| CorpusError::Tokenizer(panic_text(&*panic).to_owned()))
}

#[cfg(test)]
mod tests;
