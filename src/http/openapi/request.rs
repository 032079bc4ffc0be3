//! What the embedding routes accept, within this server's limits. JSON Schema takes 1.0 for an
//! integer; the server does not.

use serde_json::{Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required};

use super::Facts;
use crate::http::payload::{EmbeddingRequest, input};
use crate::limits::MaxRequestTimeoutMs;

/// The name of [`schema`] among the components.
pub(super) const NAME: &str = "EmbeddingRequest";

/// The schema of a request's body: that of its type, narrowed to what this server takes.
pub(super) fn schema(facts: &Facts<'_>) -> RefOr<Schema> {
    let mut schema = EmbeddingRequest::schema();
    let RefOr::T(Schema::Object(request)) = &mut schema else { return schema };
    // While the package is read, what a token id may be at most.
    let largest_id = facts.card.map_or(u32::MAX as usize, |card| card.vocab_size.saturating_sub(1));
    let input = input::schema_within(facts.max_items.as_usize(), largest_id);
    request.properties.insert("input".to_owned(), input.into());
    if let Some(card) = facts.card
        && let Some(RefOr::T(Schema::Object(length))) = request.properties.get_mut("dimensions")
    {
        let allowed = card.dimensions.iter().map(|&length| Value::from(length));
        length.enum_values = Some(allowed.chain([Value::Null]).collect());
    }
    schema
}

/// The body, with `examples` by name.
pub(super) fn body(example: &Value) -> RequestBody {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(NAME)))
        .example(Some(example.clone()))
        .build();
    RequestBodyBuilder::new()
        .description(Some("UTF-8; content-encoding: gzip is understood"))
        .required(Some(Required::True))
        .content("application/json", content)
        .build()
}

/// The header that all routes understand.
pub(super) fn request_id() -> Parameter {
    let id = ObjectBuilder::new().schema_type(Type::String).examples([json!("order-17")]);
    let about = "kept when it is 1 to 128 printable ASCII characters, else a new one is made; it \
                 is on the answer and in the log";
    header("x-request-id", about, id)
}

/// The headers that only the embedding routes understand.
pub(super) fn urgency(longest: MaxRequestTimeoutMs) -> [Parameter; 2] {
    let class =
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["interactive", "bulk"]));
    let timeout = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(MaxRequestTimeoutMs::MIN as usize))
        .maximum(Some(longest.as_usize()));
    let about_class = "the request's class; absent, its size decides. One that is bulk by its \
                       size stays bulk, unless the server is set to obey";
    let about_timeout = "milliseconds until the answer must be ready; absent, the server's own";
    [
        header("x-priority", about_class, class),
        header("x-request-timeout-ms", about_timeout, timeout),
    ]
}

fn header(name: &str, about: &str, schema: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(schema))
        .build()
}
