//! What holds for every route: whether it asks for a key, which methods it takes, and what it says
//! while the model is being loaded.

use settings::Dialect;

use crate::docs::PARTS;
use crate::support::description::operations;
use crate::support::*;

/// Routes whose errors have TEI's form.
#[rustfmt::skip]
const OF_TEI: [&str; 10] = [
    "/", "/decode", "/embed", "/embed_all", "/embed_sparse", "/info", "/predict", "/rerank",
    "/similarity", "/tokenize",
];

/// A request that a route takes.
struct Request {
    method: Method,
    path: String,
    body: String,
    /// What the description says of it; null is a route that it leaves out.
    operation: &'static Value,
}

impl Request {
    /// Those of metrics are asked for where the operator says so.
    fn needs_key(&self) -> bool {
        let is_post = self.method == Method::POST;
        let described = &self.operation["security"];
        !described.is_null() && self.path != METRICS || self.operation.is_null() && is_post
    }
}

/// Of every route, those that the description leaves out too.
fn requests() -> Vec<Request> {
    let described = operations().map(|(path, method, operation)| {
        let body = &operation["requestBody"]["content"]["application/json"]["example"];
        Request {
            method: method.to_uppercase().parse().expect("a method"),
            path: path.replace("{id}", MODEL),
            body: if body.is_null() { String::new() } else { body.to_string() },
            operation,
        }
    });
    let posts = ["/", "/predict", "/embed_all", "/v1/embeddings/both", "/v2/rerank"];
    let gets = PARTS.map(|(path, _)| path).into_iter().chain(["/", "/openapi.json"]);
    let posts = posts.map(|path| {
        (Method::POST, path, r#"{"inputs":"a","input":"a","query":"a","documents":"a"}"#)
    });
    let others = posts.into_iter().chain(gets.map(|path| (Method::GET, path, "")));
    let others = others.map(|(method, path, body)| {
        let operation = &Value::Null;
        Request { method, path: path.to_owned(), body: body.to_owned(), operation }
    });
    described.chain(others).collect()
}

fn with_keys() -> Server {
    Server::set(|set| {
        set.http.api_keys = vec![ApiKey::new("first-key"), ApiKey::new("second-key")];
    })
}

#[test]
fn each_configured_key_opens_the_routes() {
    let server = with_keys();
    for key in ["Bearer first-key", "bearer second-key", "second-key"] {
        for Request { method, path, body, .. } in requests() {
            let answer = server.send(method, &path, &[("authorization", key)], body.into());
            assert_ne!(answer.status, 401, "{path}");
        }
    }
}

#[test]
fn without_a_right_key_the_answer_is_401_with_the_scheme() {
    let server = with_keys();
    let wrong = ["", "Bearer ", "Bearer first-ke", "Bearer first-key2", "Basic Zmlyc3Qta2V5"];
    for key in wrong.map(Some).into_iter().chain([None]) {
        let headers: Vec<_> = key.map(|key| ("authorization", key)).into_iter().collect();
        for request in requests() {
            let needs_key = request.needs_key();
            let Request { method, path, body, .. } = request;
            let answer = server.send(method, &path, &headers, body.into());
            assert_eq!(answer.status == 401, needs_key, "{path}");
            if needs_key {
                let text = answer.text();
                assert!(text.contains("Authorization: Bearer") && !text.contains("first-key"));
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path}");
                let is_tei = answer.json()["error_type"] == "Validation";
                assert_eq!(is_tei, OF_TEI.contains(&&*path), "{path}");
            }
        }
    }
}

#[test]
fn methods_that_a_route_does_not_take_are_405_with_allow() {
    // Nobody shows a key here: the method comes first.
    let server = with_keys();
    let odd = Method::from_bytes(b"BREW").expect("a token");
    let (gets, posts) = (&[Method::GET, Method::HEAD][..], &[Method::POST][..]);
    let others = [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, odd];
    for Request { method, path, .. } in requests() {
        let (wrong, allow) = match (&*path, method) {
            ("/", _) => (&[][..], "GET, HEAD, POST"),
            (_, Method::GET) => (posts, "GET, HEAD"),
            _ => (gets, "POST"),
        };
        for method in wrong.iter().chain(&others) {
            let answer = server.send(method.clone(), &path, &[], Vec::new());
            assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{path}");
            if path == "/embed" && method != Method::HEAD {
                let body = answer.json();
                assert_eq!(body["error_type"], "Validation");
                assert!(body["error"].as_str().is_some_and(|text| text.contains("use POST")));
            }
        }
    }
    let server = Server::set(|set| set.http.dialects = vec![Dialect::OpenAi]);
    let wrong = server.send(Method::DELETE, "/", &[], Vec::new());
    assert_eq!(wrong.header("allow"), Some("GET, HEAD"));
    wrong.refused("method_not_allowed", "");
}

#[test]
fn head_answers_like_get_without_a_body() {
    let server = Server::ready();
    for request in requests().into_iter().filter(|request| request.method == Method::GET) {
        let head = server.send(Method::HEAD, &request.path, &[], Vec::new());
        assert_eq!(head.status, server.get(&request.path).status, "{}", request.path);
        assert_ne!(head.header("content-length"), Some("0"), "{}", request.path);
    }
}

#[test]
fn while_the_model_is_loaded_routes_that_need_it_say_when_to_come_again() {
    let server = Server::loading();
    for Request { method, path, body, operation } in requests() {
        let is_post = method == Method::POST;
        let answer = server.send(method, &path, &[], body.into());
        let is_described = !operation.is_null();
        let needs_model = !operation["responses"]["503"].is_null() || is_post && !is_described;
        assert_eq!(answer.status == 503, needs_model, "{path}");
        // Probes are asked again anyway.
        if needs_model && (is_post || !operation["security"].is_null()) {
            assert!(answer.header("retry-after").is_some(), "{path}");
            assert!(answer.text().contains("being loaded"), "{path}");
        }
    }
}
