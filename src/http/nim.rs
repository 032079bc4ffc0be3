//! The routes that NVIDIA NIM has beside OpenAI's: probes, and what is served.
//!
//! NIM's words in requests are read where OpenAI's are, in `payload` and `models`.

use actix_web::HttpResponse;
use actix_web::web::{Data, ServiceConfig};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::error::{ApiError, NOT_READY, OK};
use super::headers::NO_STORE;
use super::model_name;
use super::route::get;
use super::state::AppState;

/// Probes need no key, as those of `/health`.
pub(super) fn routes(app: &mut ServiceConfig) {
    app.service(get(Endpoint::polled("/v1/health/live"), live))
        .service(get(Endpoint::polled("/v1/health/ready"), ready))
        .service(get(Endpoint::keyed("/v1/metadata"), metadata));
}

async fn live() -> HttpResponse {
    HttpResponse::build(OK).insert_header(NO_STORE).json(health("Service is live."))
}

async fn ready(state: Data<AppState>) -> HttpResponse {
    let status = state.service.facts().status;
    let (code, message) = match status.takes_requests() {
        true => (OK, "Service is ready.".to_owned()),
        false => (NOT_READY, format!("Service is not ready: {}.", status.name())),
    };
    HttpResponse::build(code).insert_header(NO_STORE).json(health(&message))
}

/// What a probe reads.
fn health(message: &str) -> Value {
    json!({"object": "health-response", "message": message})
}

/// What is served, and by which release.
async fn metadata(state: Data<AppState>) -> Result<HttpResponse, ApiError> {
    let card = model_name::card(&state.service)?;
    // NIM's is an address with a revision.
    let model_url = format!("{}:{}", card.model_id, card.revision);
    Ok(HttpResponse::build(OK).json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "modelInfo": [{"shortName": card.model_id, "modelUrl": model_url}],
        "licenseInfo": {"name": env!("CARGO_PKG_LICENSE")},
        // Files that a container needs besides the model's; there are none.
        "assetInfo": [],
        "repository_override": "",
    })))
}
