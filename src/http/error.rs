//! Every way in which a request is refused: status, type, code and what the client should do.
//!
//! The only file that names status codes.

use std::fmt;
use std::time::Duration;

use super::headers::JSON;
use super::request_id::X_REQUEST_ID;
use crate::service::Refusal;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};
pub(super) use embedding::FieldNames;
use serde::Serialize;

mod embedding;

/// The answer holds what was asked for.
pub(super) const OK: StatusCode = StatusCode::OK;
/// A health route says that requests should go elsewhere.
pub(super) const NOT_READY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// Loading takes seconds from a warm disk; clients that retry sooner only fill the log.
const RETRY_WHILE_LOADING: Duration = Duration::from_secs(2);
/// Another process takes over as soon as the load balancer has noticed.
const RETRY_ELSEWHERE: Duration = Duration::from_secs(1);
/// Bodies are read and tokenized within about this time.
const RETRY_FOR_BYTES: Duration = Duration::from_secs(1);
/// A failed worker is replaced, or the process is restarted and loads again.
const RETRY_AFTER_RESTART: Duration = Duration::from_secs(5);

/// Makes [`Code`] of a table with a row for each code: its name here, the word that clients read,
/// its status, the `type` of its errors, and when it is answered.
macro_rules! codes {
    ($($code:ident: $word:literal, $status:ident, $kind:literal, $when:literal;)*) => {
        /// The `code` of an error body; it decides the status and the `type`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Code {
            $(#[doc = $when] $code,)*
        }

        impl Code {
            /// All of them, in the order of the documents.
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$(Self::$code),*];

            /// The word that clients compare with.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $word,)*
                }
            }

            /// The status of its answers, and the `type` of their errors.
            pub(super) const fn status_and_type(self) -> (StatusCode, &'static str) {
                match self {
                    $(Self::$code => (StatusCode::$status, $kind),)*
                }
            }

            /// When it is answered, for the documents.
            #[cfg(test)]
            pub(super) const fn when(self) -> &'static str {
                match self {
                    $(Self::$code => $when,)*
                }
            }
        }
    };
}

codes! {
    InvalidJson: "invalid_json", BAD_REQUEST, "invalid_request_error",
        "the body is not a JSON object in UTF-8";
    DuplicateField: "duplicate_field", BAD_REQUEST, "invalid_request_error", "a field comes twice";
    InvalidInput: "invalid_input", BAD_REQUEST, "invalid_request_error",
        "input is missing, empty, or of a wrong type";
    TooManyItems: "too_many_items", BAD_REQUEST, "invalid_request_error",
        "input has more items than one request may have";
    ItemTooLarge: "item_too_large", BAD_REQUEST, "invalid_request_error",
        "a text, or a list of token ids, is larger than the server takes";
    TokenIdOutOfRange: "token_id_out_of_range", BAD_REQUEST, "invalid_request_error",
        "a token id is not in the tokenizer's vocabulary";
    TokenEncodingMissing: "token_encoding_missing", BAD_REQUEST, "invalid_request_error",
        "input is token ids, and neither the request nor the server names their tokenizer";
    ContextLengthExceeded: "context_length_exceeded", BAD_REQUEST, "invalid_request_error",
        "an item is too long, and truncate is false";
    InvalidDimensions: "invalid_dimensions", BAD_REQUEST, "invalid_request_error",
        "the model has no vectors of this length";
    InvalidValue: "invalid_value", BAD_REQUEST, "invalid_request_error",
        "another field or header has a wrong value, or a field has a slip in its name";
    MalformedHead: "malformed_head", BAD_REQUEST, "invalid_request_error",
        "the bytes are not HTTP/1.1, or its headers contradict each other";
    HeadTooLarge: "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, "invalid_request_error",
        "the head is larger than 64 KiB or has more than 96 headers, both over HTTP/1.1";
    HeadTimeout: "head_timeout", REQUEST_TIMEOUT, "invalid_request_error",
        "the head of the request did not come in time";
    BodyTimeout: "body_timeout", REQUEST_TIMEOUT, "invalid_request_error",
        "the body did not come in time";
    RequestTimeoutTooShort: "request_timeout_too_short", BAD_REQUEST, "invalid_request_error",
        "the model needs more time for the input than the request has, however idle the server is";
    InvalidBody: "invalid_body", BAD_REQUEST, "invalid_request_error",
        "the body ended early or cannot be unpacked";
    UnfitModel: "unfit_model", FAILED_DEPENDENCY, "invalid_request_error",
        "the route is for models of another kind";
    VectorsNotAvailable: "vectors_not_available", BAD_REQUEST, "invalid_request_error",
        "the model is a cross-encoder, which has scores of pairs and no vectors";
    DenseNotAvailable: "dense_not_available", BAD_REQUEST, "invalid_request_error",
        "the model has lexical weights and no dense vectors";
    SparseNotAvailable: "sparse_not_available", BAD_REQUEST, "invalid_request_error",
        "the model has no lexical weights";
    InvalidApiKey: "invalid_api_key", UNAUTHORIZED, "authentication_error",
        "the request has no valid API key";
    NotFound: "not_found", NOT_FOUND, "not_found_error", "there is no such route";
    ModelNotFound: "model_not_found", NOT_FOUND, "not_found_error", "the model is not served here";
    MethodNotAllowed: "method_not_allowed", METHOD_NOT_ALLOWED, "not_found_error",
        "the route does not take this method";
    PreflightRefused: "preflight_refused", BAD_REQUEST, "invalid_request_error",
        "a browser asked for an origin or a method that is not allowed";
    BodyTooLarge: "body_too_large", PAYLOAD_TOO_LARGE, "invalid_request_error",
        "the body is too large, counted after it was unpacked";
    RequestTooLarge: "request_too_large", PAYLOAD_TOO_LARGE, "invalid_request_error",
        "the request with its answer takes more memory than the server gives to one";
    UnsupportedMediaType: "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "invalid_request_error",
        "the content type is not JSON, or the content encoding is not supported";
    QueueFull: "queue_full", TOO_MANY_REQUESTS, "overloaded_error",
        "the answer would not be ready in time; Retry-After says when it would";
    InflightBytesExceeded: "inflight_bytes_exceeded", TOO_MANY_REQUESTS, "overloaded_error",
        "the requests of all clients take as much memory as the server gives them";
    EngineFailed: "engine_failed", INTERNAL_SERVER_ERROR, "server_error",
        "the model could not be run";
    NonFiniteOutput: "non_finite_output", INTERNAL_SERVER_ERROR, "server_error",
        "the model returned NaN or infinity";
    InternalError: "internal_error", INTERNAL_SERVER_ERROR, "server_error", "a bug of the server";
    Loading: "loading", SERVICE_UNAVAILABLE, "server_error", "the model is being loaded";
    Draining: "draining", SERVICE_UNAVAILABLE, "server_error", "the server is shutting down";
    NoWorker: "no_worker", SERVICE_UNAVAILABLE, "server_error", "no worker can run the model";
    DeadlineExceeded: "deadline_exceeded", GATEWAY_TIMEOUT, "server_error",
        "the deadline passed";
}

/// Whose form the body of a refusal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorForm {
    OpenAi,
    Tei,
}

/// The body of every refusal.
#[derive(Serialize)]
struct ErrorBody<'a> {
    error: Parts<'a>,
}

#[derive(Serialize)]
struct Parts<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'static str>,
    code: &'static str,
}

/// The body of a refusal in the form of text-embeddings-inference.
#[derive(Serialize)]
pub(super) struct TeiError<'a> {
    pub(super) error: &'a str,
    pub(super) error_type: &'static str,
}

/// A refusal: what the client reads, and what only the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) code: Code,
    /// What is wrong and what to do about it; no whole inputs, no internals.
    pub(super) message: String,
    /// The field or the header that is wrong.
    pub(super) param: Option<&'static str>,
    /// Time after which the same request may succeed.
    pub(super) retry_after: Option<Duration>,
    /// Methods that the route knows.
    pub(super) allow: Option<&'static str>,
    /// For the log alone.
    pub(super) cause: Option<String>,
    pub(super) form: ErrorForm,
}

impl ApiError {
    /// An error that no single field is to blame for.
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        let form = ErrorForm::OpenAi;
        Self { code, message, param: None, retry_after: None, allow: None, cause: None, form }
    }

    /// An error in the field or header `param`.
    pub(super) fn of(code: Code, param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::new(code, message) }
    }

    /// The same refusal in another form. TEI's routes are each for one kind of model.
    pub(super) fn in_form(self, form: ErrorForm) -> Self {
        let code = match (form, self.code) {
            (
                ErrorForm::Tei,
                Code::SparseNotAvailable | Code::DenseNotAvailable | Code::VectorsNotAvailable,
            ) => Code::UnfitModel,
            (_, code) => code,
        };
        Self { code, form, ..self }
    }

    /// A fault of the server; `cause` goes to the log.
    pub(super) fn server(code: Code, cause: impl Into<String>) -> Self {
        let message = "the server failed to embed the input; its log has the reason under this \
                       answer's x-request-id";
        Self { cause: Some(cause.into()), ..Self::new(code, message) }
    }

    /// What an embedding route answers when the service does not take the request now.
    pub(super) fn unavailable(refusal: Refusal) -> Self {
        let (code, message, after) = match refusal {
            Refusal::Loading => (
                Code::Loading,
                "the model is being loaded; retry, GET /health tells when it is ready",
                RETRY_WHILE_LOADING,
            ),
            Refusal::Draining => (
                Code::Draining,
                "the server is shutting down and takes no new requests; retry elsewhere",
                RETRY_ELSEWHERE,
            ),
            Refusal::NoWorker => (
                Code::NoWorker,
                "no worker can run the model now; retry, GET /health tells the state",
                RETRY_AFTER_RESTART,
            ),
            Refusal::Full { retry_after } => (
                Code::QueueFull,
                "the queue is full; retry after the seconds in Retry-After, or send fewer items in \
                 each request",
                retry_after,
            ),
            Refusal::Late { retry_after } => (
                Code::QueueFull,
                "the queue is too long to answer within this request's time; retry after the \
                 seconds in Retry-After, or allow more time with x-request-timeout-ms",
                retry_after,
            ),
            Refusal::TooShort { needed } => return Self::timeout_too_short(needed),
            Refusal::BytesExceeded => return Self::bytes_exceeded(),
            Refusal::NeverFits { limit } => return Self::request_too_large(limit),
        };
        Self { retry_after: Some(after), ..Self::new(code, message) }
    }

    /// The body did not fit.
    pub(super) fn body_too_large(limit: u64) -> Self {
        let message = format!(
            "the body has more than {limit} bytes (counted after decompression); send fewer or \
             shorter items in each request"
        );
        Self::new(Code::BodyTooLarge, message)
    }

    /// A browser asked whether a page may send a request, and it may not.
    pub(super) fn preflight_refused() -> Self {
        let message = "this origin or method is not allowed; the operator allows origins with \
                       --cors-origin; methods are GET, HEAD and POST";
        Self::of(Code::PreflightRefused, "origin", message)
    }

    /// The request takes more than `limit` bytes of memory.
    fn request_too_large(limit: u64) -> Self {
        let message = format!(
            "the request with its answer takes more than {limit} bytes, the most that the server \
             gives to one; send fewer or shorter texts in each request, or ask for less \
             (dimensions, sparse_top_k, encoding_format base64, no token_vectors, another score)"
        );
        Self::new(Code::RequestTooLarge, message)
    }

    /// Comparing the vectors of tokens takes `products` of two numbers, more than `limit`.
    pub(super) fn too_many_products(products: u64, limit: u64) -> Self {
        let message = format!(
            "comparing the query's tokens with those of the documents takes {products} products of \
             two numbers, and the limit is {limit}; send fewer or shorter documents in each \
             request, a shorter query, or another score"
        );
        Self::of(Code::RequestTooLarge, "documents", message)
    }

    /// Other requests take the memory that there is for requests.
    pub(super) fn bytes_exceeded() -> Self {
        let message = "the requests of all clients take as much memory as the server gives them; \
                       retry after the seconds in Retry-After, or send fewer items in each request";
        let error = Self::new(Code::InflightBytesExceeded, message);
        Self { retry_after: Some(RETRY_FOR_BYTES), ..error }
    }

    /// The head of a request has a `problem`: what is wrong; and what to do.
    pub(super) fn malformed_head(problem: &'static str) -> Self {
        Self::new(Code::MalformedHead, format!("the head of the request is malformed: {problem}"))
    }

    /// The head of a request has more than `bytes` bytes or `headers` headers.
    pub(super) fn head_too_large(bytes: usize, headers: usize) -> Self {
        let message = format!(
            "the head of the request has more than {bytes} bytes or {headers} headers; send fewer \
             and shorter headers"
        );
        Self::new(Code::HeadTooLarge, message)
    }

    /// A request was begun and its head did not end in time.
    pub(super) fn head_timeout() -> Self {
        let message = "the head of the request did not come in time; send the complete headers \
                       without pauses";
        Self::new(Code::HeadTimeout, message)
    }

    /// The body did not come within `timeout`.
    pub(super) fn body_timeout(timeout: Duration) -> Self {
        let message = format!(
            "the body did not come within {} ms; send it faster, or fewer items in each request",
            timeout.as_millis()
        );
        Self::new(Code::BodyTimeout, message)
    }

    /// The body stopped, or came by the byte, while its memory was needed.
    pub(super) fn body_too_slow() -> Self {
        let message = "the body came too slowly for a server whose memory is nearly used up; send \
                       it faster, in smaller requests, or later";
        Self::new(Code::BodyTimeout, message)
    }

    /// The deadline of `timeout` passed.
    pub(super) fn deadline(timeout: Duration) -> Self {
        let message = format!(
            "the answer was not ready within {} ms; send fewer items, or allow more time with the \
             header x-request-timeout-ms",
            timeout.as_millis()
        );
        Self::new(Code::DeadlineExceeded, message)
    }

    /// The model alone takes longer than the request may.
    fn timeout_too_short(needed: Duration) -> Self {
        let message = format!(
            "the model needs about {} ms for the input, which is more than the request's time; \
             send less text in each request, or allow more time with the header \
             x-request-timeout-ms, as far as the server's --max-request-timeout-ms goes",
            needed.as_nanos().div_ceil(1_000_000)
        );
        Self::of(Code::RequestTimeoutTooShort, "x-request-timeout-ms", message)
    }

    /// Seconds for the `Retry-After` header: whole, rounded up, at least one.
    pub(super) fn retry_after_s(&self) -> Option<u64> {
        self.retry_after.map(|after| after.as_secs_f64().ceil().max(1.0) as u64)
    }

    /// The whole answer in HTTP/1.1, for a connection that ends with it.
    pub(super) fn to_bare_answer(&self, request_id: &str) -> Vec<u8> {
        let (status, body) = (self.status_code(), self.to_json());
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             {X_REQUEST_ID}: {request_id}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    }

    /// The body of the answer.
    pub(super) fn to_json(&self) -> Vec<u8> {
        if self.form == ErrorForm::Tei {
            return tei_body(self);
        }
        let body = ErrorBody {
            error: Parts {
                message: &self.message,
                kind: self.code.status_and_type().1,
                param: self.param,
                code: self.code.name(),
            },
        };
        serde_json::to_vec(&body).expect("it has string keys only")
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.code.status_and_type().0
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        if let Some(seconds) = self.retry_after_s() {
            response.insert_header((RETRY_AFTER, seconds));
        }
        if let Some(methods) = self.allow {
            response.insert_header((ALLOW, methods));
        }
        if self.code == Code::InvalidApiKey {
            response.insert_header((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        response.content_type(JSON).body(self.to_json())
    }
}

/// What a client does about ids that are of no vocabulary, or of one that nobody named.
pub(super) fn token_id_advice() -> &'static str {
    "send texts (LangChain: check_embedding_ctx_length=False), or name the ids' tokenizer with the \
     field token_encoding or the server's --token-input: model, cl100k_base or o200k_base"
}

/// The body of a refusal, with TEI's word for its kind.
fn tei_body(error: &ApiError) -> Vec<u8> {
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

#[cfg(test)]
mod tests;
