//! What the embedding routes accept, within this server's limits. JSON Schema takes 1.0 for an
//! integer; the server does not.

use serde_json::{Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required};

use super::Facts;
use crate::http::payload::{LENGTHS, input};
use crate::limits::MaxRequestTimeoutMs;

/// The name of [`schema`] among the components.
pub(super) const NAME: &str = "EmbeddingRequest";

/// What a request's field with its texts takes.
pub(super) enum TextForms {
    All,
    Texts,
    TokenIds,
}

/// The schema of a request's body: that of its type, narrowed to what this server takes. Its texts
/// are in the field `field`.
pub(super) fn schema<B: PartialSchema>(
    field: &str,
    takes: TextForms,
    facts: &Facts<'_>,
) -> RefOr<Schema> {
    let mut schema = B::schema();
    let RefOr::T(Schema::Object(request)) = &mut schema else { return schema };
    // While the package is read, what a token id may be at most.
    let largest_id = facts.card.map_or(u32::MAX as usize, |card| card.vocab_size.saturating_sub(1));
    let mut input = input::schema_within(facts.max_items.as_usize(), largest_id);
    if let Schema::OneOf(forms) = &mut input {
        match takes {
            TextForms::All => {}
            TextForms::Texts => forms.items.truncate(input::TEXT_FORMS),
            TextForms::TokenIds => drop(forms.items.drain(..input::TEXT_FORMS)),
        }
    }
    request.properties.insert(field.to_owned(), input.into());
    let Some(card) = facts.card else { return schema };
    for name in LENGTHS {
        if let Some(RefOr::T(Schema::Object(length))) = request.properties.get_mut(name) {
            let allowed = card.dimensions.iter().map(|&length| Value::from(length));
            length.enum_values = Some(allowed.chain([Value::Null]).collect());
        }
    }
    schema
}

/// A body of the schema `name`, with an example.
pub(super) fn body(name: &str, example: &Value) -> RequestBody {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(name)))
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
        .minimum(Some(MaxRequestTimeoutMs::MIN as usize));
    let about_class = "the request's class; absent, its size decides. One that is bulk by its \
                       size stays bulk, unless the server is set to obey";
    let about_timeout = format!(
        "milliseconds until the answer must be ready, at most {longest}; absent, the server's own"
    );
    [
        header("x-priority", about_class, class),
        header("x-request-timeout-ms", &about_timeout, timeout),
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
