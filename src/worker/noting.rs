//! An engine for tests: it notes what its sessions run, and each run takes its time by a clock that
//! the test has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::fake::FakeEngine;
use crate::engine::{BatchOutput, Engine, EngineError, EngineInfo, Session};
use clock::ManualClock;
use scheduling::batch::{Batch, Bucket};

/// The engine; its clones are the same one.
#[derive(Clone)]
pub(crate) struct Noting {
    pub(crate) fake: Arc<FakeEngine>,
    pub(crate) clock: Arc<ManualClock>,
    /// Time of each run, and for each of its padded tokens.
    pub(crate) run_time: Duration,
    pub(crate) token_time: Duration,
    /// Batches of more tokens do not fit; where it is zero, no session does.
    pub(crate) memory_tokens: usize,
    /// How a batch fails that does not fit.
    pub(crate) error: fn(String) -> EngineError,
    pub(crate) compiles: bool,
    /// Sessions that were opened, or could not be.
    pub(crate) sessions: Arc<AtomicUsize>,
    /// Shapes in the order in which they ran; `None` is where a worker said that it is warm.
    pub(crate) runs: Arc<Mutex<Vec<Option<Bucket>>>>,
}

struct NotingSession {
    fake: Box<dyn Session>,
    engine: Noting,
}

impl Noting {
    /// One that fits everything and takes no time.
    pub(crate) fn new(clock: &Arc<ManualClock>) -> Self {
        Self {
            fake: Arc::new(FakeEngine::new(4)),
            clock: Arc::clone(clock),
            run_time: Duration::ZERO,
            token_time: Duration::ZERO,
            memory_tokens: usize::MAX,
            error: EngineError::OutOfMemory,
            compiles: false,
            sessions: Arc::default(),
            runs: Arc::default(),
        }
    }
}

impl Engine for Noting {
    fn info(&self) -> &EngineInfo {
        self.fake.info()
    }

    fn compiles_shapes(&self) -> bool {
        self.compiles
    }

    fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
        self.sessions.fetch_add(1, Ordering::SeqCst);
        if self.memory_tokens == 0 {
            return Err(EngineError::OutOfMemory("no session fits".to_owned()));
        }
        let fake = self.fake.open_session(buckets)?;
        Ok(Box::new(NotingSession { fake, engine: self.clone() }))
    }
}

impl Session for NotingSession {
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        let Noting { clock, run_time, token_time, memory_tokens, error, runs, .. } = &self.engine;
        let bucket = batch.bucket();
        if bucket.tokens() > *memory_tokens {
            return Err(error("the batch is too large".to_owned()));
        }
        clock.advance(*run_time + *token_time * bucket.tokens() as u32);
        runs.lock().push(Some(bucket));
        self.fake.run(batch)
    }

    fn warmed_up(&mut self) {
        self.engine.runs.lock().push(None);
    }
}
