//! `/openapi.json`: the API's description in OpenAPI 3.1, which is the file `openapi.json` here.
//!
//! The file describes what every server serves, and tests hold it to the code. Filled in is what
//! one server is told: its dialects, how many items it takes, and once the package is read, which
//! token ids, dimensions and prompts. Only what the model serves is told.

use actix_web::HttpResponse;
use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::Data;
use serde_json::{Value, json};

use super::error::OK;
use super::headers::JSON;
use super::payload::USES;
use super::rerank::RerankScore;
use super::state::AppState;
use crate::service::prompt;
use model::package::manifest::{Manifest, ModelKind};
use settings::{Dialect, HttpConfig};

const FILE: &str = include_str!("openapi.json");

/// Paths that a model without dense vectors does not serve.
const OF_DENSE: [&str; 4] = ["/v1/embeddings", "/v1/embeddings:both", "/embed", "/similarity"];

/// Paths that a cross-encoder does not serve either.
const OF_SPARSE: [&str; 2] = ["/v1/sparse-embeddings", "/embed_sparse"];

/// `/openapi.json`. Anybody may ask for it, so it is written once, and once more when the model's
/// card is known. All answers are the same bytes.
pub(super) async fn answer(state: Data<AppState>) -> HttpResponse {
    let card = state.service.model_card();
    let write = || document(&state.config, card).to_string().into();
    let body = state.descriptions[usize::from(card.is_some())].get_or_init(write).clone();
    let mut response = HttpResponse::build(OK);
    response.insert_header((CACHE_CONTROL, "no-cache")).content_type(JSON).body(body)
}

/// There is no `card` until the package is read.
fn document(config: &HttpConfig, card: Option<&Manifest>) -> Value {
    let longest = config.max_request_timeout.to_string();
    let file = FILE.replace("{max_request_timeout_ms}", &longest);
    let mut document: Value = serde_json::from_str(&file).expect("the tests read it");
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let paths = document["paths"].as_object_mut().expect("an object");
    paths.retain(|_, path| dialect(path).is_none_or(|dialect| config.dialects.contains(&dialect)));
    paths.retain(|path, _| is_served(path, card));
    let schemas = &mut document["components"]["schemas"];
    for lists in ["Texts", "TokenIdLists"] {
        schemas[lists]["maxItems"] = config.max_items.get().into();
    }
    schemas["Documents"]["maxItems"] = config.max_items.get().saturating_sub(1).into();
    if let Some(card) = card {
        schemas["TokenId"]["maximum"] = card.vocab_size.saturating_sub(1).into();
        let lengths = card.dimensions().into_iter().map(Value::from);
        schemas["Dimensions"]["enum"] = lengths.chain([Value::Null]).collect();
        schemas["RerankScore"]["enum"] = json!(RerankScore::of_model(Some(card)));
        if card.token_vector_size.is_none() {
            let asked = &mut schemas["EmbeddingRequest"]["properties"]["token_vectors"];
            asked["enum"] = json!([false, null]);
        }
        if card.small_vectors.is_empty() {
            schemas["OutputType"]["enum"] = json!(["float", "float32", "float16", "base64"]);
        }
        let words = USES.iter().filter(|(_, of, _)| prompt(card, *of).is_ok());
        schemas["InputType"]["enum"] = words.map(|(word, ..)| *word).collect();
    }
    remove_unused(&mut document);
    document
}

/// Whether the model serves a path; every path, until the package is read.
pub(super) fn is_served(path: &str, card: Option<&Manifest>) -> bool {
    let is_of = |paths: &[&str]| paths.contains(&path);
    match card.map_or(ModelKind::Embedding, |card| card.kind) {
        ModelKind::Embedding => true,
        ModelKind::Sparse => !is_of(&OF_DENSE),
        ModelKind::CrossEncoder => !is_of(&OF_DENSE) && !is_of(&OF_SPARSE),
    }
}

/// The dialect of a path, as the tag of its operation says; `None` for those of every server.
fn dialect(path: &Value) -> Option<Dialect> {
    let operation = path.as_object()?.values().next()?;
    match operation["tags"][0].as_str()? {
        "embeddings" | "models" => Some(Dialect::OpenAi),
        "nim" => Some(Dialect::Nim),
        "text-embeddings-inference" => Some(Dialect::Tei),
        _ => None,
    }
}

/// Removes the components that nothing refers to any more.
fn remove_unused(document: &mut Value) {
    let mut is_done = false;
    while !is_done {
        is_done = true;
        let text = document.to_string();
        let kinds = document["components"].as_object_mut().expect("an object");
        for (kind, parts) in kinds.iter_mut().filter(|(kind, _)| *kind != "securitySchemes") {
            parts.as_object_mut().expect("an object").retain(|name, _| {
                let is_used = text.contains(&format!("\"#/components/{kind}/{name}\""));
                is_done &= is_used;
                is_used
            });
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
