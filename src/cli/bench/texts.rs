//! The ceiling for a file of texts: the most texts a second that batches sorted by length reach,
//! without HTTP and scheduler.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use serde_json::Value;

use super::{Bench, Loaded, tokens_per_second, warm_session};
use crate::engine::{Engine, EngineKind, Session};
use crate::worker::panic_text;
use scheduling::batch::packing::{PackedBatch, pack};
use scheduling::batch::plan::Shapes;
use scheduling::batch::{Batch, Bucket, TokenIds};
use settings::limits::{MaxBatchTokens, ThreadsPerWorker, Workers};
use settings::{Config, PrecisionChoice, cores};

/// Padded tokens of a batch that are tried, ascending.
const BUDGETS: [u64; 4] = [256, 512, 1024, 2048];
const GPU_BUDGETS: [u64; 5] = [512, 2048, 8192, 16_384, 32_768];
/// Rounds of each packing. The best one counts, since other programs only ever slow it down.
const ROUNDS: usize = 2;

/// The file, and every way of running it that was tried, best first.
#[derive(Debug, Serialize)]
pub(super) struct TextsReport {
    pub texts: usize,
    pub tokens: usize,
    pub(crate) mean_tokens: f64,
    pub(crate) ways: Vec<WayReport>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct WayReport {
    pub engine: String,
    pub workers: usize,
    pub(crate) threads_per_worker: usize,
    /// Padded tokens of a batch at most.
    pub(crate) batch_tokens: u64,
    pub batches: usize,
    pub(crate) real_per_run_token: f64,
    pub(crate) texts_per_s: f64,
    pub(crate) tokens_per_s: f64,
}

impl TextsReport {
    pub(super) fn print(&self) {
        println!(
            "{} texts, {} tokens, {:.1} on average; sorted by length and packed:",
            self.texts, self.tokens, self.mean_tokens
        );
        println!(
            "         engine  workers x threads  batch tokens  batches  real/padded  texts/s  \
             tokens/s"
        );
        for way in &self.ways {
            let workers = format!("{} x {}", way.workers, way.threads_per_worker);
            println!(
                "{:>15} {workers:>18} {:>13} {:>8} {:>12.3} {:>8.1} {:>9.0}",
                way.engine,
                way.batch_tokens,
                way.batches,
                way.real_per_run_token,
                way.texts_per_s,
                way.tokens_per_s
            );
        }
    }
}

impl Bench<'_> {
    pub(super) fn texts(&self, loaded: &Loaded, texts: &[String]) -> anyhow::Result<TextsReport> {
        let prompt = loaded.package.manifest().default_prompt;
        let mut items = Vec::new();
        for text in texts {
            items.push(loaded.tokenizer.tokenize(text, prompt, &|_| true)?.ids);
        }
        items.sort_by_key(|ids| ids.len());
        let tokens = items.iter().map(|ids| ids.len()).sum();
        let mut ways = Vec::new();
        let kind = loaded.chosen.engine.info().kind;
        for config in self.ways(kind) {
            ways.extend(self.run_ways(&config, budgets(kind), &items)?);
        }
        ways.sort_by(|a, b| b.texts_per_s.total_cmp(&a.texts_per_s));
        Ok(TextsReport {
            texts: items.len(),
            tokens,
            mean_tokens: tokens as f64 / items.len() as f64,
            ways,
        })
    }

    /// Settings worth trying on this machine.
    fn ways(&self, kind: EngineKind) -> Vec<Config> {
        let engine = &self.config.engine;
        let with = |precision, workers: u64, threads: u64| {
            let mut config = self.config.clone();
            config.engine.choice = Some(kind);
            config.engine.precision = precision;
            config.engine.workers = Some(Workers::nearest(workers));
            config.engine.threads_per_worker = Some(ThreadsPerWorker::nearest(threads));
            config
        };
        let precision = engine.precision;
        if kind != EngineKind::OpenVino {
            return [1, 2, 4].map(|workers| with(precision, workers, 1)).to_vec();
        }
        let cores = cores() as u64;
        let mut ways = vec![with(precision, 1, cores)];
        if cores > 1 {
            ways.push(with(precision, cores, 1));
        }
        if precision == PrecisionChoice::Auto {
            ways.push(with(PrecisionChoice::F32, 1, cores));
        }
        ways
    }

    fn run_ways(
        &self,
        config: &Config,
        budgets: &[u64],
        items: &[TokenIds],
    ) -> anyhow::Result<Vec<WayReport>> {
        let mut config = config.clone();
        // Buckets for the largest budget hold those of all others.
        let most = *budgets.last().expect("there is at least one");
        config.queue.max_batch_tokens = Some(MaxBatchTokens::nearest(most));
        let loaded = self.reload(&config)?;
        let engine = &*loaded.chosen.engine;
        let workers = loaded.chosen.split.workers;
        let mut ways = Vec::new();
        for &budget in budgets {
            let batches = batches(items, &loaded.chosen.shapes, budget)?;
            let seconds = self.run_batches(engine, workers, &batches)?;
            let real: usize = items.iter().map(|ids| ids.len()).sum();
            let padded: usize = batches.iter().map(|batch| batch.bucket().tokens()).sum();
            ways.push(WayReport {
                engine: format!("{} {}", engine.info().kind, engine.info().precision),
                workers,
                threads_per_worker: engine.info().threads_per_session,
                batch_tokens: budget,
                batches: batches.len(),
                real_per_run_token: real as f64 / padded as f64,
                texts_per_s: items.len() as f64 / seconds,
                tokens_per_s: tokens_per_second(real, seconds),
            });
        }
        Ok(ways)
    }

    /// Seconds of the best round over all batches; each worker takes the next one.
    fn run_batches(
        &self,
        engine: &dyn Engine,
        workers: usize,
        batches: &[Batch],
    ) -> anyhow::Result<f64> {
        let mut buckets: Vec<Bucket> = batches.iter().map(Batch::bucket).collect();
        buckets.sort_unstable();
        buckets.dedup();
        let gate = Barrier::new(workers + 1);
        let next = AtomicUsize::new(0);
        let work = || -> anyhow::Result<()> {
            // A worker that cannot open or run passes the gates all the same: others wait there.
            let mut opened = guarded(|| warm_session(engine, &buckets));
            let mut outcome = Ok(());
            for _ in 0..ROUNDS {
                gate.wait();
                if let (Ok(session), Ok(())) = (&mut opened, &outcome) {
                    outcome = guarded(|| run_all(&mut **session, batches, &next));
                }
                gate.wait();
            }
            opened.map(|_| ()).and(outcome)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let mut best = f64::INFINITY;
            for _ in 0..ROUNDS {
                next.store(0, Ordering::SeqCst);
                gate.wait();
                let start = self.clock.now();
                gate.wait();
                best = best.min(self.clock.now().since(start).as_secs_f64());
            }
            for thread in threads {
                thread.join().expect("its panics are errors")?;
            }
            Ok(best)
        })
    }
}

/// Large batches fall out of a processor's cache; measuring them there would take long for nothing.
const fn budgets(kind: EngineKind) -> &'static [u64] {
    if kind.is_tensorrt() { &GPU_BUDGETS } else { &BUDGETS }
}

/// A panic as an error.
fn guarded<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let panicked = |panic: &_| Err(anyhow!("a worker panicked: {}", panic_text(panic)));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| panicked(&*panic))
}

fn run_all(session: &mut dyn Session, batches: &[Batch], next: &AtomicUsize) -> anyhow::Result<()> {
    while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
        session.run(batch)?;
    }
    Ok(())
}

/// Items in batches of at most `budget` tokens.
fn batches(items: &[TokenIds], shapes: &Shapes, budget: u64) -> anyhow::Result<Vec<Batch>> {
    let lengths: Vec<usize> = items.iter().map(|ids| ids.len()).collect();
    let budget = usize::try_from(budget).unwrap_or(usize::MAX);
    let packed = pack(&lengths, &shapes.clone().within(budget))
        .ok_or_else(|| anyhow!("no shape holds a text"))?;
    let batch = |packed: PackedBatch| {
        let items = packed.items.iter().map(|&item| items[item].clone()).collect();
        Batch::new(packed.bucket, items)
    };
    Ok(packed.into_iter().map(batch).collect::<Result<_, _>>()?)
}

/// A text a line, or JSON lines of a text or of an object with `text`.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<String>> {
    let content =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = content.lines().filter(|line| !line.trim().is_empty());
    let text = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(mut fields)) => match fields.remove("text") {
            Some(Value::String(text)) => text,
            _ => line.to_owned(),
        },
        _ => line.to_owned(),
    };
    let texts: Vec<String> = lines.map(text).collect();
    if texts.is_empty() {
        bail!("{} has no text", file.display());
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::engine::fake::{FakeEngine, FakeScript, ScriptedFault};
    use crate::worker::warm_up_batch;
    use clock::RealClock;
    use model::package::ModelPackage;

    /// The others would wait for it for ever.
    #[test]
    fn a_session_that_panics_ends_the_measurement() {
        let config = Config::default();
        let package = ModelPackage::open(&testing::tiny()).expect("the fixture is whole");
        let (clock, span) = (Arc::new(RealClock::new()), Duration::ZERO);
        let bench = Bench { config: &config, package, clock, span };
        let batch = || warm_up_batch(Bucket { rows: 1, length: 8 }).expect("it fits");
        let faults = [(1, ScriptedFault::Panic)].into();
        for script in [
            FakeScript { panicking_opens: 1, ..FakeScript::default() },
            FakeScript { faults, ..FakeScript::default() },
        ] {
            let engine = FakeEngine::with_script(8, script);
            let ended = bench.run_batches(&engine, 2, &[batch(), batch(), batch()]);
            let error = ended.expect_err("a worker is lost").to_string();
            assert!(error.contains("a worker panicked: scripted"), "{error}");
        }
    }

    #[test]
    fn lines_are_texts_or_json() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), "plain\n\"quoted\"\n{\"text\": \"inside\"}\n\n12\n")
            .expect("written");
        assert_eq!(read(file.path()).expect("read"), ["plain", "quoted", "inside", "12"]);
    }
}
