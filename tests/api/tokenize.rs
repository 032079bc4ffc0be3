//! POST /v1/tokenize: ids, pieces and offsets of the text as sent.

use duovec::config::secret::ApiKey;
use duovec::config::{DoorConfig, HttpConfig};
use duovec::limits::MaxInflightBytes;
use reqwest::Method;
use serde_json::{Value, json};
use tiktoken_rs::cl100k_base_singleton;

use crate::support::{DENSE, MAX_TOKENS, MODEL, Server, Trouble};

const TOKENIZE: &str = "/v1/tokenize";

fn ask(server: &Server, body: &Value) -> Value {
    server.post(TOKENIZE, body).ok()["data"].take()
}

#[test]
fn tokens_have_ids_pieces_and_offsets_in_code_points() {
    let server = Server::ready();
    let answer = server.post(TOKENIZE, &json!({"input": ["😀 one  two", ""]})).ok();
    let expected = json!({
        "object": "list",
        "data": [
            {
                "object": "tokens", "index": 0, "ids": [0, 3, 100, 101, 2],
                "pieces": ["<s>", "<unk>", "one", "two", "</s>"],
                "offsets": [null, [0, 1], [2, 5], [7, 10], null],
            },
            {
                "object": "tokens", "index": 1, "ids": [0, 2], "pieces": ["<s>", "</s>"],
                "offsets": [null, null],
            },
        ],
        "model": MODEL,
        "max_input_tokens": MAX_TOKENS,
    });
    assert_eq!(answer, expected);
}

#[test]
fn tokens_of_a_prompt_have_no_offsets() {
    let tokens = ask(&Server::ready(), &json!({"input": "one", "input_type": "query"}));
    assert_eq!(tokens[0]["pieces"], json!(["<s>", "query:", "one", "</s>"]));
    assert_eq!(tokens[0]["offsets"], json!([null, null, [0, 3], null]));
}

#[test]
fn no_token_is_cut() {
    let server = Server::ready();
    let words = vec!["one"; 3 * MAX_TOKENS];
    for truncate in [true, false] {
        let tokens = ask(&server, &json!({"input": words.join(" "), "truncate": truncate}));
        assert_eq!(tokens[0]["ids"].as_array().map(Vec::len), Some(words.len() + 2));
        assert_eq!(tokens[0]["offsets"][words.len()], json!([188, 191]));
    }
}

#[test]
fn tokens_are_those_that_are_run() {
    let server = Server::ready();
    for body in [json!({"input": "one two"}), json!({"input": "", "input_type": "passage"})] {
        let ran = server.post(DENSE, &body).ok()["usage"]["prompt_tokens"].clone();
        let ids = ask(&server, &body)[0]["ids"].as_array().map(Vec::len);
        assert_eq!(ran, json!(ids));
    }
}

#[test]
fn token_ids_have_pieces_and_no_offsets() {
    let server = Server::ready();
    let tokens = ask(&server, &json!({"input": [[100, 101], []]}));
    assert_eq!(tokens[0]["pieces"], json!(["<s>", "one", "two", "</s>"]));
    assert_eq!(tokens[0]["offsets"], json!([null, null, null, null]));
    assert_eq!(tokens[1]["ids"], json!([0, 2]));
    // The client does not have the text that these stand for.
    let ids = cl100k_base_singleton().encode_ordinary("one two");
    let tokens = ask(&server, &json!({"input": ids, "token_encoding": "cl100k_base"}));
    assert_eq!(tokens[0]["ids"], json!([0, 100, 101, 2]));
    assert_eq!(tokens[0]["offsets"], json!([null, null, null, null]));
}

#[test]
fn tokenizing_waits_for_no_worker() {
    let server = Server::ready();
    server.prepare(Trouble::QueueFull);
    assert_eq!(server.post(DENSE, &json!({"input": "one"})).status, 429);
    assert_eq!(ask(&server, &json!({"input": "one"}))[0]["ids"], json!([0, 100, 2]));
    server.recover();
}

#[test]
fn bad_requests_to_tokenize_are_refused() {
    let server = Server::ready();
    let invalid = "invalid_request_error";
    for (body, code, param) in [
        (json!({}), "invalid_input", Some("input")),
        (json!({"input": []}), "invalid_input", Some("input")),
        (json!({"input": [1, "one"]}), "invalid_input", Some("input")),
        (json!({"input": [1_000_000]}), "token_id_out_of_range", Some("input")),
        (json!({"input": "one", "input_type": "x"}), "invalid_value", Some("input_type")),
        (json!([]), "invalid_json", None),
    ] {
        server.post(TOKENIZE, &body).error().is(400, invalid, code, param);
    }
    let error = server.post(TOKENIZE, &json!({"input": "one", "model": "other"})).error();
    error.is(404, "not_found_error", "model_not_found", Some("model"));
    let error = server.get(TOKENIZE);
    assert_eq!(error.header("allow"), Some("POST"));
    error.error().is(405, "not_found_error", "method_not_allowed", None);
}

#[test]
fn tokenizing_needs_a_key_and_a_model() {
    let api_keys = vec![ApiKey::new("key".to_owned())];
    let server = Server::with(HttpConfig { api_keys, ..HttpConfig::default() });
    let body = json!({"input": "one"}).to_string();
    let send = |headers: &[(&str, &str)]| {
        server.send(Method::POST, TOKENIZE, headers, body.clone().into_bytes())
    };
    send(&[]).error().is(401, "authentication_error", "invalid_api_key", None);
    send(&[("authorization", "Bearer key")]).ok();
    let loading = Server::loading(HttpConfig::default());
    loading.post(TOKENIZE, &json!({"input": "one"})).error().is(
        503,
        "server_error",
        "loading",
        None,
    );
}

#[test]
fn tokens_count_among_the_bytes_in_flight() {
    let max_inflight_bytes = MaxInflightBytes::new(1 << 20).expect("in range");
    let server = Server::with_door(DoorConfig { max_inflight_bytes, ..DoorConfig::default() });
    let fits = json!({"input": vec!["a ".repeat(1000); 2]});
    assert_eq!(ask(&server, &fits).as_array().map(Vec::len), Some(2));
    // Far fewer bytes of text than there is room for, and more tokens.
    let error = server.post(TOKENIZE, &json!({"input": vec!["a ".repeat(10_000); 2]})).error();
    error.is(429, "overloaded_error", "inflight_bytes_exceeded", None);
    server.post(TOKENIZE, &fits).ok();
}
