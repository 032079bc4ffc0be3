//! What a server measured: its answer of `/health`, or the figures of `duovec bench --json`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::batch::Bucket;
use crate::batch::cost::{CostModel, fit};
use crate::batch::plan::Shapes;
use crate::capacity::server::ServerModel;
use crate::config::Config;
use crate::engine::EngineKind;
use crate::limits::MaxBatchTokens;
use crate::scheduler::state::{Lane, StateConfig};

/// How long runs take, and what is known of the server besides.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MeasuredServer {
    costs: BTreeMap<usize, CostModel>,
    /// GPUs have shapes of their own.
    is_gpu: bool,
    /// The longest text.
    length_max: usize,
    /// The lane of each worker; a bench does not tell.
    lanes: Option<Vec<Lane>>,
    /// Padded tokens of a batch; a bench does not tell.
    batch_tokens: Option<u64>,
}

/// The part of the answer of `/health` that is used.
#[derive(Deserialize)]
struct HealthAnswer {
    engine: String,
    max_input_tokens: usize,
    tuning: TuningReport,
}

#[derive(Deserialize)]
struct TuningReport {
    lanes: Vec<LanesReport>,
    max_batch_tokens: u64,
}

/// The lanes of one width.
#[derive(Deserialize)]
struct LanesReport {
    width: usize,
    lanes: usize,
    #[serde(flatten)]
    cost: Cost,
}

/// The model, and what recent batches took beside what it predicts.
#[derive(Deserialize)]
struct Cost {
    floor_us: f64,
    fixed_us: f64,
    per_token_us: f64,
    per_token_length_us: f64,
    correction: f64,
}

/// The part of a bench's figures that is used.
#[derive(Deserialize)]
struct BenchFile {
    engine: String,
    shapes: Vec<ShapeTime>,
}

#[derive(Deserialize)]
struct ShapeTime {
    rows: usize,
    length: usize,
    median_ms: f64,
}

impl Cost {
    fn corrected(&self) -> CostModel {
        CostModel {
            floor_us: self.floor_us * self.correction,
            fixed_us: self.fixed_us * self.correction,
            per_token_us: self.per_token_us * self.correction,
            per_token_length_us: self.per_token_length_us * self.correction,
        }
    }
}

impl MeasuredServer {
    pub(super) fn read(path: &str) -> anyhow::Result<Self> {
        Self::parse(&super::read(path)?, path)
    }

    fn parse(text: &str, path: &str) -> anyhow::Result<Self> {
        let which = "give an answer of GET /health, or what `duovec bench --json` prints";
        let value: Value =
            serde_json::from_str(text).with_context(|| format!("{path} is not JSON ({which})"))?;
        if value.get("tuning").is_some() {
            let health = serde_json::from_value(value).with_context(|| {
                format!(
                    "{path} does not say how long runs take: its server was not ready; ask for \
                     /health again when its status is ok"
                )
            })?;
            return Ok(Self::of_health(&health));
        }
        if value.get("shapes").is_none() {
            bail!("{path} does not say how long runs take; {which}");
        }
        let bench = serde_json::from_value(value)
            .with_context(|| format!("{path} has no usable table of shapes ({which})"))?;
        Self::of_bench(&bench).ok_or_else(|| {
            anyhow!("{path} has no shape that was measured; run duovec bench without --no-table")
        })
    }

    fn of_health(health: &HealthAnswer) -> Self {
        let HealthAnswer { engine, max_input_tokens, tuning } = health;
        let cores = |of: &LanesReport| Lane::tree(&[of.width * of.lanes], &[of.width]);
        Self {
            costs: tuning.lanes.iter().map(|of| (of.width, of.cost.corrected())).collect(),
            is_gpu: is_gpu(engine),
            length_max: *max_input_tokens,
            lanes: Some(tuning.lanes.iter().flat_map(cores).collect()),
            batch_tokens: Some(tuning.max_batch_tokens),
        }
    }

    fn of_bench(bench: &BenchFile) -> Option<Self> {
        let timed = |shape: &ShapeTime| {
            let time = Duration::try_from_secs_f64(shape.median_ms / 1e3).ok()?;
            Some((Bucket { rows: shape.rows, length: shape.length }, time))
        };
        let times: Vec<(Bucket, Duration)> = bench.shapes.iter().filter_map(timed).collect();
        Some(Self {
            costs: BTreeMap::from([(1, fit(&times)?.model)]),
            is_gpu: is_gpu(&bench.engine),
            length_max: times.iter().map(|(bucket, _)| bucket.length).max()?,
            lanes: None,
            batch_tokens: None,
        })
    }

    /// The servers of the simulation; what is given as a setting comes before what the server has.
    pub(super) fn model(&self, config: &Config, path: &str) -> anyhow::Result<ServerModel> {
        // Workers that are given share no cores.
        let given = config.engine.workers.map(|workers| Lane::apart(workers.as_usize()));
        let narrowest = self.costs.first_key_value().map(|(_, cost)| (1, *cost));
        let costs = match given {
            Some(_) => narrowest.into_iter().collect(),
            None => self.costs.clone(),
        };
        let lanes = given.or_else(|| self.lanes.clone()).filter(|lanes| !lanes.is_empty());
        let lanes = lanes.with_context(|| {
            format!("{path} does not say how many workers a server has: give --workers")
        })?;
        let batch_tokens = match (config.queue.max_batch_tokens, self.batch_tokens) {
            (Some(given), _) => given,
            (None, Some(of_server)) => MaxBatchTokens::new(of_server)
                .with_context(|| format!("max_batch_tokens of {path}"))?,
            (None, None) => bail!(
                "{path} does not say how large the batches of a server are: give \
                 --max-batch-tokens"
            ),
        };
        let shapes = match self.is_gpu {
            true => Shapes::on_gpu(self.length_max, batch_tokens),
            false => Shapes::on_cpu(self.length_max, batch_tokens),
        };
        let smallest = shapes.row(1);
        if !costs.values().all(|cost| takes_time(cost, smallest)) {
            bail!("{path} says that runs take no time: measure a server that runs a model");
        }
        let state = StateConfig { capacity: config.queue.capacity.as_usize(), lanes };
        Ok(ServerModel { state, shapes, costs, slowness: 1.0 })
    }
}

/// Whether runs of the bucket take a time, and no term is one that no run has.
fn takes_time(cost: &CostModel, bucket: Bucket) -> bool {
    let terms = [cost.floor_us, cost.fixed_us, cost.per_token_us, cost.per_token_length_us];
    terms.iter().all(|term| term.is_finite() && *term >= 0.0) && cost.predict_us(bucket) > 0.0
}

fn is_gpu(engine: &str) -> bool {
    engine.starts_with(EngineKind::TensorRt.name())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::raw::RawConfig;

    /// As much of an answer of `/health` as is used.
    fn health() -> Value {
        json!({
            "status": "ok",
            "engine": "openvino",
            "max_input_tokens": 512,
            "tuning": {
                "lanes": [{
                    "width": 1, "lanes": 2, "batches": 20,
                    "floor_us": 0.0, "fixed_us": 1000.0,
                    "per_token_us": 50.0, "per_token_length_us": 0.1,
                    "median_error": 0.02, "correction": 1.5
                }, {
                    "width": 2, "lanes": 1, "batches": 9,
                    "floor_us": 0.0, "fixed_us": 800.0, "per_token_us": 30.0,
                    "per_token_length_us": 0.0, "correction": 1.0
                }],
                "max_batch_tokens": 512,
            },
        })
    }

    fn config(settings: &[(&str, &str)]) -> Config {
        let typed = settings.iter().map(|(name, value)| ((*name).into(), vec![(*value).into()]));
        let raw = RawConfig::gather(typed.collect(), Default::default(), None);
        Config::resolve(&raw).expect("the settings are right")
    }

    fn model(value: &Value, settings: &[(&str, &str)]) -> anyhow::Result<ServerModel> {
        MeasuredServer::parse(&value.to_string(), "file")?.model(&config(settings), "file")
    }

    fn error(value: &Value, settings: &[(&str, &str)]) -> String {
        format!("{:#}", model(value, settings).expect_err("it says too little"))
    }

    #[test]
    fn health_tells_workers_batches_and_corrected_times() {
        let model = model(&health(), &[]).expect("it is whole");
        assert_eq!(model.state.lanes, Lane::tree(&[2], &[1, 2]));
        assert_eq!(model.costs[&1].fixed_us, 1500.0);
        assert_eq!(model.costs[&2].per_token_us, 30.0);
        assert_eq!(model.max_length(), 512);
        assert_eq!(model.shapes, Shapes::on_cpu(512, MaxBatchTokens::DEFAULT));
    }

    #[test]
    fn settings_come_before_what_the_server_has() {
        let settings = [("workers", "5"), ("max-batch-tokens", "1024")];
        let model = model(&health(), &settings).expect("it is whole");
        assert_eq!(model.state.lanes, Lane::apart(5));
        assert_eq!(model.costs.len(), 1);
        assert!(model.shapes.prepared().iter().any(|shape| shape.tokens() == 1024));
    }

    #[test]
    fn shapes_of_a_bench_are_fitted() {
        let shape = |rows: usize, length: usize| {
            let median_ms = 2.0 + 0.1 * (rows * length) as f64;
            json!({"rows": rows, "length": length, "median_ms": median_ms})
        };
        let shapes = json!([shape(1, 16), shape(8, 16), shape(1, 128), shape(4, 64)]);
        let bench = json!({"engine": "openvino", "shapes": shapes});
        let settings = [("workers", "2"), ("max-batch-tokens", "256")];
        let model = model(&bench, &settings).expect("it is whole");
        let cost = model.costs[&1];
        assert!((cost.fixed_us / 2000.0 - 1.0).abs() < 0.01, "{cost:?}");
        assert!((cost.per_token_us / 100.0 - 1.0).abs() < 0.01, "{cost:?}");
        assert_eq!((model.max_length(), model.state.lanes), (128, Lane::apart(2)));
        assert!(error(&bench, &settings[1..]).contains("give --workers"));
        assert!(error(&bench, &settings[..1]).contains("give --max-batch-tokens"));
    }

    #[test]
    fn a_file_that_does_not_tell_is_named_with_what_to_do() {
        let parsed = |text: &str| {
            format!("{:#}", MeasuredServer::parse(text, "file").expect_err("nothing is told"))
        };
        assert!(parsed("nonsense").starts_with("file is not JSON (give an answer of GET /health"));
        assert!(parsed("{}").contains("file does not say how long runs take"));
        assert!(parsed(r#"{"shapes": 3}"#).contains("no usable table of shapes"));
        assert!(parsed(r#"{"engine": "fake", "shapes": []}"#).contains("without --no-table"));
        let loading = r#"{"status": "loading", "max_input_tokens": null, "tuning": {}}"#;
        assert!(parsed(loading).contains("when its status is ok"));
    }

    #[test]
    fn runs_that_take_no_time_are_refused() {
        let mut idle = health();
        idle["tuning"]["lanes"][0]["correction"] = json!(0.0);
        assert!(error(&idle, &[]).contains("runs take no time"));
    }
}
