//! What the embedding routes answer. The bytes are written by hand in `reply`; these types say in
//! the API's description what they are, and `tests/openapi` holds real answers against it.
#![allow(dead_code, reason = "only the schemas of these types are used")]

use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::schema::{
    AnyOfBuilder, ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, Schema, Type,
};

/// Dense vectors, in the order of the input.
#[derive(ToSchema)]
pub(super) struct EmbeddingList {
    #[schema(pattern = "^list$")]
    object: &'static str,
    data: Vec<Embedding>,
    /// The model's id.
    model: String,
    usage: Usage,
}

/// Lexical weights, in the order of the input.
#[derive(ToSchema)]
pub(super) struct SparseEmbeddingList {
    #[schema(pattern = "^list$")]
    object: &'static str,
    data: Vec<SparseEmbedding>,
    /// The model's id.
    model: String,
    usage: Usage,
}

/// Dense vectors and lexical weights, in the order of the input.
#[derive(ToSchema)]
pub(super) struct PairedEmbeddingList {
    #[schema(pattern = "^list$")]
    object: &'static str,
    data: Vec<PairedEmbedding>,
    /// The model's id.
    model: String,
    usage: Usage,
}

#[derive(ToSchema)]
pub(super) struct Embedding {
    #[schema(pattern = "^embedding$")]
    object: &'static str,
    /// The item's place in the input.
    index: usize,
    #[schema(schema_with = dense)]
    embedding: (),
    /// Tokens that the item had before it was cut; absent when it was not.
    #[schema(nullable = false)]
    truncated_from: Option<usize>,
}

#[derive(ToSchema)]
pub(super) struct SparseEmbedding {
    #[schema(pattern = "^sparse_embedding$")]
    object: &'static str,
    /// The item's place in the input.
    index: usize,
    #[schema(schema_with = sparse)]
    sparse_values: (),
    /// Tokens that the item had before it was cut; absent when it was not.
    #[schema(nullable = false)]
    truncated_from: Option<usize>,
}

#[derive(ToSchema)]
pub(super) struct PairedEmbedding {
    #[schema(pattern = "^paired_embedding$")]
    object: &'static str,
    /// The item's place in the input.
    index: usize,
    #[schema(schema_with = dense)]
    embedding: (),
    #[schema(schema_with = sparse)]
    sparse_values: (),
    /// Tokens that the item had before it was cut; absent when it was not.
    #[schema(nullable = false)]
    truncated_from: Option<usize>,
}

/// The tokens that were run: prompts and special tokens count, padding does not.
#[derive(ToSchema)]
pub(super) struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

fn dense() -> Schema {
    let floats = ArrayBuilder::new()
        .items(Object::with_type(Type::Number))
        .description(Some("encoding_format \"float\""));
    let base64 = ObjectBuilder::new()
        .schema_type(Type::String)
        .content_encoding("base64")
        .description(Some("encoding_format \"base64\": little-endian f32"));
    OneOfBuilder::new()
        .item(floats)
        .item(base64)
        .description(Some("a vector of length one, in the form of encoding_format"))
        .into()
}

fn sparse() -> Schema {
    let weight = || ObjectBuilder::new().schema_type(Type::Number).exclusive_minimum(Some(0.0));
    let ids = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let ids = ArrayBuilder::new().items(ids).unique_items(true).description(Some("ascending"));
    let indices = ObjectBuilder::new()
        .property("indices", ids)
        .required("indices")
        .property("values", ArrayBuilder::new().items(weight()))
        .required("values")
        .description(Some("sparse_format \"indices\": token ids and their weights"));
    let by_name = ObjectBuilder::new()
        .additional_properties(Some(weight()))
        .description(Some("sparse_format \"dict\" (token ids) or \"tokens\" (vocabulary pieces)"))
        .examples([json!({"70": 0.25}), json!({"▁cat": 0.25})]);
    let pgvector = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r"^\{([1-9][0-9]*:[0-9.e+-]+(,[1-9][0-9]*:[0-9.e+-]+)*)?\}/[1-9][0-9]*$"))
        .description(Some("sparse_format \"pgvector\": token ids + 1, weights, vocabulary size"))
        .examples([json!("{71:0.25}/250002")]);
    // An empty object is of both object forms, which `oneOf` would refuse.
    AnyOfBuilder::new()
        .item(indices)
        .item(by_name)
        .item(pgvector)
        .description(Some("weights above zero, in the form of sparse_format"))
        .into()
}
