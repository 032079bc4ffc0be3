//! A model that weighs words which a text need not have, on the real engine and for the commands.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::support::{Broken, Server, assert_says, duovec, has, quick, run};

const SPARSE: &str = "/v1/sparse-embeddings";
const TEXTS: [&str; 5] = ["cat", "", "the quick dog", "der schnelle Test 😀", "быстрый тест 快速"];

fn package() -> Broken {
    Broken::of("tiny-words")
}

/// Weights by id of each item of an answer.
fn weights(answer: &Value) -> Vec<BTreeMap<u64, f64>> {
    let of = |item: &Value| {
        let values = item["sparse_values"].as_object().expect("an object");
        let pair = |(id, weight): (&String, &Value)| {
            (id.parse().expect("an id"), weight.as_f64().expect("a weight"))
        };
        values.iter().map(pair).collect()
    };
    answer["data"].as_array().expect("a list").iter().map(of).collect()
}

async fn asked(server: &Server, input: Value, more: Value) -> Vec<BTreeMap<u64, f64>> {
    let mut body = json!({"input": input, "sparse_format": "dict"});
    let more = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(more);
    let (status, answer) = server.ask(SPARSE, Some(&body)).await;
    assert_eq!(status, 200, "{answer}");
    weights(&answer)
}

#[tokio::test]
async fn texts_of_a_shared_row_have_the_words_that_they_have_alone() {
    let package = package();
    let more = ["--engine", "openvino", "--precision", "f32", "--log-level", "info"];
    let server = Server::ready(&mut quick("serve", package.path(), &more));
    let mut alone = Vec::new();
    for text in TEXTS {
        alone.extend(asked(&server, json!(text), json!({})).await);
    }
    let many = TEXTS.repeat(12);
    let packed = asked(&server, json!(many), json!({})).await;
    assert_eq!(packed.len(), many.len());
    for (packed, alone) in packed.iter().zip(alone.iter().cycle()) {
        assert!(packed.keys().eq(alone.keys()), "{packed:?} {alone:?}");
        assert!(packed.values().zip(alone.values()).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    assert!(alone.iter().all(|words| !words.is_empty() && words.len() <= 64));
    let (_, before) = server.ask("/health", None).await;
    let question = asked(&server, json!("the cat"), json!({"input_type": "query"})).await;
    let (_, after) = server.ask("/health", None).await;
    assert_eq!(before["tuning"]["batches"], after["tuning"]["batches"]);
    assert!(question[0].iter().all(|(id, weight)| *weight == (id % 16) as f64 / 4.0));
    assert!(!question[0].is_empty());
    let (status, deep) = server.ask("/health/deep", None).await;
    assert_eq!((status, &deep["checks"][0]["sparse_ok"]), (200, &json!(true)));
}

#[test]
fn a_check_tells_what_it_gives_and_finds_a_spoilt_table() {
    let package = package();
    let ended = run(duovec().args(["check", "--precision", "f32"]).arg(package.path()));
    let told = ["kind: sparse", "none, so that only lexical weights are served"];
    has(&ended.with_code(0).stdout, &told);
    fs::write(package.file("questions.f32"), [0; 1772]).expect("it is written");
    let ended = run(&mut quick("check", package.path(), &[]));
    assert_says(&ended, 1, &["questions.f32"]);
}

#[test]
fn files_of_texts_get_lexical_weights_and_no_vectors() {
    let package = package();
    let (input, output) = (package.file("texts.jsonl"), package.file("out.jsonl"));
    fs::write(&input, "{\"text\": \"cat\"}\n").expect("it is written");
    let paths = [&input, &output].map(|path| path.to_str().expect("UTF-8").to_owned());
    let embed = |more: &[&str]| {
        let words = [&[&paths[0], "--out", &paths[1]], more].concat();
        run(&mut quick("embed", package.path(), &words))
    };
    assert_says(&embed(&["--vectors", "both"]), 2, &["use --vectors sparse"]);
    assert_says(&embed(&["--input-type", "query"]), 2, &["ask a server of it"]);
    embed(&[]).with_code(0);
    let line = fs::read_to_string(&output).expect("it is there");
    let line: Value = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
    assert!(line["embedding"].is_null());
    assert!(line["sparse_indices"].as_array().is_some_and(|ids| !ids.is_empty()), "{line}");
    let ended = run(&mut quick("adopt", package.path(), &["--from", "http://localhost:1"]));
    assert_says(&ended, 1, &["no dense vectors to compare"]);
}
