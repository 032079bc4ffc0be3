//! GPUs that are lost, at the start or while they run: those that are left serve.

use std::time::Duration;

use futures_util::future::join_all;
use model::package::manifest::plan::PlanFlavour;
use serde_json::{Value, json};

use crate::support::{Server, has};
use crate::{AFTER_WARM_UP, Package, REQUESTS_MAX, ask};

/// Server, health and the metric of lost GPUs of a start on two GPUs with these faults.
async fn started(package: &Package, faults: &str, devices: &str) -> (Server, Value, String) {
    let mut server = package.spawn(faults, &["--devices", devices]);
    let said = server.wait_for("ready");
    assert_eq!(said["device"], "duovec stand-in", "{said}");
    assert_eq!(ask(&server, 3, 30).await, 200);
    let (status, health) = server.ask("/health", None).await;
    assert_eq!(status, 200);
    let lost = lost_gpus(&server).await;
    (server, health, lost)
}

async fn lost_gpus(server: &Server) -> String {
    let metrics = server.read("/metrics").await;
    let line = metrics.lines().find_map(|line| line.strip_prefix("duovec_gpus_lost "));
    line.expect("the metric is there").to_owned()
}

#[tokio::test]
async fn the_gpus_that_are_left_at_the_start_serve_degraded() {
    let package = Package::new(PlanFlavour::TensorRt);
    let cases = [
        ("sick_device=1", "0,1", 1, "cudaErrorDevicesUnavailable"),
        ("sick_device=0", "0,1", 0, "cudaErrorDevicesUnavailable"),
        ("run_us=1", "0,7", 7, "the driver shows 2"),
    ];
    for (faults, devices, index, reason) in cases {
        let (server, health, lost) = started(&package, faults, devices).await;
        assert_eq!((&health["status"], lost.as_str()), (&json!("degraded"), "1"), "{health}");
        // The workers of the lost GPU are not squeezed onto the other.
        assert_eq!(health["workers"], json!({"live": 2, "total": 2, "busy": 0}));
        let told = &health["tuning"]["lost_gpus"];
        assert_eq!((told.as_array().map(Vec::len), &told[0]["gpu"]), (Some(1), &json!(index)));
        assert!(told[0]["reason"].as_str().is_some_and(|text| text.contains(reason)), "{told}");
        server.stop();
    }
}

#[tokio::test]
async fn a_sick_gpu_that_is_not_named_does_not_matter() {
    let package = Package::new(PlanFlavour::TensorRt);
    let (_server, health, lost) = started(&package, "sick_device=1", "0").await;
    assert_eq!((&health["status"], lost.as_str()), (&json!("ok"), "0"), "{health}");
    let said = package.check("sick_device=1").stdout;
    assert!(said.contains("none  device 1: cudaGetDeviceProperties failed"), "{said}");
}

#[test]
fn without_any_gpu_left_the_start_names_each() {
    let package = Package::new(PlanFlavour::TensorRt);
    let words = "GPU 0: cudaGetDeviceProperties failed: cudaErrorDevicesUnavailable";
    has(&package.refusal("sick_device=0", &[]), words);
}

/// Waits until the workers of a lost GPU have ended: each notices at its next batch. Only in the
/// first, which showed the loss, may the texts be at fault.
async fn settled(server: &Server) -> Value {
    let mut seeds = 0..REQUESTS_MAX;
    // One after the other, so that no other worker runs at the loss.
    loop {
        let seed = seeds.next().expect("the GPU is lost");
        match ask(server, u32::try_from(seed).expect("small"), 1).await {
            200 => {}
            status => break assert_eq!(status, 500),
        }
    }
    for seed in seeds {
        // Several at once, so that no worker stays idle.
        let first = u32::try_from(seed).expect("small");
        let all = join_all((first..first + 8).map(|seed| ask(server, seed, 20))).await;
        assert!(all.iter().all(|status| [200, 503].contains(status)), "{all:?}");
        let (_, health) = server.ask("/health", None).await;
        if health["workers"]["live"] == 2 {
            return health;
        }
    }
    panic!("workers of a lost GPU still live after {REQUESTS_MAX} requests");
}

#[tokio::test]
async fn a_gpu_that_is_lost_while_it_runs_leaves_the_others() {
    for flavour in [PlanFlavour::TensorRt, PlanFlavour::TensorRtRtx] {
        let package = Package::new(flavour);
        let fault = format!("run_us=2000,sticky={AFTER_WARM_UP}");
        let server = package.serve(&fault, &["--devices", "0,1"]);
        let health = settled(&server).await;
        assert_eq!(health["status"], "degraded", "{health}");
        assert_eq!(health["workers"]["total"], 4, "{health}");
        assert_eq!(health["tuning"]["lost_gpus"].as_array().map(Vec::len), Some(1), "{health}");
        assert_eq!(lost_gpus(&server).await, "1");
        for seed in 0..20 {
            assert_eq!(ask(&server, seed, 60).await, 200);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (_, health) = server.ask("/health", None).await;
        assert_eq!(health["workers"]["live"], 2, "no worker of the lost GPU came back: {health}");
        server.stop();
    }
}

#[tokio::test]
async fn the_only_worker_goes_to_a_gpu_that_is_left() {
    let package = Package::new(PlanFlavour::TensorRt);
    let fault = format!("sticky={AFTER_WARM_UP}");
    let server = package.serve(&fault, &["--devices", "0,1", "--workers", "1"]);
    let mut failed = 0;
    for seed in 0..REQUESTS_MAX {
        let status = ask(&server, u32::try_from(seed).expect("small"), 8).await;
        failed += u32::from(status != 200);
        if failed > 0 && status == 200 {
            return;
        }
    }
    panic!("{failed} requests failed, and none was answered after that");
}
