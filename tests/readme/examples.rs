//! The requests that the documents show are sent to a real server with the fake engine, and its
//! answers have the form that the documents show.

use reqwest::Method;
use serde_json::Value;
use testing::in_code;

use super::Document;
use super::support::{Server, client, duovec, tiny};

/// What the documents ask.
const SHOWN: &str = "localhost:8080";

/// A server that answers to the name of the default package.
fn server() -> Server {
    let mut command = duovec();
    command.args(["serve", "--engine", "fake", "--model-aliases", "multilingual-e5-small"]);
    Server::ready(command.arg("--package").arg(tiny()))
}

/// Sends what a `curl` asks for; the answer's body.
async fn ask(server: &Server, words: &[String]) -> String {
    let path = words.iter().find_map(|word| word.strip_prefix(SHOWN)).expect("it asks this");
    let behind = |flag: &'static str| {
        let places = words.windows(2).filter(move |pair| pair[0] == flag);
        places.map(|pair| pair[1].clone())
    };
    let body = behind("-d").next();
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let mut request = client().request(method, server.url(path));
    for header in behind("-H") {
        let (name, value) = header.split_once(": ").expect("a header");
        request = request.header(name, value);
    }
    let answer = request.body(body.unwrap_or_default()).send().await.expect("an answer");
    answer.text().await.expect("a text")
}

#[tokio::test]
async fn answers_have_the_form_that_the_documents_show() {
    let server = server();
    let mut asked = 0;
    for name in ["README.md", "docs/api.md"] {
        for shown in Document::read(name).commands() {
            if shown.words.first().is_none_or(|word| word != "curl") {
                continue;
            }
            let command = shown.words.join(" ");
            let expected: Value = serde_json::from_str(&shown.output)
                .unwrap_or_else(|error| panic!("{name}: {command}: {error}"));
            let answer = ask(&server, &shown.words).await;
            let answer: Value = serde_json::from_str(&answer)
                .unwrap_or_else(|error| panic!("{name}: {command}: {error}: {answer}"));
            assert_eq!(form(&expected, ""), form(&answer, ""), "{name}: {command}\n{answer:#}");
            asked += 1;
        }
    }
    assert!(asked >= 8, "the examples are found: {asked}");
}

#[tokio::test]
async fn health_has_the_fields_that_the_documents_name() {
    let server = server();
    let (_, health) = server.ask("/health", None).await;
    let page = Document::read("docs/operate.md");
    let fields = page.rows("| field |").into_iter().filter_map(|row| row.split('|').nth(1));
    let mut named = 0;
    for field in fields.flat_map(in_code) {
        assert!(health["tuning"].get(field).is_some(), "{field} is not in {health:#}");
        named += 1;
    }
    assert!(named > 10, "the fields are found: {named}");
}

/// What a value consists of, without its numbers and texts; of a list, which may be shortened, what
/// its first item does.
fn form(value: &Value, place: &str) -> Value {
    let ends = |ends: &[&str]| ends.iter().any(|end| place.ends_with(end));
    // Words that clients compare with.
    let is_word = ends(&["/object", "/code", "/type", "/param", "/status"]);
    match value {
        // The engine's fields; the package's prompts, and which tokens are of them.
        _ if ends(&["/tuning", "/prompt", "/offsets"]) => Value::Null,
        // Keys that are token ids or pieces.
        Value::Object(fields) if ends(&["/sparse_values"]) && !fields.contains_key("indices") => {
            Value::Null
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                (key.clone(), form(value, &format!("{place}/{key}")))
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(items) => items.iter().take(1).map(|item| form(item, place)).collect(),
        Value::String(_) if !is_word => "text".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "true or false".into(),
        Value::String(_) | Value::Null => value.clone(),
    }
}
