//! One CUDA stream with its buffers: what one worker owns.

use std::sync::atomic::Ordering;
use std::time::Duration;

use half::slice::HalfBitsSliceExt;

use super::fault;
use super::ffi::{
    BridgeError, Element, Output, OutputType, PlanSession, RunTimes, RunWishes, StagedInputs,
};
use super::shared::Lease;
use crate::engine::{BatchOutput, EngineError, Floats, GraphFacts, Session, SpanWords};
use crate::metrics::StageTimes;
use scheduling::batch::{Batch, GraphInputs, Priority};

/// Fields are dropped in their order: the stream before its place on the device.
pub(super) struct TensorRtSession {
    session: PlanSession,
    outputs: Vec<OutputType>,
    facts: GraphFacts,
    lease: Lease,
    /// Runs rows with NaN or infinity again.
    pub(super) rescue: Option<Box<dyn Session>>,
    /// What the engine's figures have counted already, in the order of `Shared::counters`.
    counted: [u64; 5],
}

impl TensorRtSession {
    pub(super) const fn new(
        session: PlanSession,
        outputs: Vec<OutputType>,
        facts: GraphFacts,
        lease: Lease,
    ) -> Self {
        Self { session, outputs, facts, lease, rescue: None, counted: [0; 5] }
    }

    /// Writes all inputs straight into the pinned memory that the device copies from.
    fn fill(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let staged = self.session.stage(batch.bucket().into()).map_err(fault)?;
        let StagedInputs { input_ids, positions, segments, span_weights } = staged;
        let inputs = GraphInputs { input_ids, positions, segments, span_weights };
        batch.fill(self.facts.pooling, self.facts.pad_token_id, inputs);
        Ok(())
    }

    /// The rows, in the pinned memory that the device copied them to.
    fn output(&self, batch: &Batch) -> Result<BatchOutput<'_>, BridgeError> {
        let dense = self.floats(Output::Dense)?.unwrap_or(Floats::Single(&[]));
        let weights = self.floats(Output::TokenWeights)?;
        let words = match self.facts.words.zip(self.floats(Output::WordWeights)?) {
            Some((kept, weights)) => {
                Some(SpanWords { kept, ids: self.session.integers(Output::Words)?, weights })
            }
            None => None,
        };
        let size = self.facts.token_vector_size.filter(|_| batch.wants_token_vectors());
        Ok(BatchOutput {
            bucket: batch.bucket(),
            hidden_size: self.facts.hidden_size,
            dense,
            token_weights: weights,
            token_vectors: size.zip(self.floats(Output::TokenVectors)?),
            words,
            times: StageTimes::default(),
        })
    }

    /// `None` for an output that the plan has not.
    fn floats(&self, output: Output) -> Result<Option<Floats<'_>>, BridgeError> {
        let Some(found) = self.outputs.iter().find(|one| one.output == output) else {
            return Ok(None);
        };
        Ok(Some(match found.element {
            Element::Float16 => Floats::Half(self.session.halves(output)?.reinterpret_cast()),
            _ => Floats::Single(self.session.floats(output)?),
        }))
    }
}

impl Session for TensorRtSession {
    fn run(&mut self, batch: &Batch) -> Result<BatchOutput<'_>, EngineError> {
        self.check()?;
        self.fill(batch)?;
        let wishes = RunWishes {
            urgent: batch.priority() == Priority::Interactive,
            asleep: self.lease.shared.wait_asleep(),
            token_vectors: batch.wants_token_vectors(),
        };
        let ran = self.session.run(wishes);
        let times = ran.map_err(|error| self.lease.fault(error))?.into();
        let output = self.output(batch).map_err(fault)?;
        Ok(BatchOutput { times, ..output })
    }

    fn rescue(&mut self, batch: &Batch) -> Option<Result<BatchOutput<'_>, EngineError>> {
        self.rescue.as_mut().map(|session| session.run(batch))
    }

    fn check(&self) -> Result<(), EngineError> {
        self.lease.check()
    }

    fn warmed_up(&mut self) {
        let report = self.session.report();
        let refused = i64::from(!report.refused.is_empty());
        let (captured, contexts) = (i64::from(report.captured), i64::from(report.contexts));
        let contexts_bytes = report.contexts_bytes;
        let seen = [captured, refused, contexts, report.contexts_ns, contexts_bytes];
        let shared = &self.lease.shared;
        for ((counter, seen), counted) in shared.counters.iter().zip(seen).zip(&mut self.counted) {
            let seen = u64::try_from(seen).unwrap_or(0);
            counter.fetch_add(seen.saturating_sub(*counted), Ordering::Relaxed);
            *counted = seen;
        }
        let (plain, contexts_ms) = (report.plain, report.contexts_ns / 1_000_000);
        tracing::debug!(
            captured,
            plain,
            contexts,
            contexts_ms,
            contexts_bytes,
            "a session is warm"
        );
        if let Some(file) = &shared.kernels[self.lease.place] {
            file.keep(&self.session.kernels());
        }
    }
}

impl Drop for TensorRtSession {
    fn drop(&mut self) {
        for (counter, counted) in self.lease.shared.counters.iter().zip(self.counted) {
            counter.fetch_sub(counted, Ordering::Relaxed);
        }
    }
}

impl From<RunTimes> for StageTimes {
    fn from(times: RunTimes) -> Self {
        let span = |nanoseconds: i64| Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
        Self {
            copy_in: span(times.copy_in),
            compute: span(times.compute),
            copy_out: span(times.copy_out),
        }
    }
}
