//! `/tokenize` and `/decode`: what a text is to the model, without running it.

use std::borrow::Cow;
use std::sync::Arc;

use actix_web::web::{Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize, Serializer};

use super::embedding::{keyed, options};
use crate::http::embed::{Head, off_thread, without_model};
use crate::http::error::{ApiError, FieldNames};
use crate::http::held;
use crate::http::payload::{Body, USE, Use, input, scalar, some};
use crate::http::route::post;
use crate::http::state::AppState;
use crate::service::{EmbedRequest, EmbeddingService, Input, Permit, Vectors};
use model::tokenize::{SpecialPieces, Tokenized};

/// The body of a request to `/tokenize`.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct TokenizeBody {
    #[serde(default, deserialize_with = "input::read")]
    inputs: Vec<Input>,
    /// Whether the special tokens around a text are listed; true when absent.
    #[serde(default, deserialize_with = "scalar")]
    add_special_tokens: Option<bool>,
    #[serde(default, deserialize_with = "scalar")]
    prompt_name: Option<Use>,
}

impl Body for TokenizeBody {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("inputs", "a text or a list of texts"),
        ("add_special_tokens", "true or false"),
        ("prompt_name", USE),
    ];
    const EXAMPLE: &'static str = "{\"inputs\": \"a text\"}";
}

/// The body of a request to `/decode`.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct DecodeBody {
    #[serde(default, deserialize_with = "input::read")]
    ids: Vec<Input>,
    /// Whether special tokens are left out of the texts; true when absent.
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
pub(in crate::http) struct Token<'a> {
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
    let work = async |body: TokenizeBody, head: Head, mut permit: Permit| {
        let with_special = body.add_special_tokens.unwrap_or(true);
        let inputs = some::<TokenizeBody>(body.inputs)?;
        let options = options(Vectors::Dense, body.prompt_name, &head.asked);
        let asked = EmbedRequest { inputs: inputs.clone(), options, chunking: None };
        let lists = state.service.tokenize(asked, &mut permit).await;
        let names = FieldNames { prompt: "prompt_name", ..FieldNames::default() };
        let lists = lists.map_err(|error| ApiError::from_embed(error, head.timeout, names))?;
        let service = Arc::clone(&state.service);
        off_thread(&state, move |_| {
            let lists = inputs.iter().zip(&lists);
            let lists = lists.map(|(input, list)| Tokens::new(input, list, with_special, &service));
            held::write(&lists.collect::<Vec<_>>(), permit)
        })
        .await?
    };
    without_model(&state, &request, payload, work).await
}

/// The tokens of an item as TEI lists them.
struct Tokens<'a> {
    text: &'a str,
    places: BytePlaces<'a>,
    list: &'a Tokenized,
    with_special: bool,
    service: &'a EmbeddingService,
}

impl<'a> Tokens<'a> {
    fn new(
        input: &'a Input,
        list: &'a Tokenized,
        with_special: bool,
        service: &'a EmbeddingService,
    ) -> Self {
        let text = if let Input::Text(text) = input { &**text } else { "" };
        Self { text, places: BytePlaces::of(text), list, with_special, service }
    }

    fn token(&self, position: usize, id: u32) -> Token<'a> {
        let Self { list, .. } = self;
        let behind_prompt = position.checked_sub(list.own.start);
        let span = behind_prompt.and_then(|position| list.spans.get(position));
        let place = span.and_then(|span| {
            Some((self.places.of_code_point(span.start)?, self.places.of_code_point(span.end)?))
        });
        let in_front = list.own.start - list.prompt_tokens;
        let special = position < in_front || position >= list.own.end;
        let (start, stop) = place.unzip();
        let piece = || self.service.piece(id).unwrap_or_else(|| id.to_string());
        let text = match place.filter(|(start, stop)| start < stop) {
            Some((start, stop)) => Cow::from(&self.text[start..stop]),
            None => Cow::from(piece()),
        };
        Token { id, text, special, start, stop }
    }
}

impl Serialize for Tokens<'_> {
    // One after the other: a list of all would take as much memory as the answer.
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let all = self.list.ids.iter().enumerate();
        let all = all.map(|(position, &id)| self.token(position, id));
        json.collect_seq(all.filter(|token| self.with_special || !token.special))
    }
}

/// Where the code points of a text, in which spans are, begin in its bytes.
struct BytePlaces<'a> {
    text: &'a str,
    /// Of every code point whose number is a multiple of [`STRIDE`].
    known: Vec<usize>,
}

/// Code points between two whose places are known.
const STRIDE: usize = 64;

impl<'a> BytePlaces<'a> {
    fn of(text: &'a str) -> Self {
        let places = text.char_indices().map(|(at, _)| at);
        Self { text, known: places.step_by(STRIDE).collect() }
    }

    /// That of code point `number`, or the text's end; `None` behind that.
    fn of_code_point(&self, number: usize) -> Option<usize> {
        let begin = self.known.get(number / STRIDE).copied().unwrap_or(self.text.len());
        let skipped = number - number / STRIDE * STRIDE;
        let behind = &self.text[begin..];
        let mut ends = behind.char_indices().map(|(at, _)| begin + at).chain([self.text.len()]);
        ends.nth(skipped)
    }
}

async fn decode(
    state: Data<AppState>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let work = async |body: DecodeBody, head: Head, mut permit: Permit| {
        let special = match body.skip_special_tokens.unwrap_or(true) {
            true => SpecialPieces::LeaveOut,
            false => SpecialPieces::Keep,
        };
        let ids = some::<DecodeBody>(body.ids)?;
        let texts = state.service.model_texts(ids, special, &mut permit).await;
        let texts = texts
            .map_err(|error| ApiError::from_embed(error, head.timeout, FieldNames::default()))?;
        held::write(&texts, permit)
    };
    without_model(&state, &request, payload, work).await
}
