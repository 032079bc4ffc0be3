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
            let form = compare(&expected, &answer, "");
            assert!(form.is_ok(), "{name}: {command}: {form:?}\n{answer:#}");
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

/// Compares two values but for numbers and texts; lists may be shortened, and the error says where
/// they differ.
fn compare(shown: &Value, real: &Value, place: &str) -> Result<(), String> {
    match (shown, real) {
        // Its fields are the engine's.
        (Value::Object(_), Value::Object(_)) if place.ends_with("/tuning") => Ok(()),
        // Keys that are token ids or pieces.
        (Value::Object(shown), Value::Object(_))
            if place.ends_with("/sparse_values") && !shown.contains_key("indices") =>
        {
            Ok(())
        }
        (Value::Object(shown), Value::Object(real)) => {
            let (shown_keys, real_keys): (Vec<_>, Vec<_>) =
                (shown.keys().collect(), real.keys().collect());
            if shown_keys != real_keys {
                return Err(format!("{place}: {shown_keys:?} is shown, {real_keys:?} is answered"));
            }
            let mut fields = shown.iter();
            fields
                .try_for_each(|(key, value)| compare(value, &real[key], &format!("{place}/{key}")))
        }
        (Value::Array(shown), Value::Array(real)) => {
            let mut pairs = shown.iter().zip(real);
            pairs.try_for_each(|(shown, real)| compare(shown, real, place))
        }
        (Value::String(shown), Value::String(real)) if is_word(place) && shown != real => {
            Err(format!("{place}: {shown} is shown, {real} is answered"))
        }
        // Which tokens are of a prompt is the package's.
        (Value::Null, Value::Array(_)) | (Value::Array(_), Value::Null)
            if place.ends_with("/offsets") =>
        {
            Ok(())
        }
        // So is which prompts there are.
        (Value::String(_), Value::Null) if place.ends_with("/prompt") => Ok(()),
        (shown, real) if kind(shown) == kind(real) => Ok(()),
        _ => Err(format!("{place}: {shown} is shown, {real} is answered")),
    }
}

/// Whether a field has a word that clients compare with.
fn is_word(place: &str) -> bool {
    ["/object", "/code", "/type", "/param", "/status"].iter().any(|end| place.ends_with(end))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}
