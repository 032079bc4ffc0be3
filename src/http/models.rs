//! `/v1/models` and `/v1/models/{id}`.

use actix_web::HttpResponse;
use actix_web::web::{Data, Path};
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::error::{ApiError, OK};
use super::payload::unknown_model;
use crate::health::Phase;
use crate::service::{EmbeddingService, ModelCard, Refusal};

/// The resident model, as a list.
#[derive(Serialize, ToSchema)]
#[schema(as = ModelList)]
pub(super) struct ModelList<'a> {
    #[schema(pattern = "^list$")]
    object: &'static str,
    #[schema(min_items = 1, max_items = 1)]
    data: [Model<'a>; 1],
}

/// A model.
// OpenAI's four fields first, then ours.
#[derive(Serialize, ToSchema)]
pub(super) struct Model<'a> {
    id: &'a str,
    #[schema(pattern = "^model$")]
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// Further names that requests may send as `model`.
    aliases: &'a [String],
    revision: &'a str,
    /// Tokens of the longest item that is not cut, special tokens included.
    max_input_tokens: usize,
    /// What requests may send as `dimensions`.
    dimensions: &'a [usize],
    /// Whether there are lexical weights.
    sparse: bool,
}

/// The resident model as a list of one.
pub(super) async fn list(state: Data<State>) -> Result<HttpResponse, ApiError> {
    let data = [model(card(&state.service)?)];
    Ok(HttpResponse::build(OK).json(ModelList { object: "list", data }))
}

/// The resident model by its id or an alias.
pub(super) async fn one(state: Data<State>, name: Path<String>) -> Result<HttpResponse, ApiError> {
    let card = card(&state.service)?;
    if !state.service.knows_model(&name) {
        return Err(unknown_model(&state.service));
    }
    Ok(HttpResponse::build(OK).json(model(card)))
}

fn card(service: &EmbeddingService) -> Result<&ModelCard, ApiError> {
    let phase = service.phase();
    let card = service.model_card().filter(|_| phase != Phase::Loading);
    card.ok_or_else(|| {
        ApiError::unavailable(match phase {
            Phase::Loading | Phase::Ready => Refusal::Loading,
            Phase::LameDuck | Phase::Draining => Refusal::Draining,
            Phase::Failed => Refusal::NoWorker,
        })
    })
}

fn model(card: &ModelCard) -> Model<'_> {
    Model {
        id: &card.id,
        object: "model",
        created: card.created_unix_s,
        owned_by: "duovec",
        aliases: &card.aliases,
        revision: &card.revision,
        max_input_tokens: card.max_input_tokens,
        dimensions: &card.dimensions,
        sparse: card.has_sparse,
    }
}
