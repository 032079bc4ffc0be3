//! Models that weigh words which a text need not have: a plan is built and served.

use std::fs;

use duovec::engine::fake::{expected_dense, expected_words};
use model::package::ModelPackage;
use model::package::canary::long_text;
use model::package::manifest::plan::PlanFlavour;
use serde_json::{Value, json};
use vectors::sparse::{self, Selection};

use crate::support::{Broken, Server, has};
use crate::{HIDDEN, MAX_TOKENS, Package, builds, flavours, floats, ids_of, standins};

/// Of a text, fewer than many texts have tokens.
const KEPT: usize = 12;

/// A package of such a model without plans. The weights are in half precision, the ids whole.
fn package(flavour: PlanFlavour) -> Package {
    let package = Broken::of("tiny-words");
    let weights = "layer cast states token_weights float32 -1 -1";
    let words = format!(
        "layer cast states words int32 -1 -1 {KEPT}\nlayer cast states word_weights float32 -1 -1 \
         {KEPT}"
    );
    // Its table has the name of an output.
    let graph = builds::GRAPH.replace("words", "table").replace(weights, &words);
    let graph = graph.replace("output token_weights", "output words\noutput word_weights");
    package.replace("model.onnx", graph.as_bytes());
    let opened = ModelPackage::open(package.path()).expect("it is whole");
    let ids = opened.manifest().canary.token_ids.clone();
    let long = long_text(opened.manifest(), MAX_TOKENS as usize, false);
    let golden = |ids: &[u32]| (expected_dense(ids, HIDDEN), expected(ids));
    let ((dense, sparse), (long_dense, long_sparse)) = (golden(&ids), golden(&long));
    let longest = json!({"tokens": MAX_TOKENS, "dense": long_dense, "sparse": long_sparse});
    let canary = json!({"dense": dense, "sparse": sparse, "longest": longest});
    package.say(&json!({"sparse": {"words": KEPT}, "canary": canary}));
    Package { package, flavour, libraries: standins() }
}

/// The words of a text, as an answer has them.
fn expected(ids: &[u32]) -> Vec<(u32, f32)> {
    let (words, weights): (Vec<u32>, Vec<f32>) = expected_words(ids, KEPT).into_iter().unzip();
    sparse::select(&words, &weights, &[], Selection::default()).pairs().collect()
}

/// Asks for the words of many texts, and compares each id and each weight.
async fn ask(server: &Server, texts: u32) {
    let inputs: Vec<Vec<u32>> = (1..=texts).map(ids_of).collect();
    let body = json!({"input": inputs});
    let (status, answer) = server.ask("/v1/sparse-embeddings", Some(&body)).await;
    assert_eq!(status, 200, "{answer}");
    let items = answer["data"].as_array().expect("a list");
    assert_eq!(items.len(), inputs.len());
    for (ids, item) in inputs.iter().zip(items) {
        let (indices, values): (Vec<u32>, Vec<f32>) = expected(ids).into_iter().unzip();
        let found = &item["sparse_values"];
        assert_eq!(found["indices"], json!(indices));
        assert_eq!(floats(&found["values"]), values);
    }
}

#[tokio::test]
async fn a_plan_of_words_is_built_and_gives_the_ids_and_weights_of_each_text() {
    for flavour in flavours() {
        let package = package(flavour);
        builds::build(&package, &[]).with_code(0);
        let server = package.serve("", &[]);
        for texts in [1, 3, 60] {
            ask(&server, texts).await;
        }
        let (status, deep) = server.ask("/health/deep", None).await;
        assert_eq!((status, &deep["checks"][0]["sparse_ok"]), (200, &json!(true)));
    }
}

#[test]
fn a_plan_with_the_weights_of_other_words_never_enters_the_package() {
    for golden in ["/canary/sparse", "/canary/longest/sparse"] {
        let package = package(PlanFlavour::TensorRt);
        package.package.manifest(|manifest| {
            let words = manifest.pointer_mut(golden).and_then(Value::as_array_mut);
            words.expect("a list")[0][1] = 9.0.into();
        });
        let ended = builds::build(&package, &[]);
        has(&ended.with_code(1).stderr, "does not give the manifest's golden numbers");
        assert!(builds::plans(&package).is_empty(), "{golden}");
    }
}

#[test]
fn a_graph_whose_words_are_no_whole_numbers_is_refused() {
    let package = package(PlanFlavour::TensorRt);
    let graph = fs::read_to_string(package.package.file("model.onnx")).expect("it is there");
    package
        .package
        .replace("model.onnx", graph.replace("int32 -1 -1 12", "int64 -1 -1 12").as_bytes());
    let said = "output 'words' is int64, it must be int32";
    has(&builds::build(&package, &[]).with_code(1).stderr, said);
}
