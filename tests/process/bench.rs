//! `duovec bench` without a GPU: its figures as JSON, and the comparison that needs a GPU.

use serde_json::Value;

use super::support::{assert_says, quick, run, tiny};

#[test]
fn the_table_of_shapes_is_one_json_object() {
    let mut command = quick("bench", tiny(), &["--fake-run-ms", "10", "--max-batch-tokens", "8"]);
    let ended = run(command.args(["--shapes", "1x8,1x64", "--ms-per-shape", "100", "--json"]));
    let report: Value = serde_json::from_str(&ended.with_code(0).stdout).expect("JSON");
    assert_eq!(report["engine"], "fake");
    let shapes = report["shapes"].as_array().expect("a list");
    assert_eq!(shapes.len(), 2, "{report}");
    for shape in shapes {
        assert!(shape["median_ms"].as_f64() >= Some(10.0), "{report}");
    }
}

#[test]
fn captured_graphs_are_compared_on_a_gpu_only() {
    let more = ["--log-level", "off", "--compare-graphs"];
    let ended = run(&mut quick("bench", tiny(), &more));
    assert_says(&ended, 1, &["--compare-graphs needs TensorRT on a GPU"]);
    assert_eq!(ended.stdout, "", "nothing is measured before");
}
