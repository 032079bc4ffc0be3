//! Lists of token ids: refused until somebody says which tokenizer they are of.

use serde_json::json;
use settings::limits::MaxItemBytes;
use settings::{Config, TokenInput};
use tiktoken_rs::{cl100k_base_singleton, o200k_base_singleton};

use crate::package::VOCAB;
use crate::support::{BOTH, DENSE, SPARSE, Server};

#[test]
fn token_ids_are_refused_until_somebody_says_whose_they_are() {
    let server = Server::with_token_input(Config::default().token_input);
    for input in [json!([5, 6, 7]), json!([[5, 6, 7], [8]]), json!([[]])] {
        let error = server.post(DENSE, &json!({ "input": input })).error();
        error.is(400, "invalid_request_error", "token_encoding_missing", Some("input"));
        for cure in ["--token-input", "token_encoding", "check_embedding_ctx_length=False"] {
            assert!(error.message.contains(cure), "{}", error.message);
        }
    }
    server.post(DENSE, &json!({"input": "a text"})).ok();
}

#[test]
fn ids_of_openais_encodings_are_the_text_they_stand_for() {
    let (cl100k, o200k) = (cl100k_base_singleton(), o200k_base_singleton());
    for (encoding, vocabulary) in [(TokenInput::Cl100kBase, cl100k), (TokenInput::O200kBase, o200k)]
    {
        let by_setting = Server::with_token_input(encoding);
        let by_field = Server::with_token_input(TokenInput::Reject);
        let texts = ["one two", "", "two three  four"];
        let ids: Vec<Vec<u32>> = texts.map(|text| vocabulary.encode_ordinary(text)).into();
        for route in [DENSE, SPARSE, BOTH] {
            let expected = by_field.post(route, &json!({ "input": texts })).ok();
            assert_ne!(expected["data"][0], expected["data"][1]);
            let found = by_setting.post(route, &json!({ "input": ids })).ok();
            assert_eq!(found, expected, "{encoding:?} {route}");
            let body = json!({"input": ids, "token_encoding": encoding.name()});
            assert_eq!(by_field.post(route, &body).ok(), expected, "{encoding:?} {route}");
            let flat = json!({"input": ids[2], "token_encoding": encoding.name()});
            let flat = by_field.post(route, &flat).ok();
            assert_eq!(
                flat["usage"],
                by_field.post(route, &json!({"input": texts[2]})).ok()["usage"]
            );
        }
    }
}

#[test]
fn the_word_of_a_request_counts_more_than_the_servers() {
    let ids = json!([5, 6, 7]);
    let expected = Server::ready().post(DENSE, &json!({ "input": ids })).ok();
    for token_input in [TokenInput::Reject, TokenInput::Cl100kBase] {
        let server = Server::with_token_input(token_input);
        let body = json!({"input": ids, "token_encoding": "model"});
        assert_eq!(server.post(DENSE, &body).ok(), expected, "{token_input:?}");
    }
}

#[test]
fn an_id_that_its_encoding_lacks_is_refused_with_its_position() {
    let server = Server::ready();
    for (encoding, id) in [("cl100k_base", 100_256), ("o200k_base", 4_000_000), ("model", VOCAB)] {
        let body = json!({"input": [[5, 6], [5, 6, id]], "token_encoding": encoding});
        let error = server.post(DENSE, &body).error();
        error.is(400, "invalid_request_error", "token_id_out_of_range", Some("input"));
        let place = format!("token id {id} of item 1, at position 2");
        assert!(error.message.contains(&place), "{}", error.message);
    }
}

#[test]
fn an_id_out_of_range_in_a_request_that_names_the_model_gets_the_valid_ids_only() {
    let server = Server::ready();
    let body = json!({"input": [VOCAB], "token_encoding": "model"});
    let error = server.post(DENSE, &body).error();
    error.is(400, "invalid_request_error", "token_id_out_of_range", Some("input"));
    let valid = format!("0 to {}", VOCAB - 1);
    assert!(error.message.contains(&valid), "{}", error.message);
    assert!(!error.message.contains("token_encoding"), "{}", error.message);
}

#[test]
fn ids_that_stand_for_a_larger_text_than_is_taken_are_refused() {
    let server = Server::with_token_input(TokenInput::Cl100kBase);
    // Five bytes of text for four of the id.
    let hello = 15_339;
    let ids = vec![hello; MaxItemBytes::DEFAULT.as_usize() / 5 + 1];
    let error = server.post(DENSE, &json!({ "input": [[hello], ids] })).error();
    error.is(400, "invalid_request_error", "item_too_large", Some("input"));
    assert!(error.message.contains("item 1"), "{}", error.message);
}

#[test]
fn an_unknown_encoding_is_refused_with_those_there_are() {
    let body = json!({"input": [5], "token_encoding": "p50k_base"});
    let error = Server::ready().post(DENSE, &body).error();
    error.is(400, "invalid_request_error", "invalid_value", Some("token_encoding"));
    for known in ["model", "cl100k_base", "o200k_base"] {
        assert!(error.message.contains(known), "{}", error.message);
    }
}

#[test]
fn health_names_what_token_ids_are() {
    let server = Server::with_token_input(TokenInput::O200kBase);
    let health = server.get("/health").ok();
    assert_eq!(health["tuning"]["token_input"], "o200k_base");
}
