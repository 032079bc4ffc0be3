//! What clients of NVIDIA NIM send and ask, besides OpenAI's convention.

use serde_json::{Value, json};
use settings::{Dialect, HttpConfig};

use crate::support::{ALIAS, BOTH, DENSE, LONG_TEXT, MODEL, SPARSE, Server};

/// As NVIDIA's packages for LangChain and LlamaIndex send it.
fn body(text: &str, truncate: &str) -> Value {
    json!({
        "input": [text], "model": MODEL, "encoding_format": "float", "input_type": "query",
        "truncate": truncate,
    })
}

#[test]
fn truncate_is_also_one_of_nims_words() {
    let server = Server::ready();
    for route in [DENSE, SPARSE, BOTH] {
        let mut plain = body(LONG_TEXT, "END");
        let cut = server.post(route, &plain).ok();
        plain["truncate"] = true.into();
        assert_eq!(cut, server.post(route, &plain).ok());
        let error = server.post(route, &body(LONG_TEXT, "NONE")).error();
        error.is(400, "invalid_request_error", "context_length_exceeded", Some("input"));
        assert!(error.message.contains("\"END\""), "{}", error.message);
        server.post(route, &body("short", "NONE")).ok();
    }
}

#[test]
fn the_end_of_a_text_cannot_be_kept() {
    let server = Server::ready();
    for text in ["short", LONG_TEXT] {
        let error = server.post(DENSE, &body(text, "START")).error();
        error.is(400, "invalid_request_error", "invalid_value", Some("truncate"));
        for word in ["\"START\"", "\"END\"", "\"NONE\""] {
            assert!(error.message.contains(word), "{}", error.message);
        }
    }
    for word in ["end", "none", "MIDDLE", ""] {
        let error = server.post(DENSE, &body("short", word)).error();
        error.is(400, "invalid_request_error", "invalid_value", Some("truncate"));
    }
}

#[test]
fn a_models_name_may_carry_the_prompt() {
    let server = Server::ready();
    for (suffix, input_type) in [("-query", "query"), ("-passage", "passage")] {
        let expected = json!({"input": "two words", "input_type": input_type});
        let expected = server.post(DENSE, &expected).ok();
        for name in [MODEL, ALIAS, &format!("openai/{MODEL}")] {
            let mut named = json!({"input": "two words", "model": format!("{name}{suffix}")});
            assert_eq!(server.post(DENSE, &named).ok(), expected, "{name}");
            named["input_type"] = input_type.into();
            assert_eq!(server.post(DENSE, &named).ok(), expected, "{name}");
        }
    }
    for name in ["-query", "other-query", &format!("{MODEL}-document"), "openai/-query"] {
        let error = server.post(DENSE, &json!({"input": "text", "model": name})).error();
        error.is(404, "not_found_error", "model_not_found", Some("model"));
    }
}

#[test]
fn a_name_and_an_input_type_that_disagree_are_refused() {
    let server = Server::ready();
    let model = format!("{MODEL}-query");
    let error = json!({"input": "text", "model": model, "input_type": "passage"});
    let error = server.post(DENSE, &error).error();
    error.is(400, "invalid_request_error", "invalid_value", Some("input_type"));
    assert!(error.message.contains("leave input_type out"), "{}", error.message);
}

#[test]
fn names_with_a_prompt_are_listed_behind_the_models_own() {
    let server = Server::ready();
    let listed = server.get("/v1/models").ok();
    let models = listed["data"].as_array().expect("a list");
    let names: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(names, [MODEL, &format!("{MODEL}-query"), &format!("{MODEL}-passage")]);
    for model in models {
        let name = model["id"].as_str().expect("a text");
        assert_eq!(server.get(&format!("/v1/models/{name}")).ok(), *model);
    }
}

#[test]
fn words_of_other_services_for_queries_and_documents_are_understood() {
    let server = Server::ready();
    for (word, known) in [("search_query", "query"), ("search_document", "passage")] {
        let ask = |input_type| json!({"input": "two words", "input_type": input_type});
        let expected = server.post(DENSE, &ask(known)).ok();
        assert_eq!(server.post(DENSE, &ask(word)).ok(), expected, "{word}");
    }
}

#[test]
fn openai_in_front_of_a_models_name_is_ignored() {
    let server = Server::ready();
    for name in [MODEL, ALIAS] {
        let body = json!({"input": "text", "model": format!("openai/{name}")});
        assert_eq!(server.post(DENSE, &body).ok()["model"], MODEL);
    }
    let body = json!({"input": "text", "model": "openai/other"});
    server.post(DENSE, &body).error().is(404, "not_found_error", "model_not_found", Some("model"));
}

#[test]
fn probes_of_nim_are_answered() {
    let server = Server::loading(HttpConfig::default());
    assert_eq!(server.get("/v1/health/live").ok()["object"], "health-response");
    let loading = server.get("/v1/health/ready");
    assert_eq!(loading.status, 503);
    assert_eq!(loading.json()["message"], "Service is not ready: loading.");
    server.get("/v1/metadata").error().is(503, "server_error", "loading", None);
    server.become_ready();
    let ready = server.get("/v1/health/ready").ok();
    assert_eq!(ready["message"], "Service is ready.");
    let metadata = server.get("/v1/metadata").ok();
    assert_eq!(metadata["modelInfo"][0]["shortName"], MODEL);
    assert_eq!(metadata["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(metadata["licenseInfo"]["name"], "Apache-2.0");
}

#[test]
fn turned_off_its_words_are_refused_and_its_routes_unknown() {
    let dialects = vec![Dialect::OpenAi];
    let server = Server::with(HttpConfig { dialects, ..HttpConfig::default() });
    for path in ["/v1/health/live", "/v1/health/ready", "/v1/metadata"] {
        server.get(path).error().is(404, "not_found_error", "not_found", None);
    }
    for word in ["NONE", "END"] {
        let error = server.post(DENSE, &body("text", word)).error();
        error.is(400, "invalid_request_error", "invalid_value", Some("truncate"));
        assert!(error.message.contains("--dialects"), "{}", error.message);
    }
    let named = json!({"input": "text", "model": format!("{MODEL}-query")});
    server.post(DENSE, &named).error().is(404, "not_found_error", "model_not_found", Some("model"));
    assert_eq!(server.get("/v1/models").ok()["data"].as_array().map(Vec::len), Some(1));
}
