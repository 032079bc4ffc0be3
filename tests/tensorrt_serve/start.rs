//! What a start decides: how many workers a GPU gets, what runs rows that are not finite again,
//! whether long texts get their golden numbers, and which outputs a plan must have.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duovec::engine::fake::{expected_dense, expected_token_vectors};
use model::package::ModelPackage;
use model::package::canary::long_text;
use model::package::manifest::plan::PlanFlavour;
use serde_json::{Value, json};

use crate::support::{Server, manifest_of, tiny};
use crate::{
    AFTER_WARM_UP, HIDDEN, MAX_TOKENS, Package, REQUESTS_MAX, WORKERS, ask, compare,
    expected_sparse, flavours, ids_of, standins,
};

#[tokio::test]
async fn the_workers_of_each_gpu_are_measured() {
    let package = Package::new(PlanFlavour::TensorRt);
    // Each stream of the stand-in has the GPU for itself, so more workers always do more.
    let mut command = package.own("serve", "run_us=3000", &["--max-batch-tokens", "512"]);
    let mut server = Server::spawn(command.env_remove(WORKERS));
    server.wait_for("ready");
    let (_, health) = server.ask("/health", None).await;
    let measured = health["tuning"]["measured"].as_array().expect("a list");
    let workers: Vec<_> = measured.iter().map(|one| one["workers"].as_u64()).collect();
    assert_eq!(workers, [1, 2, 4].map(Some));
    assert_eq!(health["workers"], json!({"live": 4, "total": 4, "busy": 0}));
}

/// A package whose canary is between what the stand-in gives and what the graph gives on a CPU.
fn for_both_engines() -> Package {
    let package = Package::new(PlanFlavour::TensorRt);
    let fixture = manifest_of(&tiny());
    package.package.manifest(|manifest| {
        let canary = &mut manifest["canary"];
        let ids: Vec<u32> = serde_json::from_value(canary["token_ids"].clone()).expect("ids");
        let own = fixture["canary"]["dense"].as_array().expect("a list");
        let both = own.iter().zip(expected_dense(&ids, HIDDEN));
        let sums = both.map(|(own, other)| own.as_f64().expect("a number") + f64::from(other));
        canary["dense"] = sums.collect();
        canary["tolerances"] = json!({"dense_cosine_min": 0.0, "sparse_max_abs": 10.0});
    });
    package
}

#[tokio::test]
async fn a_row_that_is_not_finite_on_a_gpu_is_run_again_on_the_cpu() {
    let package = for_both_engines();
    let fault = format!("nan={AFTER_WARM_UP}");
    for (precision, answered) in [("f32", true), ("none", false)] {
        let server = package.serve(&fault, &["--rescue-precision", precision]);
        let mut failed = 0;
        let mut tuning = Value::Null;
        for seed in 0..REQUESTS_MAX {
            let text = ids_of(u32::try_from(seed).expect("small"));
            let (status, _) = server.ask("/v1/embeddings", Some(&json!({"input": [text]}))).await;
            failed += u32::from(status != 200);
            if seed % 50 == 0 {
                tuning = server.ask("/health", None).await.1["tuning"].take();
                if tuning["rows_not_finite"] != 0 {
                    break;
                }
            }
        }
        assert_eq!(tuning["rows_not_finite"], 1, "{tuning}");
        assert_eq!(tuning["rows_rescued"], i32::from(answered), "{tuning}");
        assert_eq!(failed, u32::from(!answered));
    }
}

#[test]
fn golden_numbers_of_the_longest_text_show_a_plan_that_is_wrong_in_long_rows_alone() {
    let package = Package::new(PlanFlavour::TensorRt);
    // It depends on all tokens, and a text has the same numbers alone and in a full batch.
    let wrong = "garbles_after=32";
    drop(package.serve(wrong, &[]));
    let opened = ModelPackage::open(package.package.path()).expect("it is whole");
    let text = long_text(opened.manifest(), MAX_TOKENS as usize, false);
    let (dense, sparse) = (expected_dense(&text, HIDDEN), expected_sparse(&text));
    let golden = json!({"tokens": MAX_TOKENS, "dense": dense, "sparse": sparse});
    package.package.say(&json!({"canary": {"longest": golden}}));
    drop(package.serve("", &[]));
    let said = package.refusal(wrong, &[]);
    assert!(said.contains("golden numbers of a text of 64 tokens"), "{said}");
}

#[tokio::test]
async fn vectors_of_tokens_come_with_the_texts_that_ask_for_them() {
    for flavour in flavours() {
        let output = "output token_vectors float32 -1 -1 4\n";
        let package = Package::of(flavour, standins(), output, "float32");
        package.package.manifest(|manifest| {
            let ids: Vec<u32> = serde_json::from_value(manifest["canary"]["token_ids"].clone())
                .expect("a list of ids");
            let golden = expected_token_vectors(&ids, 4);
            manifest["token_vector_size"] = 4.into();
            manifest["outputs"]["token_vectors"] = "float32".into();
            manifest["canary"]["token_vectors"] = json!([[1, golden[4..8]], [2, golden[8..12]]]);
        });
        let server = package.serve("", &[]);
        let inputs = [ids_of(7), ids_of(20)];
        let body = json!({"input": inputs, "token_vectors": true});
        let (status, answer) = server.ask("/v1/embeddings%3Aboth", Some(&body)).await;
        assert_eq!(status, 200, "{answer}");
        for (ids, item) in inputs.iter().zip(answer["data"].as_array().expect("a list")) {
            compare(ids, item);
            let found = &item["token_vectors"];
            assert_eq!(found["shape"], json!([ids.len() - 1, 4]));
            let bytes = STANDARD.decode(found["data"].as_str().expect("base64"));
            let expected = expected_token_vectors(ids, 4);
            let expected = expected[4..].iter().flat_map(|number| number.to_le_bytes());
            assert_eq!(bytes.expect("base64"), expected.collect::<Vec<u8>>());
        }
        assert_eq!(ask(&server, 5, 40).await, 200);
    }
}

#[tokio::test]
async fn the_process_ends_without_the_exit_handlers_of_libraries_that_threads_may_be_in() {
    let package = Package::new(PlanFlavour::TensorRt);
    let server = package.serve("aborts_at_exit", &[]);
    server.stop();
}
