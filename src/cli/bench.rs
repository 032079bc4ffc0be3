//! `duovec bench` measures the engine alone, without HTTP and scheduler. The server is held to what
//! the engine reaches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::{ArgMatches, Command, value_parser};
use serde::Serialize;

use crate::engine::{Engine, Session};
use crate::worker::warm_up_batch;
use clock::{Clock, RealClock};
use model::package::ModelPackage;
use scheduling::batch::Bucket;
use settings::Config;

use super::load::{Loaded, Measuring, load, package};
use super::{package_argument, switch, value};

mod graphs;
mod shapes;
mod texts;

use graphs::GraphReport;
use shapes::ShapeReport;
use texts::TextsReport;

/// The least runs of a shape in each way, whatever the time.
const RUNS_MIN: usize = 5;

pub(super) fn command() -> Command {
    Command::new("bench")
        .about("Measures the engine alone: a table of shapes, and the ceiling for a file of texts")
        .arg(package_argument())
        .arg(value(
            "shapes",
            "LIST",
            "ROWSxLENGTH, with commas, each rounded up to a prepared shape [default: all of these]",
        ))
        .arg(
            value(
                "texts",
                "FILE",
                "a text a line, or JSON lines of a text or an object with `text`: the most texts/s",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            value("ms-per-shape", "MS", "how long each shape is measured")
                .default_value("300")
                .value_parser(value_parser!(u64)),
        )
        .arg(switch("compare-graphs", "run every bucket with and without CUDA graphs, and compare"))
        .arg(switch("no-table", "leave the table of shapes out"))
        .arg(switch("json", "print one JSON object instead of tables"))
}

#[derive(Debug, Serialize)]
struct BenchReport {
    engine: &'static str,
    version: String,
    device: String,
    precision: String,
    package: String,
    reason: String,
    shapes: Vec<ShapeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<TextsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<GraphReport>,
}

/// Measures and prints; progress goes to the log.
pub(super) fn bench(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let package = package(config)?;
    // A file that cannot be read is told before anything is loaded and measured.
    let file = typed.get_one::<PathBuf>("texts");
    let texts = file.map(|file| texts::read(file)).transpose()?;
    let loaded = load(config, package.clone(), Measuring::Skip, &clock, &Arc::default())?;
    let info = loaded.chosen.engine.info().clone();
    let span = *typed.get_one("ms-per-shape").expect("it has a default");
    let span = Duration::from_millis(span);
    let bench = Bench { config, package, clock, span };
    let asked = |name: &str| typed.get_flag(name);
    if asked("compare-graphs") && !info.kind.is_tensorrt() {
        bail!("--compare-graphs needs TensorRT on a GPU: {}", loaded.chosen.reason);
    }
    let wanted = shapes::wanted(typed.get_one("shapes"), &loaded.chosen.shapes)?;
    let shapes = if asked("no-table") { Vec::new() } else { bench.shapes(&loaded, &wanted)? };
    let graphs = asked("compare-graphs").then(|| bench.graphs(&loaded)).transpose()?;
    let texts = texts.map(|texts| bench.texts(&loaded, &texts)).transpose()?;
    let report = BenchReport {
        engine: info.kind.name(),
        version: info.version,
        device: info.device,
        precision: info.precision,
        package: config.package.display().to_string(),
        reason: loaded.chosen.reason,
        shapes,
        texts,
        graphs,
    };
    if asked("json") {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    if report.graphs.is_some_and(|graphs| !graphs.equal) {
        bail!("captured graphs and plain runs differ");
    }
    Ok(())
}

impl BenchReport {
    fn print(&self) {
        println!(
            "{}: {} {}, {}, on {}",
            self.package, self.engine, self.version, self.precision, self.device
        );
        if !self.shapes.is_empty() {
            shapes::print(&self.shapes);
        }
        if let Some(graphs) = &self.graphs {
            graphs.print();
        }
        if let Some(texts) = &self.texts {
            texts.print();
        }
    }
}

struct Bench<'a> {
    config: &'a Config,
    /// As it was before anything was loaded.
    package: ModelPackage,
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
        load(config, self.package.clone(), Measuring::Skip, &self.clock, &Arc::default())
    }
}

/// A session that has run every bucket of `buckets` once.
fn warm_session(engine: &dyn Engine, buckets: &[Bucket]) -> anyhow::Result<Box<dyn Session>> {
    let mut session = engine.open_session(buckets)?;
    for &bucket in buckets {
        session.run(&warm_up_batch(bucket)?)?;
    }
    session.warmed_up();
    Ok(session)
}

fn tokens_per_second(tokens: usize, seconds: f64) -> f64 {
    tokens as f64 / seconds.max(f64::MIN_POSITIVE)
}
