//! What the embedding routes accept: exactly what `payload` and `validate` let through, as far as
//! JSON Schema can tell it. JSON Schema takes 1.0 for an integer; the server does not.

use serde_json::{Value, json};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{
    ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{ContentBuilder, Ref, Required};

use super::Facts;
use crate::http::payload::Key;
use crate::http::validate::{DENSE_FORMATS, INPUT_TYPES, SPARSE_FORMATS};
use crate::limits::MaxRequestTimeoutMs;

/// The name of [`schema`] among the components.
pub(super) const NAME: &str = "EmbeddingRequest";

/// The largest whole number that the parser takes.
const LARGEST: usize = u64::MAX as usize;

/// The schema of a request's body.
pub(super) fn schema(facts: &Facts<'_>) -> Schema {
    let mut object = ObjectBuilder::new().schema_type(Type::Object);
    for key in Key::KNOWN {
        object = object.property(key.name(), field(key, facts));
    }
    let about = "Null is the same as leaving a field out, except for input; unknown fields are \
                 ignored, a field that comes twice is refused. Whole numbers are written without \
                 fraction and exponent (1, not 1.0).";
    object.required(Key::Input.name()).description(Some(about)).into()
}

fn field(key: Key, facts: &Facts<'_>) -> Schema {
    match key {
        Key::Input => input(facts),
        Key::Model => nullable(Type::String)
            .description(Some("the model's id or an alias; absent is the resident model"))
            .into(),
        Key::EncodingFormat => words(DENSE_FORMATS, "the form of dense vectors", Some("float")),
        Key::Dimensions => dimensions(facts),
        Key::InputType => {
            words(INPUT_TYPES, "which of the model's prompts is put in front of texts", None)
        }
        Key::Truncate => nullable(Type::Boolean)
            .description(Some("whether an over-long item is cut, or refused"))
            .into(),
        Key::SparseFormat => words(SPARSE_FORMATS, "the form of lexical weights", Some("indices")),
        Key::SparseTopK => nullable(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(LARGEST))
            .description(Some("keep so many of the heaviest"))
            .into(),
        Key::SparseMinWeight => nullable(Type::Number)
            .minimum(Some(0))
            .description(Some("keep weights at or above it"))
            .into(),
        Key::User | Key::Unknown => {
            let any = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
            any.description(Some("anything; it is ignored")).into()
        }
    }
}

fn nullable(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([kind, Type::Null]))
}

fn words<T>(words: &[(&str, T)], about: &str, default: Option<&str>) -> Schema {
    let names = words.iter().map(|(name, _)| Value::from(*name));
    nullable(Type::String)
        .enum_values(Some(names.chain([Value::Null])))
        .default(default.map(Value::from))
        .description(Some(about))
        .into()
}

fn dimensions(facts: &Facts<'_>) -> Schema {
    let field = nullable(Type::Integer)
        .description(Some("the length of dense vectors; absent is the model's own"));
    match facts.card {
        Some(card) => {
            let allowed = card.dimensions.iter().map(|&length| Value::from(length));
            field.enum_values(Some(allowed.chain([Value::Null]))).into()
        }
        None => field.minimum(Some(1)).maximum(Some(LARGEST)).into(),
    }
}

fn input(facts: &Facts<'_>) -> Schema {
    // While the package is read, what a token id may be at most.
    let largest = facts.card.map_or(u32::MAX as usize, |card| card.vocab_size.saturating_sub(1));
    let id =
        || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(largest));
    let text = || Object::with_type(Type::String);
    let items = facts.max_items.as_usize();
    let texts = ArrayBuilder::new().items(text()).min_items(Some(1)).max_items(Some(items));
    // One item, so that its length is bounded by the body alone.
    let ids = ArrayBuilder::new().items(id()).min_items(Some(1));
    let lists = ArrayBuilder::new().items(ArrayBuilder::new().items(id()));
    let lists = lists.min_items(Some(1)).max_items(Some(items));
    let about = "a text, a list of texts, a list of token ids (one item), or a list of such lists; \
                 never a mixture. An empty text or inner list is legal. Some servers are set to \
                 refuse token ids.";
    OneOfBuilder::new()
        .item(text())
        .item(texts.description(Some("texts")))
        .item(ids.description(Some("the token ids of one item")))
        .item(lists.description(Some("the token ids of several items")))
        .description(Some(about))
        .into()
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
