//! An engine whose rows tests can foretell, and whose runs they can hold, break and distort.

use std::sync::Arc;
use std::time::Instant;

use duovec::engine::fake::RowBuffers;
use duovec::engine::{BatchOutput, Engine, EngineError, EngineInfo, EngineKind, Session};
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};
use scheduling::batch::{Batch, Bucket, Place, TokenIds};

use crate::package::{Gives, KEPT_WORDS, TOKEN_SIZE, TWO_ID, VOCAB};
use crate::support::PATIENCE;

/// The text of an engine's fault, which no client may see.
const SECRET: &str = "cudaErrorSecret";

/// What the next runs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The next run panics, and its worker is replaced.
    Panic,
    /// The next run fails.
    Fail,
    /// Rows of the text "two" have a NaN, up to its next run in a row of its own.
    NotFinite,
    /// The next run loses its session, and no other can be opened.
    LoseSession,
}

#[derive(Debug, Default)]
pub(crate) struct Behaviour {
    /// Whether runs wait to be released.
    pub(crate) held: bool,
    waiting: usize,
    /// Whether the device does not answer when it is asked for its figures.
    pub(crate) silent: bool,
    /// Threads that have asked a silent device and wait.
    asking: usize,
    /// What the next run does.
    pub(crate) fault: Option<Fault>,
    /// Draws the faults of runs for which none is set: 2 of 100 panic, fail or are not finite.
    pub(crate) random: Option<Rng>,
    /// Whether all numbers are wrong.
    pub(crate) distorted: bool,
    /// Token weights by position, in place of those by id.
    pub(crate) weights: Option<Vec<f32>>,
    closed_for_new_sessions: bool,
    /// The first row of every run so far, in the order in which the runs began.
    runs: Vec<TokenIds>,
}

/// The tests' hand on the engine.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    behaviour: Mutex<Behaviour>,
    changed: Condvar,
}

impl Controls {
    /// From now on the engine behaves so.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock());
        self.changed.notify_all();
    }

    /// Blocks until somebody waits for the figures of a silent device.
    pub(crate) fn wait_asked(&self) {
        self.wait_while("nobody asks for the figures", |behaviour| behaviour.asking == 0);
    }

    /// Blocks until `runs` runs are held.
    pub(crate) fn wait_held(&self, runs: usize) {
        self.wait_while("the workers take nothing", |behaviour| behaviour.waiting < runs);
    }

    fn wait_while(&self, problem: &str, condition: impl Fn(&mut Behaviour) -> bool) {
        let end = Instant::now() + PATIENCE;
        let waited = self.changed.wait_while_until(&mut self.behaviour.lock(), condition, end);
        assert!(!waited.timed_out(), "{problem}");
    }

    /// Waits while the device is silent.
    fn answer_figures(&self) {
        let mut behaviour = self.behaviour.lock();
        behaviour.asking += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut behaviour, |behaviour| behaviour.silent);
        behaviour.asking -= 1;
    }

    fn weights(&self, ids: &TokenIds) -> Vec<f32> {
        let weights = self.behaviour.lock().weights.clone();
        weights.unwrap_or_else(|| weights_of(ids))
    }

    /// The first row of every run so far, in the order in which the runs began.
    pub(crate) fn runs(&self) -> Vec<TokenIds> {
        self.behaviour.lock().runs.clone()
    }

    /// Waits while runs are held; what this run is to do.
    fn enter(&self, batch: &Batch) -> (Option<Fault>, bool) {
        let mut behaviour = self.behaviour.lock();
        behaviour.runs.push(batch.items()[0].clone());
        behaviour.waiting += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut behaviour, |behaviour| behaviour.held);
        behaviour.waiting -= 1;
        let drawn = behaviour.random.as_mut().and_then(draw);
        // The texts of a request may run in several batches: the fault waits for its text.
        let has_two = batch.items().iter().any(|ids| ids.contains(&TWO_ID));
        let is_due = |fault: &mut Fault| *fault != Fault::NotFinite || has_two;
        let fault = behaviour.fault.take_if(is_due).or(drawn);
        behaviour.closed_for_new_sessions |= fault == Some(Fault::LoseSession);
        (fault, behaviour.distorted)
    }
}

/// Seldom enough that most sessions survive the runs of their warm-up.
fn draw(random: &mut Rng) -> Option<Fault> {
    match random.u16(..300) {
        0 => Some(Fault::Panic),
        1..3 => Some(Fault::Fail),
        3..6 => Some(Fault::NotFinite),
        _ => None,
    }
}

pub(crate) struct TestEngine {
    info: EngineInfo,
    controls: Arc<Controls>,
    words: usize,
}

impl TestEngine {
    pub(crate) fn new(controls: Arc<Controls>, gives: Gives) -> Self {
        let info = EngineInfo {
            kind: EngineKind::Fake,
            version: "1".to_owned(),
            device: "none".to_owned(),
            precision: "f32".to_owned(),
            threads_per_session: 0,
            hidden_size: gives.hidden_size(),
            profiles: Vec::new(),
        };
        Self { info, controls, words: if gives == Gives::Words { KEPT_WORDS } else { 0 } }
    }
}

impl Engine for TestEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn open_session(&self, _: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
        if self.controls.behaviour.lock().closed_for_new_sessions {
            return Err(EngineError::NotAvailable("no session is left".to_owned()));
        }
        let (controls, hidden_size) = (Arc::clone(&self.controls), self.info.hidden_size);
        let rows = RowBuffers::new(hidden_size, TOKEN_SIZE).with_words(self.words);
        Ok(Box::new(TestSession { controls, hidden_size, rows }))
    }

    fn figures(&self) -> Vec<(String, u64)> {
        self.controls.answer_figures();
        vec![("free_bytes".to_owned(), 7)]
    }
}

struct TestSession {
    controls: Arc<Controls>,
    hidden_size: usize,
    rows: RowBuffers,
}

impl Session for TestSession {
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        let (fault, distorted) = self.controls.enter(batch);
        match fault {
            Some(Fault::Panic) => panic!("{SECRET}"),
            Some(Fault::Fail) => return Err(EngineError::Transient(SECRET.to_owned())),
            Some(Fault::LoseSession) => return Err(EngineError::SessionLost(SECRET.to_owned())),
            Some(Fault::NotFinite) | None => {}
        }
        let (rows, bucket, width) = (&mut self.rows, batch.bucket(), self.hidden_size);
        rows.fill(batch);
        for (ids, place) in batch.items().iter().zip(batch.places()) {
            let span = place.row * bucket.spans() + place.span;
            let dense = &mut rows.dense[span * width..][..place.spans * width];
            if distorted {
                dense.iter_mut().for_each(|value| *value = -*value);
            }
            let start = place.row * bucket.length + place.start;
            let weights = &mut rows.token_weights[start..][..ids.len()];
            weights.copy_from_slice(&self.controls.weights(ids));
            if fault == Some(Fault::NotFinite) && ids.contains(&TWO_ID) {
                (dense[1], weights[1]) = (f32::NAN, f32::NAN);
                let in_row = |other: &&Place| other.row == place.row;
                if batch.places().iter().filter(in_row).count() > 1 {
                    // The text is run again without those beside it.
                    self.controls.behaviour.lock().fault = fault;
                }
            }
        }
        Ok(rows.output())
    }
}

/// Heavier with the id, so that tests know their order.
pub(crate) fn weights_of(ids: &TokenIds) -> Vec<f32> {
    ids.iter().map(|&id| id as f32 / VOCAB as f32).collect()
}
