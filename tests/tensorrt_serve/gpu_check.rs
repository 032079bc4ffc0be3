//! What `scripts/gpu_check.sh` finds on the stand-ins, and on a machine without a GPU.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use model::package::manifest::plan::PlanFlavour;

use super::support::{Server, has, run};
use super::{FAULTS, GRAPHS_KEPT, Package, ask, standins};

/// NVIDIA's own CUDA runtime, which needs a driver.
const CUDA: &str = "DUOVEC_TEST_CUDA_LIBRARY_DIR";

/// What the GPU check says on the stand-ins with these faults: exit code and report.
fn gpu_check(package: &Package, faults: &str, cuda: &Path) -> (Option<i32>, String) {
    let report = package.package.file("report.md");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu_check.sh");
    let mut command = Command::new(script);
    command.args(["--seconds", "1", "--binary", env!("CARGO_BIN_EXE_duovec"), "--flavour"]);
    command.arg(package.flavour.name()).arg("--package").arg(package.package.path());
    command.arg("--library-dir").arg(standins()).arg("--cuda-library-dir").arg(cuda);
    command.arg("--standins").arg(standins().join("gpu"));
    // Kernels of the stand-in for TensorRT run on the stand-in for the driver.
    command.env("LD_LIBRARY_PATH", standins().join("driver"));
    let faults = format!("{faults},capability=120");
    let ended = run(command.arg("--report").arg(&report).env(FAULTS, faults));
    (ended.code, fs::read_to_string(report).unwrap_or(ended.stderr))
}

#[tokio::test]
async fn a_kernel_gives_the_rows_of_the_host() {
    let libraries = standins().join("gpu");
    let package = Package::of(PlanFlavour::TensorRt, libraries, "", "float32");
    let mut command = package.command("serve", "tensorrt", "");
    command.env("LD_LIBRARY_PATH", standins().join("driver"));
    let server = Server::ready(&mut command);
    for (seed, items) in [(1, 1), (2, 3), (5, 40), (50, 200)] {
        assert_eq!(ask(&server, seed, items).await, 200);
    }
}

#[test]
fn the_gpu_check_passes_on_the_stand_ins() {
    let package = Package::new(PlanFlavour::TensorRtRtx);
    let (code, report) = gpu_check(&package, "run_us=1", &standins());
    assert_eq!(code, Some(0), "{report}");
    let lines = [
        "- PASS library, driver, device and plan are well",
        "- PASS the server is ready after",
        " s, 0 errors",
        "- PASS the deep check passes after the load",
        "- PASS it drains and ends with exit code 0",
        "| with graphs |",
        "| without | 0 |",
        "- PASS every shape is measured",
        "1 x 32: 2 layers, 750.0 us",
        "| dense | 500.0 | 66.7% |",
        "Workers on each GPU: 4",
        "- PASS its kernels give the canary's numbers here",
        " graphs, 0 of them could not",
        "- PASS some shapes are measured",
        "| copies us |",
        "- PASS every worker gives the canary's numbers",
        "- PASS after a kernel that faults the server ends with exit code 1",
    ];
    has(&report, &lines.join("…"));
    let captured = report.lines().find_map(|line| {
        let (captured, rest) =
            line.strip_prefix("- PASS ")?.split_once(" of 10 buckets captured")?;
        rest.starts_with(", largest difference to a plain run 0.0").then_some(captured)
    });
    let captured: u64 = captured.and_then(|text| text.parse().ok()).expect("they are compared");
    assert!(GRAPHS_KEPT.contains(&captured), "{report}");
}

#[test]
fn the_gpu_check_reports_what_a_machine_lacks() {
    let package = Package::new(PlanFlavour::TensorRtRtx);
    for (faults, reason) in [
        ("no_device", "the driver shows no GPU"),
        ("no_driver", "cudaErrorInsufficientDriver"),
        ("version=10500", "this program needs TensorRT-RTX"),
        ("unsupported_device", "compute capability"),
    ] {
        let (code, report) = gpu_check(&package, faults, &standins());
        assert_eq!(code, Some(1), "{faults}: {report}");
        assert!(report.contains("- FAIL library, driver, device"), "{faults}: {report}");
        assert!(report.contains(reason), "{faults}: {report}");
        assert!(report.contains("- SKIP no plan runs here"), "{faults}: {report}");
        assert!(!report.contains("did not come to its end"), "{faults}: {report}");
    }
}

#[test]
fn without_a_gpu_the_check_of_cuda_says_so_in_one_line() {
    let package = Package::new(PlanFlavour::TensorRt);
    let real = env::var_os(CUDA).unwrap_or_else(|| panic!("run scripts/test_tensorrt.sh: {CUDA}"));
    for (faults, cuda, reason) in [
        ("no_device", standins(), "device: the driver shows no GPU"),
        ("run_us=1", PathBuf::from(real), "driver: none; a GPU needs NVIDIA's driver"),
    ] {
        let (_, report) = gpu_check(&package, faults, &cuda);
        let line = format!("- SKIP no GPU can be used here: {reason}");
        assert_eq!(report.matches(&line).count(), 1, "{report}");
        assert_eq!(report.matches("## CUDA under a stand-in").count(), 1, "{report}");
        assert!(!report.contains("did not come to its end"), "{report}");
    }
}
