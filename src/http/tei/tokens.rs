//! `/tokenize` and `/decode`: what a text is to the model, without running it.

use std::borrow::Cow;
use std::sync::Arc;

use actix_web::web::{Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};

use super::{PROMPTS, Prompt, keyed, options};
use crate::http::AppState;
use crate::http::app::post;
use crate::http::embed::{Head, off_thread, without_model};
use crate::http::error::{ApiError, Code};
use crate::http::payload::{Body, input, missing, scalar};
use crate::service::{EmbedRequest, EmbeddingService, Input, Permit, Vectors};
use crate::tokenize::{SpecialPieces, Tokenized};

/// The body of a request to `/tokenize`.
#[derive(Debug, Deserialize)]
struct TokenizeBody {
    #[serde(default, deserialize_with = "input::read")]
    inputs: Vec<Input>,
    #[serde(default, deserialize_with = "scalar")]
    add_special_tokens: Option<bool>,
    #[serde(default, deserialize_with = "scalar")]
    prompt_name: Option<Prompt>,
}

impl Body for TokenizeBody {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("inputs", "a text or a list of texts"),
        ("add_special_tokens", "true or false"),
        ("prompt_name", PROMPTS),
    ];
    const EXAMPLE: &'static str = "{\"inputs\": \"a text\"}";
}

/// The body of a request to `/decode`.
#[derive(Debug, Deserialize)]
struct DecodeBody {
    #[serde(default, deserialize_with = "input::read")]
    ids: Vec<Input>,
    #[serde(default, deserialize_with = "scalar")]
    skip_special_tokens: Option<bool>,
}

impl Body for DecodeBody {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("ids", "a list of token ids or a list of such lists"),
        ("skip_special_tokens", "true or false"),
    ];
    const EXAMPLE: &'static str = "{\"ids\": [581, 7515]}";
}

/// A token of a text.
#[derive(Serialize)]
struct Token<'a> {
    id: u32,
    /// What it stands for in the text as sent, else the vocabulary's piece.
    text: Cow<'a, str>,
    special: bool,
    /// In bytes of the text as sent; null for special tokens and those of the prompt.
    start: Option<usize>,
    stop: Option<usize>,
}

pub(super) fn routes(app: &mut ServiceConfig) {
    app.service(post(keyed("/tokenize"), tokenize)).service(post(keyed("/decode"), decode));
}

async fn tokenize(
    state: Data<AppState>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let work = async |body: TokenizeBody, head: Head, permit: &mut Permit| {
        let with_special = body.add_special_tokens.unwrap_or(true);
        let inputs = only::<TokenizeBody>(body.inputs, |input| matches!(input, Input::Text(_)))?;
        let options = options(Vectors::Dense, body.prompt_name, &head.asked);
        let asked = EmbedRequest { inputs: inputs.clone(), options };
        let lists = state.service.tokenize(asked, permit).await;
        let lists = lists.map_err(|error| ApiError::from_embed(error, head.timeout))?;
        let service = Arc::clone(&state.service);
        off_thread(&state, move || {
            let lists = inputs.iter().zip(&lists);
            let lists = lists.map(|(input, list)| tokens(input, list, with_special, &service));
            serde_json::to_vec(&lists.collect::<Vec<_>>()).expect("it has string keys only")
        })
        .await
    };
    without_model(&state, &request, payload, work).await
}

/// The items of a body, which are either all texts or all lists of token ids.
fn only<B: Body>(
    items: Vec<Input>,
    is_right: impl Fn(&Input) -> bool,
) -> Result<Vec<Input>, ApiError> {
    match items.first().map(is_right) {
        None => Err(missing::<B>()),
        Some(true) => Ok(items),
        Some(false) => {
            let (name, takes) = B::FIELDS[0];
            Err(ApiError::of(Code::InvalidInput, B::INPUT, format!("{name} must be {takes}")))
        }
    }
}

/// The tokens of an item as TEI lists them.
fn tokens<'a>(
    input: &'a Input,
    list: &Tokenized,
    with_special: bool,
    service: &EmbeddingService,
) -> Vec<Token<'a>> {
    let text = if let Input::Text(text) = input { &**text } else { "" };
    // From code points, in which spans are, to bytes.
    let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let last = list.ids.len() - 1;
    let token = |(position, &id): (usize, &u32)| {
        let behind_prompt = position.checked_sub(1 + list.prompt_tokens);
        let span = behind_prompt.and_then(|position| list.spans.get(position));
        let place = span.and_then(|span| Some((*bytes.get(span.start)?, *bytes.get(span.end)?)));
        let special = position == 0 || position == last;
        let (start, stop) = place.unzip();
        let piece = || service.piece(id).unwrap_or_else(|| id.to_string());
        let text = match place.filter(|(start, stop)| start < stop) {
            Some((start, stop)) => Cow::from(&text[start..stop]),
            None => Cow::from(piece()),
        };
        Token { id, text, special, start, stop }
    };
    let all = list.ids.iter().enumerate().map(token);
    all.filter(|token| with_special || !token.special).collect()
}

async fn decode(
    state: Data<AppState>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let work = async |body: DecodeBody, head: Head, permit: &mut Permit| {
        let special = match body.skip_special_tokens.unwrap_or(true) {
            true => SpecialPieces::LeaveOut,
            false => SpecialPieces::Keep,
        };
        let ids = only::<DecodeBody>(body.ids, |input| matches!(input, Input::TokenIds(_)))?;
        let texts = state.service.model_texts(ids, special, permit).await;
        let texts = texts.map_err(|error| ApiError::from_embed(error, head.timeout))?;
        Ok(serde_json::to_vec(&texts).expect("it has no keys"))
    };
    without_model(&state, &request, payload, work).await
}
