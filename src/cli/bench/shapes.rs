//! The table of shapes: the time of one run, tokens a second, and how near that is to the best.

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::{Bench, Loaded, RUNS_MIN, tokens_per_second, warm_session};
use crate::metrics::StageTimes;
use crate::worker::warm_up_batch;
use scheduling::batch::Bucket;
use scheduling::batch::plan::Shapes;

/// The most runs of a shape, whatever the time.
const RUNS_MAX: usize = 2000;

#[derive(Debug, Clone, Serialize)]
pub(super) struct ShapeReport {
    pub rows: usize,
    pub length: usize,
    pub runs: usize,
    /// Wall time of one run, as a worker sees it.
    pub(crate) median_ms: f64,
    pub(crate) p99_ms: f64,
    /// Parts of the median run, where the engine tells them.
    pub(crate) copy_in_ms: f64,
    pub(crate) compute_ms: f64,
    pub(crate) copy_out_ms: f64,
    pub(crate) tokens_per_s: f64,
    /// Tokens a second as a part of the best shape's.
    pub(crate) efficiency: f64,
}

/// The shapes to measure: those that were typed, each rounded up to a shape that holds it, or all
/// that are prepared.
pub(super) fn wanted(typed: Option<&String>, shapes: &Shapes) -> anyhow::Result<Vec<Bucket>> {
    let Some(list) = typed else { return Ok(shapes.prepared().to_vec()) };
    let mut wanted = Vec::new();
    for text in list.split(',').map(str::trim) {
        let (rows, length): (usize, usize) = text
            .split_once('x')
            .and_then(|(rows, length)| Some((rows.parse().ok()?, length.parse().ok()?)))
            .filter(|&(rows, length)| rows > 0 && length > 0)
            .with_context(|| format!("--shapes: '{text}' is not ROWSxLENGTH, such as 1x32"))?;
        let holds = |shape: &Bucket| shape.rows >= rows && shape.length >= length;
        let own = Some(shapes.row(length)).filter(holds);
        let prepared = shapes.prepared().iter().copied().filter(holds);
        let least = prepared.chain(own).min_by_key(|shape| (shape.tokens(), shape.length));
        wanted.push(least.ok_or_else(|| {
            let longest = shapes.max_length();
            anyhow!(
                "--shapes: no shape holds {text}; a row has up to {longest} tokens, and several \
                 rows together as many as --max-batch-tokens"
            )
        })?);
    }
    wanted.sort_unstable_by_key(|shape| (shape.length, shape.rows));
    wanted.dedup();
    Ok(wanted)
}

impl Bench<'_> {
    pub(super) fn shapes(
        &self,
        loaded: &Loaded,
        wanted: &[Bucket],
    ) -> anyhow::Result<Vec<ShapeReport>> {
        let mut session = warm_session(&*loaded.chosen.engine, wanted)?;
        let mut reports = Vec::with_capacity(wanted.len());
        for &bucket in wanted {
            let batch = warm_up_batch(bucket)?;
            let begin = self.clock.now();
            let mut runs = Vec::new();
            while runs.len() < RUNS_MIN
                || (runs.len() < RUNS_MAX && self.clock.now().since(begin) < self.span)
            {
                let (seconds, output) = self.seconds(|| Ok(session.run(&batch)?))?;
                runs.push((seconds, output.times));
            }
            reports.push(report(bucket, runs));
        }
        let best = reports.iter().map(|report| report.tokens_per_s).fold(0.0, f64::max);
        for report in &mut reports {
            report.efficiency = report.tokens_per_s / best;
        }
        Ok(reports)
    }
}

fn report(bucket: Bucket, mut runs: Vec<(f64, StageTimes)>) -> ShapeReport {
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, _) = runs[runs.len() / 2];
    // An engine does not time each of its short runs.
    let timed: Vec<_> = runs.iter().filter(|(_, times)| *times != StageTimes::default()).collect();
    let times = timed.get(timed.len() / 2).map(|(_, times)| *times).unwrap_or_default();
    let last = runs.len() - 1;
    let p99 = runs[(runs.len() * 99 / 100).min(last)].0;
    let millis = |span: std::time::Duration| span.as_secs_f64() * 1e3;
    ShapeReport {
        rows: bucket.rows,
        length: bucket.length,
        runs: runs.len(),
        median_ms: median * 1e3,
        p99_ms: p99 * 1e3,
        copy_in_ms: millis(times.copy_in),
        compute_ms: millis(times.compute),
        copy_out_ms: millis(times.copy_out),
        tokens_per_s: tokens_per_second(bucket.tokens(), median),
        efficiency: 0.0,
    }
}

pub(super) fn print(reports: &[ShapeReport]) {
    println!("   rows x length    median ms       p99 ms   compute ms     tokens/s  of the best");
    for one in reports {
        let shape = format!("{} x {}", one.rows, one.length);
        println!(
            "{shape:>16} {:>12.3} {:>12.3} {:>12.3} {:>12.0} {:>11.0} %",
            one.median_ms,
            one.p99_ms,
            one.compute_ms,
            one.tokens_per_s,
            one.efficiency * 100.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::limits::MaxBatchTokens;

    #[test]
    fn typed_shapes_become_shapes_that_hold_them() {
        let shapes = Shapes::on_cpu(512, MaxBatchTokens::DEFAULT);
        let found = wanted(Some(&"3x17, 1x300".to_owned()), &shapes).expect("they are held");
        assert_eq!(found, [Bucket { rows: 4, length: 128 }, Bucket { rows: 1, length: 320 }]);
        assert!(wanted(Some(&"1x513".to_owned()), &shapes).is_err());
        for text in ["", "8", "axb", "8x"] {
            assert!(wanted(Some(&text.to_owned()), &shapes).is_err(), "{text}");
        }
        assert_eq!(wanted(None, &shapes).expect("all"), shapes.prepared());
    }
}
