//! The rules of each field, on all three routes.

use duovec::limits::MaxRequestTimeoutMs;
use serde_json::{Value, json};

use crate::support::{ALIAS, BOTH, CUT, DENSE, MODEL, SPARSE, Server, VOCAB};

const ROUTES: [&str; 3] = [DENSE, SPARSE, BOTH];

fn with(key: &str, value: Value) -> Value {
    let mut body = json!({"input": "text"});
    body[key] = value;
    body
}

#[test]
fn null_is_absent_for_every_optional_field() {
    let server = Server::ready();
    for path in ROUTES {
        let bare = server.post(path, &json!({"input": "text"})).ok();
        for key in [
            "model",
            "encoding_format",
            "dimensions",
            "user",
            "input_type",
            "truncate",
            "sparse_format",
            "sparse_top_k",
            "sparse_min_weight",
            "offsets",
        ] {
            assert_eq!(server.post(path, &with(key, Value::Null)).ok(), bare, "{path} {key}");
        }
    }
}

#[test]
fn unknown_fields_and_user_are_ignored() {
    let server = Server::ready();
    let bare = server.post(DENSE, &json!({"input": "text"})).ok();
    for value in [json!({"input": [1]}), json!([[[]]]), json!(-1.5), json!("\u{0}"), json!(true)] {
        for key in ["user", "extra", "Input", "input ", ""] {
            assert_eq!(server.post(DENSE, &with(key, value.clone())).ok(), bare, "{key} {value}");
        }
    }
    let twice = r#"{"x":1,"x":2,"input":"text"}"#;
    assert_eq!(server.post_bytes(DENSE, twice).ok(), bare);
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let deep = format!("{{\"input\":\"text\",\"extra\":{deep},\"user\":{deep}}}");
    assert_eq!(server.post_bytes(DENSE, deep).ok(), bare);
}

#[test]
fn the_model_goes_by_its_id_and_its_aliases() {
    let server = Server::ready();
    for name in [MODEL, ALIAS] {
        assert_eq!(server.post(DENSE, &with("model", name.into())).ok()["model"], MODEL);
    }
    for name in ["other", "", "ORG/STUB-MODEL", &"x".repeat(10_000)] {
        let error = server.post(DENSE, &with("model", name.into())).error();
        error.is(404, "not_found_error", "model_not_found", Some("model"));
        assert!(error.message.contains(MODEL), "{}", error.message);
        assert!(error.message.len() < 300);
    }
}

#[test]
fn document_means_passage_and_query_has_its_own_prompt() {
    let server = Server::ready();
    let tokens = |input_type: &str| {
        let body = with("input_type", input_type.into());
        server.post(DENSE, &body).ok()["usage"]["prompt_tokens"].clone()
    };
    assert_eq!(tokens("passage"), tokens("document"));
    assert_eq!(tokens("query"), 4);
}

#[test]
fn values_that_break_a_rule_name_their_field_on_every_route() {
    let server = Server::ready();
    let cases = [
        ("model", json!(1), "invalid_value"),
        ("model", json!(["a"]), "invalid_value"),
        ("encoding_format", json!("hex"), "invalid_value"),
        ("encoding_format", json!("Float"), "invalid_value"),
        ("encoding_format", json!(true), "invalid_value"),
        ("dimensions", json!(0), "invalid_dimensions"),
        ("dimensions", json!(-4), "invalid_dimensions"),
        ("dimensions", json!(4.0), "invalid_dimensions"),
        ("dimensions", json!("4"), "invalid_dimensions"),
        ("dimensions", json!(5), "invalid_dimensions"),
        ("dimensions", json!(u64::MAX), "invalid_dimensions"),
        ("input_type", json!("text"), "invalid_value"),
        ("input_type", json!(0), "invalid_value"),
        ("truncate", json!("true"), "invalid_value"),
        ("truncate", json!(1), "invalid_value"),
        ("sparse_format", json!("coo"), "invalid_value"),
        ("sparse_format", json!({}), "invalid_value"),
        ("sparse_top_k", json!(0), "invalid_value"),
        ("sparse_top_k", json!(-1), "invalid_value"),
        ("sparse_top_k", json!(1.0), "invalid_value"),
        ("sparse_top_k", json!("1"), "invalid_value"),
        ("sparse_min_weight", json!(-0.1), "invalid_value"),
        ("sparse_min_weight", json!(-1), "invalid_value"),
        ("sparse_min_weight", json!("0"), "invalid_value"),
        ("sparse_min_weight", json!([0]), "invalid_value"),
    ];
    for path in ROUTES {
        for (key, value, code) in &cases {
            let error = server.post(path, &with(key, value.clone())).error();
            error.is(400, "invalid_request_error", code, Some(key));
            assert!(error.message.contains("must be") || error.message.contains("not supported"));
        }
    }
}

#[test]
fn dimensions_that_cannot_be_had_list_those_that_can() {
    let server = Server::ready();
    let error = server.post(DENSE, &with("dimensions", json!(5))).error();
    assert!(error.message.contains(&CUT.to_string()), "{}", error.message);
}

#[test]
fn token_ids_out_of_range_name_the_switch_of_langchain() {
    let server = Server::ready();
    let huge = json!(u64::MAX);
    for input in
        [json!([VOCAB]), json!([[5], [5, 100_000]]), json!([4_294_967_296_u64]), json!([[huge]])]
    {
        let error = server.post(DENSE, &json!({"input": input})).error();
        error.is(400, "invalid_request_error", "token_id_out_of_range", Some("input"));
        assert!(error.message.contains("check_embedding_ctx_length=False"), "{}", error.message);
    }
    server.post(DENSE, &json!({"input": [VOCAB - 1]})).ok();
}

#[test]
fn a_timeout_header_that_is_no_number_in_range_is_refused() {
    let server = Server::ready();
    let ask = |value: &str| {
        server.post_with(DENSE, &[("x-request-timeout-ms", value)], r#"{"input":"text"}"#)
    };
    let most = MaxRequestTimeoutMs::DEFAULT.get();
    let over = (most + 1).to_string();
    for value in ["0", "-1", "1.5", "soon", "", &over, "99999999999999999999"] {
        let error = ask(value).error();
        error.is(400, "invalid_request_error", "invalid_value", Some("x-request-timeout-ms"));
    }
    for value in ["5000", &most.to_string()] {
        ask(value).ok();
    }
}

#[test]
fn the_priority_header_is_one_of_two_words() {
    let server = Server::ready();
    let ask =
        |value: &str| server.post_with(DENSE, &[("x-priority", value)], r#"{"input":["a","b"]}"#);
    for value in ["", "high", "Bulk", "interactive,bulk", "1"] {
        let error = ask(value).error();
        error.is(400, "invalid_request_error", "invalid_value", Some("x-priority"));
        assert!(error.message.contains("interactive or bulk"), "{}", error.message);
    }
    let answers = ["interactive", "bulk"].map(|value| ask(value).ok());
    assert_eq!(answers[0], answers[1]);
}
