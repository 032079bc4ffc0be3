//! Compares captured CUDA graphs with plain runs of the same plan.

use serde::Serialize;

use super::{Bench, Loaded, RUNS_MIN, warm_session};
use crate::engine::BatchOutput;
use scheduling::batch::{Batch, Bucket, TokenIds};
use settings::limits::GraphTokens;

/// The kernels of both ways are the same, in the same order. Kernels whose threads add up in any
/// order differ from run to run, and a graph by so many times as much at most: of a few runs one is
/// rarely the furthest off.
const NOISE_TIMES: f32 = 4.0;

#[derive(Debug, Serialize)]
pub(super) struct GraphReport {
    pub buckets: usize,
    pub captured: u64,
    /// Sessions of which a graph could not be captured.
    pub refused: u64,
    /// Of any dense float or token weight.
    pub(crate) largest_difference: f32,
    /// The same between plain runs.
    pub(crate) noise: f32,
    pub(super) equal: bool,
    /// Median time of a captured bucket's run as a part of that without its graph.
    pub(crate) time_ratio: f64,
}

impl GraphReport {
    pub(super) fn print(&self) {
        println!(
            "graphs: {} of {} buckets captured ({} sessions refused one), largest difference to \
             plain runs {} (between plain runs {}), {:.2} of their time",
            self.captured,
            self.buckets,
            self.refused,
            self.largest_difference,
            self.noise,
            self.time_ratio
        );
    }
}

impl Bench<'_> {
    pub(super) fn graphs(&self, loaded: &Loaded) -> anyhow::Result<GraphReport> {
        let tokens_max = self.config.engine.tensorrt.graph_tokens.as_usize();
        let mut plainly = self.config.clone();
        plainly.engine.tensorrt.graph_tokens = GraphTokens::nearest(0);
        let plain = self.reload(&plainly)?;
        let buckets = loaded.chosen.shapes.prepared();
        let mut first = warm_session(&*loaded.chosen.engine, buckets)?;
        let mut second = warm_session(&*plain.chosen.engine, buckets)?;
        let (mut worst, mut noise) = (0.0_f32, 0.0_f32);
        let mut ratios = Vec::new();
        for &bucket in buckets {
            let batch = mixed_batch(bucket)?;
            let (mut first_s, mut second_s) = (Vec::new(), Vec::new());
            let mut plain = None;
            let begin = self.clock.now();
            while first_s.len() < RUNS_MIN || self.clock.now().since(begin) < self.span {
                let (seconds, output) = self.seconds(|| Ok(first.run(&batch)?))?;
                first_s.push(seconds);
                let (seconds, expected) = self.seconds(|| Ok(second.run(&batch)?))?;
                second_s.push(seconds);
                let expected = numbers(&batch, &expected);
                worst = worst.max(difference(&numbers(&batch, &output), &expected));
                let before = plain.get_or_insert_with(|| expected.clone());
                noise = noise.max(difference(before, &expected));
            }
            if bucket.tokens() <= tokens_max {
                ratios.push(median(first_s) / median(second_s));
            }
        }
        let figures = loaded.chosen.engine.figures();
        let [captured, refused] =
            ["captured_graphs", "refused_graphs"].map(|name| figure(&figures, name));
        Ok(GraphReport {
            buckets: buckets.len(),
            captured,
            refused,
            largest_difference: worst,
            noise,
            equal: worst.is_finite() && worst <= noise * NOISE_TIMES,
            time_ratio: median(ratios),
        })
    }
}

fn figure(figures: &[(String, u64)], name: &str) -> u64 {
    figures.iter().find(|(one, _)| one == name).map_or(0, |(_, value)| *value)
}

/// Without any number it is 1, which means neither faster nor slower.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(1.0)
}

/// Rows of different lengths and ids, the last one shorter than the bucket where it can be.
fn mixed_batch(bucket: Bucket) -> anyhow::Result<Batch> {
    let row = |row: usize| {
        let length = bucket.length - row % bucket.length.div_ceil(2);
        let id = |at: usize| u32::try_from(at * 7 + row * 13).unwrap_or(0) % 200 + 4;
        let ids: Vec<u32> = (0..length).map(id).collect();
        TokenIds::new(&ids)
    };
    Ok(Batch::new(bucket, (0..bucket.rows).map(row).collect())?)
}

/// Dense floats and token weights of all texts.
fn numbers(batch: &Batch, output: &BatchOutput<'_>) -> Vec<f32> {
    let texts = batch.items().iter().zip(batch.places());
    let of_text = |(ids, &place): (&TokenIds, _)| {
        output.dense_of(place).into_iter().chain(output.weights_of(place, ids.len()))
    };
    texts.flat_map(of_text).collect()
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    let apart = |(a, b): (&f32, &f32)| {
        let apart = (a - b).abs();
        // NaN differs from everything.
        if apart.is_nan() { f32::INFINITY } else { apart }
    };
    a.iter().zip(b).map(apart).fold(0.0, f32::max)
}
