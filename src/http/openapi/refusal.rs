//! The answers without vectors, made from the codes of `error`.

use std::collections::BTreeMap;

use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref};

use crate::http::error::Code;

/// When a code is answered, for the description.
const fn when(code: Code) -> &'static str {
    match code {
        Code::InvalidJson => "the body is no JSON object in UTF-8",
        Code::DuplicateField => "a field comes twice",
        Code::InvalidInput => "input is missing, empty, or not of its forms",
        Code::TooManyItems => "input has more items than one request may have",
        Code::ItemTooLarge => "a text, or a list of token ids, is larger than the server takes",
        Code::TokenIdOutOfRange => "a token id is not of the model's vocabulary",
        Code::ContextLengthExceeded => "an item is too long, and truncate is false",
        Code::InvalidDimensions => "the model has no vectors of this length",
        Code::InvalidValue => "another field or header is not of its form",
        Code::HeadTimeout => "the head of the request did not come in time",
        Code::BodyTimeout => "the body did not come in time",
        Code::InvalidBody => "the body ended early or cannot be unpacked",
        Code::SparseNotAvailable => "the model gives no lexical weights",
        Code::InvalidApiKey => "the server has keys, and none of them was shown",
        Code::NotFound => "there is no such route",
        Code::ModelNotFound => "the model is not served here",
        Code::MethodNotAllowed => "the route does not take this method",
        Code::PreflightRefused => "a browser asked for a page that may not read answers",
        Code::BodyTooLarge => "the body is too large, counted after it was unpacked",
        Code::UnsupportedMediaType => "the content type is not JSON, or the encoding not known",
        Code::QueueFull => "the answer would not be ready in time; Retry-After says when it would",
        Code::InflightBytesExceeded => "the server holds as many bytes of requests as it may",
        Code::EngineFailed => "the model could not be run",
        Code::NonFiniteOutput => "the model's numbers are not finite",
        Code::InternalError => "a bug of the server",
        Code::Loading => "the model is being loaded",
        Code::Draining => "the server is about to exit",
        Code::NoWorker => "no worker can run the model",
        Code::DeadlineExceeded => "the request's time is over",
    }
}

/// One response for each status of `codes`.
pub(super) fn responses(codes: &[Code]) -> Vec<(String, Response)> {
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        let (status, _) = code.status_and_type();
        by_status.entry(status.as_u16()).or_default().push(*code);
    }
    by_status.iter().map(|(status, codes)| (status.to_string(), response(codes))).collect()
}

fn response(codes: &[Code]) -> Response {
    let lines: Vec<String> =
        codes.iter().map(|code| format!("- `{}`: {}", code.name(), when(*code))).collect();
    let mut response = ResponseBuilder::new()
        .description(lines.join("\n"))
        .header("x-request-id", request_id())
        .content("application/json", ContentBuilder::new().schema(Some(body(codes))).build());
    if codes.contains(&Code::QueueFull) || codes.contains(&Code::Loading) {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
        let about = "seconds after which the request may succeed";
        response = response.header("retry-after", header(seconds, about));
    }
    if codes.contains(&Code::InvalidApiKey) {
        let scheme = words(["Bearer"]);
        response = response.header("www-authenticate", header(scheme, "how to show a key"));
    }
    response.build()
}

/// An error of which the code is one of `codes`.
fn body(codes: &[Code]) -> Schema {
    let parts = ObjectBuilder::new()
        .property("type", words(codes.iter().map(|code| code.status_and_type().1)))
        .property("code", words(codes.iter().map(|code| code.name())));
    let narrowed = ObjectBuilder::new().property("error", parts);
    AllOfBuilder::new().item(Ref::from_schema_name("Error")).item(narrowed).into()
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> ObjectBuilder {
    let mut words: Vec<&str> = words.into_iter().collect();
    words.dedup();
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words))
}

/// The header that every answer has.
pub(super) fn request_id() -> Header {
    let id = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
    header(id.max_length(Some(128)), "the request's id in the server's log")
}

pub(super) fn header(schema: ObjectBuilder, about: &str) -> Header {
    HeaderBuilder::new().schema(Some(schema)).description(Some(about)).build()
}
