//! The routes that NVIDIA NIM has beside OpenAI's: probes, and what is served.
//!
//! NIM's words in requests are read where OpenAI's are, in `payload` and `models`.

use actix_web::HttpResponse;
use actix_web::web::{Data, ServiceConfig};
use serde::Serialize;

use super::endpoint::Endpoint;
use super::error::{ApiError, NOT_READY, OK};
use super::headers::NO_STORE;
use super::model_name;
use super::route::get;
use super::state::AppState;

/// What a probe reads.
#[derive(Serialize)]
pub(super) struct NimHealth<'a> {
    object: &'static str,
    message: &'a str,
}

/// What is served, and by which release.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    version: &'static str,
    model_info: [ModelInfo<'a>; 1],
    license_info: License,
    /// Files that a container needs besides the model's; there are none.
    asset_info: [&'static str; 0],
    #[serde(rename = "repository_override")]
    repository_override: &'static str,
}

/// The model that is served.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModelInfo<'a> {
    short_name: &'a str,
    /// NIM's is an address with a revision.
    model_url: String,
}

/// The server's own licence.
#[derive(Serialize)]
struct License {
    name: &'static str,
}

/// Probes need no key, as those of `/health`.
pub(super) fn routes(app: &mut ServiceConfig) {
    app.service(get(Endpoint::polled("/v1/health/live"), live))
        .service(get(Endpoint::polled("/v1/health/ready"), ready))
        .service(get(Endpoint::keyed("/v1/metadata"), metadata));
}

async fn live() -> HttpResponse {
    let health = NimHealth { object: "health-response", message: "Service is live." };
    HttpResponse::build(OK).insert_header(NO_STORE).json(health)
}

async fn ready(state: Data<AppState>) -> HttpResponse {
    let status = state.service.facts().status;
    let (code, message) = match status.takes_requests() {
        true => (OK, "Service is ready.".to_owned()),
        false => (NOT_READY, format!("Service is not ready: {}.", status.name())),
    };
    let health = NimHealth { object: "health-response", message: &message };
    HttpResponse::build(code).insert_header(NO_STORE).json(health)
}

async fn metadata(state: Data<AppState>) -> Result<HttpResponse, ApiError> {
    let card = model_name::card(&state.service)?;
    let model_url = format!("{}:{}", card.model_id, card.revision);
    Ok(HttpResponse::build(OK).json(Metadata {
        version: env!("CARGO_PKG_VERSION"),
        model_info: [ModelInfo { short_name: &card.model_id, model_url }],
        license_info: License { name: env!("CARGO_PKG_LICENSE") },
        asset_info: [],
        repository_override: "",
    }))
}
