//! Packages of cross-encoders and of models of lexical weights alone, as the commands take them.

use std::fs;

use super::support::*;

/// The tiny package as that of a cross-encoder, for the fake engine.
fn cross_encoder() -> Broken {
    let package = Broken::new();
    package.manifest(|manifest| {
        manifest["kind"] = "cross-encoder".into();
        manifest["hidden_size"] = 2.into();
        manifest["matryoshka_dimensions"] = json!([]);
        manifest["sparse"] = json!(null);
        manifest["outputs"] = json!({"dense": "float32"});
        manifest["canary"]["dense"] = json!([0.6, 0.8]);
        manifest["canary"]["sparse"] = json!([]);
    });
    package
}

#[test]
fn a_check_tells_what_a_package_gives_and_finds_a_spoilt_table() {
    let words = Broken::of("tiny-words");
    let scores = "ok    kind: cross-encoder…scores of pairs, 64 tokens";
    let weights = "kind: sparse…none, so that only lexical weights are served";
    let openvino = ["--engine", "openvino", "--precision", "f32"];
    for (package, flags, told) in
        [(&cross_encoder(), &[][..], scores), (&words, &openvino, weights)]
    {
        has(&run(&mut quick("check", package.path(), flags)).with_code(0).stdout, told);
    }
    fs::write(words.file("questions.f32"), [0; 1772]).expect("it is written");
    assert_says(&run(&mut quick("check", words.path(), &[])), 1, "questions.f32");
}

#[test]
fn what_makes_or_compares_vectors_refuses_what_a_package_lacks_and_names_the_cure() {
    let (scores, words) = (cross_encoder(), Broken::of("tiny-words"));
    let input = words.file("texts.jsonl");
    fs::write(&input, "{\"text\": \"cat\"}\n").expect("it is written");
    let output = words.file("out.jsonl");
    let [input, output] = [&input, &output].map(|path| path.to_str().expect("UTF-8"));
    let embed = [input, "--out", output];
    let adopt = ["--from", "http://localhost:1"];
    let route = "tiny-test is a cross-encoder…POST /v1/rerank";
    for (package, command, more, code, told) in [
        (&scores, "embed", embed.to_vec(), 1, route),
        (&scores, "batch", vec!["--input", input, "--output", output], 1, route),
        (&scores, "adopt", adopt.to_vec(), 1, route),
        (&words, "embed", [&embed[..], &["--vectors", "both"]].concat(), 2, "--vectors sparse"),
        (&words, "embed", [&embed[..], &["--input-type", "query"]].concat(), 2, "ask a server"),
        (&words, "adopt", adopt.to_vec(), 1, "no dense vectors to compare"),
    ] {
        assert_says(&run(&mut quick(command, package.path(), &more)), code, told);
    }
    run(&mut quick("embed", words.path(), &embed)).with_code(0);
    let line = fs::read_to_string(output).expect("it is there");
    let line: Value = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
    assert!(line.get("dense").is_none());
    assert!(line["sparse_indices"].as_array().is_some_and(|ids| !ids.is_empty()), "{line}");
}
