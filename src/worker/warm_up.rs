//! The runs of a worker that no request waits for: before it takes jobs, and while it is idle.

use std::collections::VecDeque;
use std::time::Duration;

use super::runner::survived;
use super::{Worker, WorkerEvent};
use crate::engine::{EngineError, Session};
use clock::Moment;
use scheduling::batch::cost::{SAMPLE_RUNS, Times, keep_shortest, sample};
use scheduling::batch::{Batch, Bucket, TokenIds};
use settings::limits::IDLE_RUN_MAX;

/// Ids of warm-up texts: the special tokens, which every vocabulary has.
const WARM_UP_IDS: u32 = 4;

/// The result of a worker's warm-up.
pub(super) struct WarmedUp {
    /// Times of some of the shapes.
    pub(super) measured: Times,
    /// Shapes that remain for idle times.
    pub(super) left: VecDeque<Bucket>,
}

impl Worker {
    /// Runs the first shapes of the plan, as far as there is time, and measures some of them.
    pub(super) fn warm_up(&self, session: &mut dyn Session) -> Result<WarmedUp, EngineError> {
        let plan = &self.plan;
        let end = plan.first_time.map(|time| self.clock.now() + time);
        let mut ran = Times::with_capacity(plan.first.len());
        for &bucket in &plan.first {
            let Some(time) = self.time(bucket, end, session)? else { break };
            ran.push((bucket, time));
            self.progress.advance();
        }
        let left = plan.first[ran.len()..].iter().chain(&plan.later).copied();
        // One of these may be what ended the session before this one.
        let left = left.filter(|_| !self.is_replacement).collect();
        ran.sort_unstable_by_key(|(bucket, _)| (bucket.length, bucket.rows));
        let buckets: Vec<Bucket> = ran.iter().map(|(bucket, _)| *bucket).collect();
        let sample = sample(&buckets);
        // First runs count too: their extra milliseconds are little on a slow model.
        ran.retain(|(bucket, _)| sample.contains(bucket));
        for _ in 0..SAMPLE_RUNS {
            let mut again = Times::with_capacity(sample.len());
            for &bucket in &sample {
                let Some(time) = self.time(bucket, end, session)? else { break };
                again.push((bucket, time));
            }
            keep_shortest(&mut ran, &again);
        }
        Ok(WarmedUp { measured: ran, left })
    }

    /// Runs the next remaining shape. A shape that would take too long, or that cannot be run, is
    /// passed over, and so are all later shapes, which are longer. A new session could not run it
    /// either, and while the worker idles nobody needs it.
    pub(super) fn warm_up_next(
        &self,
        session: &mut dyn Session,
        left: &mut VecDeque<Bucket>,
    ) -> Result<(), EngineError> {
        let Some(&bucket) = left.front() else { return Ok(()) };
        let predicted = self.scheduler.predict(self.index, bucket);
        let is_slow = predicted.is_some_and(|time| time > IDLE_RUN_MAX);
        let ran = if is_slow { Ok(None) } else { self.time(bucket, None, session) };
        self.scheduler.warm_up_ended(self.index, matches!(ran, Ok(Some(_))));
        let done = match ran {
            Ok(Some(_)) => 1,
            Ok(None) => left.len(),
            Err(error) => {
                let Bucket { rows, length } = bucket;
                tracing::warn!(
                    rows,
                    length,
                    %error,
                    "no batch of this shape can be warmed up; --warm-up none tries none"
                );
                if !survived(&error) {
                    return Err(error);
                }
                left.len()
            }
        };
        left.drain(..done);
        let _ = self.events.send(WorkerEvent::Idled { worker: self.index, done });
        Ok(())
    }

    /// The time of one run; `None` if it cannot begin before `end`, or if the scheduler has closed.
    fn time(
        &self,
        bucket: Bucket,
        end: Option<Moment>,
        session: &mut dyn Session,
    ) -> Result<Option<Duration>, EngineError> {
        let start = self.clock.now();
        if end.is_some_and(|end| start >= end) || self.scheduler.is_closed() {
            return Ok(None);
        }
        session.run(&warm_up_batch(bucket)?)?;
        Ok(Some(self.clock.now().since(start)))
    }
}

/// A full batch whose texts all have the bucket's length.
pub(crate) fn warm_up_batch(bucket: Bucket) -> Result<Batch, EngineError> {
    let ids: Vec<u32> = (0..WARM_UP_IDS).cycle().take(bucket.length).collect();
    Batch::new(bucket, vec![TokenIds::new(&ids); bucket.rows])
        .map_err(|error| EngineError::BadPackage(format!("a bucket cannot be filled: {error}")))
}
