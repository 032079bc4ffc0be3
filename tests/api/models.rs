//! GET /v1/models and /v1/models/{id}.

use crate::support::*;

#[test]
fn every_listed_name_is_found_with_the_facts_and_the_prompt_that_it_is_listed_with() {
    let server = Server::ready();
    let listed = server.get("/v1/models").ok();
    let mut found = Vec::new();
    for model in listed["data"].as_array().expect("a list") {
        assert_eq!((&model["object"], &model["owned_by"]), (&json!("model"), &json!("duovec")));
        assert_eq!(model["max_input_tokens"], MAX_TOKENS);
        assert!(model["created"].as_u64() > Some(1_600_000_000) && model["revision"].is_string());
        let by_field = json!({"input": "text", "input_type": model["prompt"]});
        let by_field = server.post(DENSE, &by_field).ok();
        assert_eq!(by_field["model"], MODEL);
        for name in [&model["id"], &model["aliases"][0]].map(|name| name.as_str().expect("a name"))
        {
            let by_name = server.post(DENSE, &json!({"input": "text", "model": name})).ok();
            assert_eq!(by_name, by_field, "{name}");
            assert_eq!(server.get(&format!("/v1/models/{name}")).ok(), *model, "{name}");
        }
        found.push(json!([model["id"], model["aliases"], model["prompt"]]));
    }
    let [query, passage] = ["-query", "-passage"].map(|prompt| {
        json!([format!("{MODEL}{prompt}"), [format!("{ALIAS}{prompt}")], &prompt[1..]])
    });
    // The test's package has no default prompt.
    assert_eq!(json!(found), json!([[MODEL, [ALIAS], null], query, passage]));
    for name in ["org%2Fstub-model", "org%2fstub%2Dmodel", "org/stub-model?x=1"] {
        let one = server.get(&format!("/v1/models/{name}")).ok();
        assert_eq!(one, listed["data"][0], "{name}");
    }
}

#[test]
fn a_name_tells_of_no_prompt_that_the_model_lacks() {
    for (gives, listed, query) in
        [(Gives::Dense, 2, json!("query")), (Gives::Words, 1, json!(null))]
    {
        let server = Server::of(gives);
        let list = server.get("/v1/models").ok();
        assert_eq!(list["data"].as_array().map(Vec::len), Some(listed), "{gives:?}");
        let path = |end: &str| format!("/v1/models/{MODEL}{end}");
        let prompt = |end: &str| server.get(&path(end)).ok()["prompt"].take();
        assert_eq!([prompt("-query"), prompt("-passage")], [query, json!(null)], "{gives:?}");
    }
}

#[test]
fn other_models_are_not_found() {
    let server = Server::ready();
    for name in ["other", "org/stub-model/", "org%252Fstub-model", "org//stub-model", "ORG/x"] {
        let said = server.get(&format!("/v1/models/{name}")).refused("model_not_found", "model");
        said.says(MODEL).says("--model-aliases");
    }
    for path in ["/v1/models/", "/v1/models/%ff", "/v1/models/%2"] {
        server.get(path).refused("not_found", "");
    }
}
