//! `/v1/tokenize`: the tokens of texts with their pieces and places.

use std::sync::Arc;

use actix_web::web::{self, Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde::ser::Serializer;

use super::embed::{Head, off_thread, without_model};
use super::error::ApiError;
use super::held;
use super::payload::{EmbeddingRequest, Question};
use super::state::AppState;
use crate::service::{EmbeddingService, Permit, Vectors};
use model::tokenize::Tokenized;

/// Tokens from which writing should leave the connection's thread; about 5 ms of work.
const MANY_TOKENS: usize = 64 * 1024;

/// The tokens of a request's items, in the order of its input.
#[derive(Serialize)]
pub(super) struct TokenLists<'a> {
    object: &'static str,
    data: Vec<TokenList<'a>>,
    /// The model's id.
    model: &'a str,
    /// Of an item with more tokens, the last ones in front of the closing special token are not
    /// run.
    max_input_tokens: usize,
}

/// The tokens of an item: three lists of the same length.
#[derive(Serialize)]
pub(super) struct TokenList<'a> {
    object: &'static str,
    /// The item's place in the input.
    index: usize,
    /// Token ids, special tokens and the prompt among them.
    ids: &'a [u32],
    /// The vocabulary's pieces; ▁ marks the start of a word.
    pieces: Pieces<'a>,
    /// Where each token stands in the text as sent, in Unicode code points: its first one, and the
    /// one behind its last. Null for special tokens around the text, the prompt, and token ids.
    offsets: OffsetPairs<'a>,
}

struct Pieces<'a> {
    ids: &'a [u32],
    service: &'a EmbeddingService,
}

impl Serialize for Pieces<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        // The service gives ids of its own vocabulary, so that each has a piece.
        let piece = |&id: &u32| self.service.piece(id).unwrap_or_else(|| id.to_string());
        json.collect_seq(self.ids.iter().map(piece))
    }
}

struct OffsetPairs<'a>(&'a Tokenized);

impl Serialize for OffsetPairs<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let Tokenized { ids, own, spans, .. } = self.0;
        let place = |position: usize| {
            let span = spans.get(position.checked_sub(own.start)?)?;
            Some([span.start, span.end])
        };
        json.collect_seq((0..ids.len()).map(place))
    }
}

/// Answers one request. It waits for no worker.
pub(super) async fn tokenize(
    state: Data<AppState>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let work = async |asked: EmbeddingRequest, head: Head, mut permit: Permit| {
        let (config, service) = (&state.config, Arc::clone(&state.service));
        let names = asked.names();
        let (asked, _) = asked.ask(Vectors::Dense, &head.asked, config, &service)?;
        let lists = service.tokenize(asked, &mut permit).await;
        let lists = lists.map_err(|error| ApiError::from_embed(error, head.timeout, names))?;
        let tokens: usize = lists.iter().map(|list| list.ids.len()).sum();
        let work = move || write(&lists, &service, permit);
        if tokens < MANY_TOKENS { work() } else { off_thread(&state, |_| work()).await? }
    };
    without_model(&state, &request, payload, work).await
}

fn write(
    lists: &[Tokenized],
    service: &EmbeddingService,
    permit: Permit,
) -> Result<Bytes, ApiError> {
    let card = service.model_card();
    let data = lists.iter().enumerate().map(|(index, list)| TokenList {
        object: "tokens",
        index,
        ids: &list.ids,
        pieces: Pieces { ids: &list.ids, service },
        offsets: OffsetPairs(list),
    });
    let answer = TokenLists {
        object: "list",
        data: data.collect(),
        model: card.map_or("", |card| &card.model_id),
        max_input_tokens: card.map_or(0, |card| card.max_input_tokens),
    };
    held::write(&answer, permit)
}
