//! `duovec bench` measures the engine alone, without HTTP and scheduler. The server is held to what
//! the engine reaches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Serialize;

use crate::batch::{Batch, Bucket, TokenIds};
use crate::clock::{Clock, RealClock};
use crate::config::Config;
use crate::engine::{Engine, EngineInfo, Session};
use crate::telemetry;

use super::load::{Loaded, Measuring, load};

mod ceiling;
mod graphs;
mod priorities;
mod shapes;
mod texts;
mod waits;

use ceiling::CeilingReport;
use graphs::{GraphReport, MemoryReport};
use priorities::PriorityReport;
use shapes::ShapeReport;
use texts::TextsReport;
use waits::WaitReport;

/// Ids of measured texts: special tokens, which every vocabulary has.
const FILLER_IDS: u32 = 4;

/// Comparisons of what only a GPU has.
const COMPARISONS: [&str; 4] =
    ["compare-graphs", "compare-memory", "compare-priorities", "compare-waits"];

/// What can be typed besides the settings.
pub(super) fn command() -> Command {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("bench")
        .about("Measures the engine alone: a table of shapes, and the ceiling for a file of texts")
        .arg(Arg::new("PACKAGE").help("directory of the package [default: the setting]"))
        .arg(value(
            "shapes",
            "LIST",
            "ROWSxLENGTH, with commas, each rounded up to a bucket [default: powers of two]",
        ))
        .arg(value(
            "texts",
            "FILE",
            "a text a line, or JSON lines of a text or an object with `text`: the most texts/s",
        ))
        .arg(value("ms-per-shape", "MS", "how long each shape is measured [default: 300]"))
        .arg(switch("compare-graphs", "run every bucket with and without CUDA graphs, and compare"))
        .arg(switch(
            "compare-memory",
            "run the smallest buckets on mapped memory of the host, where that is faster, and \
             with copies, and compare",
        ))
        .arg(switch(
            "compare-priorities",
            "run a short text beside large batches on a GPU, on a stream like theirs and on an \
             urgent one",
        ))
        .arg(switch(
            "compare-waits",
            "wait for runs on a GPU with the core kept, and asleep, and compare",
        ))
        .arg(switch("ceiling", "measure the GPU's matrix units too, which bound every shape"))
        .arg(switch("no-table", "leave the table of shapes out"))
        .arg(switch("json", "print one JSON object instead of tables"))
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct BenchReport {
    engine: &'static str,
    version: String,
    device: String,
    precision: String,
    package: String,
    /// Why this engine was chosen.
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<CeilingReport>,
    shapes: Vec<ShapeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<TextsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<GraphReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priorities: Option<PriorityReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<Vec<WaitReport>>,
}

/// Measures and prints; progress goes to the log.
pub(super) fn bench(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
    telemetry::init(config);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let loaded = load(config, Measuring::Skip, &clock, &Arc::default())?;
    let info = loaded.chosen.engine.info().clone();
    let text = |name: &str| typed.get_one::<String>(name).map(String::as_str);
    let span = milliseconds(text("ms-per-shape").unwrap_or("300"))?;
    let bench = Bench { config, clock: Arc::clone(&clock), span };
    let asked = |name: &str| typed.get_flag(name);
    let of_gpus = COMPARISONS.into_iter().find(|name| asked(name));
    if let Some(name) = of_gpus.filter(|_| !info.kind.is_tensorrt()) {
        bail!("--{name} needs TensorRT on a GPU: {}", loaded.chosen.reason);
    }
    let ceiling = asked("ceiling").then(|| bench.ceiling(&loaded)).transpose()?;
    let wanted = shapes::wanted(text("shapes"), &loaded.chosen.shapes)?;
    let mut shapes = if asked("no-table") { Vec::new() } else { bench.shapes(&loaded, &wanted)? };
    for shape in &mut shapes {
        let part = |ceiling: &CeilingReport| ceiling.part(shape.tokens_per_s);
        shape.of_ceiling = ceiling.as_ref().and_then(part);
    }
    let graphs = asked("compare-graphs").then(|| bench.graphs(&loaded)).transpose()?;
    let memory = asked("compare-memory").then(|| bench.memory(&loaded)).transpose()?;
    let priorities = asked("compare-priorities").then(|| bench.priorities(&loaded)).transpose()?;
    let waits = asked("compare-waits").then(|| bench.waits(&loaded)).transpose()?;
    let file = text("texts").map(PathBuf::from);
    let texts = file.map(|file| bench.texts(&loaded, &file)).transpose()?;
    let report = BenchReport {
        engine: info.kind.name(),
        version: info.version,
        device: info.device,
        precision: info.precision,
        package: config.package.display().to_string(),
        reason: loaded.chosen.reason,
        ceiling,
        shapes,
        texts,
        graphs,
        memory,
        priorities,
        waits,
    };
    if asked("json") {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    if report.graphs.is_some_and(|graphs| !graphs.compared.equal) {
        bail!("captured graphs and plain runs differ");
    }
    if report.memory.is_some_and(|memory| !memory.compared.equal) {
        bail!("runs on mapped memory and runs with copies differ");
    }
    Ok(())
}

fn milliseconds(typed: &str) -> anyhow::Result<Duration> {
    let number = typed.parse();
    let number = number.with_context(|| format!("--ms-per-shape: '{typed}' is not a number"))?;
    Ok(Duration::from_millis(number))
}

impl BenchReport {
    fn print(&self) {
        println!(
            "{}: {} {}, {}, on {}",
            self.package, self.engine, self.version, self.precision, self.device
        );
        if let Some(ceiling) = &self.ceiling {
            ceiling.print();
        }
        if !self.shapes.is_empty() {
            shapes::print(&self.shapes);
        }
        if let Some(graphs) = &self.graphs {
            graphs.print();
        }
        if let Some(memory) = &self.memory {
            memory.print();
        }
        if let Some(priorities) = &self.priorities {
            priorities.print();
        }
        if let Some(waits) = &self.waits {
            waits::print(waits);
        }
        if let Some(texts) = &self.texts {
            texts.print();
        }
    }
}

/// What all measurements need.
struct Bench<'a> {
    config: &'a Config,
    clock: Arc<dyn Clock>,
    /// How long each thing is measured.
    span: Duration,
}

impl Bench<'_> {
    /// Seconds of one call.
    fn seconds<T>(&self, call: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
        let start = self.clock.now();
        let value = call()?;
        Ok((self.clock.now().since(start).as_secs_f64(), value))
    }

    /// The same package with other settings.
    fn reload(&self, config: &Config) -> anyhow::Result<Loaded> {
        load(config, Measuring::Skip, &self.clock, &Arc::default())
    }
}

/// A full batch whose texts all have the bucket's length.
fn full_batch(bucket: Bucket) -> anyhow::Result<Batch> {
    let ids: Vec<u32> = (0..FILLER_IDS).cycle().take(bucket.length).collect();
    Ok(Batch::new(bucket, vec![TokenIds::new(&ids); bucket.rows])?)
}

/// A session that has run every bucket of `buckets` once.
fn warm_session(engine: &dyn Engine, buckets: &[Bucket]) -> anyhow::Result<Box<dyn Session>> {
    let mut session = engine.open_session(buckets)?;
    for &bucket in buckets {
        session.run(&full_batch(bucket)?)?;
    }
    session.warmed_up();
    Ok(session)
}

fn tokens_per_second(tokens: usize, seconds: f64) -> f64 {
    tokens as f64 / seconds.max(f64::MIN_POSITIVE)
}

/// The engine in one line, for log and tables.
fn named(info: &EngineInfo) -> String {
    format!("{} {}", info.kind, info.precision)
}
