//! What the runs of workers that are alike cost: a model of what was measured of them, corrected by
//! what their batches take.
//!
//! A run of a length that was measured corrects every prediction a little, because what disturbs
//! it disturbs all runs. A run of a longer one is measured by that: it says how much attention
//! takes, which shorter texts hardly show.

use std::time::Duration;

use super::{CostModel, EVEN_LENGTH_MAX, EVEN_LENGTH_MIN, Fit, Times, fit};
use crate::batch::Bucket;
use settings::limits::COMMON_LENGTH;

/// The correction stays within a factor of this.
const CORRECTION_MAX: f64 = 8.0;

/// What is known of the runs' cost.
#[derive(Debug, Clone)]
pub struct RunCost {
    model: CostModel,
    /// Median relative error of the model; absent before anything was measured.
    error: Option<f64>,
    measured: Times,
    /// The longest length that was measured before requests came; of longer ones each shape has the
    /// shortest of its runs.
    undoubted: usize,
    correction: f64,
}

impl RunCost {
    /// Nothing was measured.
    pub(crate) fn new() -> Self {
        let (model, measured) = (CostModel::default(), Times::new());
        Self { model, error: None, measured, undoubted: 0, correction: 1.0 }
    }

    /// Takes over a model that is known.
    pub(crate) fn set(&mut self, fit: Fit) {
        *self = Self { model: fit.model, error: Some(fit.median_error), ..Self::new() };
    }

    /// Takes over what was measured, if that is anything.
    pub(crate) fn measure(&mut self, measured: Times) {
        if let Some(fit) = fit(&measured) {
            self.set(fit);
            self.measured = measured;
            self.undoubted = self.longest();
        }
    }

    /// What fits the measurements best.
    pub const fn model(&self) -> &CostModel {
        &self.model
    }

    /// Median relative error of the model; absent before anything was measured.
    pub const fn error(&self) -> Option<f64> {
        self.error
    }

    /// Measured over predicted time of the batches of late.
    pub const fn correction(&self) -> f64 {
        self.correction
    }

    /// Microseconds of one run of `bucket`, as runs are of late.
    pub(crate) fn predict_us(&self, bucket: Bucket) -> f64 {
        self.model.predict_us(bucket) * self.correction
    }

    /// The least that a run takes when nothing disturbs it, in microseconds: no more than runs take
    /// of late. Of a length that was not measured nobody knows what attention takes.
    pub(crate) fn least_us(&self, bucket: Bucket) -> f64 {
        let mut model = self.model;
        if self.is_unmeasured(bucket) {
            model.per_token_length_us = model.per_token_us / EVEN_LENGTH_MAX;
        }
        model.predict_us(bucket) * self.correction.min(1.0)
    }

    /// The most that a run should take, in microseconds. What attention takes grows with the square
    /// of the length, so a run that is longer than any measured one may take so much longer.
    pub(crate) fn most_us(&self, bucket: Bucket) -> f64 {
        let known = self.longest().max(COMMON_LENGTH);
        self.predict_us(bucket) * (bucket.length as f64 / known as f64).max(1.0)
    }

    /// Whether the length is beyond what was measured.
    pub(crate) fn is_unmeasured(&self, bucket: Bucket) -> bool {
        !self.measured.is_empty() && bucket.length > self.longest()
    }

    /// A run took so long. It is measured by that if it is the first one of a length that was not,
    /// or the shortest of its shape where requests alone measured the length: one run may have been
    /// disturbed. Gives what was measured over what was predicted; `None` tells nothing new.
    pub(crate) fn learn(&mut self, bucket: Bucket, took_us: f64) -> Option<f64> {
        // Other programs disturbed the run as they do others of late.
        let time = Duration::from_secs_f64(took_us / self.correction / 1e6);
        let known = self.measured.iter().find(|(known, _)| *known == bucket);
        let is_shorter = known.is_none_or(|(_, known)| time < *known);
        if self.measured.is_empty() || bucket.length <= self.undoubted || !is_shorter {
            return None;
        }
        let predicted_us = self.predict_us(bucket);
        self.measured.retain(|(known, _)| *known != bucket);
        self.measured.push((bucket, time));
        if let Some(fit) = fit(&self.measured) {
            (self.model, self.error) = (fit.model, Some(fit.median_error));
        }
        Some(took_us / predicted_us.max(f64::MIN_POSITIVE))
    }

    /// Other workers took `factor` times what was predicted of them for a length that was not
    /// measured of these either. It is the same model, so these will, too.
    pub(crate) fn suppose(&mut self, bucket: Bucket, factor: f64) {
        if self.is_unmeasured(bucket) {
            let took_us = self.model.predict_us(bucket) * factor;
            if took_us <= self.model.floor_us {
                return;
            }
            let line = CostModel { floor_us: 0.0, ..self.model };
            let pairs = (bucket.rows * bucket.length * bucket.length) as f64;
            let more_us = (took_us - line.predict_us(bucket)) / pairs;
            let token_us = self.model.per_token_us;
            self.model.per_token_length_us = (self.model.per_token_length_us + more_us)
                .clamp(token_us / EVEN_LENGTH_MAX, token_us / EVEN_LENGTH_MIN);
        }
    }

    /// A run took `seen` times what the model says without a correction; the correction believes it
    /// by `weight`.
    pub(crate) fn correct(&mut self, seen: f64, weight: f64) {
        let seen = seen.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX);
        self.correction += weight * (seen - self.correction);
    }

    fn longest(&self) -> usize {
        self.measured.iter().map(|(bucket, _)| bucket.length).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attention takes as long as the rest for a text of 4,000 tokens.
    const TRUE: CostModel = CostModel {
        floor_us: 0.0,
        fixed_us: 20_000.0,
        per_token_us: 2000.0,
        per_token_length_us: 0.5,
    };

    fn bucket(rows: usize, length: usize) -> Bucket {
        Bucket { rows, length }
    }

    /// Of lengths up to 512, where it hardly shows: each time is off by up to a tenth.
    fn measured() -> RunCost {
        let noise = [0.93, 1.08, 1.0, 0.96, 1.05, 1.1, 0.9];
        let shapes = [8, 16, 32, 64, 128, 256, 512].map(|length| bucket(1, length));
        let time = |(shape, noise): (Bucket, f64)| (shape, TRUE.predict(shape).mul_f64(noise));
        let mut cost = RunCost::new();
        cost.measure(shapes.into_iter().zip(noise).map(time).collect());
        cost
    }

    fn ratio(cost: &RunCost, bucket: Bucket) -> f64 {
        cost.predict_us(bucket) / TRUE.predict_us(bucket)
    }

    #[test]
    fn what_disturbs_all_runs_is_not_learnt_with_the_length() {
        let mut cost = measured();
        (0..200).for_each(|_| cost.correct(2.0, 0.05));
        cost.learn(bucket(1, 8192), 2.0 * TRUE.predict_us(bucket(1, 8192)));
        let disturbed = ratio(&cost, bucket(1, 8192));
        assert!((disturbed - 2.0).abs() < 0.2, "{disturbed}");
        assert!((cost.correction() - 2.0).abs() < 0.01);
    }

    #[test]
    fn other_workers_of_the_same_model_learn_of_it() {
        let (mut first, mut second) = (measured(), measured());
        let factor = first.learn(bucket(1, 8192), TRUE.predict_us(bucket(1, 8192)));
        let factor = factor.expect("the length is new");
        second.suppose(bucket(1, 8192), factor);
        assert!((ratio(&second, bucket(1, 8192)) - 1.0).abs() < 0.01);
        assert!((ratio(&second, bucket(1, 64)) - 1.0).abs() < 0.15);
        // It is measured all the same when it runs.
        assert!(second.is_unmeasured(bucket(1, 8192)));
    }

    #[test]
    fn a_long_run_that_takes_the_floor_teaches_nothing_of_its_length() {
        let floor = CostModel { floor_us: 1e9, ..TRUE };
        let (mut cost, long) = (measured(), bucket(1, 8192));
        cost.model = floor;
        cost.suppose(long, 1.0);
        assert_eq!(cost.model, floor);
        cost.suppose(long, 1.001);
        assert_eq!(cost.model.per_token_length_us, floor.per_token_us / EVEN_LENGTH_MIN);
    }

    #[test]
    fn without_measurements_nothing_is_learnt() {
        let cost = RunCost::new();
        assert!(!cost.is_unmeasured(bucket(1, 8192)));
        assert!(cost.most_us(bucket(1, 8192)) > 10.0 * cost.predict_us(bucket(1, 8192)));
    }
}
