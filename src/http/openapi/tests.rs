//! The file is the code's: its references, routes, fields, words and errors.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::http::error::Code;
use crate::http::payload::chunking::{By, ChunkingField};
use crate::http::payload::words::{LexicalWord, TokenEncoding, TruncateWord};
use crate::http::payload::{Body, EmbeddingRequest};
use crate::http::reply::{DenseFormat, OutputType, SparseFormat};
use crate::http::rerank::RerankRequest;
use crate::http::tei::embedding::{Direction, EmbedBody};
use crate::http::tei::rerank::TextsToRank;
use crate::http::tei::similarity::{Parameters, Sentences, SimilarityBody};
use crate::http::tei::tokens::{DecodeBody, TokenizeBody};
use model::package::ModelPackage;
use model::package::manifest::Prompts;
use serde_names::names;
use settings::Config;
use settings::limits::{MaxItems, MaxRequestTimeoutMs};

mod serde_names;

const ALL: [Dialect; 3] = [Dialect::OpenAi, Dialect::Nim, Dialect::Tei];

fn described(dialects: &[Dialect], card: Option<&Manifest>) -> Value {
    let dialects = dialects.to_vec();
    document(&HttpConfig { dialects, ..Config::default().http }, card)
}

/// The path and the method in capitals of every operation, with what is described.
pub(in crate::http) fn operations() -> BTreeMap<(String, String), Value> {
    let document = described(&ALL, None);
    let paths = document["paths"].as_object().expect("there are paths");
    let of_path = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().expect("methods").clone().into_iter();
        let path = path.clone();
        methods.map(move |(method, told)| ((path.clone(), method.to_uppercase()), told))
    };
    paths.iter().flat_map(of_path).collect()
}

/// Every `$ref` in a value.
fn references(value: &Value, found: &mut BTreeSet<String>) {
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
fn every_reference_leads_somewhere_and_every_component_is_used() {
    let file: Value = serde_json::from_str(FILE).expect("the file is JSON");
    let all = described(&ALL, None);
    assert_eq!(
        file["components"]["schemas"].as_object().map(|schemas| schemas.len()),
        all["components"]["schemas"].as_object().map(|schemas| schemas.len())
    );
    for dialects in [&ALL[..], &ALL[..1], &ALL[1..2], &ALL[2..]] {
        let document = described(dialects, None);
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let mut parts = BTreeSet::new();
        for (kind, of_kind) in document["components"].as_object().expect("there are components") {
            let names = of_kind.as_object().expect("an object").keys();
            parts.extend(names.map(|name| format!("#/components/{kind}/{name}")));
        }
        parts.retain(|part| !part.contains("securitySchemes"));
        assert_eq!(found, parts, "{dialects:?}");
    }
}

#[test]
fn routes_are_described_where_their_dialect_is_spoken() {
    for (dialect, path) in [
        (Dialect::OpenAi, "/v1/embeddings"),
        (Dialect::Nim, "/v1/metadata"),
        (Dialect::OpenAi, "/v1/rerank"),
        (Dialect::Tei, "/embed"),
        (Dialect::Tei, "/rerank"),
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
    let package = ModelPackage::read_manifest(&testing::tiny()).expect("the fixture is whole");
    let card = Manifest {
        hidden_size: 8,
        matryoshka_dimensions: vec![4],
        vocab_size: 20,
        small_vectors: Vec::new(),
        ..package.manifest().clone()
    };
    let schemas = &described(&ALL, Some(&card))["components"]["schemas"];
    assert_eq!(schemas["Dimensions"]["enum"], json!([4, 8, null]));
    let token_vectors = &schemas["EmbeddingRequest"]["properties"]["token_vectors"]["enum"];
    assert_eq!(*token_vectors, json!([false, null]));
    assert_eq!(schemas["OutputType"]["enum"], json!(["float", "float32", "float16", "base64"]));
    assert_eq!(schemas["TokenId"]["maximum"], 19);
    assert_eq!(schemas["Texts"]["maxItems"], MaxItems::DEFAULT.get());
    assert_eq!(schemas["TokenIdLists"]["maxItems"], MaxItems::DEFAULT.get());
    assert_eq!(schemas["Documents"]["maxItems"], MaxItems::DEFAULT.get() - 1);
    assert_eq!(schemas["RerankScore"]["enum"], json!(["hybrid", "dense", "lexical"]));
    let card = Manifest { kind: ModelKind::CrossEncoder, sparse: None, ..card };
    let document = described(&ALL, Some(&card));
    assert_eq!(document["components"]["schemas"]["RerankScore"]["enum"], json!(["cross-encoder"]));
    let paths = document["paths"].as_object().expect("an object");
    assert!(paths.contains_key("/v1/rerank") && paths.contains_key("/tokenize"));
    assert!(!paths.keys().any(|path| path.contains("embed") || path == "/similarity"), "{paths:?}");
}

#[test]
fn a_use_is_described_where_the_model_takes_it() {
    let package = ModelPackage::read_manifest(&testing::tiny()).expect("the fixture is whole");
    let text = |has: bool| has.then(|| "q: ".to_owned());
    for (query, passage) in [(true, true), (true, false), (false, true), (false, false)] {
        let prompts = Prompts { query: text(query), passage: text(passage) };
        let card = Manifest { prompts, ..package.manifest().clone() };
        let words = &described(&ALL, Some(&card))["components"]["schemas"]["InputType"]["enum"];
        let has_none = !query && !passage;
        for (word, is_taken) in [
            ("RETRIEVAL_QUERY", query || has_none),
            ("passage", true),
            ("RETRIEVAL_DOCUMENT", true),
            ("clustering", has_none),
        ] {
            let words = words.as_array().expect("a list");
            let is_told = words.contains(&word.into());
            assert_eq!(is_told, is_taken, "{word} with query: {query}, passage: {passage}");
        }
    }
}

#[test]
fn the_longest_time_of_a_request_is_the_servers() {
    let document = described(&ALL, None);
    let about = document["components"]["parameters"]["RequestTimeout"]["description"].to_string();
    assert!(about.contains(&format!("at most {}", MaxRequestTimeoutMs::DEFAULT)), "{about}");
    assert!(!document.to_string().contains("{max"));
}

fn fields(schemas: &Value, name: &str) -> BTreeSet<String> {
    schemas[name]["properties"].as_object().expect("fields").keys().cloned().collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The fields of `B` in its messages, in serde's, and in the description. The routes of TEI take
/// words of other services' clients beside what they describe.
fn check_body<B: Body>(schemas: &Value, name: &str) {
    let read = set(names::<B>());
    let named = |(name, _): &(&str, &str)| (*name).to_owned();
    let own: BTreeSet<String> = B::FIELDS.iter().map(named).collect();
    let wishes: BTreeSet<String> = B::WISHES.iter().map(named).collect();
    assert_eq!(read, &own | &wishes, "{name}: the fields of its messages");
    let described = fields(schemas, name);
    let all = if name.starts_with("Tei") { &described | &wishes } else { described };
    assert_eq!(all, read, "{name}: those of the description");
}

#[test]
fn fields_and_words_of_requests_are_those_that_are_read() {
    let schemas = &described(&ALL, None)["components"]["schemas"];
    check_body::<EmbeddingRequest>(schemas, "EmbeddingRequest");
    check_body::<RerankRequest>(schemas, "RerankRequest");
    check_body::<TextsToRank>(schemas, "TeiRerankRequest");
    check_body::<EmbedBody>(schemas, "TeiEmbedRequest");
    check_body::<SimilarityBody>(schemas, "TeiSimilarityRequest");
    check_body::<TokenizeBody>(schemas, "TeiTokenizeRequest");
    check_body::<DecodeBody>(schemas, "TeiDecodeRequest");
    for (name, read) in [
        ("Chunking", names::<ChunkingField>()),
        ("TeiSentences", names::<Sentences>()),
        ("TeiSimilarityParameters", names::<Parameters>()),
    ] {
        assert_eq!(fields(schemas, name), set(read), "{name}");
    }
    let uses: Vec<&str> = USES.iter().map(|(word, ..)| *word).collect();
    for (name, read) in [
        ("ChunkBy", names::<By>()),
        ("DenseFormat", names::<DenseFormat>()),
        ("InputType", &uses),
        ("LexicalSource", names::<LexicalWord>()),
        ("OutputType", names::<OutputType>()),
        ("RerankScore", names::<RerankScore>()),
        ("SparseFormat", names::<SparseFormat>()),
        ("TokenEncoding", names::<TokenEncoding>()),
        ("TruncateWord", names::<TruncateWord>()),
    ] {
        assert_eq!(schemas[name]["enum"], json!(read), "{name}");
        if name == "InputType" || name == "ChunkBy" {
            continue;
        }
        let takes = read.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        let is_told = |field: &(&str, &str)| field.1.contains(&takes);
        let told = [EmbeddingRequest::FIELDS, EmbeddingRequest::WISHES, RerankRequest::FIELDS];
        let told = told.concat();
        assert!(told.iter().any(is_told), "{name} takes {takes}");
    }
    let described = set(&["Right"]);
    assert!(described.is_subset(&set(names::<Direction>())));
    assert_eq!(schemas["TeiTruncationDirection"]["enum"], json!(["Right"]));
}

/// Codes of answers that no described operation gives: those of other paths and methods, of other
/// models, and of requests that have no route yet.
const OTHER_CODES: [Code; 6] = [
    Code::MethodNotAllowed,
    Code::PreflightRefused,
    Code::HeadTimeout,
    Code::UnfitModel,
    Code::DenseNotAvailable,
    Code::VectorsNotAvailable,
];

#[test]
fn errors_are_those_of_the_program() {
    let document = described(&ALL, None);
    let mut seen = BTreeSet::new();
    for ((path, _), operation) in operations() {
        for (status, answer) in operation["responses"].as_object().expect("there are answers") {
            let Some(name) = answer["$ref"].as_str() else { continue };
            let answer = document.pointer(&name[1..]).expect("it is described");
            let about = answer["description"].as_str().expect("a text");
            let narrowed = "/content/application~1json/schema/allOf/1/properties/error/properties";
            let parts = answer.pointer(narrowed);
            let of_line = |line: &str| {
                let told = |code: &&Code| match parts {
                    Some(_) => line == format!("- `{}`: {}", code.name(), code.when()),
                    None => line == format!("- {}", code.when()),
                };
                *Code::ALL.iter().find(told).unwrap_or_else(|| panic!("no code: {line}"))
            };
            let codes: Vec<Code> = about.lines().map(of_line).collect();
            let mut kinds: Vec<&str> = codes.iter().map(|code| code.status_and_type().1).collect();
            kinds.dedup();
            for code in &codes {
                assert_eq!(code.status_and_type().0.as_str(), status, "{path}: {code:?}");
                seen.insert(code.name());
            }
            if let Some(parts) = parts {
                let words: Vec<&str> = codes.iter().map(|code| code.name()).collect();
                assert_eq!(parts["code"]["enum"], json!(words), "{name}");
                assert_eq!(parts["type"]["enum"], json!(kinds), "{name}");
            }
            let has = |header: &str| answer["headers"][header].is_object();
            assert_eq!(has("retry-after"), ["429", "503"].contains(&&**status), "{name}");
            assert_eq!(has("www-authenticate"), codes.contains(&Code::InvalidApiKey), "{name}");
        }
    }
    let others = OTHER_CODES.map(Code::name);
    assert!(others.iter().all(|code| !seen.contains(code)), "{seen:?}");
    seen.extend(others);
    assert_eq!(seen, Code::ALL.iter().map(|code| code.name()).collect());
}
