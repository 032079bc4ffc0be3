//! GET /v1/models and /v1/models/{id}.

use serde_json::json;

use crate::support::{ALIAS, CUT, DENSE, HIDDEN, MAX_TOKENS, MODEL, Server};

#[test]
fn the_list_has_openais_shape_and_our_facts() {
    let mut body = Server::ready().get("/v1/models").ok();
    let model = body["data"][0].take();
    assert_eq!(body["object"], "list");
    assert!(model["created"].as_u64() > Some(1_600_000_000));
    assert!(model["revision"].is_string());
    for (field, expected) in [
        ("id", json!(MODEL)),
        ("object", json!("model")),
        ("owned_by", json!("duovec")),
        ("max_input_tokens", json!(MAX_TOKENS)),
        ("dimensions", json!([CUT, HIDDEN])),
        ("sparse", json!(true)),
        ("aliases", json!([ALIAS])),
    ] {
        assert_eq!(model[field], expected, "{field}");
    }
}

#[test]
fn every_listed_name_is_found_and_gives_the_prompt_that_it_is_listed_with() {
    let server = Server::ready();
    let listed = server.get("/v1/models").ok();
    let mut found = Vec::new();
    for model in listed["data"].as_array().expect("a list") {
        let aliases = model["aliases"].as_array().expect("a list");
        assert_eq!(aliases.len(), 1);
        let by_field = json!({"input": "text", "input_type": model["prompt"]});
        let by_field = server.post(DENSE, &by_field).ok();
        assert_eq!(by_field["model"], MODEL);
        for name in aliases.iter().chain([&model["id"]]).filter_map(|name| name.as_str()) {
            let by_name = server.post(DENSE, &json!({"input": "text", "model": name})).ok();
            assert_eq!(by_name, by_field, "{name}");
            assert_eq!(server.get(&format!("/v1/models/{name}")).ok(), *model, "{name}");
        }
        found.push(json!([model["id"], model["prompt"]]));
    }
    let [query, passage] = ["query", "passage"].map(|prompt| format!("{MODEL}-{prompt}"));
    // The test's package has no default prompt.
    let expected = json!([[MODEL, null], [query, "query"], [passage, "passage"]]);
    assert_eq!(json!(found), expected);
}

#[test]
fn the_model_is_found_by_id_and_alias_in_every_spelling() {
    let server = Server::ready();
    let listed = server.get("/v1/models").ok()["data"][0].clone();
    for name in [MODEL, ALIAS, "org%2Fstub-model", "org%2fstub%2Dmodel", "org/stub-model?x=1"] {
        assert_eq!(server.get(&format!("/v1/models/{name}")).ok(), listed, "{name}");
    }
}

#[test]
fn other_models_are_not_found() {
    let server = Server::ready();
    for name in ["other", "org/stub-model/", "org%252Fstub-model", "org//stub-model", "ORG/x"] {
        server.get(&format!("/v1/models/{name}")).refused("model_not_found", "model").says(MODEL);
    }
    for path in ["/v1/models/", "/v1/models/%ff", "/v1/models/%2"] {
        server.get(path).refused("not_found", "");
    }
}
