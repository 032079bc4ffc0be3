//! What a batch costs: a model fitted to measured buckets.

use std::time::Duration;

use crate::batch::Bucket;

mod run_cost;

pub use run_cost::RunCost;

/// Attention takes as long as the rest of an encoder for texts of some length between these. By its
/// arithmetic that is six times the hidden size, which is 256 to 1,333 in models that are served;
/// on processors attention takes up to ten times as long as its arithmetic.
const EVEN_LENGTH_MAX: f64 = 8000.0;
const EVEN_LENGTH_MIN: f64 = 150.0;

/// A floor is taken when the squares of its errors are less than this part of a line's.
const FLOOR_GAIN: f64 = 0.25;
/// A line whose errors are no larger than this, on average, needs no floor.
const LINE_ERROR: f64 = 0.03;
/// The runs that take the same time must have so different numbers of tokens.
const FLAT_SPAN_MIN: f64 = 4.0;

/// Predicted time of a run: the larger of `floor` and
/// `fixed + per_token · rows · length + per_token_length · rows · length²`.
///
/// The terms are what an encoder does: launching its operations, matrix products over tokens, and
/// attention over pairs of tokens. A processor does one after the other. A GPU computes while it
/// launches, so a run takes the longer of the two: up to some size, tokens add nothing to what
/// launching takes. All terms are at least zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// The least that a run takes; zero where every token takes time.
    pub floor_us: f64,
    /// Of every run, besides its tokens.
    pub fixed_us: f64,
    /// Of every padded token.
    pub per_token_us: f64,
    /// Of every padded token for each token of its row.
    pub per_token_length_us: f64,
}

impl Default for CostModel {
    /// A small encoder on two cores of a server; holds until something was measured.
    fn default() -> Self {
        Self { floor_us: 0.0, fixed_us: 2000.0, per_token_us: 110.0, per_token_length_us: 0.05 }
    }
}

impl CostModel {
    /// Microseconds of one run of `bucket`.
    pub fn predict_us(&self, bucket: Bucket) -> f64 {
        let (rows, length) = (bucket.rows as f64, bucket.length as f64);
        let token_us = self.per_token_us + self.per_token_length_us * length;
        (self.fixed_us + token_us * rows * length).max(self.floor_us)
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
/// multiplied in long ones. There is a floor only where it explains the times far better than a
/// line alone.
///
/// `None` without a measurement that took any time.
pub fn fit(measured: &[(Bucket, Duration)]) -> Option<Fit> {
    let mut runs: Vec<MeasuredRun> = measured
        .iter()
        .map(|&(bucket, time)| (terms(bucket), time.as_secs_f64() * 1e6))
        .filter(|&(_, us)| us > 0.0)
        .collect();
    let line = best_line(&runs)?;
    runs.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let best = best_with_floor(&runs, &line).unwrap_or(line);
    let [fixed_us, least_us, most_us] = best.weights;
    let per_token_us = least_us + most_us;
    let per_token_length_us = least_us / EVEN_LENGTH_MAX + most_us / EVEN_LENGTH_MIN;
    let mut errors: Vec<f64> =
        runs.iter().map(|(terms, us)| (best.us(terms) / us - 1.0).abs()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    Some(Fit {
        model: CostModel { floor_us: best.floor_us, fixed_us, per_token_us, per_token_length_us },
        median_error: errors[errors.len() / 2],
    })
}

/// Buckets with the time of a run.
pub type Times = Vec<(Bucket, Duration)>;

/// How often each bucket of the sample is run; the shortest time counts.
pub const SAMPLE_RUNS: usize = 2;
/// The sample has one of each group of this many lengths, and the longest length.
const SAMPLE_STEP: usize = 4;

/// The buckets whose times determine the model: of some lengths the smallest and the largest.
///
/// `buckets` ascend by length and rows, as the engine lists them.
pub fn sample(buckets: &[Bucket]) -> Vec<Bucket> {
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
pub fn keep_shortest(best: &mut [(Bucket, Duration)], again: &[(Bucket, Duration)]) {
    for ((_, best), (_, again)) in best.iter_mut().zip(again) {
        *best = (*best).min(*again);
    }
}

/// The terms of a run and its microseconds.
type MeasuredRun = ([f64; 3], f64);

/// One run; its tokens with the least attention that there can be, and with the most.
fn terms(bucket: Bucket) -> [f64; 3] {
    let (rows, length) = (bucket.rows as f64, bucket.length as f64);
    let tokens_and_pairs = |even_length: f64| rows * length * (1.0 + length / even_length);
    [1.0, tokens_and_pairs(EVEN_LENGTH_MAX), tokens_and_pairs(EVEN_LENGTH_MIN)]
}

/// A model as it is fitted: the weights belong to `terms`.
#[derive(Debug, Clone, Copy)]
struct Solution {
    floor_us: f64,
    weights: [f64; 3],
}

impl Solution {
    fn us(&self, terms: &[f64; 3]) -> f64 {
        let line_us: f64 = terms.iter().zip(self.weights).map(|(term, weight)| term * weight).sum();
        line_us.max(self.floor_us)
    }

    /// Sum of the squares of its relative errors.
    fn squares(&self, runs: &[MeasuredRun]) -> f64 {
        runs.iter().map(|(terms, us)| (self.us(terms) / us - 1.0).powi(2)).sum()
    }
}

/// The best without a floor. Of all subsets of terms without a negative one the best is the
/// constrained optimum.
fn best_line(runs: &[MeasuredRun]) -> Option<Solution> {
    (1_u8..8)
        .filter_map(|subset| solve(runs, subset))
        .filter(|weights| weights.iter().all(|&weight| weight >= 0.0))
        .map(|weights| Solution { floor_us: 0.0, weights })
        .min_by(|a, b| a.squares(runs).total_cmp(&b.squares(runs)))
}

/// The best with a floor, of runs that ascend by their time: the first ones take the same.
///
/// `None` when it is not much better than the line. A floor and its end are two terms more, which
/// always follow noise more closely, so errors count for each run that the terms leave free.
fn best_with_floor(runs: &[MeasuredRun], line: &Solution) -> Option<Solution> {
    let split = |end: usize| {
        let (flat, rest) = runs.split_at(end);
        let tokens = || flat.iter().map(|(terms, _)| terms[1]);
        let least = tokens().fold(f64::INFINITY, f64::min);
        let is_wide = tokens().any(|tokens| tokens >= least * FLAT_SPAN_MIN);
        let sum = |power: i32| flat.iter().map(|(_, us)| us.powi(power)).sum::<f64>();
        let line = best_line(rest).filter(|_| is_wide)?;
        Some(Solution { floor_us: sum(-1) / sum(-2), ..line })
    };
    let ends = 2..runs.len().saturating_sub(1);
    let best = ends.filter_map(split).min_by(|a, b| a.squares(runs).total_cmp(&b.squares(runs)))?;
    let free = |terms: usize| runs.len().saturating_sub(terms) as f64;
    let (line_squares, squares) = (line.squares(runs) / free(3), best.squares(runs));
    (line_squares > LINE_ERROR.powi(2) && squares < line_squares * FLOOR_GAIN * free(5))
        .then_some(best)
}

/// Least squares over the terms of `subset` (a bit for each); the others are zero. `None` when the
/// measurements do not determine them.
fn solve(runs: &[MeasuredRun], subset: u8) -> Option<[f64; 3]> {
    let chosen: Vec<usize> = (0..3).filter(|term| subset & (1 << term) != 0).collect();
    let size = chosen.len();
    // Normal equations of the relative error, with the right-hand side as the last column; each
    // column is scaled to its largest value, since rows · length² is far larger than one.
    let scale: Vec<f64> = chosen
        .iter()
        .map(|&term| runs.iter().map(|(terms, us)| terms[term] / us).fold(0.0, f64::max))
        .collect();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for (terms, us) in runs {
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
    use crate::batch::plan::Shapes;
    use proptest::prelude::*;
    use settings::limits::MaxBatchTokens;

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

    /// Every bucket with the time that a run of it takes.
    fn measured(us: impl Fn(Bucket) -> f64) -> Times {
        let time = |bucket| (bucket, Duration::from_secs_f64(us(bucket) / 1e6));
        buckets().into_iter().map(time).collect()
    }

    #[test]
    fn a_term_that_would_be_negative_is_zero() {
        let times = measured(|bucket| bucket.tokens() as f64 * 10.0 - 40.0);
        let model = fit(&times).expect("determined").model;
        assert_eq!(model.fixed_us, 0.0);
        assert!(model.per_token_us > 0.0);
    }

    #[test]
    fn attention_takes_what_it_can_take() {
        let tokens = |bucket: Bucket| bucket.tokens() as f64;
        let tokens_only = measured(tokens);
        let pairs_only = measured(|bucket| tokens(bucket) * bucket.length as f64);
        for (times, even_length) in [(pairs_only, EVEN_LENGTH_MIN), (tokens_only, EVEN_LENGTH_MAX)]
        {
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
        let shapes = Shapes::on_gpu(512, tokens);
        let time = |shape: Bucket| (shape, Duration::from_secs_f64(gpu_us(shape) / 1e6));
        let measured: Vec<_> = sample(shapes.prepared()).into_iter().map(time).collect();
        let model = fit(&measured).expect("determined").model;
        for &shape in shapes.prepared() {
            let ratio = model.predict_us(shape) / gpu_us(shape);
            assert!((ratio - 1.0).abs() < 0.01, "{shape:?}: {ratio}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn known_terms_are_found_again(
            fixed_us in 10.0_f64..5000.0,
            per_token_us in 1.0_f64..200.0,
            even_length in EVEN_LENGTH_MIN..EVEN_LENGTH_MAX,
            knee in prop_oneof![Just(0.0), 100.0_f64..500.0],
            fixed_part in 0.0_f64..0.3,
        ) {
            // Without a floor, or one that so many tokens reach.
            let floor_us = knee * per_token_us / (1.0 - fixed_part);
            let fixed_us = if knee > 0.0 { floor_us * fixed_part } else { fixed_us };
            let per_token_length_us = per_token_us / even_length;
            let model = CostModel { floor_us, fixed_us, per_token_us, per_token_length_us };
            let found = fit(&measured(|bucket| model.predict_us(bucket))).expect("determined");
            prop_assert!(knee > 0.0 || found.median_error < 1e-3, "{found:?}");
            prop_assert!(knee > 0.0 || found.model.floor_us == 0.0, "{found:?}");
            let most = if knee > 0.0 { 0.05 } else { 0.01 };
            for bucket in buckets() {
                let ratio = found.model.predict_us(bucket) / model.predict_us(bucket);
                prop_assert!((ratio - 1.0).abs() < most, "{bucket:?}: {ratio}, {found:?}");
            }
        }

        #[test]
        fn noise_is_no_floor(
            fixed_us in 10.0_f64..5000.0,
            per_token_us in 1.0_f64..200.0,
            noise in proptest::collection::vec(0.9_f64..1.1, buckets().len()),
        ) {
            let mut times = measured(|bucket| fixed_us + bucket.tokens() as f64 * per_token_us);
            for ((_, time), noise) in times.iter_mut().zip(noise) {
                *time = time.mul_f64(noise);
            }
            let few: Times = times.iter().step_by(2).copied().collect();
            for times in [times, few] {
                prop_assert_eq!(fit(&times).expect("determined").model.floor_us, 0.0);
            }
        }
    }
}
