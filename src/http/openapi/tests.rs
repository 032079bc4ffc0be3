//! References lead somewhere, and the model narrows what is accepted.

use serde_json::Value;

use super::*;
use crate::service::InputType;

const ALL: [Dialect; 3] = [Dialect::OpenAi, Dialect::Nim, Dialect::Tei];

fn described(dialects: &[Dialect], card: Option<&ModelCard>) -> Value {
    let (max_items, max_request_timeout) = (MaxItems::DEFAULT, MaxRequestTimeoutMs::DEFAULT);
    let facts = Facts { max_items, max_request_timeout, dialects, card };
    serde_json::to_value(document(&facts)).expect("it has string keys only")
}

/// Every `$ref` in a value.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_a_schema_and_every_schema_is_used() {
    for dialects in [&ALL[..], &ALL[..1], &ALL[1..2], &ALL[2..]] {
        let document = described(dialects, None);
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in &found {
            let pointer = reference.strip_prefix('#').expect("it is within the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let schemas = document["components"]["schemas"].as_object().expect("there are schemas");
        for name in schemas.keys() {
            let reference = format!("#/components/schemas/{name}");
            assert!(found.contains(&reference), "{name} is not used");
        }
    }
}

#[test]
fn routes_are_described_where_their_dialect_is_spoken() {
    for (dialect, path) in [
        (Dialect::OpenAi, "/v1/embeddings"),
        (Dialect::Nim, "/v1/metadata"),
        (Dialect::Tei, "/embed"),
        (Dialect::Tei, "/tokenize"),
    ] {
        for spoken in ALL {
            let is_there = described(&[spoken], None)["paths"][path].is_object();
            assert_eq!(is_there, spoken == dialect, "{path} of {dialect:?}, where {spoken:?} is");
        }
    }
}

#[test]
fn the_model_narrows_what_is_accepted() {
    let card = ModelCard {
        id: "m".to_owned(),
        aliases: Vec::new(),
        revision: "r".to_owned(),
        hidden_size: 8,
        vocab_size: 20,
        max_input_tokens: 16,
        dimensions: vec![8, 4],
        has_sparse: true,
        prompts: vec![InputType::Query],
        default_prompt: None,
        created_unix_s: 0,
    };
    let document = described(&ALL, Some(&card));
    let fields = &document["components"]["schemas"][request::NAME]["properties"];
    for name in ["dimensions", "output_dimension", "truncate_dim"] {
        assert_eq!(fields[name]["enum"], json!([8, 4, null]), "{name}");
    }
    let words = &document["components"]["schemas"]["InputType"]["enum"];
    assert!(words.to_string().contains("RETRIEVAL_QUERY"), "{words}");
    assert!(!words.to_string().contains("clustering"), "{words}");
    assert_eq!(fields["input"]["oneOf"][2]["items"]["maximum"], 19);
    assert_eq!(fields["input"]["oneOf"][1]["maxItems"], MaxItems::DEFAULT.get());
    let fields = &document["components"]["schemas"]["TeiEmbedRequest"]["properties"];
    assert_eq!(fields["inputs"]["oneOf"][2]["items"]["maximum"], 19);
}
