//! Documents by how near they are to a query: `/v1/rerank`, and TEI's `/rerank`.

use vectors::dense;
use vectors::sparse::{SparseVector, dot};
use vectors::tokens::TokenVectors;

use crate::support::*;

const RERANK: &str = "/v1/rerank";
const TEI_RERANK: &str = "/rerank";

const QUERY: &str = "two words here";
const DOCUMENTS: [&str; 4] = ["one", "hello world", "two words", "here here two"];

fn ask(more: Value) -> Value {
    joined(json!({"query": QUERY, "documents": DOCUMENTS}), &more)
}

/// All vectors of a text for a use, as the embedding route gives them.
fn vectors(
    server: &Server,
    text: &str,
    input_type: &str,
) -> (Vec<f32>, SparseVector, TokenVectors) {
    let body = json!({"input": text, "input_type": input_type, "token_vectors": true});
    let item = server.post(BOTH, &body).ok()["data"][0].take();
    let (indices, values) = pairs(&item).into_iter().unzip();
    let sparse = SparseVector { indices, values };
    let tokens = TokenVectors::new(TOKEN_SIZE, decode(&item["token_vectors"]["data"]));
    (floats(&item["embedding"]), sparse, tokens)
}

/// What each document scores by the definition in the documents, the best first.
fn expected(server: &Server, score: &str) -> Vec<(u64, f64)> {
    let query = vectors(server, QUERY, "query");
    let of = |text: &&str| {
        let document = vectors(server, text, "passage");
        let dense = dense::cosine(&query.0, &document.0);
        let (lexical, tokens) = (dot(&query.1, &document.1), query.2.nearness(&document.2));
        match score {
            "dense" => dense,
            "lexical" => lexical,
            "tokens" => tokens,
            "all" => 0.4 * dense + 0.2 * lexical + 0.4 * tokens,
            _ => dense + 0.1 * lexical,
        }
    };
    best_first(DOCUMENTS.iter().map(of))
}

/// The places of documents with their scores, as a list of results has them.
pub(crate) fn best_first(scores: impl Iterator<Item = f64>) -> Vec<(u64, f64)> {
    let mut scored: Vec<(u64, f64)> = (0..).zip(scores).collect();
    scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    scored
}

/// Places and scores of a list of results.
pub(crate) fn results(list: &Value, score: &str) -> Vec<(u64, f64)> {
    let of = |result: &Value| {
        (result["index"].as_u64().expect("a place"), result[score].as_f64().expect("a score"))
    };
    list.as_array().expect("a list").iter().map(of).collect()
}

#[track_caller]
pub(crate) fn are_near(found: &[(u64, f64)], expected: &[(u64, f64)]) {
    let places = |list: &[(u64, f64)]| list.iter().map(|(place, _)| *place).collect::<Vec<_>>();
    assert_eq!(places(found), places(expected));
    let near = |(a, b): (&(u64, f64), &(u64, f64))| (a.1 - b.1).abs() < 1e-5 * b.1.abs().max(1.0);
    assert!(found.iter().zip(expected).all(near), "{found:?} {expected:?}");
}

#[test]
fn documents_come_in_the_order_of_their_scores_and_the_answer_names_the_score() {
    let server = Server::ready();
    for (asked, score) in [
        (Value::Null, "hybrid"),
        (json!("dense"), "dense"),
        (json!("lexical"), "lexical"),
        (json!("hybrid"), "hybrid"),
        (json!("tokens"), "tokens"),
        (json!("all"), "all"),
    ] {
        let answer = server.post(RERANK, &ask(json!({ "score": asked }))).ok();
        are_near(&results(&answer["results"], "relevance_score"), &expected(&server, score));
        assert_eq!(answer["score"], score);
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!(MODEL)));
        assert_eq!(answer["usage"]["total_tokens"], 6 + 4 + 5 + 5 + 6, "prompts among them");
        assert!(answer["results"][0].get("document").is_none());
    }
    let no_overlap = json!({"query": "one", "documents": ["two", "three"], "score": "lexical"});
    let answer = server.post(RERANK, &no_overlap).ok();
    assert_eq!(results(&answer["results"], "relevance_score"), [(0, 0.0), (1, 0.0)]);
}

#[test]
fn the_words_of_cohere_and_jina_are_obeyed() {
    let server = Server::ready();
    let all = server.post(RERANK, &ask(json!({}))).ok();
    let top = server.post(RERANK, &ask(json!({"top_n": 2}))).ok();
    assert_eq!(top["results"].as_array().map(Vec::len), Some(2));
    assert_eq!(top["results"][1], all["results"][1]);
    assert_eq!(server.post(RERANK, &ask(json!({"top_n": 9}))).ok(), all);
    let others = ask(json!({"dimensions": CUT, "input_type": "query", "sparse_top_k": 1}));
    assert_eq!(server.post(RERANK, &others).ok(), all, "these are no fields of this route");
    // Cohere's newer clients ask another path, and objects may stand for texts.
    let documents = DOCUMENTS.map(|text| json!({"title": ["x"], "text": text}));
    let objects = json!({
        "model": MODEL, "query": {"text": QUERY}, "documents": documents, "top_n": 4,
        "rank_fields": ["text"], "max_chunks_per_doc": 10,
    });
    assert_eq!(server.post("/v2/rerank", &objects).ok(), all);
    let escaped = r#"{"documents":["on\u0065","hello world",{"text":"two w\u006frds"},
        "here here two"],"query":"two words here"}"#;
    assert_eq!(server.post_bytes(RERANK, escaped).ok(), all);
}

#[test]
fn voyages_words_are_answered_in_voyages_shape() {
    let server = Server::ready();
    let all = server.post(RERANK, &ask(json!({"return_documents": true}))).ok();
    let voyage = json!({"top_k": 2, "truncation": true, "return_documents": true});
    let mut answer = server.post(RERANK, &ask(voyage)).ok();
    assert!(answer.get("results").is_none());
    let found = answer["data"].as_array_mut().expect("a list");
    assert_eq!(found.len(), 2);
    for (found, usual) in found.iter_mut().zip(all["results"].as_array().expect("a list")) {
        // A bare text, else the same.
        found["document"] = json!({"text": found["document"]});
        assert_eq!(found, usual);
    }
    // Its client always sends `truncation`, and `top_k` as null.
    let bare = server.post(RERANK, &ask(json!({"top_k": null, "truncation": true}))).ok();
    assert_eq!(bare["data"].as_array().map(Vec::len), Some(DOCUMENTS.len()));
    let long = json!({"query": "a", "documents": ["a", LONG_TEXT], "truncation": false});
    server.post(RERANK, &long).refused("context_length_exceeded", "documents").says("item 1");
}

#[test]
fn documents_are_returned_as_they_were_sent() {
    let server = Server::ready();
    let documents = ["a \"quoted\"\n\u{1} text", "tab\there", "猫が寝ている。"];
    let body = json!({
        "query": "text", "documents": [documents[0], {"text": documents[1]}, documents[2]],
    });
    let with_documents = joined(body.clone(), &json!({"return_documents": true}));
    let answer = server.post(RERANK, &with_documents).ok();
    for result in answer["results"].as_array().expect("a list") {
        let index = result["index"].as_u64().expect("a place") as usize;
        assert_eq!(result["document"], json!({"text": documents[index]}));
    }
    let body = joined(body, &json!({"texts": documents, "return_text": true}));
    for result in server.post(TEI_RERANK, &body).ok().as_array().expect("a list") {
        let index = result["index"].as_u64().expect("a place") as usize;
        assert_eq!(result["text"], documents[index]);
    }
}

#[test]
fn a_model_without_lexical_weights_scores_by_dense_vectors() {
    let server = Server::of(Gives::Dense);
    assert_eq!(server.post(RERANK, &ask(json!({}))).ok()["score"], "dense");
    for score in ["lexical", "hybrid", "tokens"] {
        let refused = server.post(RERANK, &ask(json!({ "score": score })));
        refused.refused("invalid_value", "score").says("must be \"dense\" here");
    }
    let tei = server.post(TEI_RERANK, &json!({"query": QUERY, "texts": DOCUMENTS}));
    assert_eq!(tei.header("x-score"), Some("dense"));
}

const REFUSED: &str = r#"
{"documents":["a"],"query":null} | invalid_input query | send a text
{"documents":["a"],"query":["a"]} | invalid_input query | is a list; send a text
{"documents":["a"],"query":1} | invalid_input query | is a number; send a text
{"documents":["a"],"query":{"body":"a"}} | invalid_input query | without text
{"documents":["a"],"query":{"text":["a"]}} | invalid_input query | send a text
{"query":"a","documents":null} | invalid_input documents | send a list of texts
{"query":"a","documents":[]} | invalid_input documents | is an empty list; send a text
{"query":"a","documents":[5,6]} | invalid_input documents | [0] is a token id; send a text or
{"query":"a","documents":[["b"]]} | invalid_input documents | [0] is a list; send a text or an ob
{"query":"a","documents":["a",{"body":"b"}]} | invalid_input documents | [1]
{"query":"a","documents":["a",5]} | invalid_input documents | [1]
{"query":"a","documents":["a","a","a","a"]} | too_many_items documents | with the query…4…max-items
{"query":"a","documents":["a","a","a","a","a"]} | too_many_items documents | than 4 items…max-items
{"query":"a","documents":["a"],"model":"gpt"} | model_not_found model | org/stub-model
{"query":"a","documents":["a"],"top_n":0} | invalid_value top_n | above zero
{"query":"a","documents":["a"],"top_k":1,"top_n":2} | invalid_value top_k | differ
{"query":"a","documents":["a"],"truncation":true,"truncate":false} | invalid_value truncation | diff
{"query":"a","documents":["a"],"score":"best"} | invalid_value score | "hybrid"
{"query":"a","documents":["a"],"score":"cross-encoder"} | invalid_value score | or "all" here
{"query":"a","documents":["a"],"truncate":1} | invalid_value truncate | true or false
{"query":"a","documents":["a"],"return_documents":1} | invalid_value return_documents | true or
{"query":"a","documents":["a"],"documents":["b"]} | duplicate_field documents | twice
{"query":"a","documents":[{"text":"a","text":"b"}]} | duplicate_field documents | [0]
{"query":"a","documents":[{"text":1}]} | invalid_input documents | documents[0].text is a number
{"query":"a","documents":[{"text":null}]} | invalid_input documents | [0].text is null; send a text
{"query":{"text":1},"documents":["a"]} | invalid_input query | query.text is a number
[] | invalid_json | "documents"
"#;

#[test]
fn bodies_that_break_a_rule_name_their_field_and_a_cure() {
    Server::set(|set| set.http.max_items = number(4)).refuses(&[RERANK], REFUSED);
    // The query is an item, so that no request can be right.
    let only_one = Server::set(|set| set.http.max_items = number(1));
    let said = only_one.post(RERANK, &json!({"query": "a", "documents": ["a"]}));
    said.refused("too_many_items", "documents").says("--max-items; no document fits…2 or more");
}

#[test]
fn texts_that_are_too_long_are_cut_or_refused_with_their_place() {
    let server = Server::ready();
    let long = json!({"query": "a", "documents": ["a", LONG_TEXT]});
    assert_eq!(server.post(RERANK, &long).ok()["usage"]["total_tokens"], 4 + 4 + 16);
    let mut whole = long;
    whole["truncate"] = false.into();
    let said = server.post(RERANK, &whole).refused("context_length_exceeded", "documents");
    // A prompt has a token.
    said.says("item 1").says(&(LONG_TOKENS + 1).to_string());
    let query = json!({"query": LONG_TEXT, "documents": ["a", "a"], "truncate": false});
    server.post(RERANK, &query).refused("context_length_exceeded", "query").says("query has");
    let large = "a ".repeat(512 * 1024 + 1);
    server.post(RERANK, &json!({"query": "a", "documents": [{"text": "a", "html": large}]})).ok();
    let document = json!({"query": "a", "documents": ["a", {"text": large}]});
    server.post(RERANK, &document).refused("item_too_large", "documents").says("item 1");
    let query = json!({"query": large, "documents": ["a"]});
    server.post(RERANK, &query).refused("item_too_large", "query").says("query is too large");
}

#[test]
fn an_answer_with_texts_must_find_room_before_the_model_runs() {
    let server = Server::set(|set| set.door.max_inflight_bytes = number(3_500_000));
    let documents = vec!["\u{1} a".repeat(100_000); 2];
    let body = |with: bool| {
        json!({"query": "a", "documents": documents, "return_documents": with}).to_string()
    };
    server.post_bytes(RERANK, body(false)).ok();
    server.post_bytes(RERANK, body(true)).refused("request_too_large", "");
}

#[test]
fn tei_gets_a_list_with_scores_between_zero_and_one_or_raw_ones() {
    let server = Server::ready();
    let body = |more| joined(json!({"query": QUERY, "texts": DOCUMENTS}), &more);
    let answer = server.post(TEI_RERANK, &body(json!({"raw_scores": true})));
    let raw = results(&answer.ok(), "score");
    are_near(&raw, &expected(&server, "hybrid"));
    assert_eq!(answer.header("x-score"), Some("hybrid"));
    assert!(answer.header("x-compute-tokens").is_some());
    let sigmoid = |(place, score): &(u64, f64)| (*place, 1.0 / (1.0 + (-score).exp()));
    let expected: Vec<(u64, f64)> = raw.iter().map(sigmoid).collect();
    let usual = json!({"raw_scores": false, "truncate": true, "truncation_direction": "Right"});
    for more in [json!({}), usual] {
        let list = server.post(TEI_RERANK, &body(more)).ok();
        are_near(&results(&list, "score"), &expected);
        assert!(list[0].get("text").is_none());
    }
}
