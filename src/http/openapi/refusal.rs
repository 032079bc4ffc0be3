//! The answers without vectors, made from the codes of `error`.

use std::collections::BTreeMap;

use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr};

use crate::http::error::{Code, ErrorForm};

/// One response for each status of `codes`, with the body of `form`.
pub(super) fn responses(codes: &[Code], form: ErrorForm) -> Vec<(String, Response)> {
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        let (status, _) = code.status_and_type();
        by_status.entry(status.as_u16()).or_default().push(*code);
    }
    by_status.iter().map(|(status, codes)| (status.to_string(), response(codes, form))).collect()
}

fn response(codes: &[Code], form: ErrorForm) -> Response {
    let line = |code: &Code| match form {
        ErrorForm::OpenAi => format!("- `{}`: {}", code.name(), code.when()),
        ErrorForm::Tei => format!("- {}", code.when()),
    };
    let lines: Vec<String> = codes.iter().map(line).collect();
    let body = match form {
        ErrorForm::OpenAi => body(codes).into(),
        ErrorForm::Tei => RefOr::from(Ref::from_schema_name("TeiError")),
    };
    let mut response = ResponseBuilder::new()
        .description(lines.join("\n"))
        .header("x-request-id", request_id())
        .content("application/json", ContentBuilder::new().schema(Some(body)).build());
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
