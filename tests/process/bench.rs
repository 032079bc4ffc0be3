//! `duovec bench` without a GPU.

use super::support::*;

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
