//! The table of shapes: the time of one run, tokens a second, and how near that is to the best.

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::{Bench, Loaded, full_batch, tokens_per_second, warm_session};
use crate::batch::Bucket;
use crate::engine::StageTimes;

/// The least and the most runs of a shape, whatever the time.
const RUNS_MIN: usize = 5;
const RUNS_MAX: usize = 2000;
/// Rows and lengths of the table when none are typed.
const ROWS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const LENGTHS: [usize; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 8192];

/// One line of the table.
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
    /// Its arithmetic as a part of what the GPU's matrix units give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of_ceiling: Option<f64>,
}

/// The shapes to measure: those that were typed, or rows and lengths in powers of two; each is the
/// smallest bucket that holds it.
pub(super) fn wanted(typed: Option<&str>, buckets: &[Bucket]) -> anyhow::Result<Vec<Bucket>> {
    let holding = |rows: usize, length: usize| {
        let holds = |bucket: &&Bucket| bucket.rows >= rows && bucket.length >= length;
        buckets.iter().filter(holds).min_by_key(|bucket| (bucket.tokens(), bucket.length)).copied()
    };
    let mut shapes = Vec::new();
    if let Some(list) = typed {
        for text in list.split(',').map(str::trim) {
            let (rows, length) = text
                .split_once('x')
                .and_then(|(rows, length)| Some((rows.parse().ok()?, length.parse().ok()?)))
                .with_context(|| format!("--shapes: '{text}' is not ROWSxLENGTH"))?;
            let bucket = holding(rows, length);
            shapes.push(bucket.ok_or_else(|| anyhow!("--shapes: no bucket holds {text}"))?);
        }
    } else {
        let all = LENGTHS.into_iter().flat_map(|length| ROWS.map(|rows| (rows, length)));
        // A shape that is much larger than what was asked for would be measured twice.
        let close = |(rows, length): (usize, usize)| {
            holding(rows, length).filter(|bucket| bucket.tokens() <= rows * length * 5 / 4)
        };
        shapes.extend(all.filter_map(close));
    }
    shapes.sort_unstable_by_key(|bucket| (bucket.length, bucket.rows));
    shapes.dedup();
    Ok(shapes)
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
            let batch = full_batch(bucket)?;
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
        of_ceiling: None,
    }
}

pub(super) fn print(reports: &[ShapeReport]) {
    println!(
        "   rows x length    median ms       p99 ms   compute ms     tokens/s  of the best  of the \
         ceiling"
    );
    for one in reports {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let of_ceiling = one.of_ceiling.map(percent).unwrap_or_default();
        let shape = format!("{} x {}", one.rows, one.length);
        println!(
            "{shape:>16} {:>12.3} {:>12.3} {:>12.3} {:>12.0} {:>11.0} % {of_ceiling:>16}",
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
    use crate::batch::plan::bucket_ladder;
    use crate::limits::{MaxBatchRows, MaxBatchTokens};

    fn buckets() -> Vec<Bucket> {
        bucket_ladder(512, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT)
    }

    #[test]
    fn typed_shapes_become_buckets_that_hold_them() {
        let shapes = wanted(Some("5x17, 1x512"), &buckets()).expect("they are held");
        assert_eq!(shapes, [Bucket { rows: 6, length: 24 }, Bucket { rows: 1, length: 512 }]);
        assert!(wanted(Some("1x513"), &buckets()).is_err());
        for text in ["", "8", "8x", "ax8", "1x8;2x8"] {
            assert!(wanted(Some(text), &buckets()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_default_table_has_small_and_large_shapes_once() {
        let shapes = wanted(None, &buckets()).expect("there are some");
        assert!(shapes.contains(&Bucket { rows: 1, length: 16 }), "{shapes:?}");
        assert!(shapes.contains(&Bucket { rows: 1, length: 512 }), "{shapes:?}");
        let mut unique = shapes.clone();
        unique.dedup();
        assert_eq!(unique, shapes);
    }
}
