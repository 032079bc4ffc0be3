//! The whole server on TensorRT through the real C++, with stand-ins for NVIDIA's libraries.
//!
//! `scripts/test_tensorrt.sh` builds the stand-ins and names their folder in a variable. They prove
//! what this project does with TensorRT, not what TensorRT does.

#![cfg(all(feature = "tensorrt", feature = "tensorrt-rtx"))]

use std::collections::HashMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use duovec::engine::Engine;
use duovec::engine::fake::{expected_dense, expected_weights};
use duovec::engine::tensorrt::ffi::Library;
use duovec::engine::tensorrt::{TensorRtEngine, TensorRtOptions};
use model::package::manifest::plan::PlanFlavour;
use model::package::{ModelPackage, digest};
use scheduling::batch::Bucket;
use serde_json::{Value, json};
use settings::PrecisionChoice;
use vectors::sparse::{self, Selection};

#[path = "process/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the process")]
mod support;

#[path = "tensorrt_serve/builds.rs"]
mod builds;
#[path = "tensorrt_serve/gpu_check.rs"]
mod gpu_check;
#[path = "tensorrt_serve/lost.rs"]
mod lost;
#[path = "tensorrt_serve/plans.rs"]
mod plans;
#[path = "tensorrt_serve/range.rs"]
mod range;
#[path = "tensorrt_serve/start.rs"]
mod start;
#[path = "tensorrt_serve/words.rs"]
mod words;

use support::{Broken, Ended, Server, duovec, has, manifest_of, run};

const STANDINS: &str = "DUOVEC_TEST_STANDIN_DIR";
const FAULTS: &str = "DUOVEC_STANDIN_FAULTS";
/// What tests count on must not depend on what a busy machine measures.
const WORKERS: &str = "DUOVEC_WORKERS_PER_DEVICE";
const HIDDEN: usize = 8;
const MAX_TOKENS: u32 = 64;
/// More runs than any warm-up needs, which are 430 where each graph is measured; requests take the
/// rest.
const AFTER_WARM_UP: usize = 600;
/// Of 10. A run that other programs hold up is a long one, whose graph may seem to save no time.
const GRAPHS_KEPT: RangeInclusive<u64> = 8..=10;
/// What a context may take of a GPU's memory.
const CONTEXT_BYTES: u64 = 20 << 20;
/// Requests after which a scripted fault must have shown itself.
const REQUESTS_MAX: usize = 2000;

fn standins() -> PathBuf {
    let named = std::env::var_os(STANDINS);
    PathBuf::from(named.unwrap_or_else(|| panic!("run scripts/test_tensorrt.sh: {STANDINS}")))
}

/// The tiny package with a plan of the stand-ins and the canary's numbers that they give.
struct Package {
    package: Broken,
    flavour: PlanFlavour,
    libraries: PathBuf,
}

impl Package {
    fn new(flavour: PlanFlavour) -> Self {
        Self::of(flavour, standins(), "", "float32")
    }

    /// `head` is the plan's first lines, `outputs` a type.
    fn of(flavour: PlanFlavour, libraries: PathBuf, head: &str, outputs: &str) -> Self {
        let package = Broken::new();
        let (head, capability) = match flavour {
            PlanFlavour::TensorRt => (head.to_owned(), "9.0"),
            PlanFlavour::TensorRtRtx => (format!("user_allocation\n{head}"), "12.0"),
        };
        let library = Library::open(flavour.into(), Some(&libraries)).expect("a stand-in");
        let text = format!(
            "duovec stand-in plan 1\nflavour {flavour}\n{head}input input_ids int32 -1 -1\n\
             input positions int32 -1 -1\ninput segments int32 -1 -1\ninput span_weights \
             float32 -1 -1 -1\noutput dense {outputs} -1 -1 {HIDDEN}\noutput token_weights \
             {outputs} -1 -1\nprofile 1 1 1 32 8 {MAX_TOKENS}\n\
             profile 1 1 32 32 64 {MAX_TOKENS}\n\
             scratch 65536\nscratch 524288\nlayer words\nlayer dense\n"
        );
        fs::write(package.file("standin.plan"), &text).expect("it is written");
        let graph = ModelPackage::open(package.path()).expect("it is whole");
        let profile = |name: &str, rows: [u32; 3], length: [u32; 3]| {
            let range = |[min, opt, max]: [u32; 3]| json!({"min": min, "opt": opt, "max": max});
            json!({"name": name, "rows": range(rows), "length": range(length)})
        };
        let digest = digest::of_bytes(text.as_bytes());
        let mut entry = json!({
            "file": "standin.plan", "sha256": digest, "bytes": text.len(),
            "flavour": flavour.name(), "version": library.version().to_string(),
            "model_file": "model.onnx",
            "model_sha256": graph.manifest().files["model.onnx"].sha256,
            "precision": "f16", "compute_capabilities": [capability], "build_seconds": 1.0,
            "profiles": [
                profile("latency", [1, 1, 8], [1, 32, MAX_TOKENS]),
                profile("throughput", [1, 32, 64], [1, 32, MAX_TOKENS]),
            ],
        });
        if flavour == PlanFlavour::TensorRt {
            entry["device"] = "duovec stand-in".into();
            entry["multiprocessors"] = 4.into();
        }
        let ids = graph.manifest().canary.token_ids.clone();
        let dense = expected_dense(&ids, HIDDEN);
        let sparse = expected_sparse(&ids);
        package.say(&json!({"plans": [entry], "canary": {"dense": dense, "sparse": sparse}}));
        Self { package, flavour, libraries }
    }

    /// A command of the package's own engine.
    fn own(&self, subcommand: &str, faults: &str, more: &[&str]) -> Command {
        let mut command = self.command(subcommand, self.flavour.name(), faults);
        command.args(more);
        command
    }

    /// A command with the stand-ins' folder and, when there are any, faults.
    fn command(&self, subcommand: &str, engine: &str, faults: &str) -> Command {
        let mut command = duovec();
        if subcommand == "serve" {
            command.args(["serve", "--token-input", "model", "--package"]).env(WORKERS, "2");
        } else {
            command.arg(subcommand);
        }
        command.arg(self.package.path()).args(["--engine", engine]);
        with_libraries(&mut command, &self.libraries);
        let mut all = Vec::from_iter((!faults.is_empty()).then_some(faults));
        // TensorRT-RTX knows no GPU of 9.0.
        if self.flavour == PlanFlavour::TensorRtRtx && !faults.contains("capability") {
            all.push("capability=120");
        }
        command.env(FAULTS, all.join(","));
        command
    }

    fn serve(&self, faults: &str, more: &[&str]) -> Server {
        let mut command = self.own("serve", faults, more);
        if !faults.is_empty() {
            // Faults are counted in runs: none is for finding out which batch is best.
            command.args(["--max-batch-tokens", "8192"]);
        }
        Server::ready(&mut command)
    }

    /// A server that says where it listens, and may not be ready.
    fn spawn(&self, faults: &str, more: &[&str]) -> Server {
        Server::spawn(&mut self.own("serve", faults, more))
    }

    /// A start that must fail: its one sentence.
    fn refusal(&self, faults: &str, more: &[&str]) -> String {
        let mut command = self.own("serve", faults, more);
        let ended = run(command.args(["--port", "0", "--log-level", "off"]));
        let lines: Vec<&str> = ended.with_code(1).stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{}", ended.stderr);
        lines[0].to_owned()
    }

    fn check(&self, faults: &str) -> Ended {
        run(&mut self.own("check", faults, &["--log-level", "off"]))
    }
}

/// The folder of NVIDIA's libraries for a command.
fn with_libraries(command: &mut Command, folder: &Path) {
    for flag in ["--tensorrt-library-dir", "--cuda-library-dir"] {
        command.arg(flag).arg(folder);
    }
}

fn flavours() -> [PlanFlavour; 2] {
    [PlanFlavour::TensorRt, PlanFlavour::TensorRtRtx]
}

/// What is left of a text's weights, as the manifest's canary has it.
fn expected_sparse(ids: &[u32]) -> Vec<(u32, f32)> {
    let weights = expected_weights(ids);
    sparse::select(ids, &weights, &[0, 1, 2, 3], Selection::default()).pairs().collect()
}

/// Ids of a text, special tokens included, so that they are run as they are.
fn ids_of(seed: u32) -> Vec<u32> {
    let words = (0..seed % (MAX_TOKENS - 1)).map(|at| 4 + (seed * 31 + at * 7) % 400);
    std::iter::once(0).chain(words).chain([2]).collect()
}

/// Asks for `items` texts in one request and compares every number.
async fn ask(server: &Server, seed: u32, items: u32) -> u16 {
    let inputs: Vec<Vec<u32>> = (seed..seed + items).map(ids_of).collect();
    let body = json!({"input": inputs});
    let (status, body) = server.ask("/v1/embeddings%3Aboth", Some(&body)).await;
    if status == 200 {
        for (ids, item) in inputs.iter().zip(body["data"].as_array().expect("a list")) {
            compare(ids, item);
        }
    }
    status
}

fn floats(list: &Value) -> Vec<f32> {
    let list = list.as_array().expect("a list").iter();
    list.map(|number| number.as_f64().expect("a number") as f32).collect()
}

fn compare(ids: &[u32], item: &Value) {
    assert_eq!(floats(&item["embedding"]), expected_dense(ids, HIDDEN));
    let expected = expected_sparse(ids);
    let indices: Vec<u32> = expected.iter().map(|pair| pair.0).collect();
    let values: Vec<f32> = expected.iter().map(|pair| pair.1).collect();
    assert_eq!(item["sparse_values"]["indices"], json!(indices));
    assert_eq!(floats(&item["sparse_values"]["values"]), values);
}

#[tokio::test]
async fn both_flavours_serve_what_the_plan_gives() {
    for flavour in flavours() {
        let package = Package::new(flavour);
        let server = package.serve("", &["--devices", "0,1"]);
        for (seed, items) in [(1, 1), (2, 3), (5, 40), (50, 200)] {
            assert_eq!(ask(&server, seed, items).await, 200);
        }
        let (status, health) = server.ask("/health", None).await;
        assert_eq!((status, &health["engine"]), (200, &json!(flavour.name())));
        assert_eq!(health["workers"], json!({"live": 4, "total": 4, "busy": 0}));
        let tuning = &health["tuning"];
        assert_eq!(tuning["device"], "2 x duovec stand-in");
        let budget = tuning["max_batch_tokens"].as_u64();
        assert!(budget.is_some_and(|tokens| (512..=8192).contains(&tokens)), "{tuning}");
        assert_eq!(tuning["measured"].as_array().map(Vec::len), Some(1));
        assert_eq!(tuning["measured"][0]["workers"], 4);
        assert_eq!(tuning["profiles"][0], "latency=1x1:1x32:8x64");
        assert!(tuning["engine_figures"]["captured_graphs"].as_u64() > Some(0), "{tuning}");
        assert_eq!(tuning["engine_figures"]["refused_graphs"], 0);
        assert!(tuning["engine_figures"]["device_1_memory_total_bytes"].as_u64() > Some(0));
        assert!(tuning["engine_figures"]["device_1_memory_sessions_bytes"].as_u64() > Some(0));
        let metrics = server.read("/metrics").await;
        for gpu in [0, 1] {
            let labels = format!("{{gpu=\"{gpu}\",name=\"duovec stand-in\"}} ");
            let bytes = |name: &str| -> Option<f64> {
                let series = format!("{name}{labels}");
                metrics.lines().find_map(|line| line.strip_prefix(&series))?.parse().ok()
            };
            let free = bytes("duovec_gpu_memory_free_bytes");
            assert!(
                free > Some(0.0) && free <= bytes("duovec_gpu_memory_total_bytes"),
                "{metrics}"
            );
        }
        let (status, deep) = server.ask("/health/deep", None).await;
        assert_eq!((status, deep["checks"].as_array().map(Vec::len)), (200, Some(4)));
        server.stop();
    }
}

#[tokio::test]
async fn half_precision_vectors_pass() {
    let package = Package::of(PlanFlavour::TensorRt, standins(), "", "float16");
    let server = package.serve("", &[]);
    let body = json!({"input": [ids_of(7), ids_of(20)]});
    let (_, answer) = server.ask("/v1/embeddings", Some(&body)).await;
    for (seed, item) in [7, 20].into_iter().zip(answer["data"].as_array().expect("a list")) {
        let expected = expected_dense(&ids_of(seed), HIDDEN);
        for (value, expected) in floats(&item["embedding"]).into_iter().zip(expected) {
            assert!((value - expected).abs() < 5e-4, "{value} {expected}");
        }
    }
}

#[tokio::test]
async fn many_clients_get_their_own_rows() {
    let package = Package::new(PlanFlavour::TensorRt);
    let server = std::sync::Arc::new(package.serve("run_us=300", &["--workers-per-device", "3"]));
    let work = (0..16).map(|number| {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move {
            for round in 0..12 {
                let seed = number * 100 + round * 5;
                assert_eq!(ask(&server, seed, 1 + round * 3).await, 200);
            }
        })
    });
    for one in work.collect::<Vec<_>>() {
        one.await.expect("every answer is right");
    }
}

#[tokio::test]
async fn graphs_that_cannot_be_captured_are_run_without() {
    let package = Package::new(PlanFlavour::TensorRt);
    let server = package.serve("capture_fails", &[]);
    assert_eq!(ask(&server, 3, 30).await, 200);
    let (_, health) = server.ask("/health", None).await;
    assert_eq!(health["tuning"]["engine_figures"]["captured_graphs"], 0);
    assert_eq!(health["tuning"]["engine_figures"]["refused_graphs"], 2);
}

#[test]
fn a_start_tells_how_many_graphs_it_has_and_what_its_sessions_take() {
    let package = Package::new(PlanFlavour::TensorRt);
    let dear = format!("context_us=30000,context_bytes={CONTEXT_BYTES}");
    for (fault, refused) in [(dear.as_str(), 0), ("capture_fails", 2)] {
        let mut server = package.spawn(fault, &["--log-level", "info,duovec::engine=debug"]);
        let words = "context 1, of profile 0: ";
        let one = server.wait_for(words)["message"].as_str().map(str::to_owned).expect("a text");
        let said = server.wait_for("all sessions are warm");
        let figures = said["figures"].as_str().expect("a text").split(' ');
        let figures: HashMap<_, _> = figures.filter_map(|one| one.split_once('=')).collect();
        let number = |name: &str| figures[name].parse::<u64>().expect("a number");
        assert_eq!(number("captured_graphs") == 0, refused > 0, "{said}");
        assert_eq!(number("refused_graphs"), refused, "{said}");
        assert!(number("device_0_memory_sessions_bytes") > 0, "{said}");
        // Two workers with a context for each of two profiles, and one for each graph.
        assert!(number("contexts") >= 4 + number("captured_graphs"), "{said}");
        let (least, bytes) = if refused == 0 { (30, CONTEXT_BYTES) } else { (0, 0) };
        assert!(number("contexts_ms") >= least * number("contexts"), "{said}");
        assert_eq!(number("contexts_bytes"), bytes * number("contexts"), "{said}");
        assert!(one.starts_with(&format!("{words}{bytes} bytes of the device, ")), "{one}");
    }
}

#[test]
fn a_start_does_not_wait_for_shapes_that_nothing_compiles() {
    let package = Package::new(PlanFlavour::TensorRt);
    let opened = ModelPackage::open(package.package.path()).expect("it is whole");
    let options = TensorRtOptions {
        flavour: PlanFlavour::TensorRt,
        library_dir: Some(standins()),
        cuda_library_dir: Some(standins()),
        devices: vec![0],
        graph_tokens: 0,
        precision: PrecisionChoice::Auto,
        buckets: [1, 64].map(|rows| Bucket { rows, length: 64 }).to_vec(),
    };
    let engine = TensorRtEngine::load(&opened, &options).expect("the plan fits");
    // TensorRT-RTX compiles kernels for each shape; a plan of TensorRT has them.
    assert!(!engine.compiles_shapes());
}

/// Asks until something else than success comes back.
async fn first_failure(server: &Server) -> u16 {
    for seed in 0..REQUESTS_MAX {
        let status = ask(server, u32::try_from(seed).expect("small"), 8).await;
        if status != 200 {
            return status;
        }
    }
    panic!("the fault did not show itself in {REQUESTS_MAX} requests");
}

#[tokio::test]
async fn a_run_that_fails_once_fails_one_request() {
    let package = Package::new(PlanFlavour::TensorRt);
    for fault in ["enqueue_fails", "copy_fails"] {
        let fault = format!("{fault}={AFTER_WARM_UP}");
        let server = package.serve(&fault, &["--cuda-graph-tokens", "0"]);
        assert_eq!(first_failure(&server).await, 500);
        assert_eq!(ask(&server, 1, 60).await, 200);
        let (_, health) = server.ask("/health", None).await;
        assert_eq!(health["tuning"]["worker_restarts"], 0);
    }
}

#[tokio::test]
async fn an_error_that_sticks_ends_the_process() {
    let package = Package::new(PlanFlavour::TensorRtRtx);
    let fault = format!("sticky={AFTER_WARM_UP}");
    let server = package.serve(&fault, &[]);
    // The failing batch's request gets 500, one that waits 503; then the port is closed.
    let status = first_failure(&server).await;
    assert!([500, 503].contains(&status), "{status}");
    let code = tokio::task::spawn_blocking(|| server.wait().code());
    let code = tokio::time::timeout(Duration::from_secs(30), code).await.expect("it ends");
    assert_eq!(code.expect("it is waited for"), Some(1));
}

#[tokio::test]
async fn auto_takes_the_gpu_and_says_so() {
    let package = Package::new(PlanFlavour::TensorRtRtx);
    let mut server = Server::spawn(&mut package.command("serve", "auto", ""));
    let chosen = server.wait_for("the engine is chosen");
    let reason = chosen["reason"].as_str().expect("a text").to_owned();
    assert!(reason.starts_with(
        "tensorrt-rtx is the first engine that this machine can run; not tensorrt: no plan"
    ));
    server.wait_for("ready");
    let (_, health) = server.ask("/health", None).await;
    assert_eq!(health["engine"], "tensorrt-rtx");
    assert_eq!(health["tuning"]["engine_reason"], reason);
}

#[tokio::test]
async fn auto_without_a_gpu_takes_the_cpu_and_says_why() {
    let package = Package::new(PlanFlavour::TensorRt);
    // OpenVINO must give the fixture's own numbers.
    package.package.say(&json!({"canary": manifest_of(&support::tiny())["canary"]}));
    let mut server = Server::spawn(&mut package.command("serve", "auto", "no_device"));
    let chosen = server.wait_for("the engine is chosen");
    assert_eq!(chosen["level"], "WARN", "{chosen}");
    server.wait_for("ready");
    let (_, health) = server.ask("/health", None).await;
    assert_eq!(health["engine"], "openvino");
    let reason = health["tuning"]["engine_reason"].as_str().expect("a text");
    assert!(reason.contains("; not tensorrt: the driver shows no GPU: nvidia-smi -L lists"));
}

#[test]
fn a_named_engine_that_cannot_be_had_is_an_error() {
    for flavour in flavours() {
        let package = Package::new(flavour);
        for (fault, words) in [
            ("no_device", "the driver shows no GPU: nvidia-smi -L lists"),
            ("no_driver", "; install NVIDIA's driver"),
            ("runtime_0x228", "gives no runtime"),
            ("version=20000", "this program needs TensorRT"),
            ("version=20000", "; install it, or name its folder: --tensorrt-library-dir"),
            ("unsupported_device", "compute capability"),
            ("malloc_fails_over=0", "out of memory"),
            ("host_alloc_fails", "out of memory"),
            ("context_fails", "gives no execution context"),
        ] {
            println!("{fault}");
            has(&package.refusal(fault, &[]), words);
        }
    }
}

#[test]
fn a_plan_that_mixes_up_rows_or_texts_is_refused() {
    let package = Package::new(PlanFlavour::TensorRt);
    for (mistake, words) in [
        ("mixes_rows", "does not give the manifest's golden numbers"),
        ("mixes_texts", "does not give the manifest's golden numbers"),
        ("longest_is_wrong", "in a batch of 64x64"),
        // The canary has 16 tokens.
        ("ignores_after=32", "does not read the last tokens of a text of 64 tokens"),
    ] {
        println!("{mistake}");
        has(&package.refusal(mistake, &[]), words);
    }
}

#[test]
fn bench_compares_graphs_with_plain_runs() {
    for flavour in flavours() {
        let package = Package::new(flavour);
        // Of TensorRT with kernels that give other last digits in each run.
        let faults = if flavour == PlanFlavour::TensorRt { "adds_up_anyhow" } else { "" };
        let more = ["--json", "--compare-graphs", "--ms-per-shape", "1", "--log-level", "off"];
        let ended = run(&mut package.own("bench", faults, &more));
        let report: Value = serde_json::from_str(&ended.with_code(0).stdout).expect("JSON");
        assert_eq!(report["engine"], flavour.name());
        assert_eq!(report["graphs"]["equal"], true);
        assert_eq!(report["graphs"]["noise"] == 0.0, faults.is_empty(), "{report}");
        assert_eq!(report["graphs"]["buckets"], 10, "{report}");
        assert_eq!(report["graphs"]["refused"], 0, "{report}");
        let captured = report["graphs"]["captured"].as_u64().expect("they are compared");
        assert!(GRAPHS_KEPT.contains(&captured), "{report}");
        assert_eq!(report["shapes"].as_array().map(Vec::len), Some(10));
    }
    let package = Package::new(PlanFlavour::TensorRt);
    let more = ["--compare-graphs", "--no-table", "--ms-per-shape", "1", "--log-level", "off"];
    let ended = run(&mut package.own("bench", "nan=100", &more));
    has(&ended.with_code(1).stderr, "captured graphs and plain runs differ");
}
