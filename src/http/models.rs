//! `/v1/models` and `/v1/models/{id}`.

use actix_web::HttpResponse;
use actix_web::web::{Data, Path};
use serde::Serialize;

use super::error::{ApiError, OK};
use super::model_name::{PROMPTS, card, prompt_of, unknown_model};
use super::state::AppState;
use crate::service::{InputType, prompt};
use model::package::manifest::{Manifest, PromptName};
use settings::Dialect;

/// The resident model, under each of its names with a prompt too.
#[derive(Serialize)]
pub(super) struct ModelList<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

/// A model.
// OpenAI's four fields first, then ours.
#[derive(Serialize)]
pub(super) struct Model<'a> {
    id: String,
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// Further names that requests may send as `model`, with the same prompt.
    aliases: Vec<String>,
    /// Which of the model's prompts requests get that send such a name and ask for none.
    prompt: Option<&'static str>,
    revision: &'a str,
    /// Whether it gives vectors of texts, is a cross-encoder and scores documents by a query, or
    /// gives lexical weights alone, of words that a text need not have.
    kind: &'static str,
    /// Tokens of the longest item that is not cut, special tokens included.
    max_input_tokens: usize,
    /// What requests may send as `dimensions`.
    dimensions: Vec<usize>,
    /// Whether there are lexical weights.
    sparse: bool,
    /// Numbers of a token's vector; absent for a model without such vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_vector_size: Option<usize>,
}

/// The resident model; its own name comes first.
pub(super) async fn list(state: Data<AppState>) -> Result<HttpResponse, ApiError> {
    let card = card(&state.service)?;
    let with_prompt = PROMPTS.iter().map(|(_, asked)| *asked).filter(|asked| {
        state.config.speaks(Dialect::Nim) && matches!(prompt(card, *asked), Ok(Some(_)))
    });
    let names = std::iter::once(InputType::Default).chain(with_prompt);
    let created = state.service.created_unix_s();
    let data = names.map(|prompt| model(card, created, prompt)).collect();
    Ok(HttpResponse::build(OK).json(ModelList { object: "list", data }))
}

/// The resident model by its id or an alias, with or without a prompt.
pub(super) async fn find(
    state: Data<AppState>,
    name: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let card = card(&state.service)?;
    let asked = prompt_of(&name, &state.config, &state.service);
    let asked = asked.ok_or_else(|| unknown_model(&state.service))?;
    Ok(HttpResponse::build(OK).json(model(card, state.service.created_unix_s(), asked)))
}

fn model(card: &Manifest, created: u64, asked: InputType) -> Model<'_> {
    let suffix = PROMPTS.iter().find(|(_, of)| *of == asked).map_or("", |(suffix, _)| *suffix);
    let name = |name: &String| format!("{name}{suffix}");
    Model {
        id: name(&card.model_id),
        object: "model",
        created,
        owned_by: "duovec",
        aliases: card.aliases.iter().map(name).collect(),
        prompt: prompt(card, asked).ok().flatten().map(PromptName::name),
        revision: &card.revision,
        kind: card.kind.name(),
        max_input_tokens: card.max_input_tokens,
        dimensions: card.dimensions(),
        sparse: card.sparse.is_some(),
        token_vector_size: card.token_vector_size,
    }
}
