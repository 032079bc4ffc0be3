//! Questions whose words are weighed by the tokenizer's scores, without a run of the model.

use testing::joined;

use super::support::*;

const SPARSE: &str = "/v1/sparse-embeddings";

/// A question with a word twice, a word that is spelled by its characters, and a special token.
const QUESTION: &str = "cat the cat zq<mask>";

fn ask(more: Value) -> Value {
    joined(json!({"input": QUESTION, "input_type": "query", "lexical": "table"}), &more)
}

/// The tiny vocabulary's words have 6 nats, its characters 11, and `▁` has 4.
fn expected(pieces: &[(&str, f64)]) -> Vec<(String, f64)> {
    let weight = |nats: f64| 0.05 * (nats - 3.75);
    let norm = pieces.iter().map(|(_, nats)| weight(*nats).powi(2)).sum::<f64>().sqrt();
    let mut weights: Vec<(String, f64)> = pieces
        .iter()
        .map(|(piece, nats)| ((*piece).to_owned(), weight(*nats) / norm.sqrt()))
        .collect();
    weights.sort_by(|a, b| a.0.cmp(&b.0));
    weights
}

#[track_caller]
fn are_near(found: &Value, expected: &[(String, f64)]) {
    let found: Vec<(String, f64)> = serde_json::from_value::<serde_json::Map<_, _>>(found.clone())
        .expect("an object")
        .into_iter()
        .map(|(piece, weight)| (piece, weight.as_f64().expect("a weight")))
        .collect();
    let near = |(a, b): (&(String, f64), &(String, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-6;
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    assert!(found.iter().zip(expected).all(near), "{found:?} {expected:?}");
}

async fn batches(server: &Server) -> f64 {
    let (_, health) = server.ask("/health", None).await;
    health["tuning"]["batches"].as_f64().expect("a count")
}

#[tokio::test]
async fn a_question_is_weighed_by_its_words_surprisal_and_nothing_runs() {
    let server = ready(&["--warm-up", "none"]);
    let before = batches(&server).await;
    let (status, answer) = server.ask(SPARSE, Some(&ask(json!({"sparse_format": "tokens"})))).await;
    assert_eq!(status, 200, "{answer}");
    let pieces = [("▁cat", 6.0), ("▁the", 6.0), ("▁", 4.0), ("z", 11.0), ("q", 11.0)];
    are_near(&answer["data"][0]["sparse_values"], &expected(&pieces));
    let few = ask(json!({"sparse_format": "tokens", "sparse_top_k": 1, "offsets": true}));
    let (_, answer) = server.ask(SPARSE, Some(&few)).await;
    assert_eq!(answer["data"][0]["occurrences"].as_array().map(Vec::len), Some(1));
    let blank = ask(json!({"input": ["", " ", "<mask>"]}));
    let (_, answer) = server.ask(SPARSE, Some(&blank)).await;
    for item in answer["data"].as_array().expect("a list") {
        assert_eq!(item["sparse_values"], json!({"indices": [], "values": []}));
    }
    assert_eq!(batches(&server).await, before);
}

#[tokio::test]
async fn a_prompt_weighs_nothing_whoever_writes_it() {
    let package = Broken::with(&json!({"prompts": {"query": "the dog "}}));
    let server = Server::ready(&mut quick("serve", package.path(), &["--log-level", "info"]));
    let pieces = [("▁cat", 6.0), ("▁house", 6.0)];
    for text in ["cat house", "the dog cat house"] {
        let body = ask(json!({"input": text, "sparse_format": "tokens"}));
        let (_, answer) = server.ask(SPARSE, Some(&body)).await;
        are_near(&answer["data"][0]["sparse_values"], &expected(&pieces));
        assert_eq!(answer["usage"]["prompt_tokens"], 6, "{text}");
    }
}
