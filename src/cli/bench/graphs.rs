//! Compares captured CUDA graphs with plain runs of the same plan, and those on mapped memory with
//! those that copy.

use anyhow::bail;
use serde::Serialize;

use super::{Bench, Loaded, warm_session};
use crate::batch::{Batch, Bucket, TokenIds};
use crate::config::{Config, TensorRtConfig};
use crate::engine::BatchOutput;
use crate::limits::{GraphTokens, MappedTokens};

/// The kernels of both ways are the same, in the same order; what differs is a fault.
const DIFFERENCE_MAX: f32 = 0.0;

/// The least runs of each bucket in each way, whatever the time.
const RUNS_MIN: usize = 5;

/// Runs of the same batches in two ways.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    /// Of any dense float or token weight.
    pub(crate) largest_difference: f32,
    pub(super) equal: bool,
    /// Median time of a run in the first way as a part of that in the second.
    pub(crate) time_ratio: f64,
}

/// What the comparison found.
#[derive(Debug, Serialize)]
pub(super) struct GraphReport {
    pub buckets: usize,
    pub captured: u64,
    /// Sessions of which a graph could not be captured.
    pub refused: u64,
    /// With graphs and without; the time is that of the captured buckets.
    #[serde(flatten)]
    pub(super) compared: Compared,
}

/// What the comparison of copies and mapped memory found.
#[derive(Debug, Serialize)]
pub(super) struct MemoryReport {
    /// Buckets that are small enough.
    pub buckets: usize,
    /// Those of them that were measured to be faster on mapped memory.
    pub mapped: u64,
    /// With the host's memory where that was chosen, and with copies alone.
    #[serde(flatten)]
    pub(super) compared: Compared,
}

impl MemoryReport {
    pub(super) fn print(&self) {
        let Compared { largest_difference, time_ratio, .. } = self.compared;
        println!(
            "memory: {} of {} small buckets run on mapped memory, largest difference to copies \
             {largest_difference}, {time_ratio:.2} of their time",
            self.mapped, self.buckets
        );
    }
}

impl GraphReport {
    pub(super) fn print(&self) {
        let Compared { largest_difference, time_ratio, .. } = self.compared;
        println!(
            "graphs: {} of {} buckets captured ({} sessions refused one), largest difference to \
             plain runs {largest_difference}, {time_ratio:.2} of their time",
            self.captured, self.buckets, self.refused
        );
    }
}

impl Bench<'_> {
    pub(super) fn graphs(&self, loaded: &Loaded) -> anyhow::Result<GraphReport> {
        let tokens_max = self.tensorrt().graph_tokens.as_usize();
        let mut plainly = self.config.clone();
        plainly.engine.tensorrt.graph_tokens = GraphTokens::new(0)?;
        let buckets = loaded.chosen.shapes.prepared();
        let (compared, figures) = self.compare(loaded, buckets, &plainly, tokens_max)?;
        let [captured, refused] =
            ["captured_graphs", "refused_graphs"].map(|name| figure(&figures, name));
        Ok(GraphReport { buckets: buckets.len(), captured, refused, compared })
    }

    pub(super) fn memory(&self, loaded: &Loaded) -> anyhow::Result<MemoryReport> {
        let tokens_max = self.tensorrt().mapped_tokens.as_usize();
        let mut copied = self.config.clone();
        copied.engine.tensorrt.mapped_tokens = MappedTokens::new(0)?;
        let mut small = loaded.chosen.shapes.prepared().to_vec();
        small.retain(|bucket| bucket.tokens() <= tokens_max);
        if small.is_empty() {
            bail!(
                "--compare-memory: no bucket has at most {tokens_max} tokens, the limit of \
                 --cuda-mapped-tokens"
            );
        }
        let (compared, figures) = self.compare(loaded, &small, &copied, tokens_max)?;
        let mapped = figure(&figures, "mapped_graphs");
        Ok(MemoryReport { buckets: small.len(), mapped, compared })
    }

    const fn tensorrt(&self) -> &TensorRtConfig {
        &self.config.engine.tensorrt
    }

    /// Runs the buckets on the engine and on one with `other` settings. The time counts for those
    /// of at most so many tokens. Also gives the engine's figures while it runs them.
    fn compare(
        &self,
        loaded: &Loaded,
        buckets: &[Bucket],
        other: &Config,
        tokens_max: usize,
    ) -> anyhow::Result<(Compared, Vec<(String, u64)>)> {
        let other = self.reload(other)?;
        let mut first = warm_session(&*loaded.chosen.engine, buckets)?;
        let mut second = warm_session(&*other.chosen.engine, buckets)?;
        let mut worst = 0.0_f32;
        let mut ratios = Vec::new();
        for &bucket in buckets {
            let batch = mixed_batch(bucket)?;
            let (mut first_s, mut second_s) = (Vec::new(), Vec::new());
            let begin = self.clock.now();
            while first_s.len() < RUNS_MIN || self.clock.now().since(begin) < self.span {
                let (seconds, output) = self.seconds(|| Ok(first.run(&batch)?))?;
                first_s.push(seconds);
                let (seconds, expected) = self.seconds(|| Ok(second.run(&batch)?))?;
                second_s.push(seconds);
                worst = worst.max(difference(&batch, &output, &expected));
            }
            if bucket.tokens() <= tokens_max {
                ratios.push(median(first_s) / median(second_s));
            }
        }
        let (equal, time_ratio) = (worst <= DIFFERENCE_MAX, median(ratios));
        let compared = Compared { largest_difference: worst, equal, time_ratio };
        Ok((compared, loaded.chosen.engine.figures()))
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

fn difference(batch: &Batch, a: &BatchOutput<'_>, b: &BatchOutput<'_>) -> f32 {
    let apart = |(a, b): (f32, f32)| {
        let apart = (a - b).abs();
        // NaN differs from everything.
        if apart.is_nan() { f32::INFINITY } else { apart }
    };
    let rows = batch.items().iter().zip(batch.places()).flat_map(|(ids, &place)| {
        let dense = a.dense_of(place).into_iter().zip(b.dense_of(place));
        let [a, b] = [a, b].map(|output| output.weights_of(place, ids.len()));
        dense.chain(a.into_iter().zip(b))
    });
    rows.map(apart).fold(0.0, f32::max)
}
