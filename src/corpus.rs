//! A whole corpus in one run: rows in, files of vectors out, on the server's own engine, workers
//! and tokenizer.
//!
//! | thread | does | hands on |
//! |---|---|---|
//! | the caller's | reads windows, tokenizes them on all cores, packs them | batches, two a lane |
//! | one a lane | runs batches, chooses vectors from the rows | windows whose batches have run |
//! | the writer | writes windows as parts | |
//!
//! What waits between them is bounded, so memory is too: of four windows at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use parking_lot::Mutex;

use crate::batch::Bucket;
use crate::clock::Clock;
use crate::config::WatchdogConfig;
use crate::engine::Engine;
use crate::tokenize::TextTokenizer;

mod destination;
mod error;
mod input;
mod kept;
mod lanes;
mod output;
mod progress;
mod recipe;
mod window;
mod work;

use destination::Destination;
pub(crate) use destination::{OutputTarget, Totals};
pub(crate) use error::CorpusError;
use input::InputRows;
pub(crate) use input::{Columns, InputFile, InputFormat, Lines};
use lanes::{Lane, LaneOptions};
pub(crate) use output::OutputFormat;
use output::{OWN_COLUMNS, PartContent};
pub(crate) use progress::{CorpusProgress, Done};
use recipe::Label;
pub(crate) use recipe::{DenseFloat, Recipe, RecipeOptions};
pub(crate) use window::WindowLimits;
use window::{Window, Windows};
use work::{Running, Task};

/// Batches that wait for each lane.
const WAITING_BATCHES: usize = 2;
/// Windows that wait to be written.
const WAITING_PARTS: usize = 1;

/// What is embedded, and where the vectors go.
pub(crate) struct CorpusJob {
    pub(crate) files: Vec<InputFile>,
    pub(crate) columns: Columns,
    pub(crate) target: OutputTarget,
    pub(crate) limits: WindowLimits,
    pub(crate) item_bytes_max: usize,
}

/// What runs it.
pub(crate) struct Machine {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) tokenizer: TextTokenizer,
    pub(crate) workers: usize,
    pub(crate) watchdog: WatchdogConfig,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Embeds a corpus. Continues an output that an earlier run left unfinished. A complete one is left
/// as it is.
///
/// # Errors
/// See [`CorpusError`]. Finished parts stay valid.
pub(crate) fn embed(
    job: &CorpusJob,
    recipe: &Recipe,
    machine: &Machine,
    progress: &CorpusProgress,
) -> Result<Totals, CorpusError> {
    check(job, recipe)?;
    let label = recipe.label(machine.engine.info());
    let CorpusJob { target, columns, limits, .. } = job;
    let mut destination = Destination::open(target, &label, columns, *limits)?;
    if let Some(totals) = destination.finished() {
        tracing::info!("the output is already complete; nothing is left to do");
        return Ok(totals);
    }
    let input = InputRows::new(&job.files, columns.clone(), job.item_bytes_max);
    let mut windows = Windows::new(input, *limits, columns.kept.len());
    progress.set_length(windows.input_length());
    let options = LaneOptions {
        workers: machine.workers,
        watchdog: machine.watchdog,
        vectors: recipe.vectors,
    };
    let lanes = Lane::open(&machine.engine, &machine.buckets, &machine.clock, &options);
    let lanes = lanes.map_err(|error| CorpusError::Engine(error.to_string()))?;
    let (format, kept) = (target.format, &columns.kept[..]);
    let run =
        CorpusRun { recipe, label: &label, kept, format, destination: &destination, progress };
    let parts = run.all(&mut windows, &machine.tokenizer, lanes)?;
    if parts == 0 {
        return Err(CorpusError::Options("the input has no rows".to_owned()));
    }
    destination.finish(parts)
}

/// Refuses what the format of the output cannot hold.
fn check(job: &CorpusJob, recipe: &Recipe) -> Result<(), CorpusError> {
    let wrong = |problem: String| Err(CorpusError::Options(problem));
    if job.target.format == OutputFormat::Npy {
        if recipe.vectors != crate::batch::Vectors::Dense {
            return wrong("npy holds dense vectors only; add --vectors dense".to_owned());
        }
        if !job.columns.kept.is_empty() {
            return wrong(
                "npy has no columns; leave --keep out, or use --format parquet".to_owned(),
            );
        }
    }
    match job.columns.kept.iter().find(|name| OWN_COLUMNS.contains(&name.as_str())) {
        Some(name) => wrong(format!(
            "the column `{name}` cannot be kept, because the output has a column of that name: \
             rename yours"
        )),
        None => Ok(()),
    }
}

/// One run, as its threads see it.
#[derive(Clone, Copy)]
struct CorpusRun<'a> {
    recipe: &'a Recipe,
    label: &'a Label,
    kept: &'a [String],
    format: OutputFormat,
    destination: &'a Destination,
    progress: &'a CorpusProgress,
}

impl CorpusRun<'_> {
    /// Runs every window that has no part yet; gives the number of all windows.
    fn all(
        self,
        windows: &mut Windows,
        tokenizer: &TextTokenizer,
        mut lanes: Vec<Lane>,
    ) -> Result<usize, CorpusError> {
        let (tasks, waiting) = sync_channel(WAITING_BATCHES * lanes.len());
        let queue = BatchQueue { waiting: Mutex::new(waiting), stop: AtomicBool::new(false) };
        let queue = Arc::new(queue);
        let outcome = thread::scope(|scope| {
            let (ran, to_write) = sync_channel(WAITING_PARTS);
            let writer = scope.spawn(move || self.write_all(&to_write));
            let runners: Vec<_> = lanes
                .iter_mut()
                .map(|lane| {
                    let (ran, queue) = (ran.clone(), Arc::clone(&queue));
                    scope.spawn(move || self.run_all(lane, &queue, &ran))
                })
                .collect();
            // The queue is closed with the last lane, which ends the thread that fills it.
            drop(queue);
            let read = self.read_all(windows, tokenizer, &tasks, &ran);
            // Without senders the others come to their ends.
            drop((tasks, ran));
            let lost = |_| Err(CorpusError::Engine("a thread panicked".to_owned()));
            let ran: Vec<_> =
                runners.into_iter().map(|runner| runner.join().unwrap_or_else(lost)).collect();
            let written = writer.join().unwrap_or_else(lost);
            // A thread that fails closes its channel, so that the others end without an error.
            written.and(ran.into_iter().collect::<Result<(), _>>()).and(read)
        });
        lanes::close(lanes);
        outcome
    }

    fn read_all(
        self,
        windows: &mut Windows,
        tokenizer: &TextTokenizer,
        tasks: &SyncSender<Task>,
        ran: &SyncSender<Arc<Running>>,
    ) -> Result<usize, CorpusError> {
        let mut parts = 0;
        while let Some(window) = windows.next()? {
            parts += 1;
            if self.format == OutputFormat::Jsonl {
                self.check_json(&window)?;
            }
            if self.destination.has_part(window.index, &window.digest())? {
                self.progress.passed(window.span.end - window.span.start);
                continue;
            }
            let (running, batches) = Running::prepare(window, tokenizer, self.recipe)?;
            if batches.is_empty() {
                let _ = ran.send(running);
                continue;
            }
            for batch in batches {
                if tasks.send(batch).is_err() {
                    return Ok(parts);
                }
            }
        }
        Ok(parts)
    }

    /// Some types of Parquet have no form in JSON that reads back.
    fn check_json(self, window: &Window) -> Result<(), CorpusError> {
        let kinds = window.kept.iter().flatten().map(|column| column.data_type());
        match kinds.into_iter().find(|kind| !kept::has_json(kind)) {
            Some(kind) => Err(CorpusError::Options(format!(
                "a kept column is of type {kind}, which JSON lines cannot hold; write parquet, or \
                 do not keep it"
            ))),
            None => Ok(()),
        }
    }

    fn run_all(
        self,
        lane: &mut Lane,
        queue: &BatchQueue,
        ran: &SyncSender<Arc<Running>>,
    ) -> Result<(), CorpusError> {
        while let Some(task) = queue.next() {
            let whole = task.run(lane, self.recipe, self.progress).inspect_err(|_| queue.stop())?;
            if let Some(window) = whole
                && ran.send(window).is_err()
            {
                queue.stop();
            }
        }
        Ok(())
    }

    fn write_all(self, to_write: &Receiver<Arc<Running>>) -> Result<(), CorpusError> {
        for running in to_write {
            let outcomes = running.take_outcomes();
            let Self { recipe, label, kept, destination, .. } = self;
            let part =
                PartContent { window: &running.window, outcomes: &outcomes, recipe, label, kept };
            destination.write_part(&part)?;
        }
        Ok(())
    }
}

/// Batches that wait for a lane.
struct BatchQueue {
    waiting: Mutex<Receiver<Task>>,
    /// Set when a failure makes everything that waits useless.
    stop: AtomicBool,
}

impl BatchQueue {
    /// The next batch; `None` when there will be none.
    fn next(&self) -> Option<Task> {
        let task = self.waiting.lock().recv().ok();
        task.filter(|_| !self.stop.load(Ordering::Relaxed))
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
