//! A cross-encoder in place of a model of vectors.

use std::thread;

use duovec::engine::fake::expected_dense;

use crate::rerank::{are_near, best_first, results};
use crate::support::*;

const RERANK: &str = "/v1/rerank";
const TEI_RERANK: &str = "/rerank";

const QUERY: &str = "two words";
const DOCUMENTS: [&str; 5] = ["one", "hello world", "", "here here two", "three"];

/// The logit of a pair, from the numbers that the engine gives for its ids.
fn logit(query: &str, document: &str) -> f64 {
    let pair = [vec![0], ids_of(query), vec![2, 2], ids_of(document), vec![2]].concat();
    let point = expected_dense(&pair, 2);
    4.0 * f64::from(point[0]) / f64::from(point[1])
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

#[test]
fn each_document_is_read_with_the_query_and_scored_by_its_probability() {
    let server = Server::of(Gives::Scores);
    let logits = DOCUMENTS.map(|document| logit(QUERY, document));
    let body = json!({"query": QUERY, "documents": DOCUMENTS});
    for score in [Value::Null, json!("cross-encoder")] {
        let answer = server.post(RERANK, &joined(body.clone(), &json!({ "score": score }))).ok();
        assert_eq!(answer["score"], "cross-encoder");
        let expected = best_first(logits.into_iter().map(sigmoid));
        are_near(&results(&answer["results"], "relevance_score"), &expected);
        assert_eq!(answer["usage"]["total_tokens"], 5 * (4 + 2) + 1 + 2 + 3 + 1);
    }
    let top = json!({"query": QUERY, "documents": DOCUMENTS, "top_n": 2, "return_documents": true});
    let top = server.post("/v2/rerank", &top).ok();
    assert_eq!(top["results"].as_array().map(Vec::len), Some(2));
    let best = top["results"][0]["index"].as_u64().expect("a place") as usize;
    assert_eq!(top["results"][0]["document"]["text"], DOCUMENTS[best]);
    for is_raw in [true, false] {
        let body = json!({"query": QUERY, "texts": DOCUMENTS, "raw_scores": is_raw});
        let answer = server.post(TEI_RERANK, &body);
        assert_eq!(answer.header("x-score"), Some("cross-encoder"));
        let expected = logits.map(|logit| if is_raw { logit } else { sigmoid(logit) });
        are_near(&results(&answer.ok(), "score"), &best_first(expected.into_iter()));
    }
    let dense = json!({"query": QUERY, "documents": ["one"], "score": "dense"});
    server.post(RERANK, &dense).refused("invalid_value", "score").says("must be \"cross-encoder\"");
}

#[test]
fn as_many_texts_as_info_tells_are_ranked() {
    let server = Server::with(Gives::Scores, |set| set.http.max_items = number(4));
    let told = server.get("/info").ok()["max_client_batch_size"].take();
    let told = told.as_u64().expect("a number") as usize;
    for (texts, status) in [(told, 200), (told + 1, 400)] {
        let body = json!({"query": QUERY, "texts": vec!["one"; texts]});
        assert_eq!(server.post(TEI_RERANK, &body).status, status, "{texts}");
    }
}

#[test]
fn a_pair_has_one_score_alone_and_among_others() {
    let server = Server::of(Gives::Scores);
    let alone = |document: &&str| {
        let body = json!({"query": QUERY, "documents": [document]});
        server.post(RERANK, &body).ok()["results"][0]["relevance_score"].clone()
    };
    let alone: Vec<Value> = DOCUMENTS.iter().map(alone).collect();
    let body = json!({"query": QUERY, "documents": DOCUMENTS.repeat(20)});
    let other = json!({"query": "here", "documents": DOCUMENTS.repeat(20)});
    thread::scope(|scope| {
        for body in [&body, &other, &body, &other] {
            let (server, alone) = (&server, &alone);
            scope.spawn(move || {
                let answer = server.post(RERANK, body).ok();
                let list = answer["results"].as_array().expect("a list");
                assert_eq!(list.len(), 100);
                let is_same = |result: &Value| {
                    let place = result["index"].as_u64().expect("a place") as usize % 5;
                    result["relevance_score"] == alone[place]
                };
                assert_eq!(list.iter().all(is_same), body["query"] == QUERY);
            });
        }
    });
}

#[test]
fn the_longer_text_is_cut_first_unless_the_request_forbids_it() {
    let server = Server::of(Gives::Scores);
    let post = |query: &str, document: &str, truncate: bool| {
        let documents = ["one", document];
        let body = json!({"query": query, "documents": documents, "truncate": truncate});
        server.post(RERANK, &body)
    };
    let cut = post("one", LONG_TEXT, true).ok();
    assert_eq!(cut["usage"]["total_tokens"], 4 + 2 + MAX_TOKENS);
    let said = post("one", LONG_TEXT, false).refused("context_length_exceeded", "documents");
    said.says("item 1").says(&(LONG_TOKENS + 3).to_string());
    let both = post(LONG_TEXT, LONG_TEXT, true).ok();
    assert_eq!(both["usage"]["total_tokens"], 2 * MAX_TOKENS);
    post(LONG_TEXT, "one", false).refused("context_length_exceeded", "query").says("query has");
}

/// A long text is tokenized on other threads, with places in the queue for its pairs.
#[test]
fn a_long_query_is_in_every_pair() {
    let server = Server::of(Gives::Scores);
    let body = json!({"query": "a ".repeat(10_000), "documents": DOCUMENTS});
    let answer = server.post(RERANK, &body).ok();
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(DOCUMENTS.len()));
    assert_eq!(answer["usage"]["total_tokens"], DOCUMENTS.len() * MAX_TOKENS);
}
