//! The routes of text-embeddings-inference. Those that refuse every request, since the model is of
//! another kind, are left out.

use serde_json::{Value, json};
use utoipa::openapi::path::{HttpMethod, OperationBuilder};
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{ArrayBuilder, Object, Type};
use utoipa::openapi::{PathItem, PathsBuilder, Ref};
use utoipa::{PartialSchema, ToSchema};

use super::{
    Facts, READ_CODES, Schemas, TextForms, add, answer_of, codes_without_run, input_codes,
    operation_in, request, success, with_key,
};
use crate::http::error::{Code, ErrorForm, NOT_READY};
use crate::http::tei::similarity::SimilarityBody;
use crate::http::tei::tokens::{DecodeBody, Token, TokenizeBody};
use crate::http::tei::{EmbedBody, Healthy, Info, TeiError, Weight};
use crate::service::Vectors;

pub(super) fn paths(paths: PathsBuilder, facts: &Facts<'_>) -> PathsBuilder {
    let text = json!({"inputs": "The cat sleeps."});
    let embedding = |id, vectors| post::<EmbedBody>(embed(id, vectors), &text, facts);
    let cosines = ArrayBuilder::new().items(f32::schema());
    let cosines = answer_of(cosines, "the cosine of each sentence, in their order");
    let similarity =
        operation("tei_similarity", "How near sentences are to one", cosines, &embed_codes());
    let sentences =
        json!({"inputs": {"source_sentence": "a cat", "sentences": ["a kitten", "a boat"]}});
    let lists = |items: Ref| ArrayBuilder::new().items(ArrayBuilder::new().items(items));
    let tokens = answer_of(lists(Ref::from_schema_name(Token::name())), "the tokens of each text");
    let tokenize = work("tei_tokenize", "Tokens with their places in bytes", tokens);
    let texts = ArrayBuilder::new().items(Object::with_type(Type::String));
    let decode = work("tei_decode", "Texts for token ids", answer_of(texts, "the texts"));
    paths
        .path("/embed", embedding("tei_embed", Vectors::Dense))
        .path("/embed_sparse", embedding("tei_embed_sparse", Vectors::Sparse))
        .path("/similarity", post::<SimilarityBody>(similarity, &sentences, facts))
        .path("/tokenize", post::<TokenizeBody>(tokenize, &text, facts))
        .path("/decode", post::<DecodeBody>(decode, &json!({"ids": [5, 6]}), facts))
        .path("/info", info())
        .path("/ping", ping())
}

pub(super) fn add_schemas(facts: &Facts<'_>, schemas: &mut Schemas) {
    add_request::<EmbedBody>("inputs", TextForms::All, facts, schemas);
    add::<SimilarityBody>(schemas);
    add_request::<TokenizeBody>("inputs", TextForms::Texts, facts, schemas);
    add_request::<DecodeBody>("ids", TextForms::TokenIds, facts, schemas);
    add::<Weight>(schemas);
    add::<Token<'_>>(schemas);
    add::<Info<'_>>(schemas);
    add::<Healthy>(schemas);
    add::<TeiError<'_>>(schemas);
}

fn add_request<B: ToSchema>(
    field: &str,
    takes: TextForms,
    facts: &Facts<'_>,
    schemas: &mut Schemas,
) {
    schemas.push((B::name().into_owned(), request::schema::<B>(field, takes, facts)));
    B::schemas(schemas);
}

fn operation(id: &str, summary: &str, success: Response, codes: &[Code]) -> OperationBuilder {
    operation_in(ErrorForm::Tei, [id, "text-embeddings-inference", summary], success, codes)
}

fn embed(id: &str, vectors: Vectors) -> OperationBuilder {
    let lists = |items| ArrayBuilder::new().items(items);
    let (summary, success) = match vectors {
        Vectors::Sparse => {
            let weights = lists(ArrayBuilder::new().items(Ref::from_schema_name(Weight::name())));
            ("Lexical weights", answer_of(weights, "the weights, in the order of the inputs"))
        }
        Vectors::Dense | Vectors::Both => {
            let vectors = lists(ArrayBuilder::new().items(f32::schema()));
            (
                "Dense vectors; also at /",
                answer_of(vectors, "the vectors, in the order of the inputs"),
            )
        }
    };
    let mut codes = embed_codes();
    if vectors.sparse() {
        codes.push(Code::SparseNotAvailable);
    }
    operation(id, summary, success, &codes)
}

/// Those of dense vectors; no request names a model.
fn embed_codes() -> Vec<Code> {
    let others = [Code::ModelNotFound, Code::SparseNotAvailable];
    input_codes().filter(|code| !others.contains(code)).collect()
}

/// A route that does not run the model.
fn work(id: &str, summary: &str, success: Response) -> OperationBuilder {
    let codes = codes_without_run().filter(|code| *code != Code::ModelNotFound);
    operation(id, summary, success, &codes.collect::<Vec<_>>())
}

fn post<B: ToSchema>(operation: OperationBuilder, example: &Value, facts: &Facts<'_>) -> PathItem {
    let operation = operation
        .parameters(Some(request::urgency(facts.max_request_timeout)))
        .request_body(Some(request::body(&B::name(), example)));
    PathItem::new(HttpMethod::Post, with_key(operation))
}

fn info() -> PathItem {
    let success = success(&Info::name(), "the model and the limits of a request");
    let operation = operation("tei_info", "The model and its limits", success, &READ_CODES);
    PathItem::new(HttpMethod::Get, with_key(operation))
}

fn ping() -> PathItem {
    let ready = success(&Healthy::name(), "requests are taken");
    let not_ready = success(&TeiError::name(), "requests should go elsewhere");
    let operation = operation("tei_ping", "Readiness", ready, &[Code::InternalError]);
    PathItem::new(HttpMethod::Get, operation.response(NOT_READY.as_str(), not_ready))
}
