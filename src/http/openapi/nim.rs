//! The routes that NVIDIA NIM has beside OpenAI's.

use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::{PathItem, PathsBuilder};

use super::{READ_CODES, Schemas, add, operation, success, with_key};
use crate::http::error::{Code, NOT_READY};
use crate::http::nim::{Metadata, NimHealth};

const TAG: &str = "nim";

pub(super) fn paths(paths: PathsBuilder) -> PathsBuilder {
    let probe = |id, summary, when| {
        operation(id, TAG, summary, success(&NimHealth::name(), when), &[Code::InternalError])
    };
    let live = probe("nim_live", "Whether the process lives", "the process lives");
    let ready = probe("nim_ready", "Whether requests are taken", "requests are taken");
    let not_ready = success(&NimHealth::name(), "requests should go elsewhere");
    let ready = ready.response(NOT_READY.as_str(), not_ready);
    let metadata = success(&Metadata::name(), "the server's release and the model's id");
    let summary = "What is served, and by which release";
    let metadata = operation("nim_metadata", TAG, summary, metadata, &READ_CODES);
    paths
        .path("/v1/health/live", PathItem::new(HttpMethod::Get, live))
        .path("/v1/health/ready", PathItem::new(HttpMethod::Get, ready))
        .path("/v1/metadata", PathItem::new(HttpMethod::Get, with_key(metadata)))
}

pub(super) fn add_schemas(schemas: &mut Schemas) {
    add::<NimHealth<'_>>(schemas);
    add::<Metadata<'_>>(schemas);
}
