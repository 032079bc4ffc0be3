//! The API's description, and the pages of the binary.

use std::collections::BTreeSet;

use duovec::progress::StartStage;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use settings::DocsRoutes;

use crate::support::description::{DESCRIPTION, fault, operations, resolved};
use crate::support::*;

pub(crate) const PARTS: [(&str, &str); 8] = [
    ("/playground", "text/html; charset=utf-8"),
    ("/playground/page.js", "text/javascript; charset=utf-8"),
    ("/playground/page.css", "text/css; charset=utf-8"),
    ("/docs", "text/html; charset=utf-8"),
    ("/docs/page.js", "text/javascript; charset=utf-8"),
    ("/docs/page.css", "text/css; charset=utf-8"),
    ("/docs/swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
    ("/docs/swagger-ui.css", "text/css; charset=utf-8"),
];

/// Paths of the description, of all dialects.
const ROUTES: usize = 22;

#[test]
fn the_description_tells_of_this_server() {
    let document = Server::ready().get("/openapi.json").ok();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["paths"].as_object().map(Map::len), Some(ROUTES));
    assert_eq!(document["components"]["schemas"]["TokenId"]["maximum"], VOCAB - 1);
}

/// The fields of `schema` and of the types that it names, as `type.field`.
fn fields(schema: &Value, found: &mut BTreeSet<String>) {
    let (name, schema) = resolved(schema);
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        if found.insert(format!("{name}.{key}")) {
            fields(field, found);
        }
    }
    let parts = ["allOf", "oneOf", "anyOf"].into_iter().filter_map(|key| schema[key].as_array());
    parts.flatten().chain(schema.get("items")).for_each(|part| fields(part, found));
}

/// What an operation's answer of a status is.
fn answer_of(operation: &'static Value, status: &str) -> &'static Value {
    let answer = resolved(&operation["responses"][status]).1;
    &answer["content"]["application/json"]["schema"]
}

/// Requests that bring further fields of answers forth.
fn more_bodies(path: &str) -> Vec<Value> {
    match path {
        DENSE | SPARSE | BOTH => vec![
            json!({"input": LONG_TEXT, "offsets": true}),
            json!({"input": LONG_TEXT, "token_vectors": true}),
            json!({"input": LONG_TEXT, "chunking": {"by": "tokens", "size": 4, "late": true}}),
        ],
        "/embed_sparse" => vec![json!({"inputs": LONG_TEXT})],
        "/v1/rerank" => vec![json!({"query": "a", "documents": ["b"], "top_k": 1})],
        _ => Vec::new(),
    }
}

/// A field that the code lost is in no answer; one that it gained fails the check of every answer.
#[test]
fn every_route_answers_its_example_and_every_described_field_is_in_an_answer() {
    let (server, loading) = (Server::ready(), Server::loading());
    let now = loading.service().clock().now();
    loading.service().progress().enter(StartStage::BuildPlan, None, 3, now);
    let mut described = BTreeSet::new();
    let seen = Mutex::default();
    for (path, method, operation) in operations() {
        for status in operation["responses"].as_object().expect("an object").keys() {
            fields(answer_of(operation, status), &mut described);
        }
        let example = &operation["requestBody"]["content"]["application/json"]["example"];
        let bodies = std::iter::once(example.clone()).chain(more_bodies(path));
        for (server, body) in bodies.flat_map(|body| [(&server, body.clone()), (&loading, body)]) {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let method: Method = method.to_uppercase().parse().expect("a method");
            let answer = server.send(method, &path.replace("{id}", MODEL), &[], body.into());
            let is_loading = std::ptr::eq(server, &raw const loading);
            assert!(is_loading || answer.status == 200, "{path}: {}", answer.status);
            if answer.header("content-type") == Some("application/json") {
                let schema = answer_of(operation, &answer.status.to_string());
                assert_eq!(fault(schema, &answer.json(), &seen), None, "{path}");
            }
        }
    }
    let info = Server::of(Gives::Scores).get("/info").ok();
    let get = |path: &str| &DESCRIPTION["paths"][path]["get"];
    assert_eq!(fault(answer_of(get("/info"), "200"), &info, &seen), None);
    server.break_numbers();
    server.fail();
    for path in ["/health", "/health/deep"] {
        let failed = server.get(path).json();
        assert_eq!(fault(answer_of(get(path), "503"), &failed, &seen), None, "{path}");
    }
    assert_eq!(*seen.lock(), described);
}

#[test]
fn the_page_may_ask_no_other_host() {
    let server = Server::ready();
    for (path, content_type) in PARTS {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some(content_type), "{path}");
        let policy = answer.header("content-security-policy").expect("it has a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("//"), "{policy}");
        assert!(!answer.body.is_empty(), "{path}");
    }
}

#[test]
fn large_parts_are_packed_for_those_who_can_unpack() {
    let server = Server::ready();
    let path = "/docs/swagger-ui-bundle.js";
    let plain = server.get(path);
    assert_eq!(plain.header("content-encoding"), None);
    let headers = [("accept-encoding", "gzip")];
    let packed = server.send(Method::GET, path, &headers, Vec::new());
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.header("vary"), Some("accept-encoding"));
    assert_eq!(packed.body[..2], [0x1f, 0x8b]);
    assert!(packed.body.len() * 3 < plain.body.len());
    assert!(plain.body.windows(15).any(|bytes| bytes == b"SwaggerUIBundle"));
}

#[test]
fn turned_off_they_are_unknown_routes_and_the_root_is_an_index_for_browsers_too() {
    let server = Server::set(|set| set.http.docs = DocsRoutes::Omit);
    for path in PARTS.map(|(path, _)| path).into_iter().chain(["/openapi.json"]) {
        for method in [&Method::GET, &Method::POST] {
            let said = server.send(method.clone(), path, &[], Vec::new()).refused("not_found", "");
            said.says(&format!("no route {method} {path}")).says("--docs false leaves out /docs");
            assert!(!said.0.contains("GET /openapi.json has"), "{}", said.0);
        }
    }
    server.get("/v1/models").ok();
    let index = server.send(Method::GET, "/", &[("accept", "text/html")], Vec::new()).ok();
    assert_eq!(index["embeddings"], "v1/embeddings");
    assert!(["playground", "docs", "openapi"].iter().all(|page| index.get(page).is_none()));
}

#[test]
fn the_root_is_the_playground_for_browsers_and_an_index_for_programs() {
    let server = Server::ready();
    let ask = |accept: &str| server.send(Method::GET, "/", &[("accept", accept)], Vec::new());
    let page = server.get("/playground");
    for accept in ["text/html,application/xhtml+xml,*/*;q=0.8", "application/json, text/html;q=1"] {
        let answer = ask(accept);
        assert_eq!(answer.body, page.body, "{accept}");
        assert_eq!(answer.header("vary"), Some("accept"));
        assert_eq!(answer.header("content-type"), Some(PARTS[0].1));
    }
    for accept in ["*/*", "application/json", "text/html;q=0, */*", ""] {
        let answer = ask(accept);
        let index = answer.ok();
        assert_eq!(answer.header("vary"), Some("accept"));
        assert_eq!(index["name"], "duovec");
        assert_eq!(index["version"], env!("CARGO_PKG_VERSION"));
        let routes = index.as_object().expect("an object").iter();
        let routes = routes.filter(|(key, _)| !["name", "version"].contains(&key.as_str()));
        let mut known = 0;
        for (name, route) in routes {
            let path = format!("/{}", route.as_str().expect("a path"));
            assert_ne!(server.get(&path).status, 404, "{name}");
            known += 1;
        }
        assert_eq!(known, 11);
    }
}
