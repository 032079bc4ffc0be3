//! What a manifest must say, and what is refused.

use super::*;
use serde_json::{Value, json};

fn valid() -> Value {
    let digest = "0".repeat(64);
    json!({
        "format_version": 2, "model_id": "m", "aliases": [], "revision": "r",
        "license": "MIT", "kind": "embedding", "hidden_size": 2, "vocab_size": 10,
        "max_input_tokens": 8, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "unk_token_id": 3, "pooling": "mean", "matryoshka_dimensions": [1],
        "prompts": {"query": "q: "}, "default_prompt": "query",
        "sparse": {"dropped_token_ids": [0, 1, 2, 3], "head": "by hand"},
        "outputs": {"dense": "float32", "token_weights": "float16"},
        "small_vectors": [{"reach": 0.5, "mean": [0.1, -0.1]}],
        "files": {"model.onnx": {"sha256": digest, "bytes": 1},
                  "tokenizer.json": {"sha256": digest, "bytes": 1}},
        "plans": [],
        "canary": {"text": "a", "token_ids": [0, 5, 2], "dense": [0.6, 0.8], "longest": null,
                   "sparse": [[5, 0.25]],
                   "tolerances": {"dense_cosine_min": 0.99, "sparse_max_abs": 0.05}}
    })
}

fn parse(value: &Value) -> Result<Manifest, ManifestError> {
    Manifest::parse(value.to_string().as_bytes())
}

/// A manifest with another value at a place is refused with these words.
fn each_is_refused<const N: usize>(whole: &Value, cases: [(&str, Value, &str); N]) {
    for (pointer, value, expected) in cases {
        let mut manifest = whole.clone();
        *manifest.pointer_mut(pointer).expect("the field is there") = value;
        let message = parse(&manifest).expect_err(pointer).to_string();
        assert!(message.contains(expected), "{pointer}: {message}");
    }
}

#[test]
fn one_special_token_is_enough_and_none_is_too_few() {
    let mut manifest = valid();
    manifest["bos_token_id"] = json!(null);
    let one = parse(&manifest).expect("there is one behind a text");
    assert_eq!((one.bos_token_id, one.eos_token_id), (None, Some(2)));
    manifest["eos_token_id"] = json!(null);
    let error = parse(&manifest).expect_err("there is none");
    assert!(error.to_string().contains("bos/eos_token_id"), "{error}");
}

#[test]
fn a_complete_manifest_is_read() {
    let manifest = parse(&valid()).expect("it is complete");
    assert_eq!(manifest.dimensions(), [1, 2]);
    assert_eq!(manifest.outputs.token_weights, Some(FloatType::Float16));
}

#[test]
fn each_wrong_field_is_named() {
    let cases = [
        ("/format_version", json!(1), "format_version is 1"),
        ("/format_version", json!(1), "scripts/export_onnx.py"),
        ("/model_id", json!(" "), "model_id"),
        ("/hidden_size", json!(0), "hidden_size"),
        ("/hidden_size", json!(3), "canary: 2 golden floats"),
        ("/max_input_tokens", json!(2), "max_input_tokens"),
        ("/max_input_tokens", json!(1_048_577), "max_input_tokens"),
        ("/pad_token_id", json!(10), "pad/bos/eos/unk_token_id"),
        ("/matryoshka_dimensions", json!([2, 1]), "matryoshka_dimensions"),
        ("/matryoshka_dimensions", json!([3]), "matryoshka_dimensions"),
        ("/default_prompt", json!("passage"), "default_prompt"),
        ("/kind", json!("cross-encoder"), "kind"),
        ("/kind", json!("classifier"), "not a manifest"),
        ("/sparse", json!(null), "sparse"),
        ("/sparse/dropped_token_ids", json!([2, 1]), "dropped_token_ids must ascend"),
        ("/outputs/dense", json!("int32"), "not a manifest"),
        ("/small_vectors/0/mean", json!([0.1, 0.1, 0.1]), "small_vectors: 3 means"),
        ("/small_vectors/0/reach", json!(0), "small_vectors: the reach"),
        ("/small_vectors/0/mean/0", json!(1e39), "small_vectors: the reach"),
        ("/files", json!({}), "model.onnx is not listed"),
        ("/files/model.onnx/sha256", json!("xyz"), "64 lower-case"),
        ("/canary/token_ids", json!([]), "its token ids"),
        ("/canary/token_ids", json!([10]), "its token ids"),
        ("/canary/sparse", json!([[6, 0.1], [5, 0.1]]), "must ascend"),
        ("/canary/longest", json!({"tokens": 9, "dense": [1.0], "sparse": []}), "longest"),
        ("/canary/tolerances/dense_cosine_min", json!(1.5), "tolerances"),
    ];
    each_is_refused(&valid(), cases);
}

#[test]
fn vectors_of_tokens_are_there_whole_or_not_at_all() {
    let mut whole = valid();
    whole["token_vector_size"] = json!(2);
    whole["outputs"]["token_vectors"] = json!("float32");
    whole["canary"]["token_vectors"] = json!([[1, [0.6, 0.8]], [2, [1.0, 0.0]]]);
    assert_eq!(parse(&whole).expect("it is whole").token_vector_size, Some(2));
    let cases = [
        ("/token_vector_size", json!(null), "must both be there"),
        ("/token_vector_size", json!(0), "above zero"),
        ("/bos_token_id", json!(null), "a bos_token_id"),
        ("/outputs/token_vectors", json!(null), "must both be there"),
        ("/canary/token_vectors", json!([]), "its token vectors"),
        ("/canary/token_vectors", json!([[3, [0.6, 0.8]]]), "its token vectors"),
        ("/canary/token_vectors", json!([[1, [0.6]]]), "its token vectors"),
    ];
    each_is_refused(&whole, cases);
}

#[test]
fn words_are_weighed_by_a_model_without_vectors() {
    let mut whole = valid();
    whole["kind"] = json!("sparse");
    for field in ["matryoshka_dimensions", "small_vectors"] {
        whole[field] = json!([]);
    }
    whole["outputs"] =
        json!({"dense": "float32", "word_weights": "float32", "token_weights": null});
    whole["sparse"] = json!({"dropped_token_ids": [], "words": 4, "questions": "questions.f32"});
    whole["files"]["questions.f32"] = json!({"sha256": "0".repeat(64), "bytes": 40});
    let read = parse(&whole).expect("it is whole");
    assert_eq!((read.words(), read.has_question_table()), (Some(4), true));
    assert!(read.dimensions().is_empty());
    let cases = [
        ("/kind", json!("embedding"), "of the kind sparse alone"),
        ("/pooling", json!("cls"), "the pooling mean"),
        ("/matryoshka_dimensions", json!([1]), "no shorter"),
        ("/small_vectors", json!([{"reach": 0.5, "mean": [0.1, -0.1]}]), "no shorter or smaller"),
        ("/sparse/words", json!(null), "a sparse model weighs words"),
        ("/sparse/words", json!(0), "words must be from 1 to 10"),
        ("/sparse/words", json!(11), "words must be from 1 to 10"),
        ("/outputs/word_weights", json!(null), "one of the outputs"),
        ("/outputs/token_weights", json!("float32"), "one of the outputs"),
        ("/sparse/questions", json!("absent"), "absent must be a listed file of 40 bytes"),
        ("/files/questions.f32/bytes", json!(36), "questions.f32 must be a listed file"),
    ];
    each_is_refused(&whole, cases);
}

#[test]
fn normalization_is_one_of_two_words_or_absent() {
    let said = |part: Value| {
        let mut manifest = valid();
        manifest["tokenizer"] = part;
        parse(&manifest).map(|manifest| manifest.tokenizer.normalization)
    };
    assert!(matches!(said(json!({})), Ok(None)));
    let huggingface = said(json!({"normalization": "huggingface"}));
    assert!(matches!(huggingface, Ok(Some(Normalization::Huggingface))));
    for wrong in [json!({"normalization": "nfkc"}), json!({"normalisation": "huggingface"})] {
        assert!(matches!(said(wrong), Err(ManifestError::Json(_))));
    }
}

#[test]
fn a_graph_in_8_bits_is_a_listed_file_with_usable_tolerances() {
    let scores = json!({"dense": 0.47, "sparse": 0.27});
    for (field, precision) in [("quantized", "int8"), ("fp8", "fp8")] {
        let part = json!({
            "file": "tokenizer.json", "method": "by hand",
            "tolerances": {"dense_cosine_min": 0.99, "sparse_max_abs": 0.1},
            "retrieval": [{"collection": "c", "queries": 5, "f32": scores, precision: scores}]
        });
        let said = |pointer: &str, value: Value| {
            let mut manifest = valid();
            manifest[field] = part.clone();
            if let Some(slot) = manifest[field].pointer_mut(pointer) {
                *slot = value;
            }
            parse(&manifest).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(said("/absent", json!(null)), Ok(()));
        let unlisted = said("/file", json!("model.int8.xml")).expect_err("not listed");
        let expected = format!("{field}: its file 'model.int8.xml' is not");
        assert!(unlisted.contains(&expected), "{unlisted}");
        let loose = said("/tolerances/dense_cosine_min", json!(1.5)).expect_err("1.5");
        assert!(loose.contains(&format!("{field}: its tolerances")), "{loose}");
    }
}

#[test]
fn files_outside_the_package_are_refused() {
    for name in ["../model.onnx", "a/b", "/etc/passwd", ".hidden", "a\\b", ""] {
        let mut manifest = valid();
        manifest["files"][name] = json!({"sha256": "0".repeat(64), "bytes": 1});
        assert!(parse(&manifest).is_err(), "{name}");
    }
}

#[test]
fn unknown_and_missing_fields_are_refused() {
    let mut unknown = valid();
    unknown["poolling"] = json!("cls");
    assert!(matches!(parse(&unknown), Err(ManifestError::Json(_))));
    let mut missing = valid();
    missing.as_object_mut().expect("an object").remove("canary");
    assert!(matches!(parse(&missing), Err(ManifestError::Json(_))));
}
