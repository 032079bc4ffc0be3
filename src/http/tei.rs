//! The routes of text-embeddings-inference (TEI), for clients that were written for it.
//!
//! A request goes the way of all others. Its fields, its answer and its errors have TEI's form; a
//! status means here what it means on the other routes.

use std::num::NonZeroUsize;

use actix_web::web::{Data, ServiceConfig};
use actix_web::{HttpResponse, Resource, guard};
use serde::{Deserialize, Serialize, Serializer};

use super::app::{Endpoint, get, post};
use super::embed::{self, Question};
use super::error::{ApiError, Code, ErrorForm, NOT_READY, OK};
use super::payload::{Body, USE, Use, WHOLE_NUMBER, input, missing, scalar};
use super::reply::{DECIMAL_BYTES, Resident};
use super::{AppState, NO_STORE, models};
use crate::batch::Pooling;
use crate::config::{TokenInput, TruncateDefault};
use crate::service::{
    AnswerBytes, EmbedOptions, EmbedReply, EmbedRequest, Input, InputType, OverLong, Refusal,
    RequestHead, Vectors,
};
use crate::sparse::{Selection, SparseVector};
use crate::tokenize::Offsets;

pub(super) mod similarity;
pub(super) mod tokens;

/// Routes for models of other kinds, and why the resident one is not of that kind.
const UNFIT: [(&str, &str); 3] = [
    ("/embed_all", "the model gives one vector for each text, not for each token; use /embed"),
    ("/predict", "model is not a classifier model; it embeds texts: use /embed"),
    ("/rerank", "model is not a re-ranker model; it embeds texts: use /embed"),
];

/// The body of a request to `/embed`, `/embed_sparse` and `/`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct EmbedBody {
    #[serde(default, deserialize_with = "input::read")]
    inputs: Vec<Input>,
    /// Whether an over-long text is cut, or refused.
    #[serde(default, deserialize_with = "scalar")]
    truncate: Option<bool>,
    #[serde(default, deserialize_with = "scalar", rename = "truncation_direction")]
    _direction: Option<Direction>,
    // TEI has no such words, and clients of other services send them here as well.
    #[serde(default, deserialize_with = "scalar")]
    #[serde(alias = "input_type", alias = "task", alias = "task_type")]
    prompt_name: Option<Use>,
    /// Vectors have length one all the same.
    // The graph itself normalizes, so that there is no other vector to give. It is not refused as
    // "normalized" is elsewhere: Haystack sends false by default.
    #[serde(default, deserialize_with = "scalar", rename = "normalize")]
    _normalize: Option<bool>,
    /// The length of dense vectors; absent is the model's own.
    #[serde(default, deserialize_with = "scalar")]
    #[serde(alias = "output_dimension", alias = "truncate_dim")]
    dimensions: Option<NonZeroUsize>,
}

/// Where an over-long text is cut. It keeps its start.
#[derive(Debug, Deserialize)]
pub(super) enum Direction {
    #[serde(alias = "right")]
    Right,
}

impl Body for EmbedBody {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("inputs", "a text, a list of texts, or token ids (POST /similarity compares sentences)"),
        ("truncate", "true or false"),
        ("truncation_direction", "\"right\" (a text keeps its start: \"left\" is not possible)"),
        ("prompt_name", USE),
        ("input_type", USE),
        ("task", USE),
        ("task_type", USE),
        ("normalize", "true or false (vectors have length one all the same)"),
        ("dimensions", WHOLE_NUMBER),
        ("output_dimension", WHOLE_NUMBER),
        ("truncate_dim", WHOLE_NUMBER),
    ];
    const EXAMPLE: &'static str = "{\"inputs\": \"a text\"}";
}

impl Question for EmbedBody {
    type Format = ();

    fn ask(
        self,
        vectors: Vectors,
        head: &RequestHead,
        state: &AppState,
    ) -> Result<(EmbedRequest, ()), ApiError> {
        if self.inputs.is_empty() {
            return Err(missing::<Self>());
        }
        let by_default = state.config.truncate == TruncateDefault::Truncate;
        let options = EmbedOptions {
            over_long: match self.truncate.unwrap_or(by_default) {
                true => OverLong::Truncate,
                false => OverLong::Refuse,
            },
            dimensions: self.dimensions.map(NonZeroUsize::get),
            ..options(vectors, self.prompt_name, head)
        };
        Ok((EmbedRequest { inputs: self.inputs, options, chunking: None }, ()))
    }

    fn most_bytes((): (), _model_id: &str) -> AnswerBytes {
        MOST_BYTES
    }

    fn write(
        mut out: Vec<u8>,
        reply: &EmbedReply,
        vectors: Vectors,
        (): (),
        _resident: &Resident<'_>,
    ) -> Vec<u8> {
        let items = reply.items.iter();
        let written = match vectors {
            Vectors::Dense | Vectors::Both => {
                serde_json::to_writer(&mut out, &items.map(|item| &item.dense).collect::<Vec<_>>())
            }
            Vectors::Sparse => {
                let weights = items.map(|item| Weights(&item.sparse)).collect::<Vec<_>>();
                serde_json::to_writer(&mut out, &weights)
            }
        };
        written.expect("it has string keys only");
        out
    }
}

/// What a request wants that says nothing but its prompt.
fn options(vectors: Vectors, prompt: Option<Use>, head: &RequestHead) -> EmbedOptions {
    EmbedOptions {
        vectors,
        input_type: prompt.map_or(InputType::Default, |Use(input_type)| input_type),
        over_long: OverLong::Truncate,
        offsets: Offsets::Skip,
        // TEI takes no ids but those of its model.
        token_input: Some(TokenInput::Model),
        dimensions: None,
        selection: Selection::default(),
        priority: head.priority,
        deadline: head.deadline,
    }
}

/// The most bytes that the parts of an answer take.
const MOST_BYTES: AnswerBytes = AnswerBytes {
    frame: 2,
    item: 3,
    chunk: 0,
    number: DECIMAL_BYTES,
    // The names, the id, the weight.
    weight: 48,
    place: 0,
    has_pieces: false,
};

/// The lexical weights of one text.
struct Weights<'a>(&'a SparseVector);

impl Serialize for Weights<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        json.collect_seq(self.0.pairs().map(|(index, value)| Weight { index, value }))
    }
}

/// A lexical weight.
#[derive(Serialize)]
pub(super) struct Weight {
    index: u32,
    value: f32,
}

/// The body of every refusal.
#[derive(Serialize)]
pub(super) struct TeiError<'a> {
    error: &'a str,
    error_type: &'static str,
}

/// What is served, and within which limits.
#[derive(Serialize)]
pub(super) struct Info<'a> {
    model_id: &'a str,
    model_sha: &'a str,
    model_dtype: &'a str,
    served_model_name: &'a str,
    model_type: TeiModelType,
    max_concurrent_requests: u64,
    max_input_length: usize,
    max_batch_tokens: u64,
    max_batch_requests: Option<usize>,
    max_client_batch_size: u64,
    auto_truncate: bool,
    tokenization_workers: u64,
    version: &'static str,
    sha: Option<&'static str>,
    docker_label: Option<&'static str>,
}

/// What kind of model is served.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum TeiModelType {
    Embedding { pooling: &'static str },
}

/// The process takes requests.
#[derive(Serialize)]
pub(super) struct Healthy {
    status: &'static str,
}

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
    app.service(similarity::route());
    let ping_route = Endpoint::polled("/ping").refusing_as(ErrorForm::Tei);
    app.service(get(keyed("/info"), info)).service(get(ping_route, ping));
}

const fn keyed(path: &'static str) -> Endpoint {
    Endpoint::keyed(path).refusing_as(ErrorForm::Tei)
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

async fn info(state: Data<AppState>) -> Result<HttpResponse, ApiError> {
    let card = models::card(&state.service)?;
    let resident = state.service.resident();
    let resident = resident.ok_or_else(|| ApiError::unavailable(Refusal::NoWorker))?;
    let config = &state.config;
    let pooling = match resident.package.manifest().pooling {
        Pooling::Cls => "cls",
        Pooling::Mean => "mean",
    };
    Ok(HttpResponse::build(OK).json(Info {
        model_id: &card.id,
        model_sha: &card.revision,
        model_dtype: &resident.engine.info().precision,
        served_model_name: &card.id,
        model_type: TeiModelType::Embedding { pooling },
        max_concurrent_requests: config.max_connections.get(),
        max_input_length: card.max_input_tokens,
        max_batch_tokens: resident.max_batch_tokens.get(),
        max_batch_requests: None,
        max_client_batch_size: config.max_items.get(),
        auto_truncate: config.truncate == TruncateDefault::Truncate,
        tokenization_workers: config.threads.get(),
        version: env!("CARGO_PKG_VERSION"),
        sha: None,
        docker_label: None,
    }))
}

async fn ping(state: Data<AppState>) -> HttpResponse {
    let status = state.service.facts().status;
    let mut response = HttpResponse::build(if status.takes_requests() { OK } else { NOT_READY });
    response.insert_header(NO_STORE);
    if status.takes_requests() {
        return response.json(Healthy { status: status.name() });
    }
    let error = &format!("unhealthy: {}", status.name());
    response.json(TeiError { error, error_type: "Unhealthy" })
}

/// The body of a refusal, with TEI's word for its kind.
pub(super) fn error_body(error: &ApiError) -> Vec<u8> {
    let error_type = match (error.code, error.code.status_and_type().1) {
        (Code::UnfitModel, _) => "Backend",
        (Code::Loading | Code::Draining | Code::NoWorker, _) => "Unhealthy",
        (_, "overloaded_error") => "Overloaded",
        (_, "server_error") => "Backend",
        _ => "Validation",
    };
    let body = TeiError { error: &error.message, error_type };
    serde_json::to_vec(&body).expect("it has string keys only")
}
