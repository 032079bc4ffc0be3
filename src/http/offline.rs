//! Requests of a file: read and answered as the embedding routes read and answer those of a
//! connection. Whoever has the file runs their texts in between.

use std::time::Duration;

use actix_web::ResponseError;

use super::embed::{EMBEDDING_ROUTES, input_limits};
use super::error::{ApiError, Code, FieldNames, OK};
use super::payload::{self, EmbeddingRequest, Question};
use super::reply::{self, AnswerFormat};
use crate::scheduler::TextRow;
use crate::service::chunking::TextsToRun;
use crate::service::{
    EmbedError, EmbedRequest, EmbeddingService, Lexical, RequestHead, Vectors, assemble, ignores,
    looked_up,
};
use model::package::manifest::Manifest;
use model::tokenize::TextTokenizer;
use scheduling::batch::Priority;
use settings::HttpConfig;

/// What a route would answer.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    /// Of HTTP.
    pub(crate) status: u16,
    /// JSON.
    pub(crate) body: Vec<u8>,
}

impl Answered {
    /// Whether the body holds vectors.
    pub(crate) fn is_ok(&self) -> bool {
        self.status == OK.as_u16()
    }
}

impl From<ApiError> for Answered {
    fn from(refusal: ApiError) -> Self {
        Self { status: refusal.status_code().as_u16(), body: refusal.to_json() }
    }
}

/// A request that a route takes.
pub(crate) struct Asked {
    request: EmbedRequest,
    format: AnswerFormat,
    names: FieldNames,
}

/// Reads the body of a request to `path`. It needs no more of `service` than the model's card.
///
/// # Errors
/// The answer when the request is refused.
pub(crate) fn read(
    service: &EmbeddingService,
    config: &HttpConfig,
    path: &str,
    body: &[u8],
) -> Result<Asked, Answered> {
    let vectors = vectors(path)?;
    let (bytes, limit) = (body.len() as u64, config.max_body_bytes.get());
    if bytes > limit {
        return Err(ApiError::body_too_large(limit).into());
    }
    let (priority, deadline) = (Some(Priority::Bulk), service.clock().now());
    let head = RequestHead { announced_bytes: bytes, priority, deadline };
    let request: EmbeddingRequest = payload::read(body.to_vec(), input_limits(config))?;
    let names = request.names();
    let (request, format) = request.ask(vectors, &head, config, service)?;
    if request.options.token_vectors {
        let message = "token_vectors are kilobytes of each token, and not for files of requests; \
                       leave the field out, or ask a server";
        return Err(ApiError::of(Code::InvalidValue, "token_vectors", message).into());
    }
    Ok(Asked { request, format, names })
}

impl Asked {
    /// Texts, or lists of token ids.
    pub(crate) const fn items(&self) -> usize {
        self.request.inputs.len()
    }

    /// Whether it asks for a prompt of a model without any, which changes nothing.
    pub(crate) fn asks_in_vain(&self, service: &EmbeddingService) -> bool {
        let asked = self.request.options.input_type;
        service.model_card().is_some_and(|card| ignores(card, asked))
    }

    /// Token ids of its texts, or of their chunks.
    ///
    /// # Errors
    /// The answer when the model cannot run them.
    pub(crate) fn tokenize(
        &self,
        service: &EmbeddingService,
        manifest: &Manifest,
        tokenizer: &TextTokenizer,
    ) -> Result<TextsToRun, Answered> {
        let texts = service.tokenize_here(manifest, tokenizer, self.request.clone());
        texts.map_err(|error| self.refused(error))
    }

    /// The answer, from what [`Self::tokenize`] gave and a row for each text that ran.
    pub(crate) fn answer(
        &self,
        manifest: &Manifest,
        tokenizer: &TextTokenizer,
        texts: &TextsToRun,
        rows: impl Iterator<Item = TextRow>,
    ) -> Answered {
        let options = &self.request.options;
        let wanted = |(text, row): (usize, TextRow)| {
            let lost = || EmbedError::NonFinite { index: texts.input_of(text) };
            row.wanted(options.vectors).ok_or_else(lost)
        };
        // Every row is taken, so that the next request finds its own.
        let rows: Vec<Result<_, EmbedError>> = rows.enumerate().map(wanted).collect();
        let rows = match rows.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(rows) => rows,
            Err(error) => return self.refused(error),
        };
        let rows = match looked_up::source(manifest, tokenizer, options) {
            Ok(Lexical::Table) => looked_up::rows(tokenizer, texts),
            Ok(Lexical::Head | Lexical::Model) => rows,
            Err(error) => return self.refused(error),
        };
        let reply = assemble(manifest, options, texts, rows);
        let resident = reply::Resident {
            id: &manifest.model_id,
            vocab_size: manifest.vocab_size,
            small_vectors: &manifest.small_vectors,
            piece: &|id| tokenizer.piece(id),
        };
        let out =
            Vec::with_capacity(reply::room(&reply, reply::most_bytes(self.format, resident.id)));
        let body = reply::write(out, &reply, options.vectors, self.format, &resident);
        Answered { status: OK.as_u16(), body }
    }

    fn refused(&self, error: EmbedError) -> Answered {
        // No error of a file's request has to do with time.
        ApiError::from_embed(error, Duration::ZERO, self.names).into()
    }
}

fn vectors(path: &str) -> Result<Vectors, ApiError> {
    let found = EMBEDDING_ROUTES.iter().find(|(route, _)| *route == path);
    found.map(|(_, vectors)| *vectors).ok_or_else(|| {
        let routes: Vec<&str> = EMBEDDING_ROUTES.iter().map(|(route, _)| *route).collect();
        let routes = routes.join(", ");
        let message = format!("this url is not for files of requests; use {routes}");
        ApiError::new(Code::NotFound, message)
    })
}
