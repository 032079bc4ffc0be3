//! Real builds with the TensorRT-RTX library, which needs no GPU for them.
//!
//! `scripts/test_tensorrt.sh` makes the packages and names them and the libraries in variables.

#![cfg(feature = "tensorrt-rtx")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clock::RealClock;
use duovec::engine::cuda::Cuda;
use duovec::engine::tensorrt::build::{BuildError, BuildOptions, BuiltPlan, build_engine};
use duovec::engine::tensorrt::ffi::{BridgeError, Observer};
use duovec::engine::tensorrt::plan::parse_profiles;
use model::package::edit::{EditError, PackageEditor};
use model::package::manifest::plan::PlanFlavour;
use model::package::{ModelPackage, digest};
use settings::PrecisionChoice;
use tempfile::TempDir;

#[path = "../cpp/headers.rs"]
mod headers;

/// Folders that the script fills.
const PACKAGES: &str = "DUOVEC_TEST_TENSORRT_PACKAGES";
const LIBRARIES: &str = "DUOVEC_TEST_TENSORRT_RTX_LIBRARY_DIR";
const CUDA_LIBRARIES: &str = "DUOVEC_TEST_CUDA_LIBRARY_DIR";
const CUDA_12_LIBRARIES: &str = "DUOVEC_TEST_CUDA_12_LIBRARY_DIR";
/// A real package, such as the default one; its graph is large enough to be interrupted.
const REAL_PACKAGE: &str = "DUOVEC_PACKAGE";

/// What a build locks in its package.
const LOCK: &str = ".lock";

/// At most one byte of so many may differ between two builds of one graph.
const BYTES_FOR_ONE_DIFFERENT: usize = 1000;

fn folder(variable: &str) -> PathBuf {
    let named = std::env::var_os(variable);
    PathBuf::from(named.unwrap_or_else(|| panic!("run scripts/test_tensorrt.sh: {variable}")))
}

/// A package of its own for one test; large files are linked.
struct Package(TempDir);

impl Package {
    fn copy_of(source: &Path) -> Self {
        // Beside the source, so that files can be linked.
        let parent = source.parent().expect("a package lies in a folder");
        let copy = TempDir::with_prefix_in(".copy-", parent).expect("a folder can be made");
        for entry in fs::read_dir(source).expect("the script made it") {
            let entry = entry.expect("it can be listed");
            let target = copy.path().join(entry.file_name());
            // What is rewritten must not be linked: `rename` replaces, but a test may write too.
            // Nor what is locked.
            if entry.file_name() == "manifest.json" || entry.file_name() == LOCK {
                fs::copy(entry.path(), target).expect("the disk has room");
            } else {
                fs::hard_link(entry.path(), target).expect("files can be linked");
            }
        }
        Self(copy)
    }

    fn named(name: &str) -> Self {
        Self::copy_of(&folder(PACKAGES).join(name))
    }

    /// Without the plans that it may have already.
    fn real() -> Self {
        let package = Self::copy_of(&folder(REAL_PACKAGE));
        let editor = PackageEditor::open(package.path()).expect("nobody else has it");
        editor.replace_plans(&[]).expect("it is ours");
        package
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).expect("it is a folder");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("it is UTF-8");
        let mut names: Vec<String> = entries.map(|entry| name(entry.expect("listed"))).collect();
        names.retain(|name| name != LOCK);
        names.sort();
        names
    }

    /// Verifies every file, plans included, and gives the names of the plans.
    fn verified_plans(&self) -> Vec<String> {
        let package = ModelPackage::open(self.path()).expect("the package is whole");
        let plans = &package.manifest().plans;
        for plan in plans {
            let content = fs::read(self.path().join(&plan.file)).expect("the plan is there");
            let found = (digest::of_bytes(&content), content.len() as u64);
            assert_eq!(found, (plan.sha256.clone(), plan.bytes));
        }
        plans.iter().map(|plan| plan.file.clone()).collect()
    }

    fn build(&self, options: &BuildOptions) -> Result<BuiltPlan, BuildError> {
        self.build_observed(options, |_, _| true)
    }

    fn build_observed(
        &self,
        options: &BuildOptions,
        listener: impl Fn(u32, &str) -> bool + Send + Sync + 'static,
    ) -> Result<BuiltPlan, BuildError> {
        build_engine(self.path(), options, &Observer::new(listener), &RealClock::new())
    }
}

fn options() -> BuildOptions {
    let library_dir = Some(folder(LIBRARIES));
    BuildOptions { library_dir, ..BuildOptions::new(PlanFlavour::TensorRtRtx) }
}

/// The error and its causes, as the command line prints them.
fn printed(error: BuildError) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

#[test]
fn a_package_gets_a_plan_and_keeps_everything_else() {
    let package = Package::named("good");
    let before = fs::read_to_string(package.path().join("manifest.json")).expect("it is there");
    let built = package.build(&options()).expect("the graph is good");
    let entry = &built.entry;
    assert_eq!((entry.precision.as_str(), entry.profiles.len()), ("f16", 2));
    assert_eq!(entry.scratch_bytes.len(), 2);
    assert!(built.layers > Some(20), "{:?}", built.layers);
    assert!(entry.version.starts_with("1."), "{}", entry.version);
    assert!(built.warnings.is_empty(), "{:?}", built.warnings);
    assert_eq!(package.verified_plans(), [entry.file.as_str()]);
    let after = fs::read_to_string(package.path().join("manifest.json")).expect("it is there");
    let head = before.split_once("\"plans\"").expect("it has the field").0;
    assert!(after.starts_with(head), "other fields keep their bytes");
}

/// Builds twice and compares the plans byte by byte. TensorRT-RTX 1.7.1 builds with threads of its
/// own and seems to number a few table entries in the order of its objects' addresses. So two plans
/// are often not equal: they differ in 13 to 29 bytes of millions, and once in 820. What duovec
/// hands to the builder, another order of layers or weights for example, would change far more.
#[test]
fn builds_repeat() {
    let package = Package::named("good");
    let [one, two] = [(); 2].map(|()| {
        let entry = package.build(&options()).expect("the graph is good").entry;
        fs::read(package.path().join(&entry.file)).expect("the plan is there")
    });
    assert_eq!(one.len(), two.len());
    let different = one.iter().zip(&two).filter(|(one, two)| one != two).count();
    assert!(different <= one.len() / BYTES_FOR_ONE_DIFFERENT, "{different} bytes");
}

#[test]
fn a_real_package_builds() {
    let package = Package::real();
    let built = package.build(&options()).expect("the default package builds");
    // Its lexical weights are one product with a single column in f32, which counts for nothing.
    assert_eq!((built.entry.precision.as_str(), built.warnings), ("f16", Vec::new()));
    assert_eq!(built.entry.model_file, "model.fp16.onnx");
    assert_eq!(package.verified_plans().len(), 1);
}

#[test]
fn every_form_of_a_good_graph_builds() {
    for (name, precision) in [
        ("external_data", "f16"),
        ("good_bf16", "bf16"),
        ("good_f32", "f32"),
        ("with_tokens", "f16"),
        ("words_fp16", "f16"),
        ("words_bf16", "bf16"),
        ("words_fp32", "f32"),
    ] {
        let built = Package::named(name).build(&options()).expect(name);
        assert_eq!(built.entry.precision, precision, "{name}");
        assert_eq!(built.entry.model_file, "model.onnx", "{name}");
        assert_eq!(built.warnings.len(), usize::from(precision == "f32"), "{:?}", built.warnings);
    }
}

#[test]
fn a_plan_is_built_from_the_graph_of_the_precision_that_is_asked_for() {
    let package = Package::named("half_and_f32");
    for (precision, model_file) in [
        (PrecisionChoice::F16, "model.fp16.onnx"),
        (PrecisionChoice::Bf16, "model.bf16.onnx"),
        (PrecisionChoice::Fp8, "model.fp8.onnx"),
        (PrecisionChoice::F32, "model.onnx"),
    ] {
        let built = package.build(&BuildOptions { precision, ..options() }).expect("it has it");
        assert_eq!(built.entry.model_file, model_file, "{precision:?}");
        assert_eq!(built.entry.precision, precision.name());
        let is_f32 = precision == PrecisionChoice::F32;
        assert_eq!(built.warnings.len(), usize::from(is_f32), "{:?}", built.warnings);
    }
    assert_eq!(package.verified_plans().len(), 4);
    let single = Package::named("good_f32");
    let error = single.build(&BuildOptions { precision: PrecisionChoice::Bf16, ..options() });
    let message = printed(error.expect_err("it has no such graph"));
    assert!(message.starts_with("model.onnx computes in f32, not in bf16"), "{message}");
    assert!(single.verified_plans().is_empty());
}

#[test]
fn every_spoilt_graph_is_refused_by_its_fault() {
    let cases = [
        ("empty", "the graph is empty"),
        ("no_onnx", "the graph is empty"),
        ("no_nodes", "the graph is empty"),
        ("truncated", "Failed to parse the ONNX model"),
        ("unknown_operator", "node 'layer0.ffn.gelu' (Frobnicate)"),
        ("missing_data", "model.onnx.data"),
        ("wrong_input_name", "no input 'input_ids', it has 'ids', 'positions'"),
        ("wrong_output_name", "no output 'dense', it has "),
        ("wrong_type", "input 'input_ids' is int64, it must be int32"),
        ("wrong_columns", "has the shape [?, ?, 32], it must be [rows, spans, 64]"),
        ("two_axes", "has the shape [?, 64], it must be [rows, spans, 64]"),
        ("fixed_shape", "has the shape [1, 16], it must be [rows, length]"),
        ("additional_output", "has 3 outputs"),
        ("lost_segments", "Unused Input: segments"),
        ("short_positions", "longer than the graph's table of 64 positions"),
        ("small_vocabulary", "400 rows, the manifest's vocab_size is 443"),
    ];
    for (name, expected) in cases {
        let package = Package::named(name);
        let before = package.names();
        let error = package.build(&options()).expect_err(name);
        let kind = matches!(&error, BuildError::Build { source: BridgeError::Model(_), .. });
        let message = printed(error);
        assert!(kind, "{name}: {message}");
        assert!(message.contains(expected), "{name}: {message}");
        assert!(!message.contains('\n'), "{name}: {message}");
        assert_eq!(package.names(), before, "{name}");
    }
}

fn with_profiles(text: &str) -> BuildOptions {
    let profiles = Some(parse_profiles(text).expect("they ascend"));
    BuildOptions { profiles, ..options() }
}

#[test]
fn attention_that_is_not_one_kernel_is_refused_at_every_length() {
    let package = Package::named("narrow_heads");
    for profiles in ["short=1x1:1x8:4x16", "long=1x1:1x64:4x128"] {
        let refused = package.build(&with_profiles(profiles));
        let error = refused.expect_err("no kernel is for heads of one column");
        assert!(matches!(error, BuildError::NotFused { .. }), "{error}");
    }
    assert!(package.verified_plans().is_empty());
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let package = Package::named("good");
    let compute_capabilities = vec!["9.0".parse().expect("it is one")];
    let library_dir = Some("/nonexistent".into());
    for (options, words) in [
        (with_profiles("a=1x1:1x1:1x129"), "128 positions"),
        (with_profiles("a=1x1:1x1:1x2,a=1x1:1x1:1x3"), "same name"),
        (BuildOptions { compute_capabilities, ..options() }, "no plans for compute capability 9.0"),
        (
            BuildOptions { library_dir, ..options() },
            "cannot open /nonexistent/libtensorrt_rtx.so.1",
        ),
    ] {
        let said = printed(package.build(&options).expect_err("it is refused"));
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_changed_graph_is_noticed_before_the_build() {
    let package = Package::named("good");
    let model = package.path().join("model.onnx");
    let mut content = fs::read(&model).expect("it is there");
    content[100] ^= 1;
    fs::remove_file(&model).expect("it is ours");
    fs::write(&model, content).expect("the disk has room");
    let error = package.build(&options()).expect_err("its digest is another");
    assert!(matches!(error, BuildError::Package(_)), "{error}");
}

#[test]
fn an_observer_that_says_stop_leaves_the_package_as_it_was() {
    for step in [0, 3, 60] {
        let package = Package::named("good");
        let before = package.names();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let error = package
            .build_observed(&options(), move |_, _| counted.fetch_add(1, Ordering::Relaxed) < step)
            .expect_err("it was cancelled");
        assert!(error.is_cancelled(), "{error}");
        assert_eq!(package.names(), before);
    }
}

#[test]
fn progress_rises_to_the_whole() {
    let package = Package::named("good");
    let last = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&last);
    let listener = move |permille, phase: &str| {
        assert!(!phase.is_empty());
        seen.fetch_max(permille, Ordering::Relaxed) <= permille
    };
    package.build_observed(&options(), listener).expect("a fall would have cancelled it");
    assert_eq!(last.load(Ordering::Relaxed), 1000);
}

#[test]
fn only_one_build_changes_a_package() {
    let package = Package::named("good");
    let _editor = PackageEditor::open(package.path()).expect("nobody else has it");
    let error = package.build(&options()).expect_err("it is locked");
    assert!(matches!(error, BuildError::Edit(EditError::Locked(_))), "{error}");
}

#[test]
fn the_cuda_runtimes_answer_with_and_without_a_driver() {
    for (variable, version) in [(CUDA_LIBRARIES, "13."), (CUDA_12_LIBRARIES, "12.0")] {
        let cuda = Cuda::open(Some(&folder(variable))).expect("the script fetched it");
        let runtime = cuda.runtime_version().expect("it knows its version");
        assert!(runtime.to_string().starts_with(version), "{runtime}");
        answers(&cuda);
    }
}

fn answers(cuda: &Cuda) {
    match (cuda.driver_version().expect("it needs no driver"), cuda.devices()) {
        (None, Ok(devices)) => assert!(devices.count() == 0, "{devices:?}"),
        (None, Err(error)) => assert!(error.to_string().contains("driver"), "{error}"),
        (Some(_), devices) => {
            for device in devices.expect("the driver can be asked").well {
                let memory = cuda.memory(device.index).expect("the device answers");
                assert!(memory.free_bytes <= memory.total_bytes, "{memory:?}");
                assert!(device.capability.major >= 5, "{device:?}");
            }
        }
    }
}

#[test]
fn the_data_centre_flavour_asks_for_its_gpu() {
    let cuda = Cuda::open(Some(&folder(CUDA_LIBRARIES))).expect("the script fetched it");
    if cuda.devices().is_ok_and(|devices| devices.count() > 0) {
        return;
    }
    let mut options = options();
    options.flavour = PlanFlavour::TensorRt;
    options.cuda_library_dir = Some(folder(CUDA_LIBRARIES));
    let error = Package::named("good").build(&options).expect_err("there is no GPU");
    assert!(matches!(error, BuildError::NoDevice(_)), "{error}");
}

/// The real command on a real package; `end` gets its process id when line `line` of its progress
/// was read.
fn ended_at(package: &Package, line: usize, end: &str) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duovec"));
    let mut process = command
        .args(["build-engine", "--flavour", "tensorrt-rtx", "--tensorrt-library-dir"])
        .arg(folder(LIBRARIES))
        .arg(package.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary was built");
    let stderr = BufReader::new(process.stderr.take().expect("it is piped"));
    let mut lines = stderr.lines();
    for _ in 0..line {
        lines.next();
    }
    let id = process.id().to_string();
    Command::new("kill").args([end, &id]).status().expect("kill is there");
    // Read to the end, so that the process is not stopped by a full pipe.
    lines.for_each(drop);
    process.wait().expect("it ends").code()
}

#[test]
fn a_killed_build_leaves_a_whole_package_at_every_moment() {
    let package = Package::named("good");
    package.build(&options()).expect("the graph is good");
    for line in 0..9 {
        ended_at(&package, line, "-KILL");
        // The old one, or the new one when the kill came too late.
        assert_eq!(package.verified_plans().len(), 1, "after line {line}");
    }
    package.build(&options()).expect("what was left is no obstacle");
    assert!(package.names().iter().all(|name| !name.starts_with('.')), "{:?}", package.names());
}

#[test]
fn an_interrupted_build_leaves_a_whole_package_and_says_so() {
    let package = Package::real();
    let before = package.names();
    assert_eq!(ended_at(&package, 2, "-INT"), Some(130));
    assert_eq!(package.names(), before);
    assert_eq!(ended_at(&package, 2, "-TERM"), Some(130));
    assert_eq!(package.names(), before);
}

#[test]
fn headers_among_the_systems_own_do_not_hide_the_compilers() {
    let folder = TempDir::new().expect("a folder can be made");
    let link = folder.path().join("include");
    std::os::unix::fs::symlink("/usr/include", &link).expect("a link can be made");
    fs::write(folder.path().join("vendor.h"), "#include <cstdlib>\n").expect("it is ours");
    let source = folder.path().join("source.cc");
    fs::write(&source, "#include <vendor.h>\n").expect("it is ours");
    let compile = |named: &Path| {
        let mut command = Command::new("c++");
        command.args(headers::flags(folder.path())).args(headers::flags(named));
        command.arg("-fsyntax-only").arg(&source).output().expect("a compiler is there")
    };
    for named in [Path::new("/usr/include"), &link] {
        let done = compile(named);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn a_folder_of_headers_is_taken_only_with_all_of_them_and_of_a_version_that_is_known() {
    let folder = TempDir::new().expect("a folder can be made");
    let put = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("it is ours");
    };
    let suits = || {
        let versions = ["#define TRT_MAJOR_ENTERPRISE 11", "#define NV_TENSORRT_MAJOR 11"];
        headers::suits(folder.path(), &["NvInferVersion.h", "NvOnnxParser.h"], &versions)
    };
    put("NvOnnxParser.h", "");
    assert!(!suits(), "the version is missing");
    put("NvInferVersion.h", "// 11\n#define NV_TENSORRT_MAJOR 10\n");
    assert!(!suits(), "it is of TensorRT 10");
    put("NvInferVersion.h", "\n#define  TRT_MAJOR_ENTERPRISE\t11 // major\n");
    assert!(suits());
    fs::remove_file(folder.path().join("NvOnnxParser.h")).expect("it is ours");
    assert!(!suits(), "the parser's is missing");
}
