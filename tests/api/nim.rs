//! What clients of NVIDIA NIM send and ask, besides OpenAI's convention.

use settings::Dialect;

use crate::support::*;

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
    for route in ROUTES {
        let mut plain = body(LONG_TEXT, "END");
        let cut = server.post(route, &plain).ok();
        plain["truncate"] = true.into();
        assert_eq!(cut, server.post(route, &plain).ok());
        let whole = server.post(route, &body(LONG_TEXT, "NONE"));
        whole.refused("context_length_exceeded", "input").says("\"END\"");
        server.post(route, &body("short", "NONE")).ok();
    }
}

#[test]
fn a_models_name_may_carry_the_prompt_and_begin_with_openai() {
    let server = Server::ready();
    for (suffix, input_type) in
        [("", Value::Null), ("-query", "query".into()), ("-passage", "passage".into())]
    {
        let expected = json!({"input": "two words", "input_type": input_type});
        let expected = server.post(DENSE, &expected).ok();
        for name in [MODEL, ALIAS, &format!("openai/{MODEL}"), &format!("openai/{ALIAS}")] {
            let mut named = json!({"input": "two words", "model": format!("{name}{suffix}")});
            assert_eq!(server.post(DENSE, &named).ok(), expected, "{name}");
            named["input_type"] = input_type.clone();
            assert_eq!(server.post(DENSE, &named).ok(), expected, "{name}");
        }
    }
    let unknown = format!("{MODEL}-document");
    let (long, upper) = ("x".repeat(10_000), MODEL.to_uppercase());
    let names = ["-query", "other-query", &unknown, "openai/-query", "openai/other"];
    for name in names.into_iter().chain(["other", "", &upper, &long]) {
        let body = json!({"input": "text", "model": name});
        let said = server.post(DENSE, &body).refused("model_not_found", "model");
        assert!(said.says(MODEL).0.len() < 300, "{}", said.0);
    }
    let differ =
        json!({"input": "text", "model": format!("{MODEL}-query"), "input_type": "passage"});
    server.post(DENSE, &differ).refused("invalid_value", "input_type").says("leave input_type out");
}

#[test]
fn an_alias_of_the_package_never_hides_what_a_name_asks_for() {
    let alias = format!("{MODEL}-passage");
    let server = Server::set(|set| set.model_aliases = vec![alias.clone()]);
    let ask = |body: &Value| server.post(DENSE, body).ok()["data"].take();
    let named = ask(&json!({"input": "one", "model": alias}));
    assert_eq!(named, ask(&json!({"input": "one", "input_type": "passage"})));
    assert_ne!(named, ask(&json!({"input": "one"})));
}

#[test]
fn probes_of_nim_are_answered() {
    let server = Server::loading();
    assert_eq!(server.get("/v1/health/live").ok()["object"], "health-response");
    let loading = server.get("/v1/health/ready");
    assert_eq!(loading.status, 503);
    assert_eq!(loading.json()["message"], "Service is not ready: loading.");
    server.get("/v1/metadata").refused("loading", "");
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
    let server = Server::set(|set| set.http.dialects = vec![Dialect::OpenAi]);
    for path in ["/v1/health/live", "/v1/health/ready", "/v1/metadata"] {
        server.get(path).refused("not_found", "");
    }
    for word in ["NONE", "END"] {
        let answer = server.post(DENSE, &body("text", word));
        answer.refused("invalid_value", "truncate").says("--dialects");
    }
    let named = json!({"input": "text", "model": format!("{MODEL}-query")});
    server.post(DENSE, &named).refused("model_not_found", "model");
    assert_eq!(server.get("/v1/models").ok()["data"].as_array().map(Vec::len), Some(1));
}
