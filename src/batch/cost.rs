//! What a batch costs: a model fitted to measured buckets.

use std::time::Duration;

use crate::batch::Bucket;

mod run_cost;

pub(crate) use run_cost::RunCost;

/// Attention takes as long as the rest of an encoder for texts of some length between these. By its
/// arithmetic that is six times the hidden size, which is 256 to 1,333 in models that are served;
/// on processors attention takes up to ten times as long as its arithmetic.
const EVEN_LENGTH_MAX: f64 = 8000.0;
const EVEN_LENGTH_MIN: f64 = 150.0;

/// Predicted time of a run:
/// `fixed + per_token · rows · length + per_token_length · rows · length²`.
///
/// The terms are what an encoder does: launching its operations, matrix products over tokens, and
/// attention over pairs of tokens. All are at least zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// Of every run.
    pub fixed_us: f64,
    /// Of every padded token.
    pub per_token_us: f64,
    /// Of every padded token for each token of its row.
    pub per_token_length_us: f64,
}

impl Default for CostModel {
    /// A small encoder on two cores of a server; holds until something was measured.
    fn default() -> Self {
        Self { fixed_us: 2000.0, per_token_us: 110.0, per_token_length_us: 0.05 }
    }
}

impl CostModel {
    /// Microseconds of one run of `bucket`.
    pub fn predict_us(&self, bucket: Bucket) -> f64 {
        let (rows, length) = (bucket.rows as f64, bucket.length as f64);
        let token_us = self.per_token_us + self.per_token_length_us * length;
        self.fixed_us + token_us * rows * length
    }

    /// Time of one run of `bucket`.
    pub fn predict(&self, bucket: Bucket) -> Duration {
        Duration::from_nanos((self.predict_us(bucket) * 1e3) as u64)
    }
}

/// A fitted model and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// What fits the measurements best.
    pub model: CostModel,
    /// Median over the buckets of |predicted − measured| / measured.
    pub median_error: f64,
}

/// Fits the model by least squares of the relative error. No term is negative, and attention takes
/// what it can take in an encoder: short texts hardly show it, and what disturbs them would be
/// multiplied in long ones.
///
/// `None` without a measurement that took any time.
pub fn fit(measured: &[(Bucket, Duration)]) -> Option<Fit> {
    let rows: Vec<([f64; 3], f64)> = measured
        .iter()
        .map(|&(bucket, time)| (terms(bucket), time.as_secs_f64() * 1e6))
        .filter(|&(_, us)| us > 0.0)
        .collect();
    // The best of all subsets of terms without a negative one is the constrained optimum.
    let best = (1_u8..8)
        .filter_map(|subset| solve(&rows, subset))
        .filter(|solution| solution.iter().all(|&term| term >= 0.0))
        .min_by(|a, b| squares(&rows, a).total_cmp(&squares(&rows, b)))?;
    let [fixed_us, least_us, most_us] = best;
    let per_token_us = least_us + most_us;
    let per_token_length_us = least_us / EVEN_LENGTH_MAX + most_us / EVEN_LENGTH_MIN;
    let mut errors: Vec<f64> =
        rows.iter().map(|(terms, us)| (dot(terms, &best) / us - 1.0).abs()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    Some(Fit {
        model: CostModel { fixed_us, per_token_us, per_token_length_us },
        median_error: errors[errors.len() / 2],
    })
}

/// Buckets with the time of a run.
pub(crate) type Times = Vec<(Bucket, Duration)>;

/// How often each bucket of the sample is run; the shortest time counts.
pub(crate) const SAMPLE_RUNS: usize = 2;
/// The sample has one of each group of this many lengths, and the longest length.
const SAMPLE_STEP: usize = 4;

/// The buckets whose times determine the model: of some lengths the smallest and the largest.
///
/// `buckets` ascend by length and rows, as the engine lists them.
pub(crate) fn sample(buckets: &[Bucket]) -> Vec<Bucket> {
    let of_length: Vec<&[Bucket]> = buckets.chunk_by(|a, b| a.length == b.length).collect();
    let longest = of_length.len().saturating_sub(1);
    let lengths = of_length.iter().enumerate();
    lengths
        .filter(|(place, _)| place % SAMPLE_STEP == 0 || *place == longest)
        .flat_map(|(_, same)| [same.first(), same.last().filter(|_| same.len() > 1)])
        .flatten()
        .copied()
        .collect()
}

/// Keeps the shorter of two times of each bucket: other programs only ever make a run slower.
pub(crate) fn keep_shortest(best: &mut [(Bucket, Duration)], again: &[(Bucket, Duration)]) {
    for ((_, best), (_, again)) in best.iter_mut().zip(again) {
        *best = (*best).min(*again);
    }
}

/// One run; its tokens with the least attention that there can be, and with the most.
fn terms(bucket: Bucket) -> [f64; 3] {
    let (rows, length) = (bucket.rows as f64, bucket.length as f64);
    let tokens_and_pairs = |even_length: f64| rows * length * (1.0 + length / even_length);
    [1.0, tokens_and_pairs(EVEN_LENGTH_MAX), tokens_and_pairs(EVEN_LENGTH_MIN)]
}

fn dot(terms: &[f64; 3], solution: &[f64; 3]) -> f64 {
    terms.iter().zip(solution).map(|(term, weight)| term * weight).sum()
}

fn squares(rows: &[([f64; 3], f64)], solution: &[f64; 3]) -> f64 {
    rows.iter().map(|(terms, us)| (dot(terms, solution) / us - 1.0).powi(2)).sum()
}

/// Least squares over the terms of `subset` (a bit for each); the others are zero. `None` when the
/// measurements do not determine them.
fn solve(rows: &[([f64; 3], f64)], subset: u8) -> Option<[f64; 3]> {
    let chosen: Vec<usize> = (0..3).filter(|term| subset & (1 << term) != 0).collect();
    let size = chosen.len();
    // Normal equations of the relative error, with the right-hand side as the last column; each
    // column is scaled to its largest value, since rows · length² is far larger than one.
    let scale: Vec<f64> = chosen
        .iter()
        .map(|&term| rows.iter().map(|(terms, us)| terms[term] / us).fold(0.0, f64::max))
        .collect();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for (terms, us) in rows {
        for (i, &a) in chosen.iter().enumerate() {
            let left = terms[a] / us / scale[i];
            for (j, &b) in chosen.iter().enumerate() {
                matrix[i][j] += left * terms[b] / us / scale[j];
            }
            matrix[i][size] += left;
        }
    }
    let scaled = eliminate(matrix)?;
    let mut solution = [0.0; 3];
    for ((&term, value), scale) in chosen.iter().zip(scaled).zip(scale) {
        solution[term] = value / scale;
    }
    Some(solution)
}

/// Gauss–Jordan elimination with partial pivoting of an augmented square matrix.
fn eliminate(mut matrix: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = matrix.len();
    for column in 0..size {
        let pivot = (column..size)
            .max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        matrix.swap(column, pivot);
        let lead = matrix[column].clone();
        if lead[column].abs() < 1e-9 {
            return None;
        }
        for (row, values) in matrix.iter_mut().enumerate() {
            if row != column {
                let factor = values[column] / lead[column];
                values.iter_mut().zip(&lead).for_each(|(value, lead)| *value -= factor * lead);
            }
        }
    }
    Some((0..size).map(|row| matrix[row][size] / matrix[row][row]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::plan::gpu_ladder;
    use crate::limits::{MaxBatchRows, MaxBatchTokens};
    use proptest::prelude::*;

    fn buckets() -> Vec<Bucket> {
        let lengths = [8, 16, 32, 64, 128, 256, 512];
        let rows = [1, 2, 4, 8, 16];
        lengths
            .into_iter()
            .flat_map(|length| rows.map(|rows| Bucket { rows, length }))
            .filter(|bucket| bucket.tokens() <= 1024)
            .collect()
    }

    #[test]
    fn the_sample_has_the_smallest_and_the_largest_bucket_of_some_lengths() {
        let bucket = |rows, length| Bucket { rows, length };
        let ladder = [bucket(1, 8), bucket(2, 8), bucket(4, 8), bucket(1, 16)];
        assert_eq!(sample(&ladder), [bucket(1, 8), bucket(4, 8), bucket(1, 16)]);
        assert_eq!(sample(&[]), []);
        let sampled: Vec<usize> = sample(&buckets()).iter().map(|bucket| bucket.length).collect();
        assert_eq!(sampled, [8, 8, 128, 128, 512, 512]);
    }

    #[test]
    fn nothing_measured_gives_no_fit() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(Bucket { rows: 1, length: 8 }, Duration::ZERO)]), None);
    }

    #[test]
    fn one_measurement_is_met() {
        let bucket = Bucket { rows: 2, length: 16 };
        let fit = fit(&[(bucket, Duration::from_micros(500))]).expect("one term is determined");
        assert!((fit.model.predict_us(bucket) - 500.0).abs() < 1.0);
    }

    #[test]
    fn a_term_that_would_be_negative_is_zero() {
        let measured: Vec<_> = buckets()
            .into_iter()
            .map(|bucket| {
                let tokens = bucket.tokens() as f64;
                (bucket, Duration::from_secs_f64((tokens * 10.0 - 40.0) / 1e6))
            })
            .collect();
        let model = fit(&measured).expect("determined").model;
        assert_eq!(model.fixed_us, 0.0);
        assert!(model.per_token_us > 0.0);
    }

    #[test]
    fn attention_takes_what_it_can_take() {
        let pairs_only = CostModel { fixed_us: 0.0, per_token_us: 0.0, per_token_length_us: 1.0 };
        let tokens_only = CostModel { fixed_us: 0.0, per_token_us: 1.0, per_token_length_us: 0.0 };
        for (seen, even_length) in [(pairs_only, EVEN_LENGTH_MIN), (tokens_only, EVEN_LENGTH_MAX)] {
            let times: Vec<_> =
                buckets().into_iter().map(|bucket| (bucket, seen.predict(bucket))).collect();
            let model = fit(&times).expect("determined").model;
            let found = model.per_token_us / model.per_token_length_us;
            assert!((found / even_length - 1.0).abs() < 1e-6, "{model:?}");
        }
    }

    /// A GPU launches for 240 us, and computes 8.5 tokens a microsecond meanwhile.
    fn gpu_us(bucket: Bucket) -> f64 {
        let tokens = bucket.tokens() as f64 * (1.0 + bucket.length as f64 / 2000.0);
        (tokens / 8.5).max(240.0)
    }

    #[test]
    fn times_that_grow_from_some_size_on_are_met() {
        let tokens = MaxBatchTokens::new(8192).expect("in range");
        let ladder = gpu_ladder(512, tokens, MaxBatchRows::DEFAULT, 1024);
        let time = |shape: Bucket| (shape, Duration::from_secs_f64(gpu_us(shape) / 1e6));
        let measured: Vec<_> = sample(&ladder).into_iter().map(time).collect();
        let model = fit(&measured).expect("determined").model;
        for shape in ladder {
            let ratio = model.predict_us(shape) / gpu_us(shape);
            assert!((ratio - 1.0).abs() < 0.01, "{shape:?}: {ratio}");
        }
    }

    proptest! {
        #[test]
        fn known_terms_are_found_again(
            fixed_us in 10.0_f64..5000.0,
            per_token_us in 1.0_f64..200.0,
            even_length in EVEN_LENGTH_MIN..EVEN_LENGTH_MAX,
        ) {
            let per_token_length_us = per_token_us / even_length;
            let model = CostModel { fixed_us, per_token_us, per_token_length_us };
            let measured: Vec<_> =
                buckets().into_iter().map(|bucket| (bucket, model.predict(bucket))).collect();
            let fit = fit(&measured).expect("determined");
            prop_assert!(fit.median_error < 1e-3, "{fit:?}");
            for bucket in buckets() {
                let ratio = fit.model.predict_us(bucket) / model.predict_us(bucket);
                prop_assert!((ratio - 1.0).abs() < 0.01, "{bucket:?}: {ratio}");
            }
        }
    }
}
