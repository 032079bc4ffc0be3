//! What is said of a plan that was built, by what the library told of it. Pure.

use model::package::manifest::plan::{PlanFlavour, PlanProfile};
use scheduling::batch::plan::SEVERAL_ROWS_TOKENS;

use super::build::BuildError;
use super::ffi::{BuildReport, Fusion};

/// Decides which properties of a finished plan are faults and which are warnings.
pub(super) fn judge(
    flavour: PlanFlavour,
    profiles: &[PlanProfile],
    report: &BuildReport,
) -> Result<Vec<String>, BuildError> {
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
        // We know the names of TensorRT's kernels from others' logs only, so a plan must not fail
        // for them alone. The scratch memory of long rows is a second sign.
        if flavour == PlanFlavour::TensorRtRtx || holds_scores(profiles, report) {
            return Err(error);
        }
        warnings.push(error.to_string());
    }
    if report.position_rows == 0 {
        warnings.push("no table of positions was found in the graph to check lengths with".into());
    }
    Ok(warnings)
}

/// Whether the scratch memory of long rows has room for the scores of all heads, which a fused
/// attention never writes. In short rows they are fewer than the other numbers, and tell nothing.
fn holds_scores(profiles: &[PlanProfile], report: &BuildReport) -> bool {
    const SCORE_BYTES: i64 = 2;
    let holds = |(profile, bytes): (&PlanProfile, &i64)| {
        let [rows, length] = [profile.rows.max, profile.length.max].map(i64::from);
        let scores = rows * i64::from(report.heads) * length * length;
        profile.length.max as usize > SEVERAL_ROWS_TOKENS && *bytes >= scores * SCORE_BYTES
    };
    let is_told = report.heads > 0 && report.scratch_bytes.len() == profiles.len();
    is_told && profiles.iter().zip(&report.scratch_bytes).any(holds)
}

#[cfg(test)]
mod tests {
    use super::super::plan::default_profiles;
    use super::*;

    fn report(precision: &str, fusion: Fusion) -> BuildReport {
        BuildReport {
            precision: precision.to_owned(),
            scratch_bytes: vec![5, 9, 7],
            position_rows: 512,
            heads: 16,
            layers: 129,
            fusion,
            warnings: Vec::new(),
            timing_cache: Vec::new(),
        }
    }

    #[test]
    fn half_precision_must_be_fused() {
        let judge_rtx = |report| judge(PlanFlavour::TensorRtRtx, &[], &report);
        let error = judge_rtx(report("f16", Fusion::NotFused)).expect_err("it is refused");
        assert!(matches!(error, BuildError::NotFused { scratch_bytes: 9 }));
        assert!(judge_rtx(report("f16", Fusion::Unknown)).expect("it is taken").is_empty());
        let warnings = judge_rtx(report("f32", Fusion::NotFused)).expect("it is taken");
        assert!(warnings[0].contains("computes in f32"), "{warnings:?}");
    }

    #[test]
    fn a_plan_of_a_library_whose_kernels_were_never_seen_is_kept_with_a_warning() {
        let not_fused = report("f16", Fusion::NotFused);
        let warnings = judge(PlanFlavour::TensorRt, &[], &not_fused).expect("it is taken");
        assert!(warnings[0].contains("attention was not fused"), "{warnings:?}");
    }

    #[test]
    fn long_rows_whose_scores_are_in_memory_are_refused_whatever_the_kernels_are_called() {
        let profiles = default_profiles(8192);
        let judged = |fusion, long| {
            let scratch_bytes = vec![12_000_000, 738_000_000, long];
            let report = BuildReport { scratch_bytes, ..report("f16", fusion) };
            judge(PlanFlavour::TensorRt, &profiles, &report)
        };
        // What a plan of BGE-M3's size takes with fused attention, and the scores of its 16 heads.
        let (fused, scores) = (185_000_000, 16 * 8192 * 8192 * 2);
        assert_eq!(judged(Fusion::NotFused, fused).expect("it is taken").len(), 1);
        let error = judged(Fusion::NotFused, scores + fused).expect_err("it is refused");
        assert!(matches!(error, BuildError::NotFused { .. }), "{error}");
        assert!(judged(Fusion::Fused, scores + fused).expect("it is taken").is_empty());
        let short = default_profiles(512);
        let mut report = report("f16", Fusion::NotFused);
        report.scratch_bytes = vec![12_000_000, scores];
        assert_eq!(judge(PlanFlavour::TensorRt, &short, &report).expect("it is taken").len(), 1);
    }
}
