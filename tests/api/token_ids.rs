//! Lists of token ids: refused until somebody says which tokenizer they are of.

use settings::limits::MaxItemBytes;
use settings::{Config, TokenInput};
use tiktoken_rs::{cl100k_base_singleton, o200k_base_singleton};

use crate::support::*;

fn with_token_input(token_input: TokenInput) -> Server {
    Server::set(|set| set.token_input = token_input)
}

#[test]
fn token_ids_are_refused_until_somebody_says_whose_they_are() {
    let server = with_token_input(Config::default().token_input);
    for input in [json!([5, 6, 7]), json!([[5, 6, 7], [8]]), json!([[]])] {
        let answer = server.post(DENSE, &json!({ "input": input }));
        let said = answer.refused("token_encoding_missing", "input");
        said.says("--token-input…token_encoding…check_embedding_ctx_length=False");
    }
    server.post(DENSE, &json!({"input": "a text"})).ok();
}

#[test]
fn ids_of_openais_encodings_are_the_text_they_stand_for() {
    let (cl100k, o200k) = (cl100k_base_singleton(), o200k_base_singleton());
    for (encoding, vocabulary) in [(TokenInput::Cl100kBase, cl100k), (TokenInput::O200kBase, o200k)]
    {
        let by_setting = with_token_input(encoding);
        let tuning = by_setting.get("/health").ok()["tuning"].take();
        assert_eq!(tuning["token_input"], encoding.name());
        let by_field = with_token_input(TokenInput::Reject);
        let texts = ["one two", "", "two three  four"];
        let ids: Vec<Vec<u32>> = texts.map(|text| vocabulary.encode_ordinary(text)).into();
        for route in ROUTES {
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
        let server = with_token_input(token_input);
        let body = json!({"input": ids, "token_encoding": "model"});
        assert_eq!(server.post(DENSE, &body).ok(), expected, "{token_input:?}");
    }
}

#[test]
fn an_id_that_its_encoding_lacks_is_refused_with_its_position() {
    let server = Server::ready();
    for (encoding, id) in [("cl100k_base", 100_256), ("o200k_base", 4_000_000), ("model", VOCAB)] {
        let body = json!({"input": [[5, 6], [5, 6, id]], "token_encoding": encoding});
        let said = server.post(DENSE, &body).refused("token_id_out_of_range", "input");
        said.says(&format!("token id {id} of item 1, at position 2"));
        // A request that names the model gets the valid ids only.
        if encoding == "model" {
            said.says(&format!("0 to {}", VOCAB - 1));
            assert!(!said.0.contains("token_encoding"), "{}", said.0);
        }
    }
    for input in ["[1000]", "[[5],[5,100000]]", "[4294967296]", "[[18446744073709551615]]"] {
        let answer = server.post_bytes(DENSE, format!(r#"{{"input":{input}}}"#));
        answer.refused("token_id_out_of_range", "input").says("check_embedding_ctx_length=False");
    }
    server.post(DENSE, &json!({"input": [VOCAB - 1]})).ok();
}

#[test]
fn ids_that_stand_for_a_larger_text_than_is_taken_are_refused() {
    let server = with_token_input(TokenInput::Cl100kBase);
    // Five bytes of text for four of the id.
    let hello = 15_339;
    let ids = vec![hello; MaxItemBytes::DEFAULT.as_usize() / 5 + 1];
    let answer = server.post(DENSE, &json!({ "input": [[hello], ids] }));
    answer.refused("item_too_large", "input").says("item 1");
}
