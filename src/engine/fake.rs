//! A deterministic engine with scripted delays and failures: for tests, and for measuring the
//! server without a model.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::engine::{
    BatchOutput, Engine, EngineError, EngineInfo, EngineKind, Floats, Session, SpanWords,
};
use crate::metrics::StageTimes;
use scheduling::batch::{Batch, Bucket, TokenIds};

/// What a scripted run does instead of returning rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptedFault {
    /// The run panics.
    Panic,
    /// The run fails with this error.
    Fail(EngineError),
    /// The dense vector of the batch's first text is infinite, and so are those of the other texts
    /// in its row, as in a real engine. The first text stays so in every later run.
    NotFinite,
    /// The run seems to succeed, but returns no dense rows.
    NoRows,
}

/// A gate that holds every run, or every end of a session, until it is opened.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Runs that may still pass; `None` lets all pass.
    permits: Option<u64>,
    waiting: u64,
}

impl Gate {
    /// A gate that lets no run pass.
    pub fn closed() -> Arc<Self> {
        let gate = Self::default();
        gate.state.lock().permits = Some(0);
        Arc::new(gate)
    }

    /// Lets `runs` more runs pass.
    pub fn permit(&self, runs: u64) {
        let mut state = self.state.lock();
        if let Some(permits) = &mut state.permits {
            *permits += runs;
        }
        self.changed.notify_all();
    }

    /// Lets every run pass from now on.
    pub fn open(&self) {
        self.state.lock().permits = None;
        self.changed.notify_all();
    }

    /// Blocks until `runs` runs wait at the gate.
    pub fn wait_for_runs(&self, runs: u64) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting < runs);
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.permits == Some(0));
        state.waiting -= 1;
        if let Some(permits) = &mut state.permits {
            *permits -= 1;
        }
    }
}

/// What the engine does apart from its arithmetic.
#[derive(Debug, Default)]
pub struct FakeScript {
    /// Time of every run.
    pub run_time: Duration,
    /// Holds the runs of workers that are warmed up.
    pub gate: Option<Arc<Gate>>,
    /// Holds the ends of sessions.
    pub drops: Option<Arc<Gate>>,
    /// Faults by the number of the run, counted over all sessions from 0. Runs of warm-ups do not
    /// count.
    pub faults: HashMap<u64, ScriptedFault>,
    /// How many of the first sessions cannot be opened.
    pub failing_opens: u64,
    /// How the warm-up of the first session fails.
    pub failing_warm_up: Option<EngineError>,
    /// How many of the first sessions panic while they are opened.
    pub panicking_opens: u64,
    /// Whether sessions have a rescue precision, which has no faults.
    pub rescues: bool,
    /// Floats of the vector of a token; zero for a model without such vectors.
    pub token_vector_size: usize,
    /// Words of a text that have weights, at most; zero for a model that weighs tokens.
    pub words: usize,
}

/// The engine. A dense vector depends only on the token ids of its span, and a token's weight and
/// vector on its id and position. So texts that are mixed up, cut or padded wrongly give wrong
/// numbers.
pub(crate) struct FakeEngine {
    info: EngineInfo,
    shared: Arc<FakeShared>,
}

struct FakeShared {
    script: FakeScript,
    runs: AtomicU64,
    opens: AtomicU64,
    /// Texts whose dense vectors are infinite in every run.
    lost: Mutex<Vec<TokenIds>>,
}

impl FakeEngine {
    #[cfg(test)]
    pub(crate) fn new(hidden_size: usize) -> Self {
        Self::with_script(hidden_size, FakeScript::default())
    }

    pub(crate) fn with_script(hidden_size: usize, script: FakeScript) -> Self {
        Self {
            info: EngineInfo {
                kind: EngineKind::Fake,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                device: "none".to_owned(),
                precision: "f32".to_owned(),
                threads_per_session: 0,
                hidden_size,
                profiles: Vec::new(),
            },
            shared: Arc::new(FakeShared {
                script,
                runs: AtomicU64::new(0),
                opens: AtomicU64::new(0),
                lost: Mutex::default(),
            }),
        }
    }
}

impl Engine for FakeEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn compiles_shapes(&self) -> bool {
        false
    }

    fn open_session(&self, _: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
        let open = self.shared.opens.fetch_add(1, Ordering::SeqCst);
        assert!(open >= self.shared.script.panicking_opens, "scripted: the opening panics");
        if open < self.shared.script.failing_opens {
            return Err(EngineError::Transient("scripted: the session cannot be opened".into()));
        }
        Ok(Box::new(FakeSession {
            rows: RowBuffers::new(self.info.hidden_size, self.shared.script.token_vector_size)
                .with_words(self.shared.script.words),
            shared: Arc::clone(&self.shared),
            takes_jobs: false,
            is_first: open == 0,
        }))
    }
}

/// Rows of a session that computes them itself.
#[derive(Debug, Clone)]
pub struct RowBuffers {
    hidden_size: usize,
    token_vector_size: usize,
    bucket: Bucket,
    /// `[rows, spans, hidden]`.
    pub dense: Vec<f32>,
    /// `[rows, length]`.
    pub token_weights: Vec<f32>,
    /// `[rows, length, size]`; of no use unless the size is above zero and a text wants them.
    pub token_vectors: Vec<f32>,
    /// Of a span; zero for a model that weighs tokens.
    kept: usize,
    /// `[rows, spans, kept]`.
    words: Vec<i32>,
    word_weights: Vec<f32>,
}

impl RowBuffers {
    /// Buffers for dense rows of `hidden_size` floats, and for vectors of tokens.
    pub const fn new(hidden_size: usize, token_vector_size: usize) -> Self {
        let bucket = Bucket { rows: 0, length: 0 };
        Self {
            hidden_size,
            token_vector_size,
            bucket,
            dense: Vec::new(),
            token_weights: Vec::new(),
            token_vectors: Vec::new(),
            kept: 0,
            words: Vec::new(),
            word_weights: Vec::new(),
        }
    }

    /// The same for a model that weighs so many words of a text; none if zero.
    #[must_use]
    pub fn with_words(self, kept: usize) -> Self {
        Self { kept, ..self }
    }

    /// Makes room for all rows of `bucket`. Places without a text stay NaN, so that a test fails if
    /// somebody reads them.
    pub fn resize(&mut self, bucket: Bucket) {
        self.bucket = bucket;
        let spans = bucket.rows * bucket.spans();
        for (numbers, count, empty) in [
            (&mut self.dense, spans * self.hidden_size, f32::NAN),
            (&mut self.token_weights, bucket.tokens(), f32::NAN),
            (&mut self.token_vectors, bucket.tokens() * self.token_vector_size, f32::NAN),
            (&mut self.word_weights, spans * self.kept, 0.0),
        ] {
            numbers.resize(count, empty);
            numbers.fill(empty);
        }
        self.words.clear();
        self.words.resize(spans * self.kept, 0);
    }

    /// Computes all rows of a batch.
    pub fn fill(&mut self, batch: &Batch) {
        let bucket = batch.bucket();
        self.resize(bucket);
        let (width, size, kept) = (self.hidden_size, self.token_vector_size, self.kept);
        for (ids, place) in batch.items().iter().zip(batch.places()) {
            let first = place.row * bucket.spans() + place.span;
            for (number, span) in (first..).zip(ids.spans()) {
                write_dense(&ids[span], &mut self.dense[number * width..][..width]);
            }
            if kept > 0 {
                for (at, (word, weight)) in (first * kept..).zip(expected_words(ids, kept)) {
                    (self.words[at], self.word_weights[at]) = (word as i32, weight);
                }
            }
            let start = place.row * bucket.length + place.start;
            let weights = &mut self.token_weights[start..][..ids.len()];
            for (position, (slot, &id)) in weights.iter_mut().zip(ids.iter()).enumerate() {
                *slot = weight(id, position);
            }
            if size > 0 && ids.wants_token_vectors() {
                let vectors = &mut self.token_vectors[start * size..][..ids.len() * size];
                vectors.copy_from_slice(&expected_token_vectors(ids, size));
            }
        }
    }

    /// All rows.
    pub fn output(&self) -> BatchOutput<'_> {
        let Self { bucket, hidden_size, token_vector_size: size, kept, .. } = *self;
        let words =
            SpanWords { kept, ids: &self.words, weights: Floats::Single(&self.word_weights) };
        BatchOutput {
            bucket,
            hidden_size,
            dense: Floats::Single(&self.dense),
            token_weights: Some(Floats::Single(&self.token_weights)),
            token_vectors: (size > 0).then_some((size, Floats::Single(&self.token_vectors))),
            words: (kept > 0).then_some(words),
            times: StageTimes::default(),
        }
    }
}

struct FakeSession {
    rows: RowBuffers,
    shared: Arc<FakeShared>,
    /// The worker is warmed up, so the script applies.
    takes_jobs: bool,
    is_first: bool,
}

impl FakeSession {
    fn follow_script(&self) -> Result<Option<ScriptedFault>, EngineError> {
        let script = &self.shared.script;
        let run = self.shared.runs.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &script.gate {
            gate.pass();
        }
        if !script.run_time.is_zero() {
            std::thread::sleep(script.run_time);
        }
        match script.faults.get(&run) {
            Some(ScriptedFault::Panic) => panic!("scripted: the session panics"),
            Some(ScriptedFault::Fail(error)) => Err(error.clone()),
            fault => Ok(fault.cloned()),
        }
    }

    /// Makes all texts in the row of a lost text infinite, as attention would.
    fn spread_lost(&mut self, batch: &Batch) {
        let lost = self.shared.lost.lock();
        let row_floats = batch.bucket().spans() * self.rows.hidden_size;
        for (ids, place) in batch.items().iter().zip(batch.places()) {
            if lost.contains(ids) {
                let start = place.row * row_floats;
                self.rows.dense[start..start + row_floats].fill(f32::INFINITY);
            }
        }
    }
}

impl Session for FakeSession {
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        self.rows.fill(batch);
        if self.takes_jobs {
            match self.follow_script()? {
                Some(ScriptedFault::NotFinite) => {
                    self.shared.lost.lock().push(batch.items()[0].clone());
                }
                Some(ScriptedFault::NoRows) => self.rows.dense.clear(),
                Some(ScriptedFault::Panic | ScriptedFault::Fail(_)) | None => {}
            }
        } else if let (true, Some(error)) = (self.is_first, &self.shared.script.failing_warm_up) {
            return Err(error.clone());
        }
        self.spread_lost(batch);
        Ok(self.rows.output())
    }

    fn warmed_up(&mut self) {
        self.takes_jobs = true;
    }

    fn rescue(&mut self, batch: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
        self.shared.script.rescues.then(|| {
            self.rows.fill(batch);
            Ok(self.rows.output())
        })
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        if let Some(drops) = &self.shared.script.drops {
            drops.pass();
        }
    }
}

/// The dense row of these ids: L2-normalized, `hidden_size` floats.
pub fn expected_dense(ids: &[u32], hidden_size: usize) -> Vec<f32> {
    let mut row = vec![0.0; hidden_size];
    write_dense(ids, &mut row);
    row
}

/// The token weights of these ids, one for each position; some are zero.
pub fn expected_weights(ids: &[u32]) -> Vec<f32> {
    ids.iter().enumerate().map(|(position, &id)| weight(id, position)).collect()
}

/// The words that have weights for these ids, of so many places: the id in front of each, as often
/// as it comes.
pub fn expected_words(ids: &[u32], kept: usize) -> Vec<(u32, f32)> {
    let weights = expected_weights(ids).into_iter().take(kept);
    ids.iter().map(|id| id.saturating_sub(1)).zip(weights).collect()
}

/// The vectors of these tokens, one behind the other: L2-normalized, `size` floats each.
pub fn expected_token_vectors(ids: &[u32], size: usize) -> Vec<f32> {
    let mut vectors = vec![0.0; ids.len() * size];
    let of_each = vectors.chunks_mut(size).zip(ids).zip(0..);
    of_each.for_each(|((vector, &id), position)| write_dense(&[id, position], vector));
    vectors
}

fn write_dense(ids: &[u32], row: &mut [f32]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for &id in ids {
        state = mix(state ^ u64::from(id));
    }
    let mut squares = 0.0_f32;
    for value in row.iter_mut() {
        state = mix(state);
        *value = (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0;
        squares += *value * *value;
    }
    let length = squares.sqrt().max(f32::MIN_POSITIVE);
    row.iter_mut().for_each(|value| *value /= length);
}

fn weight(id: u32, position: usize) -> f32 {
    let mixed = mix(u64::from(id) << 20 ^ position as u64);
    // A quarter of the positions weigh nothing, as after a relu.
    if mixed & 3 == 0 { 0.0 } else { (mixed >> 40) as f32 / (1_u64 << 25) as f32 }
}

/// One step of splitmix64.
const fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A text of `tokens` ascending ids from `first` on, with parts by their first token and
    /// length.
    fn text((tokens, first, parts): &(u32, u32, Vec<(usize, usize)>)) -> TokenIds {
        let text = TokenIds::new(&(*first..first + tokens).collect::<Vec<_>>());
        let part = |&(start, length): &(usize, usize)| {
            let start = start % text.len();
            start..text.len().min(start + length)
        };
        let parts: Vec<_> = parts.iter().map(part).collect();
        if parts.is_empty() { text } else { text.with_parts(&parts) }
    }

    proptest! {
        #[test]
        fn a_text_with_parts_gives_the_same_alone_and_among_others(
            texts in prop::collection::vec(
                (1_u32..60, 4_u32..200, prop::collection::vec((0_usize..60, 1_usize..30), 0..6)),
                1..12,
            ),
        ) {
            let wanted = |text: TokenIds| match text[0] % 2 {
                0 => text.with_token_vectors(),
                _ => text,
            };
            let texts: Vec<TokenIds> = texts.iter().map(text).map(wanted).collect();
            let bucket = Bucket { rows: 3, length: 64 };
            let batch = Batch::filled(bucket, texts).expect("each has room");
            let script = FakeScript { token_vector_size: 3, ..FakeScript::default() };
            let engine = FakeEngine::with_script(8, script);
            let mut session = engine.open_session(&[]).expect("it opens");
            let output = session.run(&batch).expect("it runs");
            for (text, &place) in batch.items().iter().zip(batch.places()) {
                let dense = output.dense_of(place);
                prop_assert_eq!(dense.len(), 8 * text.spans().len());
                for (dense, span) in dense.chunks(8).zip(text.spans()) {
                    prop_assert_eq!(dense, expected_dense(&text[span], 8));
                }
                prop_assert_eq!(output.weights_of(place, text.len()), expected_weights(text));
                if text.wants_token_vectors() {
                    let found = output.token_vectors_of(place, text.len());
                    prop_assert_eq!(found, expected_token_vectors(text, 3));
                }
            }
        }
    }
}
