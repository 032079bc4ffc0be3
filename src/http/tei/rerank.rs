//! `/rerank`: texts in the order of how near they are to a query.

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse, Resource};
use serde::{Deserialize, Serialize};

use super::embedding::{Direction, keyed};
use crate::http::embed::embed;
use crate::http::error::ApiError;
use crate::http::payload::{Body, Question, TRUNCATE, Truncate, input, scalar};
use crate::http::reply::Resident;
use crate::http::rerank::{Ranking, RerankScore, TextsToCompare, sigmoid};
use crate::http::route::post;
use crate::http::state::AppState;
use crate::service::{
    AnswerBytes, EmbedReply, EmbedRequest, EmbeddingService, Input, RequestHead, Vectors,
};
use settings::HttpConfig;

/// Says which score an answer has: TEI's answer has no place for the word.
const X_SCORE: &str = "x-score";

/// The body of a request to `/rerank`.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct TextsToRank {
    #[serde(default, deserialize_with = "input::read_documents")]
    texts: Vec<Input>,
    #[serde(default, deserialize_with = "input::read_query")]
    query: Vec<Input>,
    /// Whether scores are as the model gives them; else they are between zero and one.
    #[serde(default, deserialize_with = "scalar")]
    raw_scores: Option<bool>,
    /// Whether the answer repeats the texts.
    #[serde(default, deserialize_with = "scalar")]
    return_text: Option<bool>,
    #[serde(default, deserialize_with = "scalar")]
    truncate: Option<Truncate>,
    #[serde(default, deserialize_with = "scalar", rename = "truncation_direction")]
    _direction: Option<Direction>,
}

impl Body for TextsToRank {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("texts", "a list of texts"),
        ("query", "a text"),
        ("raw_scores", "true or false"),
        ("return_text", "true or false"),
        ("truncate", TRUNCATE),
        ("truncation_direction", "\"right\" (a text keeps its start: \"left\" is not possible)"),
    ];
    const EXAMPLE: &'static str = "{\"query\": \"a text\", \"texts\": [\"another\"]}";

    fn settle(&mut self) {
        input::settle(&mut self.texts);
        input::settle(&mut self.query);
    }
}

/// A text with its score.
#[derive(Serialize)]
struct RankedText<'a> {
    /// Its place in the request.
    index: usize,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// How the answer is written.
pub(in crate::http) struct TextRanking {
    ranking: Ranking,
    is_raw: bool,
}

impl Question for TextsToRank {
    type Format = TextRanking;

    fn ask(
        self,
        _vectors: Vectors,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, TextRanking), ApiError> {
        let is_raw = self.raw_scores == Some(true);
        let comparison = TextsToCompare {
            query: self.query,
            documents: self.texts,
            model: None,
            truncate: self.truncate,
            score: None,
            with_texts: self.return_text == Some(true),
        };
        let (request, ranking) = comparison.ask::<Self>(head, config, service)?;
        Ok((request, TextRanking { ranking, is_raw }))
    }

    fn most_bytes(format: &TextRanking, _model_id: &str) -> AnswerBytes {
        format.ranking.most_bytes(2)
    }

    fn write(
        mut out: Vec<u8>,
        reply: &EmbedReply,
        _vectors: Vectors,
        TextRanking { ranking, is_raw }: &TextRanking,
        _resident: &Resident<'_>,
    ) -> Vec<u8> {
        // TEI makes numbers between zero and one of all its models' scores.
        let one = |(index, score): (usize, f32)| RankedText {
            index,
            score: if *is_raw { score } else { sigmoid(score) },
            text: ranking.texts.get(index).map(|text| &**text),
        };
        let texts: Vec<RankedText<'_>> = ranking.of(reply).into_iter().map(one).collect();
        serde_json::to_writer(&mut out, &texts).expect("a vector takes all");
        out
    }
}

async fn rerank(
    state: Data<AppState>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let service = std::sync::Arc::clone(&state.service);
    let mut response = embed::<TextsToRank>(state, request, payload, Vectors::Both).await?;
    let best = RerankScore::of_model(service.model_card())[0];
    let score = HeaderValue::from_static(best.name());
    response.headers_mut().insert(HeaderName::from_static(X_SCORE), score);
    Ok(response)
}

pub(super) fn route() -> Resource {
    post(keyed("/rerank"), rerank)
}
