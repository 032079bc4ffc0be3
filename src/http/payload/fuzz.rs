//! Bodies that are nearly right are parsed and validated, as long as `DUOVEC_FUZZ_SECONDS` says.

use std::sync::Arc;

use actix_web::web::Bytes;
use fastrand::Rng;
use serde_json::Value;

use super::{Body, EmbeddingRequest, InputLimits, Question};
use crate::http::error::{ApiError, Code};
use crate::service::{EmbedRequest, EmbeddingService, Input, RequestHead, Vectors};
use clock::{Moment, RealClock};
use model::package::ModelPackage;
use settings::limits::{MaxItemBytes, MaxItems};
use settings::{Config, HttpConfig, TokenInput};
use testing::{damage, pick, run_for};

/// Stand in texts and numbers of every body, and may be in no message.
const SECRETS: [&str; 2] = ["zqsecretqz", "918273645"];

const ESCAPES: [&str; 8] =
    ["\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud800", "\\udc00\\ud800", "\\\\", "\\\"", "\\x"];

const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "7",
    "918273645",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "-918273645",
    "-0",
    "1.5",
    "918273645e-2",
    "9e999",
];

#[test]
fn every_body_is_understood_or_refused_without_its_values() {
    let service = service();
    let (mut accepted, mut codes) = (0_u64, [0_u64; Code::ALL.len()]);
    run_for("payload", |rng| {
        let limits = InputLimits {
            items: MaxItems::new(rng.u64(1..6)).expect("in range"),
            item_bytes: MaxItemBytes::new(rng.u64(8..64)).expect("in range"),
        };
        let mut body = object(rng).into_bytes();
        for _ in 0..rng.u8(..4).saturating_sub(1) {
            damage(rng, &mut body);
        }
        let body = Bytes::from(body);
        match read(body.clone(), limits, &service) {
            Ok(request) => {
                check_request(&request, limits, &body);
                check_memory(&request, &body);
                accepted += 1;
            }
            Err(error) => {
                check_refusal(&error, &body);
                assert!(body.is_unique(), "{}", String::from_utf8_lossy(&body));
                codes[error.code as usize] += 1;
            }
        }
    });
    let refused = Code::ALL.iter().zip(codes).filter(|(_, count)| *count > 0);
    let refused: Vec<_> = refused.map(|(code, count)| (code.name(), count)).collect();
    println!("payload: {accepted} were accepted, others refused: {refused:?}");
}

fn read(
    body: Bytes,
    limits: InputLimits,
    service: &EmbeddingService,
) -> Result<EmbedRequest, ApiError> {
    let head = RequestHead { announced_bytes: 0, priority: None, deadline: Moment::default() };
    let request: EmbeddingRequest = super::read(body, limits)?;
    let config = HttpConfig::default();
    request.ask(Vectors::Both, &head, &config, service).map(|(request, _)| request)
}

/// A service that knows its model's name only.
fn service() -> EmbeddingService {
    let config = Config { token_input: TokenInput::Model, ..Config::default() };
    let service = EmbeddingService::new(&config, Arc::new(RealClock::new()));
    let package = ModelPackage::read_manifest(&testing::tiny()).expect("the fixture is whole");
    service.announce(package.manifest());
    service
}

/// An object of known and unknown fields, some of them twice, some with slips in their names.
fn object(rng: &mut Rng) -> String {
    let mut fields = Vec::new();
    for _ in 0..rng.u8(..5) {
        let known = [EmbeddingRequest::FIELDS, EmbeddingRequest::WISHES].concat();
        let (name, _) = known[rng.usize(..known.len())];
        let slips = if rng.u8(..8) == 0 { rng.usize(1..3) } else { 0 };
        fields.push(format!("\"{}\":{}", &name[slips..], field(rng, name)));
    }
    if rng.u8(..8) > 0 {
        fields.insert(rng.usize(..=fields.len()), format!("\"input\":{}", input(rng)));
    }
    if rng.u8(..4) == 0 {
        fields.push(format!("{}:{}", text(rng), value(rng, 0)));
    }
    format!("{{{}}}", fields.join(pick(rng, &[",", " ,\n", ",\t"])))
}

/// Mostly what the field takes.
fn field(rng: &mut Rng, name: &str) -> String {
    if rng.u8(..8) == 0 {
        return value(rng, 0);
    }
    let word = match name {
        "input" => return input(rng),
        "truncate" => return pick(rng, &["true", "false", "\"NONE\"", "\"END\""]).to_owned(),
        "dimensions" | "sparse_top_k" | "sparse_min_weight" => {
            return pick(rng, &NUMBERS).to_owned();
        }
        "model" => pick(rng, &["tiny-test", "tiny", "tiny-query", "openai/tiny-passage"]),
        "encoding_format" => pick(rng, &["float", "base64"]),
        "input_type" => pick(rng, &["query", "passage", "document", "search_query"]),
        "token_encoding" => pick(rng, &["model", "cl100k_base", "o200k_base"]),
        "sparse_format" => pick(rng, &["indices", "dict", "tokens", "pgvector"]),
        _ => return value(rng, 0),
    };
    format!("\"{word}\"")
}

fn input(rng: &mut Rng) -> String {
    let count = rng.usize(..6);
    let ids = |rng: &mut Rng| list(rng.usize(..4), || pick(rng, &NUMBERS[..4]).to_owned());
    match rng.u8(..9) {
        0 | 1 => text(rng),
        2 | 3 => list(count, || text(rng)),
        4 | 5 => ids(rng),
        6 | 7 => list(count, || ids(rng)),
        _ => value(rng, 0),
    }
}

/// Any value, at times very deep.
fn value(rng: &mut Rng, depth: u8) -> String {
    if rng.u8(..50) == 0 {
        return pick(rng, &["[", "{\"a\":"]).repeat(rng.usize(..300));
    }
    match rng.u8(..if depth < 4 { 7 } else { 4 }) {
        0 => text(rng),
        1 | 2 => pick(rng, &NUMBERS).to_owned(),
        3 => pick(rng, &["null", "true", "false", "NaN"]).to_owned(),
        4 => format!("{{{}:{}}}", text(rng), value(rng, depth + 1)),
        _ => list(rng.usize(..4), || value(rng, depth + 1)),
    }
}

fn list(count: usize, element: impl FnMut() -> String) -> String {
    let elements: Vec<String> = std::iter::repeat_with(element).take(count).collect();
    format!("[{}]", elements.join(","))
}

fn text(rng: &mut Rng) -> String {
    let mut inside = String::new();
    for _ in 0..rng.u8(..4) {
        match rng.u8(..4) {
            0 => inside.push_str(SECRETS[0]),
            1 => inside.push_str(pick(rng, &ESCAPES)),
            2 => inside.push(rng.char('a'..)),
            _ => inside.push(rng.alphanumeric()),
        }
    }
    format!("\"{inside}\"")
}

fn check_refusal(error: &ApiError, body: &[u8]) {
    let shown = String::from_utf8_lossy(body);
    assert!(error.code.status_and_type().0.is_client_error(), "{}: {shown}", error.code.name());
    let message = &error.message;
    assert!(message.len() < 300, "{message}: {shown}");
    // A key of chunking that reads like a field's name is told on purpose: it is no value.
    let key = message.strip_prefix("chunking has no field ").and_then(|told| told.split_once(';'));
    let rest = key.map_or(message.as_str(), |(_, rest)| rest);
    let repeated = SECRETS.iter().any(|secret| rest.contains(secret));
    assert!(!repeated, "{message}: {shown}");
    let answer: Value = serde_json::from_slice(&error.to_json()).expect("it is JSON");
    assert_eq!(answer["error"]["code"], error.code.name());
}

fn check_request(request: &EmbedRequest, limits: InputLimits, body: &[u8]) {
    let shown = String::from_utf8_lossy(body);
    assert!((1..=limits.items.as_usize()).contains(&request.inputs.len()), "{shown}");
    let fits = |item: &Input| match item {
        Input::Text(text) => text.len() <= limits.item_bytes.as_usize(),
        Input::TokenIds(ids) => ids.len() * size_of::<u32>() <= limits.item_bytes.as_usize(),
    };
    assert!(request.inputs.iter().all(fits), "{shown}");
    assert!(
        request.options.dimensions != Some(0) && request.options.selection.top_k != Some(0),
        "{shown}"
    );
    let least = request.options.selection.min_weight.unwrap_or_default();
    assert!(least.is_finite() && least >= 0.0, "{least}: {shown}");
    // serde_json refuses some that are skipped here, such as 9e999 in an unknown field.
    if let Ok(whole) = serde_json::from_slice::<Value>(body) {
        let found: Vec<Value> = request.inputs.iter().map(sent).collect();
        assert_eq!(found, items(&whole["input"]), "{shown}");
    }
}

/// Either all texts are parts of the body, or none is, since one has an escape, and it is free.
fn check_memory(request: &EmbedRequest, body: &Bytes) {
    let within = body.as_ptr_range();
    let texts = request.inputs.iter().filter_map(|item| match item {
        Input::Text(text) if !text.is_empty() => Some(text.as_ptr()),
        Input::Text(_) | Input::TokenIds(_) => None,
    });
    let (parts, all) = (texts.clone().filter(|text| within.contains(text)).count(), texts.count());
    let shown = String::from_utf8_lossy(body);
    assert!(parts == all || parts == 0 && shown.contains('\\'), "{shown}");
    assert_eq!(parts == 0, body.is_unique(), "{shown}");
}

/// An item as it stood in the body.
fn sent(item: &Input) -> Value {
    match item {
        Input::Text(text) => Value::from(&**text),
        Input::TokenIds(ids) => ids.as_slice().into(),
    }
}

/// The items of a field `input`.
fn items(input: &Value) -> Vec<Value> {
    match input.as_array() {
        Some(items) if items.iter().any(Value::is_string) => items.clone(),
        Some(items) if items.iter().any(Value::is_array) => items.clone(),
        _ => vec![input.clone()],
    }
}
