//! POST /v1/tokenize: ids, pieces and offsets of the text as sent.

use std::io::Write;

use reqwest::Method;
use serde_json::{Value, json};
use settings::limits::MaxInflightBytes;
use settings::secret::ApiKey;
use settings::{DoorConfig, HttpConfig};
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
fn a_prompt_in_the_text_itself_is_the_only_one() {
    let server = Server::ready();
    for input_type in [json!(null), json!("query"), json!("passage")] {
        let body = json!({"input": "passage: one", "input_type": input_type});
        let tokens = ask(&server, &body);
        assert_eq!(tokens[0]["pieces"], json!(["<s>", "passage:", "one", "</s>"]));
        // Places are those of the text as sent.
        assert_eq!(tokens[0]["offsets"], json!([null, null, [9, 12], null]));
    }
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
fn no_token_id_of_a_list_is_cut() {
    let ids = vec![100; 3 * MAX_TOKENS];
    let tokens = ask(&Server::ready(), &json!({"input": ids}));
    let found = tokens[0]["ids"].as_array().expect("a list");
    assert_eq!(found.len(), ids.len() + 2);
    assert_eq!((&found[0], &found[ids.len() + 1]), (&json!(0), &json!(2)));
    assert_eq!(tokens[0]["offsets"].as_array().map(Vec::len), Some(ids.len() + 2));
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
    // Far fewer bytes of text than there is room for, and more tokens. No retry would help.
    for path in [TOKENIZE, "/tokenize"] {
        let texts = vec!["a ".repeat(15_000); 2];
        let refused = server.post(path, &json!({"input": texts, "inputs": texts}));
        assert_eq!(refused.status, 413, "{path}");
        let message = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(message.contains("fewer or shorter texts"), "{message}");
        assert_eq!(refused.header("retry-after"), None);
    }
    server.post(TOKENIZE, &fits).ok();
    // One that fits an idle server waits for others.
    let mut other = server.connect();
    let head = format!("POST {DENSE} HTTP/1.1\r\nhost: x\r\ncontent-length: 800000\r\n\r\n");
    other.write_all(head.as_bytes()).expect("it is open");
    other.write_all(&[b' '; 400_000]).expect("half of it");
    server.wait_until("the other is let in", |server| {
        String::from_utf8_lossy(&server.get("/metrics").body).contains("inflight_bytes 800000")
    });
    let error = server.post(TOKENIZE, &json!({"input": vec!["a ".repeat(1000); 6]})).error();
    error.is(429, "overloaded_error", "inflight_bytes_exceeded", None);
}
