//! The API's description, and whether an answer is as it says.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use parking_lot::Mutex;
use serde_json::Value;

use super::Answer;

/// As it lies in the sources: of all dialects.
pub(crate) static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../src/http/openapi.json")).expect("it is JSON")
});

/// Other names of described routes.
const OTHER_NAMES: [(&str, &str); 2] =
    [("/", "/embed"), ("/v1/embeddings/both", "/v1/embeddings:both")];

/// Codes of answers that are not of one route.
const OTHER_CODES: [&str; 8] = [
    "dense_not_available",
    "head_too_large",
    "malformed_head",
    "method_not_allowed",
    "not_found",
    "preflight_refused",
    "unfit_model",
    "vectors_not_available",
];

/// Path, method and description of every operation.
pub(crate) fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    let paths = DESCRIPTION["paths"].as_object().expect("an object").iter();
    paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("an object").iter();
        methods.map(move |(method, operation)| (&**path, &**method, operation))
    })
}

/// The described operation of a route.
fn operation<'a>(method: &str, path: &str) -> Option<&'a Value> {
    let path = path.split('?').next().unwrap_or_default();
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == path && method == "POST");
    let path = if path.starts_with("/v1/models/") { "/v1/models/{id}" } else { path };
    let path = other.map_or(path, |(_, path)| path);
    DESCRIPTION["paths"].get(path)?.get(method.to_lowercase())
}

/// Panics when an answer to a described route is not of a described form.
pub(super) fn check(method: &str, path: &str, answer: &Answer) {
    let Some(operation) = operation(method, path) else { return };
    if answer.header("content-type") != Some("application/json") {
        return;
    }
    let body = answer.json();
    let described = operation["responses"].get(answer.status.to_string());
    let schema = described.map(|described| resolved(described).1);
    let schema = schema.map(|told| &told["content"]["application/json"]["schema"]);
    let fault = match schema {
        Some(schema) => fault(schema, &body, &Mutex::default()),
        None => Some("an answer of this status".to_owned()),
    };
    let of_no_route = || body["error"]["code"].as_str().is_some_and(|c| OTHER_CODES.contains(&c));
    // TEI's errors have no code.
    let is_tei = body["error_type"].is_string();
    if let Some(fault) = fault {
        assert!(is_tei || of_no_route(), "{method} {path} {}: {fault}: {body}", answer.status);
    }
}

/// What a reference leads to, and its name.
pub(crate) fn resolved(value: &Value) -> (&str, &Value) {
    match value["$ref"].as_str() {
        None => ("", value),
        Some(reference) => {
            let part = DESCRIPTION.pointer(reference.trim_start_matches('#'));
            let name = reference.rsplit('/').next().unwrap_or_default();
            (name, part.expect("references lead somewhere"))
        }
    }
}

/// The first part of `value` that is not of `schema`. A type with a name has the fields that are
/// described and no others; they are added to `seen` as `type.field`.
pub(crate) fn fault(
    schema: &Value,
    value: &Value,
    seen: &Mutex<BTreeSet<String>>,
) -> Option<String> {
    let (name, schema) = resolved(schema);
    let parts = |key: &str| schema[key].as_array().into_iter().flatten();
    if let Some(found) = parts("allOf").find_map(|part| fault(part, value, seen)) {
        return Some(found);
    }
    for key in ["oneOf", "anyOf"] {
        let mut faults: Vec<_> = parts(key).map(|part| fault(part, value, seen)).collect();
        if !faults.is_empty() && faults.iter().all(Option::is_some) {
            return faults.swap_remove(0);
        }
    }
    if !schema["enum"].is_null() && !parts("enum").any(|word| word == value) {
        return Some(format!("{value} is no word of {}", schema["enum"]));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let is = |of: &str| match of {
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => value.is_null(),
    };
    if !types.is_empty() && !types.iter().any(|of| is(of)) {
        return Some(format!("{value} is none of {types:?}"));
    }
    let items = value.as_array().into_iter().flatten();
    if let Some(found) = items.into_iter().find_map(|item| fault(&schema["items"], item, seen)) {
        return Some(found);
    }
    let fields = value.as_object()?;
    if let Some(missing) =
        parts("required").find(|key| !fields.contains_key(key.as_str().unwrap_or_default()))
    {
        return Some(format!("{name} has no {missing}"));
    }
    let described = schema["properties"].as_object()?;
    fields.iter().find_map(|(key, value)| match described.get(key) {
        Some(schema) => {
            seen.lock().insert(format!("{name}.{key}"));
            fault(schema, value, seen)
        }
        None => (!name.is_empty()).then(|| format!("{name}.{key} is not described")),
    })
}
