//! What is said of a plan that was built, by what the library told of it. Pure.

use model::package::manifest::plan::PlanFlavour;

use super::build::BuildError;
use super::ffi::{BuildReport, Fusion};

/// Decides which properties of a finished plan are faults and which are warnings.
pub(super) fn judge(flavour: PlanFlavour, report: &BuildReport) -> Result<Vec<String>, BuildError> {
    let mut warnings = Vec::new();
    let half = ["f16", "bf16", "fp8"].contains(&report.precision.as_str());
    if !half {
        warnings.push(format!(
            "the graph computes in {}: a half-precision graph (model.fp16.onnx) runs several \
             times as fast",
            report.precision
        ));
    }
    if report.fusion == Fusion::NotFused && half {
        let largest = report.scratch_bytes.iter().copied().max().unwrap_or(0);
        let error = BuildError::NotFused { scratch_bytes: u64::try_from(largest).unwrap_or(0) };
        match flavour {
            PlanFlavour::TensorRtRtx => return Err(error),
            // We know the names of TensorRT's kernels from others' logs only, so a plan must not
            // fail for them.
            PlanFlavour::TensorRt => warnings.push(error.to_string()),
        }
    }
    if report.position_rows == 0 {
        warnings.push("no table of positions was found in the graph to check lengths with".into());
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(precision: &str, fusion: Fusion) -> BuildReport {
        BuildReport {
            precision: precision.to_owned(),
            scratch_bytes: vec![5, 9, 7],
            position_rows: 512,
            layers: 129,
            fusion,
            warnings: Vec::new(),
            timing_cache: Vec::new(),
        }
    }

    #[test]
    fn half_precision_must_be_fused() {
        let judge_rtx = |report| judge(PlanFlavour::TensorRtRtx, &report);
        let error = judge_rtx(report("f16", Fusion::NotFused)).expect_err("it is refused");
        assert!(matches!(error, BuildError::NotFused { scratch_bytes: 9 }));
        assert!(judge_rtx(report("f16", Fusion::Unknown)).expect("it is taken").is_empty());
        let warnings = judge_rtx(report("f32", Fusion::NotFused)).expect("it is taken");
        assert!(warnings[0].contains("computes in f32"), "{warnings:?}");
    }

    #[test]
    fn a_plan_of_a_library_whose_kernels_were_never_seen_is_kept_with_a_warning() {
        let not_fused = report("f16", Fusion::NotFused);
        let warnings = judge(PlanFlavour::TensorRt, &not_fused).expect("it is taken");
        assert!(warnings[0].contains("attention was not fused"), "{warnings:?}");
    }
}
