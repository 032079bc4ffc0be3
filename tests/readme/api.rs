//! `docs/api.md` and the API's description have the same routes, fields and headers.

use std::collections::BTreeSet;

use serde_json::Value;
use testing::in_code;

use super::Document;

/// Headers of requests that are not of one route, or of HTTP itself.
const OTHER_REQUEST_HEADERS: [&str; 4] =
    ["authorization", "content-encoding", "content-type", "traceparent"];
/// A wrong method is answered by no route of the description.
const OTHER_ANSWER_HEADERS: [&str; 1] = ["allow"];
/// Routes that describe the API, and those that refuse every request.
const OTHER_ROUTES: [&str; 6] =
    ["/", "/docs", "/openapi.json", "/playground", "/embed_all", "/predict"];

fn page() -> Document {
    Document::read("docs/api.md")
}

fn description() -> Value {
    let file = Document::read("src/http/openapi.json");
    let mut description: Value = serde_json::from_str(&file.text).expect("it is JSON");
    let components = description["components"].clone();
    fill_in(&mut description["paths"], &components);
    description
}

/// Puts shared parameters and answers in the place of the references to them.
fn fill_in(value: &mut Value, components: &Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|field| fill_in(field, components)),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, components)),
        _ => return,
    }
    let reference = value["$ref"].as_str().and_then(|path| path.strip_prefix("#/components"));
    if let Some(path) = reference.filter(|path| !path.starts_with("/schemas/")) {
        *value = components.pointer(path).expect("references lead somewhere").clone();
    }
}

/// The words in code of a row's cell.
fn words(row: &str, cell: usize) -> Vec<String> {
    let cell = row.split('|').nth(cell + 1).unwrap_or_default();
    in_code(cell).map(str::to_owned).collect()
}

/// The words in code of a row's cell that are texts.
fn words_in_quotes(row: &str, cell: usize) -> Vec<String> {
    words(row, cell).into_iter().filter(|word| word.starts_with('"')).collect()
}

/// The first word in code of each row.
fn names(rows: &[&str]) -> BTreeSet<String> {
    rows.iter().filter_map(|row| words(row, 0).into_iter().next()).collect()
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    set(value.as_object().expect("it is an object").keys().map(String::as_str))
}

/// The operations of the description.
fn operations(description: &Value) -> Vec<&Value> {
    let paths = description["paths"].as_object().expect("there are paths");
    paths.values().flat_map(|path| path.as_object().expect("methods").values()).collect()
}

#[test]
fn the_routes_are_those_of_the_description() {
    let expected = &keys(&description()["paths"]) | &set(OTHER_ROUTES);
    let page = page();
    let tables = ["| route |", "| route of NIM |", "| route of TEI |"];
    let rows = tables.iter().flat_map(|table| page.rows(table));
    let routes: BTreeSet<String> = rows.flat_map(|row| words(row, 0)).collect();
    assert_eq!(routes, expected);
}

/// Whether a type is OpenAI's or our own; those of other families have documents of their own.
fn is_own(name: &str) -> bool {
    !name.starts_with("Nim") && !name.starts_with("Tei")
}

#[test]
fn the_fields_are_those_of_the_description() {
    let page = page();
    let schemas = &description()["components"]["schemas"];
    let mut described = BTreeSet::new();
    for head in page.text.lines().filter(|line| line.starts_with("| field of ")) {
        let types = words(head, 0);
        let fields = names(&page.rows(head));
        let expected: BTreeSet<String> =
            types.iter().flat_map(|name| keys(&schemas[name]["properties"])).collect();
        assert_eq!(fields, expected, "{head}");
        described.extend(types);
    }
    let with_fields = |name: &String| is_own(name) && schemas[name]["properties"].is_object();
    let expected: BTreeSet<String> = keys(schemas).into_iter().filter(with_fields).collect();
    assert_eq!(described, expected, "types that have a table, and those of the description");
    let of_tei = names(&page.rows("| field for TEI's embedding routes |"));
    assert_eq!(of_tei, keys(&schemas["TeiEmbedRequest"]["properties"]));
}

#[test]
fn the_words_that_fields_take_are_those_of_the_description() {
    let page = page();
    let description = description();
    let schemas = description["components"]["schemas"].as_object().expect("there are schemas");
    let own = schemas.iter().filter(|(name, _)| is_own(name));
    let words = own.flat_map(|(_, schema)| schema["enum"].as_array()).flatten();
    let expected: BTreeSet<String> = words.map(|word| format!("{word}")).collect();
    let tables = ["| field of `EmbeddingRequest` |", "| field of `RerankRequest` |"];
    let requests = tables.iter().flat_map(|table| page.rows(table));
    let named = requests.flat_map(|row| words_in_quotes(row, 1));
    let of_others = page.rows("| word |").into_iter().flat_map(|row| words_in_quotes(row, 0));
    let named: BTreeSet<String> = named.chain(of_others).collect();
    assert_eq!(named, expected);
}

#[test]
fn the_headers_are_those_of_the_description() {
    let description = description();
    let operations = operations(&description);
    let parameters = operations.iter().flat_map(|operation| operation["parameters"].as_array());
    let of_requests = parameters.flatten().filter(|parameter| parameter["in"] == "header");
    let of_requests = of_requests.map(|parameter| parameter["name"].as_str().expect("a name"));
    let expected = &set(of_requests) | &set(OTHER_REQUEST_HEADERS);
    let page = page();
    assert_eq!(names(&page.rows("| request header |")), expected);
    let answers = operations.iter().flat_map(|operation| operation["responses"].as_object());
    let headers = answers.flat_map(|answers| answers.values());
    let headers = headers.flat_map(|answer| keys(&answer["headers"]));
    let expected = &headers.collect() | &set(OTHER_ANSWER_HEADERS);
    assert_eq!(names(&page.rows("| answer header |")), expected);
}
