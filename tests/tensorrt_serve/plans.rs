//! Which plans run where: refusals, choices, and what `duovec check` tells of them.

use std::fs;
use std::path::PathBuf;

use model::package::edit::PackageEditor;
use model::package::manifest::plan::PlanFlavour;
use serde_json::{Value, json};
use testing::{joined, rows};

use crate::support::{has, run};
use crate::{Package, ask, flavours, standins};

/// Files with kernels that lie in the package.
fn kernel_files(package: &Package) -> Vec<PathBuf> {
    let entries = fs::read_dir(package.package.path()).expect("it is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "kernels")).collect()
}

/// A package whose manifest says this of its plan.
fn with_entry(more: &str) -> Package {
    let package = Package::new(PlanFlavour::TensorRt);
    let more = serde_json::from_str(&more.replace("ZEROS", &"0".repeat(64))).expect("JSON");
    package.package.manifest(|manifest| {
        let plan = &mut manifest["plans"][0];
        *plan = joined(plan.take(), &more);
    });
    package
}

/// What a manifest says of a plan, and how it is refused.
const UNFIT: &str = r#"
{"version":"10.0.0.1"} | was built by version 10.0.0.1…duovec build-engine
{"compute_capabilities":["8.6"]} | was built for compute capability 8.6
{"device":"NVIDIA L4"} | for NVIDIA L4 with 4 multiprocessors, this GPU is duovec stand-in with 4
{"multiprocessors":3} | for duovec stand-in with 3 multiprocessors, this GPU is duovec
{"device":null} | does not say for which GPU it was built
{"model_sha256":"ZEROS"} | was built from another model.onnx
{"sha256":"ZEROS"} | has SHA-256
{"flavour":"tensorrt-rtx"} | no plan of tensorrt
"#;

#[test]
fn a_plan_that_does_not_fit_is_refused_with_what_to_do() {
    for [entry, words] in rows(UNFIT) {
        has(&with_entry(entry).refusal("", &[]), words);
    }
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 3] = [
        ("and needs that one, the library is", |plan| {
            plan["version"] = format!("{}9", plan["version"].as_str().expect("a text")).into();
        }),
        ("its profile latency=1x1:1x32:8x64 is latency=1x1:1x32:9x64", |plan| {
            plan["profiles"][0]["rows"]["max"] = 9.into();
        }),
        ("ends at 32 tokens, the model takes 64", |plan| {
            (0..2).for_each(|at| plan["profiles"][at]["length"]["max"] = 32.into());
        }),
    ];
    for (words, change) in changes {
        let package = Package::new(PlanFlavour::TensorRt);
        package.package.manifest(|manifest| change(&mut manifest["plans"][0]));
        has(&package.refusal("", &[]), words);
    }
}

#[test]
fn a_plan_for_many_models_of_gpu_fits_each() {
    for (entry, fits) in [
        // Of an earlier release.
        (r#"{"multiprocessors":null}"#, true),
        (r#"{"device":"NVIDIA L4"}"#, false),
        (r#"{"device":"NVIDIA L4","same_compute_capability":true}"#, true),
        (r#"{"device":"NVIDIA L4","hardware_compatible":true}"#, true),
    ] {
        let said = with_entry(entry).check("").stdout;
        assert_eq!(said.contains("runs standin.plan"), fits, "{entry}");
    }
}

#[test]
fn plans_of_tensorrt_rtx_fit_one_release_and_its_gpus() {
    let package = Package::new(PlanFlavour::TensorRtRtx);
    for (fault, has) in [("capability=90", "9.0"), ("capability=75", "7.5")] {
        for said in [package.check(fault).stdout, package.refusal(fault, &[])] {
            let needed = "TensorRT-RTX runs on compute capability 8.0, 8.6, 8.9, 12.0, 12.1, ";
            let words = format!("duovec stand-in has {has}: use TensorRT, with --engine tensorrt");
            assert!(said.contains(&format!("{needed}{words}")), "{said}");
            assert!(!said.contains("--flavour tensorrt-rtx"), "none would ever run: {said}");
        }
    }
    assert!(package.check("").stdout.contains("runs standin.plan"));
    package.package.manifest(|manifest| manifest["plans"][0]["version"] = "1.6.0.1".into());
    let said = package.check("").stdout;
    let words = "was built by version 1.6.0.1 and needs that one, the library is 1.7.";
    assert!(said.contains(words), "{said}");
}

#[tokio::test]
async fn a_version_compatible_plan_may_run_its_code_when_the_manifest_says_so() {
    let package = Package::of(PlanFlavour::TensorRt, standins(), "host_code\n", "float32");
    let said = package.refusal("", &[]);
    assert!(said.contains("getEngineHostCodeAllowed() is false"), "{said}");
    package.package.manifest(|manifest| {
        manifest["plans"][0]["version"] = "10.0.0.1".into();
        manifest["plans"][0]["version_compatible"] = true.into();
    });
    let server = package.serve("", &[]);
    assert_eq!(ask(&server, 3, 30).await, 200);
}

#[test]
fn check_prints_a_line_for_everything() {
    let package = Package::new(PlanFlavour::TensorRt);
    let well = package.check("");
    assert_eq!(well.code, Some(0), "{}{}", well.stdout, well.stderr);
    for line in [
        "ok    file model.onnx: ",
        "ok    file tokenizer.json: ",
        "ok    plan standin.plan: tensorrt ",
        "ok    library tensorrt: 1",
        "ok    library tensorrt-rtx: 1.",
        "ok    library cuda: 13.",
        "ok    driver: for CUDA up to ",
        "ok    device 0: duovec stand-in, compute capability 9.0",
        "ok    device 1: ",
        "ok    engine tensorrt 1",
    ] {
        assert!(well.stdout.lines().any(|one| one.starts_with(line)), "{line}: {}", well.stdout);
    }
    let ill = package.check("no_device");
    assert_eq!(ill.code, Some(1));
    assert!(ill.stdout.contains("BAD   device: the driver shows no GPU"), "{}", ill.stdout);
    assert!(ill.stderr.contains("is not well: device: "), "{}", ill.stderr);
}

#[test]
fn what_the_library_says_while_plans_are_loaded_is_in_the_log() {
    for flavour in flavours() {
        for (fault, words) in [
            ("deserialize_warns", "scripted: the plan is of another model of GPU"),
            ("deserialize_errs", "scripted: a part of the plan is passed over"),
        ] {
            let package = Package::new(flavour);
            let more = ["--devices", "0,1", "--log-level", "warn"];
            let said = run(&mut package.own("check", fault, &more));
            // Once for each GPU, although the other one loads its plan at the same time.
            assert_eq!(said.with_code(0).stderr.matches(words).count(), 2, "{}", said.stderr);
        }
    }
}

#[test]
fn kernels_of_an_earlier_start_are_used_where_they_fit() {
    let package = Package::new(PlanFlavour::TensorRtRtx);
    package.package.manifest(|manifest| manifest["plans"][0]["compute_capabilities"] = json!([]));
    let start = |faults: &str| {
        let mut server = package.spawn(faults, &["--max-batch-tokens", "512"]);
        let said = server.wait_for("kernels of GPU 0: ")["message"].as_str().map(str::to_owned);
        server.wait_for("ready");
        server.stop();
        said.expect("a text")
    };
    assert!(start("").contains("none are kept for this plan, GPU, driver and release"));
    let kept = kernel_files(&package);
    assert_eq!(kept.len(), 1);
    assert!(start("").ends_with(" bytes of an earlier start are used"));
    // Another GPU and another driver have kernels of their own.
    assert!(start("capability=89").contains("none are kept"));
    assert!(start("driver_version=14000").contains("none are kept"));
    assert_eq!(kernel_files(&package).len(), 3);
    let whole = fs::read(&kept[0]).expect("it is there");
    fs::write(&kept[0], &whole[..whole.len() - 1]).expect("it is ours");
    assert!(start("").contains("is not whole"));
    assert_eq!(fs::read(&kept[0]).expect("it is there"), whole);
}

#[test]
fn kernels_are_kept_while_another_process_changes_the_package() {
    let package = Package::new(PlanFlavour::TensorRtRtx);
    let _editor = PackageEditor::open(package.package.path()).expect("nobody else has it");
    let server = package.serve("", &["--devices", "0,1", "--max-batch-tokens", "512"]);
    server.stop();
    assert_eq!(kernel_files(&package).len(), 1, "both GPUs have the same");
}
