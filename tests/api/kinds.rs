//! What each kind of model serves and refuses, and what it is told as.

use crate::support::*;
use crate::tei::is_refused;

fn server(gives: &str) -> Server {
    Server::of(match gives {
        "both" => Gives::DenseAndSparse,
        "dense" => Gives::Dense,
        "words" => Gives::Words,
        _ => Gives::Scores,
    })
}

/// What a model gives, routes that it lacks, their refusal (of TEI's routes: its status), and what
/// they say.
const LACKING: &str = "
both | /predict | 424 | model is not a classifier model
both | /embed_all | 424 | token_vectors
dense | /v1/sparse-embeddings /v1/embeddings:both | sparse_not_available | /v1/embeddings
dense | /embed_sparse | 424 | no lexical weights
words | /v1/embeddings /v1/embeddings:both | dense_not_available | POST /v1/sparse-embeddings
words | /v1/embeddings/both | dense_not_available | POST /v1/sparse-embeddings
words | /embed / /similarity | 424 | no dense vectors
scores | /v1/embeddings /v1/sparse-embeddings | vectors_not_available | POST /v1/rerank
scores | /v1/embeddings:both /v1/embeddings/both | vectors_not_available | POST /v1/rerank
scores | /embed /embed_sparse / /similarity | 424 | cross-encoder
";

#[test]
fn what_a_model_lacks_is_refused_with_the_route_that_does_not_need_it() {
    let sentences = json!({"source_sentence": "a", "sentences": ["one"]});
    for [gives, paths, refusal, words] in rows(LACKING) {
        let server = server(gives);
        for path in paths.split(' ') {
            let inputs = if path == "/similarity" { sentences.clone() } else { json!("one") };
            let answer = server.post(path, &json!({"input": "one", "inputs": inputs}));
            if refusal == "424" {
                is_refused(&answer, 424, "Backend", words);
            } else {
                answer.refused(refusal, "").says(words);
            }
        }
    }
}

/// What a model gives; its kind, dimensions and whether it has lexical weights; a place of TEI's
/// `model_type` and what is there; whether its weights are well; and how many of ROUTES it lacks.
const TOLD: &str = r#"
both | ["embedding",[4,8],true] | /embedding/pooling | "mean" | true | 0
words | ["sparse",[],true] | /embedding/pooling | "splade" | true | 3
scores | ["cross-encoder",[],false] | /reranker/id2label/0 | "LABEL_0" | null | 5
"#;
const ROUTES: &str = "/v1/embeddings /v1/embeddings:both /similarity /v1/sparse-embeddings \
                      /embed_sparse /v1/rerank";

#[test]
fn each_kind_of_model_is_told_as_what_it_is() {
    let json = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    for [gives, told, place, of_tei, sparse_ok, lacking] in rows(TOLD) {
        let server = server(gives);
        let model = &server.get("/v1/models").ok()["data"][0];
        assert_eq!(json!([model["kind"], model["dimensions"], model["sparse"]]), json(told));
        let info = server.get("/info").ok();
        assert_eq!(info["model_type"].pointer(place), Some(&json(of_tei)), "{gives}");
        let deep = server.get("/health/deep").ok();
        assert_eq!(deep["status"], "ok", "{gives}");
        assert_eq!(deep["checks"][0]["sparse_ok"], json(sparse_ok), "{gives}");
        let paths = server.get("/openapi.json").ok()["paths"].take();
        let is_there = ROUTES.split(' ').filter(|path| paths[*path].is_object());
        let lacking = lacking.parse().expect("a number");
        assert!(is_there.eq(ROUTES.split(' ').skip(lacking)), "{gives}: {paths}");
    }
    // There is no page for browsers without vectors.
    let index =
        server("scores").send(Method::GET, "/", &[("accept", "text/html")], Vec::new()).ok();
    assert_eq!(index["rerank"], "v1/rerank");
    assert!(["embeddings", "both", "playground"].iter().all(|route| index.get(route).is_none()));
    let tokens = server("scores").post("/v1/tokenize", &json!({"input": "one two"})).ok();
    assert_eq!(tokens["data"][0]["ids"], json!([0, 100, 101, 2]));
}
