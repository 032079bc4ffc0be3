//! Requests of a file: answered as the embedding routes answer those of a connection.

use std::time::Duration;

use actix_web::ResponseError;

use super::embed::{EMBEDDING_ROUTES, input_limits};
use super::error::{ApiError, Code, OK};
use super::payload::{self, EmbeddingRequest};
use super::reply;
use crate::batch::Priority;
use crate::config::HttpConfig;
use crate::service::{EmbeddingService, RequestHead, Vectors};

/// What a route would answer.
#[derive(Debug)]
pub(crate) struct Answered {
    /// Of HTTP.
    pub(crate) status: u16,
    /// JSON.
    pub(crate) body: Vec<u8>,
    /// Time after which the same request may succeed; `None` when it never will.
    pub(crate) retry_after: Option<Duration>,
}

impl Answered {
    /// Whether the body holds vectors.
    pub(crate) fn is_ok(&self) -> bool {
        self.status == OK.as_u16()
    }
}

/// Answers one request to `path` within `timeout`. Its priority is bulk, whatever its size.
pub(crate) async fn answer(
    service: &EmbeddingService,
    config: &HttpConfig,
    path: &str,
    body: &[u8],
    timeout: Duration,
) -> Answered {
    match answer_or_refuse(service, config, path, body, timeout).await {
        Ok(body) => Answered { status: OK.as_u16(), body, retry_after: None },
        Err(refusal) => Answered {
            status: refusal.status_code().as_u16(),
            body: refusal.to_json(),
            retry_after: refusal.retry_after,
        },
    }
}

async fn answer_or_refuse(
    service: &EmbeddingService,
    config: &HttpConfig,
    path: &str,
    body: &[u8],
    timeout: Duration,
) -> Result<Vec<u8>, ApiError> {
    let vectors = vectors(path)?;
    if body.len() as u64 > config.max_body_bytes.get() {
        return Err(ApiError::body_too_large(config.max_body_bytes.get()));
    }
    let deadline = service.clock().now() + timeout;
    let announced_bytes = body.len() as u64;
    let head = RequestHead { announced_bytes, priority: Some(Priority::Bulk), deadline };
    let refused = |error| ApiError::from_embed(error, timeout);
    let mut permit = service.admit(&head).map_err(refused)?;
    let request: EmbeddingRequest = payload::read(body.to_vec(), input_limits(config))?;
    let (request, form) = request.validate(vectors, &head, config, service)?;
    let reply = service.embed(request, &mut permit).await.map_err(refused)?;
    let card = service.model_card();
    let resident = reply::Resident {
        id: card.map_or("", |card| &card.id),
        vocab_size: card.map_or(0, |card| card.vocab_size),
        piece: &|id| service.piece(id),
    };
    Ok(reply::write(&reply, vectors, form, &resident))
}

fn vectors(path: &str) -> Result<Vectors, ApiError> {
    let found = EMBEDDING_ROUTES.iter().find(|(route, _)| *route == path);
    found.map(|(_, vectors)| *vectors).ok_or_else(|| {
        let routes: Vec<&str> = EMBEDDING_ROUTES.iter().map(|(route, _)| *route).collect();
        let message = format!("there is no such route; the routes are {}", routes.join(", "));
        ApiError::new(Code::NotFound, message)
    })
}
