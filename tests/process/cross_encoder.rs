//! The package of a cross-encoder, and the commands that need vectors.

use serde_json::json;

use super::support::{Broken, Server, assert_says, has, quick, run};

/// The tiny package as that of a cross-encoder, for the fake engine.
fn package() -> Broken {
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
fn a_check_tells_that_it_scores_pairs() {
    let ended = run(&mut quick("check", package().path(), &[]));
    has(&ended.with_code(0).stdout, &["ok    kind: cross-encoder", "scores of pairs, 64 tokens"]);
}

#[test]
fn what_makes_or_compares_vectors_refuses_it_and_names_the_route() {
    let package = package();
    let input = package.file("texts.jsonl");
    std::fs::write(&input, "{\"text\": \"cat\"}\n").expect("it is written");
    let output = package.file("out.jsonl");
    let [input, output] = [&input, &output].map(|path| path.to_str().expect("UTF-8"));
    for (command, more) in [
        ("embed", vec![input, "--out", output]),
        ("batch", vec!["--input", input, "--output", output]),
        ("adopt", vec!["--from", "http://localhost:1"]),
    ] {
        let ended = run(&mut quick(command, package.path(), &more));
        assert_says(&ended, 1, &["tiny-test is a cross-encoder", "POST /v1/rerank"]);
    }
}

#[tokio::test]
async fn a_server_of_it_sorts_documents() {
    let server = Server::ready(&mut quick("serve", package().path(), &["--log-level", "info"]));
    let body = json!({"query": "cat", "documents": ["the cat", "a dog"]});
    let (status, answer) = server.ask("/v1/rerank", Some(&body)).await;
    assert_eq!((status, &answer["score"]), (200, &json!("cross-encoder")), "{answer}");
    let (status, answer) = server.ask("/v1/embeddings", Some(&json!({"input": "cat"}))).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("vectors_not_available")));
}
