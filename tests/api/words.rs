//! A model that weighs words which a text need not have, and whose questions have a table.

use std::collections::BTreeMap;
use std::thread;

use duovec::engine::fake::expected_words;

use crate::package::{KEPT_WORDS, question_weight};
use crate::rerank::{are_near, best_first, results};
use crate::support::*;

const TEXTS: [&str; 5] = ["one", "hello world two", "", "here here two", "a short text here"];

/// Of a document: by the engine's rule, the largest of each word.
fn words(text: &str) -> BTreeMap<u32, f32> {
    let ids = [vec![0], ids_of(text), vec![2]].concat();
    let mut largest = BTreeMap::new();
    for (word, weight) in expected_words(&ids, KEPT_WORDS) {
        let known = largest.entry(word).or_insert(weight);
        *known = weight.max(*known);
    }
    largest.retain(|_, weight| *weight > 0.0);
    largest
}

/// Of a question: by the table.
fn looked_up(text: &str) -> BTreeMap<u32, f32> {
    ids_of(text).into_iter().map(|id| (id, question_weight(id))).collect()
}

/// Checks that the items of an answer have these weights of their texts.
#[track_caller]
fn assert_weights(answer: &Value, texts: &[&str], of: fn(&str) -> BTreeMap<u32, f32>) {
    let items = answer["data"].as_array().expect("a list").iter();
    let found = items.map(|item| pairs(item).into_iter().collect::<BTreeMap<_, _>>());
    assert_eq!(found.collect::<Vec<_>>(), texts.iter().map(|text| of(text)).collect::<Vec<_>>());
}

#[test]
fn a_text_has_the_same_words_alone_and_among_others() {
    let server = Server::of(Gives::Words);
    for text in TEXTS {
        assert_weights(&server.post(SPARSE, &json!({"input": text})).ok(), &[text], words);
    }
    assert!(words("one").keys().any(|word| !ids_of("one").contains(word)));
    let many = json!({"input": TEXTS.repeat(30)});
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_weights(&server.post(SPARSE, &many).ok(), &TEXTS.repeat(30), words);
            });
        }
    });
    let heaviest = json!({"input": TEXTS[1], "sparse_top_k": 1, "sparse_format": "tokens"});
    let answer = server.post(SPARSE, &heaviest).ok();
    assert_eq!(answer["data"][0]["sparse_values"].as_object().map(serde_json::Map::len), Some(1));
    let tei = server.post("/embed_sparse", &json!({"inputs": TEXTS[1]})).ok();
    assert_eq!(tei[0].as_array().map(Vec::len), Some(words(TEXTS[1]).len()));
}

#[test]
fn kept_rows_have_their_words() {
    let server = Server::with(Gives::Words, |set| set.queue.cache_bytes = number(1 << 20));
    let mut first = 0;
    for round in 0..2 {
        let answer = server.post(SPARSE, &json!({"input": TEXTS}));
        if round == 0 {
            first = server.engine().runs().len();
        }
        assert_weights(&answer.ok(), &TEXTS, words);
    }
    assert_eq!(server.engine().runs().len(), first, "the second time nothing runs");
}

#[test]
fn a_question_is_looked_up_and_nothing_runs() {
    let server = Server::of(Gives::Words);
    let before = server.engine().runs().len();
    for more in [json!({}), json!({"lexical": "table"})] {
        let body = joined(json!({"input": TEXTS, "input_type": "query"}), &more);
        let answer = server.post(SPARSE, &body);
        assert_eq!(answer.header("x-input-type"), None, "it changes something");
        assert_weights(&answer.ok(), &TEXTS, looked_up);
    }
    assert_eq!(server.engine().runs().len(), before);
    let body = json!({"input": TEXTS[1], "input_type": "query", "lexical": "head"});
    let answer = server.post(SPARSE, &body).ok();
    // The model, if it is named.
    assert_weights(&answer, &TEXTS[1..2], words);
    let answer = server.post(SPARSE, &json!({"input": TEXTS[1], "input_type": "passage"})).ok();
    assert_weights(&answer, &TEXTS[1..2], words);
}

#[test]
fn documents_are_sorted_by_a_query_that_does_not_run() {
    let server = Server::of(Gives::Words);
    let (query, documents) = ("three words", ["words words here", "three", "text"]);
    let answer = server.post("/v1/rerank", &json!({"query": query, "documents": documents})).ok();
    assert_eq!(answer["score"], "lexical");
    let asked = looked_up(query);
    let score = |document: &str| {
        let found = words(document);
        let products = asked.iter().map(|(id, weight)| weight * found.get(id).unwrap_or(&0.0));
        f64::from(products.sum::<f32>())
    };
    let expected = best_first(documents.into_iter().map(score));
    are_near(&results(&answer["results"], "relevance_score"), &expected);
    let body = json!({"query": query, "documents": documents, "score": "dense"});
    server.post("/v1/rerank", &body).refused("invalid_value", "score").says("must be \"lexical\"");
}

#[test]
fn fields_that_need_places_of_words_are_refused() {
    let server = Server::of(Gives::Words);
    let refused = r#"
        {"input":"one two","offsets":true} | invalid_value offsets | have no place in it
        {"input":["one"],"late_chunking":true} | invalid_value late_chunking | leave late_chunking
        {"input":"one two","lexical":"table"} | invalid_value lexical | for questions
    "#;
    server.refuses(&[SPARSE], refused);
    let late = json!({"input": "one", "chunking": {"by": "tokens", "size": 4, "late": true}});
    server.post(SPARSE, &late).refused("invalid_value", "chunking").says("by whole texts");
    let apart =
        json!({"input": "one two here", "chunking": {"by": "tokens", "size": 4, "late": false}});
    server.post(SPARSE, &apart).ok();
}
