//! Manifests that are damaged or hostile: a package with one is opened or refused, and nothing
//! outside its folder is looked at.

use std::fs;
use std::path::{Component, Path};

use fastrand::Rng;
use model::package::manifest::Manifest;
use model::package::{ModelPackage, PackageError};
use model::tokenize::TextTokenizer;
use scheduling::batch::plan::Shapes;
use serde_json::{Map, Value, json};
use settings::SpecialTokenText;
use settings::limits::MaxBatchTokens;

use testing::{damage, pick, run_for, tiny};

/// Lies beside the package's folder; to have its size and digest right, it must have been read.
const OUTSIDE: &[u8] = b"nobody listed this file\n";
const OUTSIDE_SHA256: &str = "611e11e6404bd19891ce2c4eaaf985f62353e39f4a4beb7bf9174c58d9f57a0a";

/// Names that lead out of a folder, or might.
#[rustfmt::skip]
const NAMES: [&str; 14] = [
    "model.onnx", "manifest.json", "../outside", "..", ".", "", "/etc/passwd", "/proc/self/mem",
    "sub/../../outside", "..\\outside", "\0", "a\0../outside", ".\u{2024}/outside", "model.onnx/",
];

#[test]
fn a_manifest_opens_its_package_or_is_refused_and_leads_nowhere_else() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let package = root.path().join("package");
    fs::create_dir(&package).expect("it is new");
    fs::write(root.path().join("outside"), OUTSIDE).expect("it is written");
    let tiny = tiny();
    for name in ["model.onnx", "tokenizer.json"] {
        fs::copy(tiny.join(name), package.join(name)).expect("it is copied");
    }
    let valid = fs::read(tiny.join("manifest.json")).expect("the fixture is there");
    let valid: Value = serde_json::from_slice(&valid).expect("it is JSON");
    let mut opened = 0_u64;
    run_for("manifest", |rng| {
        fs::write(package.join("manifest.json"), changed(rng, &valid)).expect("it is written");
        opened += u64::from(open(&package));
    });
    println!("manifest: {opened} packages were opened");
}

/// The manifest with a few changes of its values, its text, or both.
fn changed(rng: &mut Rng, valid: &Value) -> Vec<u8> {
    let mut manifest = valid.clone();
    match rng.u8(..4) {
        0 => list_file(rng, &mut manifest),
        1 => list_plan(rng, &mut manifest),
        _ => {}
    }
    for _ in 0..rng.u8(..4) {
        change(rng, &mut manifest, 0);
    }
    let mut text = manifest.to_string().into_bytes();
    if rng.u8(..3) == 0 {
        damage(rng, &mut text);
    }
    text
}

/// Goes down to a value and puts another one in its place, leaves it out, or adds one beside it.
fn change(rng: &mut Rng, value: &mut Value, depth: u8) {
    let deeper = depth < 4 && rng.u8(..5) > 0;
    match value {
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let at = rng.usize(..fields.len());
            let name = fields.keys().nth(at).expect("it is below the length").clone();
            match rng.u8(..8) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert(name + "x", other(rng))),
                _ => change(rng, &mut fields[&name], depth + 1),
            }
        }
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = rng.usize(..items.len());
            match rng.u8(..8) {
                0 => drop(items.remove(at)),
                1 => items.insert(at, other(rng)),
                _ => change(rng, &mut items[at], depth + 1),
            }
        }
        value => *value = other(rng),
    }
}

fn other(rng: &mut Rng) -> Value {
    match rng.u8(..9) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.u64(..)),
        3 => json!(u64::MAX >> rng.u32(..64)),
        4 => json!(-i64::from(rng.i32(..))),
        5 => json!(rng.f64() * 1e300),
        6 => json!(pick(rng, &NAMES)),
        7 => json!([]),
        _ => Value::Object(Map::new()),
    }
}

fn file_name(rng: &mut Rng) -> String {
    let mut name = pick(rng, &NAMES).to_owned();
    if rng.u8(..3) == 0 {
        name.insert(0, rng.char(..));
    }
    name
}

fn list_file(rng: &mut Rng, manifest: &mut Value) {
    let entry = json!({"sha256": OUTSIDE_SHA256, "bytes": OUTSIDE.len()});
    if let Some(files) = manifest["files"].as_object_mut() {
        files.insert(file_name(rng), entry);
    }
}

fn list_plan(rng: &mut Rng, manifest: &mut Value) {
    let range = json!({"min": 1, "opt": rng.u32(..4), "max": u32::MAX >> rng.u32(..32)});
    let plan = json!({
        "file": file_name(rng), "sha256": OUTSIDE_SHA256, "bytes": OUTSIDE.len(),
        "flavour": pick(rng, &["tensorrt", "tensorrt-rtx"]), "version": "1.7.1.116",
        "model_file": file_name(rng), "model_sha256": OUTSIDE_SHA256, "precision": "f16",
        "profiles": [{"name": "latency", "rows": range, "length": range}],
        "compute_capabilities": [], "scratch_bytes": [u64::MAX], "build_seconds": 1.0,
    });
    manifest["plans"] = json!([plan]);
}

/// Opens what can be opened, as a start does; whether all of it could be.
fn open(folder: &Path) -> bool {
    let package = match ModelPackage::open(folder) {
        Ok(package) => package,
        Err(error) => {
            check_place(folder, &error);
            return false;
        }
    };
    check_manifest(package.manifest());
    for plan in &package.manifest().plans {
        for error in [package.verify_plan(plan).err(), package.read_plan(plan).err()] {
            error.iter().for_each(|error| check_place(folder, error));
        }
    }
    TextTokenizer::open(&package, SpecialTokenText::Special, None).is_ok()
}

/// An error names the file that was looked at.
fn check_place(folder: &Path, error: &PackageError) {
    let path = match error {
        PackageError::NoManifest(_)
        | PackageError::NotQuantized { .. }
        | PackageError::NoPrompt { .. } => return,
        PackageError::MissingFile(path)
        | PackageError::Manifest { path, .. }
        | PackageError::Read { path, .. }
        | PackageError::WrongSize { path, .. }
        | PackageError::WrongDigest { path, .. } => path,
    };
    let below = path.strip_prefix(folder).map(|below| below.components().collect::<Vec<_>>());
    assert!(matches!(below.as_deref(), Ok([Component::Normal(_)])), "{error:?}");
}

/// What an accepted manifest promises to everyone who uses it.
fn check_manifest(manifest: &Manifest) {
    let plain = |name: &str| {
        let mut parts = Path::new(name).components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
    };
    assert!(manifest.files.keys().all(|name| plain(name)), "{:?}", manifest.files);
    assert!(manifest.plans.iter().all(|plan| plain(&plan.file)), "{:?}", manifest.plans);
    assert_eq!(manifest.canary.dense.len(), manifest.hidden_size);
    assert_eq!(manifest.dimensions().last(), Some(&manifest.hidden_size));
    for shapes in [Shapes::on_cpu, Shapes::on_gpu] {
        let shapes = shapes(manifest.max_input_tokens, MaxBatchTokens::DEFAULT);
        assert_eq!(shapes.max_length(), manifest.max_input_tokens);
    }
}
