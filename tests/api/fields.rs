//! The rules of each field, on all three routes.

use serde_json::{Value, json};
use settings::limits::MaxRequestTimeoutMs;

use crate::support::{ALIAS, BOTH, CUT, DENSE, LONG_TEXT, MODEL, SPARSE, Server, VOCAB};

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
            "task",
            "task_type",
            "prompt_name",
            "prompt",
            "output_dimension",
            "truncate_dim",
            "output_dtype",
            "embedding_type",
            "embedding_types",
            "truncation",
            "normalized",
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
fn a_prompt_that_the_client_wrote_is_the_one_that_it_asks_for() {
    let server = Server::ready();
    for path in ROUTES {
        for (prompt, input_type) in [("query: ", "query"), ("passage: ", "passage")] {
            let expected = json!({"input": "two words", "input_type": input_type});
            let expected = server.post(path, &expected).ok();
            for asked in [Value::Null, json!("query"), json!("passage")] {
                let body = json!({"input": format!("{prompt}two words"), "input_type": asked});
                assert_eq!(server.post(path, &body).ok(), expected, "{path} {prompt}{asked}");
            }
        }
    }
    let honest = json!({"input": "the query: two words", "input_type": "query"});
    assert_eq!(server.post(DENSE, &honest).ok()["usage"]["prompt_tokens"], 7);
}

const QUERIES: [(&str, &str); 7] = [
    ("task", "retrieval.query"),
    ("task", "code.query"),
    ("task_type", "RETRIEVAL_QUERY"),
    ("task_type", "QUESTION_ANSWERING"),
    ("task_type", "search_query"),
    ("prompt_name", "query"),
    ("input_type", "search_query"),
];
const PASSAGES: [(&str, &str); 6] = [
    ("task", "retrieval.passage"),
    ("task_type", "RETRIEVAL_DOCUMENT"),
    ("task_type", "search_document"),
    ("prompt_name", "passage"),
    ("prompt_name", "document"),
    ("input_type", "search_document"),
];

#[test]
fn words_of_other_services_for_the_use_of_texts_mean_what_they_say() {
    let server = Server::ready();
    for (input_type, words) in [("query", &QUERIES[..]), ("passage", &PASSAGES[..])] {
        for path in ROUTES {
            let expected = server.post(path, &with("input_type", input_type.into())).ok();
            for (field, word) in words {
                let found = server.post(path, &with(field, (*word).into())).ok();
                assert_eq!(found, expected, "{path} {field} {word}");
            }
        }
    }
}

#[test]
fn uses_that_the_model_has_no_prompt_for_are_refused_with_a_cure() {
    let server = Server::ready();
    for (field, word) in [
        ("input_type", "classification"),
        ("input_type", "clustering"),
        ("task", "text-matching"),
        ("task", "separation"),
        ("task_type", "SEMANTIC_SIMILARITY"),
        ("task_type", "CLUSTERING"),
    ] {
        let error = server.post(DENSE, &with(field, word.into())).error();
        error.is(400, "invalid_request_error", "invalid_value", Some(field));
        assert!(error.message.contains("no prompt for this use"), "{}", error.message);
        assert!(error.message.contains(&format!("leave {field} out")), "{}", error.message);
    }
}

#[test]
fn lengths_and_forms_in_the_words_of_other_services_are_obeyed() {
    let server = Server::ready();
    let cut = server.post(DENSE, &with("dimensions", CUT.into())).ok();
    for field in ["output_dimension", "truncate_dim"] {
        assert_eq!(server.post(DENSE, &with(field, CUT.into())).ok(), cut, "{field}");
        let error = server.post(DENSE, &with(field, json!(5))).error();
        error.is(400, "invalid_request_error", "invalid_dimensions", Some(field));
        assert!(error.message.starts_with(&format!("{field} 5 is not")), "{}", error.message);
        let error = server.post(DENSE, &with(field, json!(0))).error();
        error.is(400, "invalid_request_error", "invalid_dimensions", Some(field));
    }
    let base64 = server.post(DENSE, &with("encoding_format", "base64".into())).ok();
    let plain = server.post(DENSE, &json!({"input": "text"})).ok();
    for (field, value, expected) in [
        ("embedding_type", json!("base64"), &base64),
        ("embedding_types", json!(["base64"]), &base64),
        ("embedding_type", json!("float"), &plain),
        ("embedding_types", json!(["float"]), &plain),
        ("output_dtype", json!("float"), &plain),
        ("normalized", json!(true), &plain),
        ("truncation", json!(true), &plain),
    ] {
        assert_eq!(server.post(DENSE, &with(field, value.clone())).ok(), *expected, "{field}");
    }
    // OpenAI's clients ask for base64 by themselves; the numbers are floats nevertheless.
    let both = json!({"input": "text", "encoding_format": "base64", "output_dtype": "float"});
    assert_eq!(server.post(DENSE, &both).ok(), base64);
    let whole = json!({"input": LONG_TEXT, "truncation": false});
    let error = server.post(DENSE, &whole).error();
    error.is(400, "invalid_request_error", "context_length_exceeded", Some("input"));
}

#[test]
fn what_cannot_be_had_in_the_words_of_other_services_is_refused_with_a_cure() {
    let server = Server::ready();
    for (field, value, cure) in [
        ("task", json!("rerank"), "\"query\" or \"passage\""),
        ("task_type", json!("x"), "\"query\" or \"passage\""),
        ("prompt_name", json!("s2p_query"), "\"query\" or \"passage\""),
        ("prompt", json!("query: "), "in front of each text"),
        ("prompt", json!(""), "in front of each text"),
        ("output_dtype", json!("int8"), "\"float\""),
        ("embedding_type", json!("binary"), "\"float\""),
        ("embedding_type", json!("ubinary"), "\"float\""),
        ("embedding_types", json!(["int8"]), "\"float\""),
        ("embedding_types", json!(["float", "int8"]), "\"float\""),
        ("embedding_types", json!([]), "\"float\""),
        ("truncation", json!("END"), "true or false"),
        ("normalized", json!(false), "length one"),
    ] {
        for path in ROUTES {
            let error = server.post(path, &with(field, value.clone())).error();
            error.is(400, "invalid_request_error", "invalid_value", Some(field));
            assert!(error.message.contains(cure), "{field} {value}: {}", error.message);
            assert!(error.message.contains("left out"), "{field} {value}: {}", error.message);
        }
    }
}

#[test]
fn fields_that_mean_the_same_may_not_differ() {
    let server = Server::ready();
    for (one, other) in [
        (json!({"input_type": "query"}), json!({"task": "retrieval.passage"})),
        (json!({"task_type": "RETRIEVAL_QUERY"}), json!({"prompt_name": "passage"})),
        (json!({"task": "retrieval.query"}), json!({"task_type": "CLUSTERING"})),
        (json!({"dimensions": CUT}), json!({"output_dimension": 8})),
        (json!({"output_dimension": CUT}), json!({"truncate_dim": 8})),
        (json!({"truncate": true}), json!({"truncation": false})),
        (json!({"truncate": "NONE"}), json!({"truncation": true})),
        (json!({"encoding_format": "float"}), json!({"embedding_type": "base64"})),
        (json!({"output_dtype": "base64"}), json!({"embedding_type": "float"})),
    ] {
        let mut body = json!({"input": "text"});
        for part in [&one, &other] {
            let part = part.as_object().expect("an object").clone();
            body.as_object_mut().expect("an object").extend(part);
        }
        let error = server.post(DENSE, &body).error();
        let later = other.as_object().and_then(|object| object.keys().next()).expect("a field");
        error.is(400, "invalid_request_error", "invalid_value", Some(later));
        let first = one.as_object().and_then(|object| object.keys().next()).expect("a field");
        assert!(error.message.contains(first), "{}", error.message);
    }
    let same = json!({
        "input": "text", "input_type": "query", "task": "retrieval.query",
        "task_type": "RETRIEVAL_QUERY", "prompt_name": "query",
    });
    let expected = server.post(DENSE, &with("input_type", "query".into())).ok();
    assert_eq!(server.post(DENSE, &same).ok(), expected);
    let named =
        json!({"input": "text", "model": format!("{MODEL}-query"), "task": "retrieval.passage"});
    let error = server.post(DENSE, &named).error();
    error.is(400, "invalid_request_error", "invalid_value", Some("task"));
    assert!(error.message.contains("leave task out"), "{}", error.message);
}

const TIMEOUT: &str = "x-request-timeout-ms";

#[test]
fn a_timeout_header_that_is_no_whole_number_above_zero_is_refused() {
    let server = Server::ready();
    for value in ["0", "00", "-1", "+5", "1.5", "1e3", "0x10", "5 ms", "soon", ""] {
        let answer = server.post_with(DENSE, &[(TIMEOUT, value)], r#"{"input":"text"}"#);
        answer.error().is(400, "invalid_request_error", "invalid_value", Some(TIMEOUT));
    }
}

#[test]
fn a_timeout_above_the_servers_is_cut_and_the_answer_tells_it() {
    let server = Server::ready();
    let most = MaxRequestTimeoutMs::DEFAULT.get();
    for (path, body) in [
        (DENSE, r#"{"input":"text"}"#),
        ("/v1/tokenize", r#"{"input":"text"}"#),
        ("/embed", r#"{"inputs":"text"}"#),
    ] {
        let ask = |value: &str| server.post_with(path, &[(TIMEOUT, value)], body);
        for value in [&(most + 1).to_string(), "3600000", "99999999999999999999"] {
            let answer = ask(value);
            answer.ok();
            assert_eq!(answer.header(TIMEOUT), Some(&*most.to_string()), "{path} {value}");
        }
        for value in ["5000", "05000", &most.to_string()] {
            let answer = ask(value);
            answer.ok();
            assert_eq!(answer.header(TIMEOUT), None, "{path} {value}");
        }
        let refused = server.post_with(path, &[(TIMEOUT, "3600000")], "{}");
        assert_eq!(refused.status, 400, "{path}");
        assert_eq!(refused.header(TIMEOUT), Some(&*most.to_string()), "a refusal of {path}");
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
