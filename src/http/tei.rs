//! The routes of text-embeddings-inference (TEI), for clients that were written for it.
//!
//! A request goes the way of all others. Its fields, its answer and its errors have TEI's form; a
//! status means here what it means on the other routes.

use actix_web::web::{Data, ServiceConfig};
use actix_web::{HttpResponse, Resource, guard};
use serde_json::json;

use super::embed;
use super::endpoint::Endpoint;
use super::error::{ApiError, Code, ErrorForm, NOT_READY, OK, TeiError};
use super::headers::NO_STORE;
use super::model_name;
use super::route::{get, post};
use super::state::AppState;
use crate::service::{Refusal, Vectors};
use model::package::manifest::ModelKind;
use scheduling::batch::Pooling;
use settings::TruncateDefault;

pub(super) mod embedding;
pub(super) mod rerank;
pub(super) mod similarity;
pub(super) mod tokens;

use embedding::{EmbedBody, keyed};

/// Routes for models of other kinds, and why the resident one is not of that kind.
const UNFIT: [(&str, &str); 2] = [
    (
        "/embed_all",
        "vectors of tokens are not answered here; a model that has them gives them to POST \
        /v1/embeddings with \"token_vectors\": true",
    ),
    ("/predict", "model is not a classifier model; GET /info tells of which kind it is"),
];

/// Adds all routes; only `/ping` asks for no key.
pub(super) fn routes(app: &mut ServiceConfig) {
    app.service(embedding("/embed", Vectors::Dense))
        .service(embedding("/embed_sparse", Vectors::Sparse))
        // Its other methods are not TEI's.
        .service(embedding("/", Vectors::Dense).guard(guard::Post()));
    for (path, why) in UNFIT {
        app.service(post(keyed(path), move |state: Data<AppState>| unfit(state, why)));
    }
    tokens::routes(app);
    app.service(similarity::route()).service(rerank::route());
    let ping_route = Endpoint::polled("/ping").refusing_as(ErrorForm::Tei);
    app.service(get(keyed("/info"), info)).service(get(ping_route, ping));
}

fn embedding(path: &'static str, vectors: Vectors) -> Resource {
    let handler =
        move |state, request, body| embed::embed::<EmbedBody>(state, request, body, vectors);
    post(keyed(path), handler)
}

async fn unfit(state: Data<AppState>, why: &'static str) -> Result<HttpResponse, ApiError> {
    state.service.check_available().map_err(ApiError::unavailable)?;
    Err(ApiError::new(Code::UnfitModel, why))
}

/// What is served, and within which limits.
async fn info(state: Data<AppState>) -> Result<HttpResponse, ApiError> {
    let card = model_name::card(&state.service)?;
    let resident = state.service.resident();
    let resident = resident.ok_or_else(|| ApiError::unavailable(Refusal::NoWorker))?;
    let config = &state.config;
    let pooling = match resident.package.manifest().pooling {
        Pooling::Cls => "cls",
        Pooling::Mean => "mean",
        Pooling::Last => "last_token",
    };
    let model_type = match card.kind {
        ModelKind::Embedding => json!({"embedding": {"pooling": pooling}}),
        ModelKind::Sparse => json!({"embedding": {"pooling": "splade"}}),
        // As transformers names the only label of a model that has no name for it.
        ModelKind::CrossEncoder => {
            json!({"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}})
        }
    };
    // The query counts among the items of a cross-encoder's requests.
    let with_query = u64::from(card.kind == ModelKind::CrossEncoder);
    Ok(HttpResponse::build(OK).json(json!({
        "model_id": card.model_id,
        "model_sha": card.revision,
        "model_dtype": resident.engine.info().precision,
        "served_model_name": card.model_id,
        "model_type": model_type,
        "max_concurrent_requests": config.max_connections.get(),
        "max_input_length": card.max_input_tokens,
        "max_batch_tokens": resident.max_batch_tokens.get(),
        "max_batch_requests": null,
        "max_client_batch_size": config.max_items.get() - with_query,
        "auto_truncate": config.truncate == TruncateDefault::Truncate,
        "tokenization_workers": config.threads.get(),
        "version": env!("CARGO_PKG_VERSION"),
        "sha": null,
        "docker_label": null,
    })))
}

async fn ping(state: Data<AppState>) -> HttpResponse {
    let status = state.service.facts().status;
    let mut response = HttpResponse::build(if status.takes_requests() { OK } else { NOT_READY });
    response.insert_header(NO_STORE);
    if status.takes_requests() {
        return response.json(json!({"status": status.name()}));
    }
    let error = &format!("unhealthy: {}", status.name());
    response.json(TeiError { error, error_type: "Unhealthy" })
}
