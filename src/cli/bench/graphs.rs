//! Compares each captured CUDA graph with a plain run of the same plan.

use anyhow::bail;
use serde::Serialize;

use super::{Bench, Loaded, warm_session};
use crate::batch::{Batch, Bucket, TokenIds};
use crate::engine::BatchOutput;
use crate::limits::GraphTokens;

/// Graphs replay the kernels of a plain run in the same order; what differs is a fault.
const DIFFERENCE_MAX: f32 = 0.0;

/// Runs of each bucket.
const ROUNDS: usize = 5;

/// What the comparison found.
#[derive(Debug, Serialize)]
pub(super) struct GraphReport {
    pub buckets: usize,
    pub captured: u64,
    /// Sessions of which a graph could not be captured.
    pub refused: u64,
    /// Of any dense float or token weight.
    pub(crate) largest_difference: f32,
    pub equal: bool,
    /// Median time of a run with its graph as a part of that without, over the captured buckets.
    pub(crate) time_ratio: f64,
}

impl GraphReport {
    pub(super) fn print(&self) {
        println!(
            "graphs: {} of {} buckets captured ({} sessions refused one), largest difference to \
             plain runs {}, {:.2} of their time",
            self.captured, self.buckets, self.refused, self.largest_difference, self.time_ratio
        );
    }
}

impl Bench<'_> {
    pub(super) fn graphs(&self, loaded: &Loaded) -> anyhow::Result<GraphReport> {
        let engine = &loaded.chosen.engine;
        if !engine.info().kind.is_tensorrt() {
            bail!("--compare-graphs: {} has no CUDA graphs", engine.info().kind);
        }
        let mut config = self.config.clone();
        config.engine.tensorrt.graph_tokens = GraphTokens::new(0)?;
        let plainly = self.reload(&config)?;
        let buckets = loaded.chosen.buckets.clone();
        let mut captured = warm_session(&**engine, &buckets)?;
        let mut plain = warm_session(&*plainly.chosen.engine, &buckets)?;
        let mut worst = 0.0_f32;
        let mut ratios = Vec::new();
        for &bucket in &buckets {
            let batch = mixed_batch(bucket)?;
            let (mut with_s, mut without_s) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let (seconds, output) = self.seconds(|| Ok(captured.run(&batch)?))?;
                with_s.push(seconds);
                let (seconds, expected) = self.seconds(|| Ok(plain.run(&batch)?))?;
                without_s.push(seconds);
                worst = worst.max(difference(&batch, &output, &expected));
            }
            if bucket.tokens() <= self.config.engine.tensorrt.graph_tokens.as_usize() {
                ratios.push(median(with_s) / median(without_s));
            }
        }
        let figure = |name: &str| {
            let figures = engine.figures();
            figures.into_iter().find(|(one, _)| one == name).map_or(0, |(_, value)| value)
        };
        Ok(GraphReport {
            buckets: buckets.len(),
            captured: figure("captured_graphs"),
            refused: figure("refused_graphs"),
            largest_difference: worst,
            equal: worst <= DIFFERENCE_MAX,
            time_ratio: median(ratios),
        })
    }
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

fn difference(batch: &Batch, a: &BatchOutput<'_>, b: &BatchOutput<'_>) -> f32 {
    let apart = |(a, b): (f32, f32)| {
        let apart = (a - b).abs();
        // NaN differs from everything.
        if apart.is_nan() { f32::INFINITY } else { apart }
    };
    let rows = batch.items().iter().enumerate().flat_map(|(row, ids)| {
        let dense = a.dense_row(row).into_iter().zip(b.dense_row(row));
        let [a, b] = [a, b].map(|output| output.weights_row(row, ids.len()));
        dense.chain(a.into_iter().zip(b))
    });
    rows.map(apart).fold(0.0, f32::max)
}
