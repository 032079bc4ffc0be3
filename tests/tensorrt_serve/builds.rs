//! `duovec build-engine` on the stand-ins: what is built, and what becomes of the package.

use std::fs::{self, File};
use std::process::Command;

use model::package::digest;
use model::package::manifest::plan::PlanFlavour;
use serde_json::{Value, json};

use crate::support::{Ended, Server, duovec, has, manifest_of, run, tiny};
use crate::{FAULTS, Package, ask, flavours, standins, with_libraries};

/// What the builder's stand-in takes for a graph.
pub(super) const GRAPH: &str = "duovec stand-in graph 1\ninput input_ids int32 -1 -1\ninput \
     positions int32 -1 -1\ninput segments int32 -1 -1\ninput span_weights float32 -1 -1 \
     -1\nlayer constant - words float16 500 8\nlayer gather words,input_ids embedded float16 -1 \
     -1 8\nlayer product embedded,positions,segments states float16 -1 -1 8\nlayer product \
     span_weights,states dense float32 -1 -1 8\nlayer cast states token_weights float32 -1 \
     -1\noutput dense\noutput token_weights\n";

/// A package with that graph and no plans.
fn with_graph(flavour: PlanFlavour) -> Package {
    let package = Package::new(flavour);
    fs::remove_file(package.package.file("standin.plan")).expect("it is there");
    package.package.replace("model.onnx", GRAPH.as_bytes());
    package.package.say(&json!({"plans": []}));
    package
}

/// The same with a second graph, whose product is in 8 bits.
fn with_fp8_graph(flavour: PlanFlavour) -> Package {
    let package = with_graph(flavour);
    let product = "layer product embedded,positions,segments states";
    let rounded = "layer quantize embedded,words small float8 -1 -1 8\nlayer dequantize \
        small,words rounded float16 -1 -1 8\nlayer product rounded,positions,segments states";
    let graph = GRAPH.replace(product, rounded);
    assert_ne!(graph, GRAPH);
    package.package.replace("model.fp8.onnx", graph.as_bytes());
    package.package.say(&json!({"fp8": {
        "file": "model.fp8.onnx", "method": "by hand", "retrieval": [],
        "tolerances": {"dense_cosine_min": 0.0, "sparse_max_abs": 1.0},
    }}));
    package
}

pub(super) fn build(package: &Package, flags: &[&str]) -> Ended {
    run(&mut building(package, flags))
}

fn building(package: &Package, flags: &[&str]) -> Command {
    let mut command = duovec();
    command.args(["build-engine", "--flavour", package.flavour.name()]).args(flags);
    with_libraries(&mut command, &standins());
    if package.flavour == PlanFlavour::TensorRtRtx {
        // It knows no GPU of 9.0.
        command.env(FAULTS, "capability=120");
    }
    command.arg(package.package.path());
    command
}

/// The manifest's plans.
pub(super) fn plans(package: &Package) -> Vec<Value> {
    manifest_of(package.package.path())["plans"].as_array().expect("a list").clone()
}

/// Names of the files with plans.
fn plan_files(package: &Package) -> Vec<String> {
    let entries = fs::read_dir(package.package.path()).expect("it is there");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("it is UTF-8")).collect();
    names.retain(|name| name.ends_with(".plan"));
    names.sort();
    names
}

#[test]
fn a_plan_replaces_the_one_for_the_same_gpus_and_shapes_only() {
    let package = with_graph(PlanFlavour::TensorRtRtx);
    let other = ["--profiles", "only=1x1:1x16:2x64"];
    for (flags, count) in
        [(&[][..], 1), (&["--compute-capability", "8.6"], 2), (&other, 3), (&other, 3)]
    {
        build(&package, flags).with_code(0);
        let plans = plans(&package);
        assert_eq!(plans.len(), count, "{flags:?}");
        let mut listed: Vec<_> = plans.iter().filter_map(|plan| plan["file"].as_str()).collect();
        for (plan, file) in plans.iter().zip(&listed) {
            let content = fs::read(package.package.file(file)).expect("the plan is there");
            assert_eq!(plan["sha256"], digest::of_bytes(&content), "{file}");
        }
        listed.sort_unstable();
        assert_eq!(plan_files(&package), listed, "{flags:?}");
    }
}

#[tokio::test]
async fn plans_for_different_uses_lie_beside_each_other() {
    let package = with_graph(PlanFlavour::TensorRt);
    let count = |flags: &[&str]| {
        build(&package, flags).with_code(0);
        plans(&package).len()
    };
    assert_eq!(count(&["--hardware-compatibility"]), 1);
    assert_eq!(count(&["--version-compatible"]), 2);
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&["--profiles", "all=1x1:4x16:128x64"]), 4);
    assert_eq!(count(&["--profiles", "few=1x1:2x16:8x64"]), 5);
    assert_eq!(count(&["--profiles", "all=1x1:4x16:128x64"]), 5);
    assert_eq!(count(&["--profiles", "few=1x1:2x16:8x64"]), 5);
    // Of those that were built for nothing else than this GPU and library the latest is taken that
    // covers all shapes.
    let server = package.serve("", &[]);
    assert_eq!(ask(&server, 3, 30).await, 200);
    let (_, health) = server.ask("/health", None).await;
    assert_eq!(health["tuning"]["profiles"], json!(["all=1x1:4x16:128x64"]));
    let told = build(&package, &["--layer-times"]);
    let told: Value = serde_json::from_str(&told.with_code(0).stdout).expect("JSON");
    assert_eq!(told[0]["rows"], 4, "it is the plan that is served");
}

#[test]
fn a_plan_is_tried_on_the_gpu_before_the_package_gets_it() {
    let package = with_graph(PlanFlavour::TensorRt);
    let said = "golden numbers on duovec stand-in: dense cosine at least 1.0";
    has(&build(&package, &[]).with_code(0).stdout, said);
    let before = plans(&package);
    let own = plan_files(&package);
    package.package.manifest(|manifest| manifest["canary"]["dense"][0] = json!(-0.9));
    for flags in [&[][..], &["--version-compatible"]] {
        let said = "does not give the manifest's golden numbers";
        has(&build(&package, flags).with_code(1).stderr, said);
        assert_eq!((plans(&package), plan_files(&package)), (before.clone(), own.clone()));
    }
}

#[test]
fn a_plan_that_is_wrong_in_its_longest_shape_or_of_long_texts_never_enters_the_package() {
    let package = with_graph(PlanFlavour::TensorRt);
    for (mistake, words) in [
        ("longest_is_wrong", "does not give the manifest's golden numbers"),
        ("ignores_after=32", "does not read the last tokens of a text of 64 tokens"),
        ("mixes_rows", "does not give the manifest's golden numbers"),
        ("mixes_texts", "does not give the manifest's golden numbers"),
    ] {
        let mut command = building(&package, &[]);
        println!("{mistake}");
        has(&run(command.env(FAULTS, mistake)).with_code(1).stderr, words);
        assert!(plans(&package).is_empty(), "{mistake}");
    }
    // Lone rows are compared with no batch.
    let mut command = building(&package, &["--profiles", "one=1x8:1x16:1x64"]);
    let words = "gives a text of 64 tokens numbers that are not finite";
    has(&run(command.env(FAULTS, "nan_after=32")).with_code(1).stderr, words);
    assert!(plans(&package).is_empty());
}

#[test]
fn a_build_does_what_it_was_told() {
    let package = with_graph(PlanFlavour::TensorRt);
    let all = ["--device=1", "--optimization-level=5", "--workspace-mib=64"];
    build(&package, &[&all[..], &["--same-compute-capability"]].concat()).with_code(0);
    let entry = &plans(&package)[0];
    let file = entry["file"].as_str().expect("a name");
    let text = fs::read_to_string(package.package.file(file)).expect("it is there");
    has(&text, "built on_device_1\n…built optimization_level_5\n");
    has(&text, "built workspace_67108864\n…built hardware_compatibility_2\n");
    assert_eq!(entry["optimization_level"], 5);
    assert_eq!(entry["same_compute_capability"], true);
    // A plan of another level, or for this model of GPU alone, is for another use.
    build(&package, &["--same-compute-capability"]).with_code(0);
    build(&package, &[]).with_code(0);
    assert_eq!(plans(&package).len(), 3);
}

#[test]
fn what_a_build_cannot_do_is_refused_by_name() {
    let package = with_graph(PlanFlavour::TensorRt);
    let words = "there is no GPU 9: the driver shows 2, counted";
    has(&build(&package, &["--device", "9"]).stderr, words);
    let rtx = with_graph(PlanFlavour::TensorRtRtx);
    for flags in [
        &["--optimization-level", "3"][..],
        &["--workspace-mib", "64"],
        &["--same-compute-capability"],
    ] {
        has(&build(&rtx, flags).stderr, &format!("{}…tensorrt-rtx compiles for its GPU", flags[0]));
    }
    assert!(plans(&rtx).is_empty() && plans(&package).is_empty());
}

#[tokio::test]
async fn fp8_is_for_those_who_name_it_and_has_tolerances_of_its_own() {
    for flavour in flavours() {
        let package = with_fp8_graph(flavour);
        // Further from the golden numbers than half precision may be.
        package.package.manifest(|manifest| {
            for value in manifest["canary"]["dense"].as_array_mut().expect("a list").iter_mut() {
                *value = json!(value.as_f64().expect("a number") + 0.2);
            }
        });
        has(&build(&package, &["--precision", "fp8"]).with_code(0).stdout, ", fp8, ");
        let built = plans(&package);
        assert_eq!(built[0]["precision"], "fp8");
        assert_eq!(built[0]["model_file"], "model.fp8.onnx");
        has(&package.refusal("", &[]), "computes in fp8: name it with --precision fp8");
        let server = package.serve("", &["--precision", "fp8"]);
        assert_eq!(ask(&server, 3, 30).await, 200);
        drop(server);
        // A server that builds its plans judges them alike.
        package.package.manifest(|manifest| manifest["plans"] = json!([]));
        package.serve("", &["--precision", "fp8", "--build-plan", "true"]);
        assert_eq!(plans(&package)[0]["precision"], "fp8");
    }
}

#[test]
fn a_gpu_that_is_too_old_for_fp8_is_named_with_what_to_do() {
    let needed = "compute capability 8.9";
    let package = with_fp8_graph(PlanFlavour::TensorRt);
    let mut command = building(&package, &["--precision", "fp8"]);
    let ended = run(command.env(FAULTS, "capability=86"));
    assert_eq!(ended.with_code(1).stderr.lines().count(), 1, "{}", ended.stderr);
    has(&ended.stderr, &format!("{needed}…duovec stand-in has 8.6…--precision f16"));
    let rtx = with_fp8_graph(PlanFlavour::TensorRtRtx);
    let ended = build(&rtx, &["--precision", "fp8", "--compute-capability", "8.6,12.0"]);
    has(&ended.stderr, needed);
    assert!(plans(&package).is_empty() && plans(&rtx).is_empty());
    // A plan that was built elsewhere.
    build(&package, &["--precision", "fp8"]).with_code(0);
    for said in [package.refusal("capability=86", &[]), package.check("capability=86").stdout] {
        has(&said, &format!("{needed}…duovec stand-in has 8.6: use --precision f16"));
    }
    let more = ["--precision", "fp8", "--log-level", "off"];
    let said = run(&mut package.own("check", "capability=86", &more)).stdout;
    has(&said, "duovec stand-in has 8.6: use --precision f16");
    assert!(!said.contains("build-engine"), "no plan would ever run: {said}");
}

#[tokio::test]
async fn a_server_builds_the_plan_that_its_gpus_lack() {
    for flavour in flavours() {
        let package = with_graph(flavour);
        let editing = File::create(package.package.path().join(".lock")).expect("it is writable");
        editing.lock().expect("nobody has it");
        let mut server = package.spawn("", &["--build-plan", "true", "--devices", "0,1"]);
        // Another process has the package: the server waits for its plans.
        server.wait_for("another process is changing");
        let (status, health) = server.ask("/health", None).await;
        assert_eq!(status, 503);
        assert_eq!(health["progress"]["stage"], "build_plan", "{health}");
        assert_eq!(health["progress"]["percent"], 0, "{health}");
        drop(editing);
        server.wait_for("ready");
        assert_eq!(ask(&server, 3, 30).await, 200);
        let built = plans(&package);
        assert_eq!(built.len(), 1, "one plan is for both GPUs");
        // The next start takes it.
        package.serve("", &["--build-plan", "true"]);
        assert_eq!(plans(&package), built);
    }
}

#[test]
fn each_model_of_gpu_gets_a_plan_of_its_own() {
    let package = with_graph(PlanFlavour::TensorRt);
    let start = |faults: &str| {
        package.spawn(faults, &["--build-plan", "true", "--devices", "0,1"]).wait_for("ready");
        let of = |plan: &Value| (plan["device"].clone(), plan["multiprocessors"].clone());
        plans(&package).iter().map(of).collect::<Vec<_>>()
    };
    let first = (json!("duovec stand-in"), json!(4));
    assert_eq!(start(""), std::slice::from_ref(&first));
    // The second GPU has another name, and the same compute capability.
    let both = [first, (json!("Duovec stand-in"), json!(4))];
    assert_eq!(start("unlike_devices"), both);
    assert_eq!(start("unlike_devices"), both);
    package.package.manifest(|manifest| {
        manifest["plans"].as_array_mut().expect("a list").pop();
    });
    let words = "duovec stand-in with 4 multiprocessors, this GPU is Duovec stand-in with 4…\
                 --flavour tensorrt --device 1";
    let said = package.refusal("unlike_devices", &["--devices", "0,1"]);
    has(&said, words);
}

#[test]
fn models_of_gpu_whose_plans_differ_get_equal_ones_by_the_commands_of_the_refusal() {
    let package = with_graph(PlanFlavour::TensorRt);
    let built = |flags: &[&str]| {
        run(building(&package, flags).env(FAULTS, "unlike_devices")).with_code(0);
    };
    built(&["--profiles", "own=1x8:4x16:16x64"]);
    built(&["--device", "1"]);
    let said = package.refusal("unlike_devices", &["--devices", "0,1"]);
    let command = format!("duovec build-engine {} --flavour", package.package.path().display());
    let commands = format!(" with: {command} tensorrt && {command} tensorrt --device 1");
    has(&said, &format!("need plans of the same profiles…{commands}"));
    built(&[]);
    built(&["--device", "1"]);
    package.spawn("unlike_devices", &["--devices", "0,1"]).wait_for("ready");
}

/// Ways in which a plan whose entry fits is none for the library.
fn spoil(package: &Package, how: &str) {
    let entry = &plans(package)[0];
    let file = package.package.file(entry["file"].as_str().expect("a name"));
    match how {
        "cut short" => {
            let whole = fs::read(&file).expect("it is there");
            fs::write(&file, &whole[..whole.len() / 2]).expect("it is ours");
        }
        "missing" => fs::remove_file(&file).expect("it is there"),
        _ => package.package.manifest(|manifest| {
            manifest["plans"][0]["profiles"][0]["rows"]["max"] = 9.into();
        }),
    }
}

#[tokio::test]
async fn a_plan_that_the_library_refuses_is_built_anew() {
    for how in ["cut short", "missing", "other profiles"] {
        let package = with_graph(PlanFlavour::TensorRt);
        build(&package, &[]).with_code(0);
        let before = plans(&package);
        spoil(&package, how);
        println!("{how}");
        let file = before[0]["file"].as_str().expect("a name");
        let command = format!(
            "build it anew with: duovec build-engine {} --flavour tensorrt",
            package.package.path().display()
        );
        has(&package.refusal("", &[]), &format!("{file}…{command}"));
        let mut server = package.spawn("", &["--build-plan", "true"]);
        server.wait_for("it is built anew");
        server.wait_for("ready");
        assert_eq!(ask(&server, 3, 30).await, 200);
        let after = plans(&package);
        assert_eq!(after.len(), 1, "{how}: {after:?}");
        assert_eq!(after[0]["profiles"], before[0]["profiles"], "{how}");
    }
}

#[test]
fn a_plan_that_is_refused_again_is_built_only_once() {
    let package = with_graph(PlanFlavour::TensorRt);
    build(&package, &[]).with_code(0);
    let before = plans(&package);
    let more = ["--port", "0", "--build-plan", "true"];
    let ended = run(&mut package.own("serve", "deserialize_fails", &more));
    let last = ended.with_code(1).stderr.lines().last().expect("a line");
    has(last, "no plan could be built: ");
    assert_eq!(ended.stderr.matches("it is built anew").count(), 1, "{}", ended.stderr);
    assert_eq!(plans(&package), before, "the package is as it was");
}

#[test]
fn a_start_whose_plan_cannot_be_built_says_why() {
    let package = with_graph(PlanFlavour::TensorRt);
    let start = |why: &str| {
        let said = package.refusal("build_fails", &["--build-plan", "true"]);
        has(&said, &format!("no plan could be built: …{why}"));
    };
    start("scripted: no implementation was found");
    // A folder that cannot be written, which is told before a build.
    let lock = package.package.file(".lock");
    fs::remove_file(&lock).expect("it is ours");
    fs::create_dir(&lock).expect("it is ours");
    start("cannot write");
}

#[tokio::test]
async fn where_no_plan_can_be_built_auto_takes_the_cpu_and_says_why() {
    let package = Package::new(PlanFlavour::TensorRt);
    // OpenVINO must give the fixture's own numbers; the stand-in cannot read the fixture's graph.
    package.package.say(&json!({"canary": manifest_of(&tiny())["canary"], "plans": []}));
    let mut command = package.command("serve", "auto", "");
    let server = Server::ready(command.args(["--build-plan", "true"]));
    let (_, health) = server.ask("/health", None).await;
    assert_eq!(health["engine"], "openvino");
    let reason = health["tuning"]["engine_reason"].as_str().expect("a text");
    has(reason, "; not tensorrt: no plan could be built: cannot build");
}

#[test]
fn the_layers_of_a_plan_can_be_read() {
    for flavour in flavours() {
        let package = with_graph(flavour);
        has(&build(&package, &["--inspect"]).with_code(1).stderr, "no plan of");
        build(&package, &[]).with_code(0);
        let said = build(&package, &["--inspect"]);
        let layers: Value = serde_json::from_str(&said.with_code(0).stdout).expect("JSON");
        let name = |layer: &Value| layer["Name"].as_str().map(str::to_owned);
        let names: Option<Vec<_>> =
            layers["Layers"].as_array().expect("a list").iter().map(name).collect();
        let expected = ["words", "embedded", "states", "dense", "token_weights"];
        assert_eq!(names, Some(expected.map(str::to_owned).to_vec()));
        assert_eq!(plans(&package).len(), 1);
    }
}

#[test]
fn the_times_of_a_plans_layers_can_be_read() {
    for flavour in flavours() {
        let package = with_graph(flavour);
        build(&package, &["--profiles", "all=1x8:4x16:16x64"]).with_code(0);
        let said = build(&package, &["--layer-times"]);
        let seen: Value = serde_json::from_str(&said.with_code(0).stdout).expect("JSON");
        let layers = ["words", "embedded", "states", "dense", "token_weights"];
        let times = [250.0, 500.0, 750.0, 1000.0, 1250.0];
        let layer = |(name, us)| json!({"name": name, "microseconds": us});
        let expected: Vec<Value> = layers.into_iter().zip(times).map(layer).collect();
        assert_eq!(seen, json!([{"rows": 4, "length": 16, "layers": expected}]));
        assert_eq!(plans(&package).len(), 1);
    }
}
