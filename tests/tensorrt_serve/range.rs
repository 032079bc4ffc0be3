//! TensorRT 10 beside 11, CUDA 12 beside 13.

use model::package::manifest::plan::PlanFlavour;

use crate::support::{duovec, run};
use crate::{FAULTS, Package, ask, standins, with_libraries};

/// A driver for CUDA 12.4 takes no runtime of CUDA 13.
const OLD_DRIVER: &str = "driver_version=12040";

fn tensorrt_10() -> Package {
    Package::of(PlanFlavour::TensorRt, standins().join("10"), "", "float32")
}

#[tokio::test]
async fn tensorrt_10_and_cuda_12_serve_the_same_rows() {
    let package = tensorrt_10();
    for faults in ["", OLD_DRIVER] {
        let server = package.serve(faults, &["--devices", "0,1"]);
        for (seed, items) in [(1, 1), (2, 3), (5, 40)] {
            assert_eq!(ask(&server, seed, items).await, 200);
        }
        let (_, health) = server.ask("/health", None).await;
        let captured = health["tuning"]["engine_figures"]["captured_graphs"].as_u64();
        assert!(captured > Some(0), "{health}");
        server.stop();
    }
}

#[test]
fn check_names_the_versions_that_were_found() {
    let said = tensorrt_10().check(OLD_DRIVER).stdout;
    for line in [
        "ok    library tensorrt: 10.",
        "ok    library cuda: 12.0",
        "ok    driver: for CUDA up to 12.4",
        "ok    plan standin.plan on device 0: it fits library and GPU",
    ] {
        assert!(said.lines().any(|one| one.starts_with(line)), "{line}: {said}");
    }
}

#[test]
fn a_plan_of_the_other_major_version_is_refused_by_name() {
    let mut package = tensorrt_10();
    package.libraries = standins();
    let said = package.check("").stdout;
    assert!(said.contains("none  plan standin.plan on device 0: it was built by version 10."));
    assert!(package.refusal("", &[]).contains("the library is 11."));
}

#[test]
fn a_driver_that_is_too_old_for_all_runtimes_is_told() {
    let package = Package::new(PlanFlavour::TensorRt);
    let said = package.check("driver_version=11080").stdout;
    assert!(said.contains("BAD   driver: for CUDA up to 11.8, which is older than"), "{said}");
    let said = package.refusal("driver_version=11080", &[]);
    assert!(said.contains("cudaErrorInsufficientDriver"), "{said}");
}

#[test]
fn a_gpu_for_which_library_driver_or_precision_are_too_old_is_told_by_name() {
    let (old, new) = (tensorrt_10(), Package::new(PlanFlavour::TensorRt));
    let knows = "which TensorRT knows from version 10.";
    let cases = [
        (&old, "capability=100,version=100700", "f16", format!("10.0, {knows}8 on, and the lib")),
        (&old, "capability=120,version=100100", "f16", format!("12.0, {knows}8 on, and the lib")),
        (&old, "capability=103,version=101300", "f16", format!("10.3, {knows}14 on, and the lib")),
        (&old, "capability=120,driver_version=12040", "f16", "a driver for CUDA 12.8".to_owned()),
        (&new, "capability=75", "bf16", "8.0 or later, duovec stand-in has 7.5".to_owned()),
    ];
    for (package, faults, precision, words) in cases {
        let said = package.refusal(faults, &["--precision", precision, "--build-plan", "true"]);
        assert!(said.contains(&words), "{faults}: '{words}' is not in: {said}");
        let mut command = duovec();
        command.args(["build-engine", "--precision", precision]).arg(package.package.path());
        with_libraries(&mut command, &package.libraries);
        let built = run(command.env(FAULTS, faults)).stderr;
        assert!(built.contains(&words), "{faults}: '{words}' is not in: {built}");
    }
}
