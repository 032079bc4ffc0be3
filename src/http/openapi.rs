//! The API's description in OpenAPI 3.1, made from the types that the routes read and write.
//!
//! It tells of this server: how many items it takes, and once the package is read, which token ids
//! and dimensions.

use actix_web::HttpResponse;
use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::Data;
use serde_json::{Value, json};
use utoipa::openapi::header::Header;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{Components, ComponentsBuilder, Object, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathItem, PathsBuilder,
    Ref, RefOr, Required, SecurityRequirement, ServerBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::embed::X_REQUEST_TIMEOUT_MS;
use super::error::{self, Code, ErrorForm, NOT_READY, OK};
use super::payload::{EmbeddingRequest, Use};
use super::reply::{Embedding, List, PairedEmbedding, SparseEmbedding};
use super::timeline::{SERVER_TIMING, X_COMPUTE_TOKENS};
use super::tokenize::TokenLists;
use super::{AppState, JSON, health, models};
use crate::config::{Dialect, HttpConfig};
use crate::limits::{MaxItems, MaxRequestTimeoutMs};
use crate::service::{ModelCard, Vectors};

mod nim;
mod refusal;
mod request;
mod tei;

use request::TextForms;

/// The scheme's name among the components.
const API_KEY: &str = "api_key";

/// What the description tells of the server that gives it.
struct Facts<'a> {
    max_items: MaxItems,
    max_request_timeout: MaxRequestTimeoutMs,
    dialects: &'a [Dialect],
    /// `None` until the package is read.
    card: Option<&'a ModelCard>,
}

/// `/openapi.json`. Anybody may ask for it, so it is written once, and once more when the model's
/// card is known. All answers are the same bytes.
pub(super) async fn answer(state: Data<AppState>) -> HttpResponse {
    let HttpConfig { max_items, max_request_timeout, ref dialects, .. } = state.config;
    let card = state.service.model_card();
    let write = || {
        let document = document(&Facts { max_items, max_request_timeout, dialects, card });
        serde_json::to_vec(&document).expect("it has string keys only").into()
    };
    let body = state.descriptions[usize::from(card.is_some())].get_or_init(write).clone();
    let mut response = HttpResponse::build(OK);
    response.insert_header((CACHE_CONTROL, "no-cache")).content_type(JSON).body(body)
}

fn document(facts: &Facts<'_>) -> OpenApi {
    let about = "Dense and sparse embeddings of a text in one pass of one resident model. The \
                 dense route follows OpenAI's embeddings convention.";
    let info = InfoBuilder::new()
        .title("duovec")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about))
        .license(Some(
            LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build(),
        ));
    let mut paths = PathsBuilder::new();
    for dialect in [Dialect::OpenAi, Dialect::Nim, Dialect::Tei] {
        if facts.dialects.contains(&dialect) {
            paths = match dialect {
                Dialect::OpenAi => openai_paths(paths, facts),
                Dialect::Nim => nim::paths(paths),
                Dialect::Tei => tei::paths(paths, facts),
            };
        }
    }
    let paths = paths
        .path("/health", health())
        .path("/health/deep", deep_health())
        .path("/health/live", live())
        .path("/metrics", metrics());
    OpenApiBuilder::new()
        .info(info)
        // Relative to the description, so that a proxy may put the server behind a prefix.
        .servers(Some([ServerBuilder::new().url(".").build()]))
        .paths(paths)
        .components(Some(components(facts)))
        .build()
}

fn openai_paths(paths: PathsBuilder, facts: &Facts<'_>) -> PathsBuilder {
    paths
        .path("/v1/embeddings", embed(Vectors::Dense, facts))
        .path("/v1/sparse-embeddings", embed(Vectors::Sparse, facts))
        .path("/v1/embeddings:both", embed(Vectors::Both, facts))
        .path("/v1/tokenize", tokenize(facts))
        .path("/v1/models", models())
        .path("/v1/models/{id}", model())
}

fn components(facts: &Facts<'_>) -> Components {
    let key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("one of the server's keys; a server without keys asks for none"))
        .build();
    let mut schemas = Vec::new();
    if facts.dialects.contains(&Dialect::OpenAi) {
        add_openai_schemas(facts, &mut schemas);
    }
    if facts.dialects.contains(&Dialect::Nim) {
        nim::add_schemas(&mut schemas);
    }
    if facts.dialects.contains(&Dialect::Tei) {
        tei::add_schemas(facts, &mut schemas);
    }
    if let Some(card) = facts.card.filter(|card| !card.prompts.is_empty()) {
        let words = Use::schema_of(|input_type| card.prompts.contains(&input_type));
        schemas.push((Use::name().into_owned(), words));
    }
    add::<health::Health<'_>>(&mut schemas);
    add::<health::Deep<'_>>(&mut schemas);
    add::<health::Live>(&mut schemas);
    add::<error::ErrorBody<'_>>(&mut schemas);
    ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(API_KEY, SecurityScheme::Http(key))
        .build()
}

/// By name.
type Schemas = Vec<(String, RefOr<Schema>)>;

fn add_openai_schemas(facts: &Facts<'_>, schemas: &mut Schemas) {
    let request = request::schema::<EmbeddingRequest>("input", TextForms::All, facts);
    schemas.push((request::NAME.to_owned(), request));
    EmbeddingRequest::schemas(schemas);
    add_list::<Embedding<'_>>(Vectors::Dense, schemas);
    add_list::<SparseEmbedding<'_>>(Vectors::Sparse, schemas);
    add_list::<PairedEmbedding<'_>>(Vectors::Both, schemas);
    add::<TokenLists<'_>>(schemas);
    add::<models::ModelList<'_>>(schemas);
}

/// Adds a type and the types that it names.
fn add<T: ToSchema>(schemas: &mut Schemas) {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
}

/// Adds a type and the list of it, which has a name of its own.
fn add_list<T: ToSchema>(vectors: Vectors, schemas: &mut Schemas) {
    add::<T>(schemas);
    List::<'_, T>::schemas(schemas);
    schemas.push((list_name(vectors).to_owned(), List::<'_, T>::schema()));
}

/// The name of [`List`] with the items of one route.
const fn list_name(vectors: Vectors) -> &'static str {
    match vectors {
        Vectors::Dense => "EmbeddingList",
        Vectors::Sparse => "SparseEmbeddingList",
        Vectors::Both => "PairedEmbeddingList",
    }
}

fn embed(vectors: Vectors, facts: &Facts<'_>) -> PathItem {
    let (id, summary, example) = match vectors {
        Vectors::Dense => {
            ("embed", "Dense vectors", json!({"input": ["The cat sleeps.", "Die Katze schläft."]}))
        }
        Vectors::Sparse => (
            "embed_sparse",
            "Lexical weights",
            json!({"input": "The cat sleeps.", "sparse_format": "tokens", "sparse_top_k": 8}),
        ),
        Vectors::Both => (
            "embed_both",
            "Dense vectors and lexical weights of the same input, in one pass; also at \
             /v1/embeddings/both",
            json!({"input": "The cat sleeps.", "input_type": "query"}),
        ),
    };
    let mut success = success(list_name(vectors), "the vectors, in the order of the input");
    success.headers.extend(timeline_headers());
    success.headers.extend([timeout_header()]);
    let codes: Vec<Code> = input_codes()
        .filter(|code| *code != Code::SparseNotAvailable || vectors.sparse())
        .collect();
    post(operation(id, "embeddings", summary, success, &codes), &example, facts)
}

/// A route that takes a request as `example` is one.
fn post(operation: OperationBuilder, example: &Value, facts: &Facts<'_>) -> PathItem {
    let operation = operation
        .parameters(Some(request::urgency(facts.max_request_timeout)))
        .request_body(Some(request::body(request::NAME, example)));
    PathItem::new(HttpMethod::Post, with_key(operation))
}

/// The codes with which a route may refuse its input. Left out are those of other paths and
/// methods, and those of requests that have no route yet.
fn input_codes() -> impl Iterator<Item = Code> {
    Code::ALL.iter().copied().filter(|code| {
        !matches!(
            code,
            Code::NotFound
                | Code::MethodNotAllowed
                | Code::PreflightRefused
                | Code::HeadTimeout
                | Code::UnfitModel
        )
    })
}

/// Those of routes that do not run the model: nothing is cut and nothing waits for a worker.
fn codes_without_run() -> impl Iterator<Item = Code> {
    input_codes().filter(|code| {
        !matches!(
            code,
            Code::SparseNotAvailable
                | Code::ContextLengthExceeded
                | Code::QueueFull
                | Code::NonFiniteOutput
        )
    })
}

fn tokenize(facts: &Facts<'_>) -> PathItem {
    let mut success = success(&TokenLists::name(), "the tokens, in the order of the input");
    success.headers.extend([timeout_header()]);
    let codes: Vec<Code> = codes_without_run().collect();
    let summary = "Token ids, pieces and offsets; of the fields, input, model, input_type and \
                   token_encoding count";
    let example = json!({"input": "The cat sleeps."});
    post(operation("tokenize", "embeddings", summary, success, &codes), &example, facts)
}

/// The headers that only answers with vectors have.
fn timeline_headers() -> [(String, RefOr<Header>); 2] {
    let stages = ObjectBuilder::new().schema_type(Type::String);
    let tokens = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let about_stages = "milliseconds of each stage; they add up to the total";
    let about_tokens = "tokens that the model ran for this request, without padding";
    [
        (SERVER_TIMING.to_string(), refusal::header(stages, about_stages).into()),
        (X_COMPUTE_TOKENS.to_string(), refusal::header(tokens, about_tokens).into()),
    ]
}

/// The header of answers to requests that asked for more time than they may have.
fn timeout_header() -> (String, RefOr<Header>) {
    let millis = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    let about = "the request's time, when it asked for more than the server allows";
    (X_REQUEST_TIMEOUT_MS.to_owned(), refusal::header(millis, about).into())
}

/// What a route that only reads a loaded model is refused with.
const READ_CODES: [Code; 5] =
    [Code::InvalidApiKey, Code::InternalError, Code::Loading, Code::Draining, Code::NoWorker];

fn models() -> PathItem {
    let success = success(&models::ModelList::name(), "the resident model");
    let summary = "The resident model, as a list";
    let operation = operation("list_models", "models", summary, success, &READ_CODES);
    PathItem::new(HttpMethod::Get, with_key(operation))
}

fn model() -> PathItem {
    let success = success(&models::Model::name(), "the model");
    let codes = [READ_CODES.as_slice(), &[Code::NotFound, Code::ModelNotFound]].concat();
    let id = ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("the model's id or an alias; a slash may be written as it is"))
        .schema(Some(Object::with_type(Type::String)))
        .build();
    let operation = operation("get_model", "models", "The resident model", success, &codes);
    PathItem::new(HttpMethod::Get, with_key(operation.parameter(id)))
}

fn health() -> PathItem {
    let summary = "Readiness, workers, queue, what the server runs with";
    let when = ["requests are taken: the status is ok or degraded", "requests should go elsewhere"];
    readiness::<health::Health<'_>>("health", summary, when)
}

fn deep_health() -> PathItem {
    let when = ["every worker computes what it should", "a worker does not, or there is none"];
    readiness::<health::Deep<'_>>("deep_health", "Runs the package's canary on every worker", when)
}

/// A route with one body for two statuses: requests are taken, or are not.
fn readiness<T: ToSchema>(id: &str, summary: &str, [ready, not_ready]: [&str; 2]) -> PathItem {
    let [ready, not_ready] = [ready, not_ready].map(|when| success(&T::name(), when));
    let operation = operation(id, "health", summary, ready, &[Code::InternalError]);
    PathItem::new(HttpMethod::Get, operation.response(NOT_READY.as_str(), not_ready))
}

fn live() -> PathItem {
    let success = success(&health::Live::name(), "the process lives");
    let summary = "Whether the process lives";
    let operation = operation("live", "health", summary, success, &[Code::InternalError]);
    PathItem::new(HttpMethod::Get, operation)
}

fn metrics() -> PathItem {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let content = ContentBuilder::new().schema(Some(text)).build();
    let success = ResponseBuilder::new()
        .description("text for Prometheus")
        .header("x-request-id", refusal::request_id())
        .content(health::METRICS_CONTENT_TYPE, content)
        .build();
    let codes = [Code::InvalidApiKey, Code::NotFound, Code::InternalError];
    let summary = "Counters and times since the start";
    let operation = operation("metrics", "health", summary, success, &codes);
    PathItem::new(HttpMethod::Get, with_key(operation))
}

fn operation(
    id: &str,
    tag: &str,
    summary: &str,
    success: Response,
    codes: &[Code],
) -> OperationBuilder {
    operation_in(ErrorForm::OpenAi, [id, tag, summary], success, codes)
}

fn operation_in(
    form: ErrorForm,
    [id, tag, summary]: [&str; 3],
    success: Response,
    codes: &[Code],
) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(id))
        .tag(tag)
        .summary(Some(summary))
        .parameter(request::request_id())
        .response(OK.as_str(), success);
    for (status, response) in refusal::responses(codes, form) {
        operation = operation.response(status, response);
    }
    operation
}

/// A server without keys asks for none, so that the key is optional here.
fn with_key(operation: OperationBuilder) -> OperationBuilder {
    let none: [&str; 0] = [];
    operation
        .security(SecurityRequirement::default())
        .security(SecurityRequirement::new(API_KEY, none))
}

fn success(schema: &str, about: &str) -> Response {
    answer_of(Ref::from_schema_name(schema), about)
}

fn answer_of(schema: impl Into<RefOr<Schema>>, about: &str) -> Response {
    ResponseBuilder::new()
        .description(about)
        .header("x-request-id", refusal::request_id())
        .content("application/json", ContentBuilder::new().schema(Some(schema)).build())
        .build()
}

#[cfg(test)]
mod tests;
