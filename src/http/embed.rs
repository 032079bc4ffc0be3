//! The three embedding routes: bytes → request → service → bytes.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderValue};
use actix_web::{rt, web};

use super::body::{self, Packing};
use super::error::{ApiError, Code, OK};
use super::payload;
use super::reply::{self, Form, MANY_NUMBERS};
use super::validate::{Defaults, Fields, validate};
use super::{Answer, State, Timeline};
use crate::batch::Priority;
use crate::clock::Moment;
use crate::health::Phase;
use crate::limits::{MaxBodyBytes, RequestTimeoutMs};
use crate::service::{EmbedReply, Unavailable, Vectors};

/// The header with which a client shortens or lengthens its request's time.
const X_REQUEST_TIMEOUT_MS: &str = "x-request-timeout-ms";

/// The header with which a client names its request's class.
const X_PRIORITY: &str = "x-priority";

/// Bodies from this size are parsed on the blocking pool: their milliseconds would be felt by the
/// other connections of the thread, the hand-over of a smaller one would cost more than it saves.
const LARGE_BODY_BYTES: usize = 1024 * 1024;

/// Time of a request, counted from its arrival, its body included.
#[derive(Clone, Copy)]
struct Budget {
    arrival: Moment,
    timeout: Duration,
}

impl Budget {
    fn of(
        headers: &HeaderMap,
        default: RequestTimeoutMs,
        arrival: Moment,
    ) -> Result<Self, ApiError> {
        let millis = match headers.get(X_REQUEST_TIMEOUT_MS) {
            None => default,
            Some(value) => {
                let text = value.to_str().unwrap_or_default();
                RequestTimeoutMs::from_str(text).map_err(|_| {
                    let (min, max) = (RequestTimeoutMs::MIN, RequestTimeoutMs::MAX);
                    let message = format!("send whole milliseconds from {min} to {max}");
                    ApiError::of(Code::InvalidValue, X_REQUEST_TIMEOUT_MS, message)
                })?
            }
        };
        Ok(Self { arrival, timeout: Duration::from_millis(millis.get()) })
    }

    fn exceeded(self) -> ApiError {
        ApiError::deadline(self.timeout)
    }

    /// What is left; refuses when nothing is.
    fn left(self, now: Moment) -> Result<Duration, ApiError> {
        let left = self.timeout.saturating_sub(now.since(self.arrival));
        if left.is_zero() { Err(self.exceeded()) } else { Ok(left) }
    }
}

/// Answers one request. What makes the body worthless is refused before the body is read.
pub(super) async fn embed(
    state: &State,
    headers: &HeaderMap,
    payload: web::Payload,
    vectors: Vectors,
    arrival: Moment,
) -> Result<Answer, ApiError> {
    require_ready(state)?;
    let budget = Budget::of(headers, state.config.request_timeout, arrival)?;
    let priority = priority(headers)?;
    let limit = state.config.max_body_bytes;
    let packing = body::check_headers(headers, limit)?;
    let reading = body::read(headers, payload, limit);
    let left = budget.left(state.clock.now())?;
    let body_timeout = Duration::from_millis(state.config.body_timeout.get());
    let bytes = rt::time::timeout(left.min(body_timeout), reading).await.map_err(|_| {
        if body_timeout < left { ApiError::body_timeout(body_timeout) } else { budget.exceeded() }
    })??;
    let fields = parse(state, bytes, packing, limit).await?;
    let defaults = Defaults { truncate: state.config.truncate };
    let (mut request, form) = validate(fields, vectors, defaults, &state.service)?;
    request.priority = priority;
    let parsed = state.clock.now();
    request.timeout = budget.left(parsed)?;
    let answer = state.service.embed(request).await;
    let answer = answer.map_err(|error| ApiError::from_embed(error, budget.timeout))?;
    let (milestones, mut answer) = (answer.milestones, write(state, answer, vectors, form).await?);
    let written = state.clock.now();
    answer.timeline = Some(Timeline { arrival, parsed, milestones, written });
    Ok(answer)
}

/// `None` without the header: the request's size decides.
fn priority(headers: &HeaderMap) -> Result<Option<Priority>, ApiError> {
    match headers.get(X_PRIORITY).map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"interactive") => Ok(Some(Priority::Interactive)),
        Some(b"bulk") => Ok(Some(Priority::Bulk)),
        Some(_) => {
            let message = "send interactive or bulk, or leave the header out";
            Err(ApiError::of(Code::InvalidValue, X_PRIORITY, message))
        }
    }
}

fn require_ready(state: &State) -> Result<(), ApiError> {
    match state.service.phase() {
        Phase::Ready | Phase::LameDuck => Ok(()),
        Phase::Loading => Err(ApiError::unavailable(Unavailable::Loading)),
        Phase::Draining => Err(ApiError::unavailable(Unavailable::Draining)),
        Phase::Failed => Err(ApiError::unavailable(Unavailable::NoWorker)),
    }
}

async fn parse(
    state: &State,
    bytes: Vec<u8>,
    packing: Packing,
    limit: MaxBodyBytes,
) -> Result<Fields, ApiError> {
    let max_items = state.config.max_items.as_usize();
    match packing {
        Packing::Plain if bytes.len() < LARGE_BODY_BYTES => payload::parse(&bytes, max_items),
        Packing::Plain => off_thread(move || payload::parse(&bytes, max_items)).await?,
        // A few packed bytes may be many: their size tells nothing.
        Packing::Gzip => {
            off_thread(move || payload::parse(&body::unpack(&bytes, limit)?, max_items)).await?
        }
    }
}

async fn write(
    state: &State,
    answer: EmbedReply,
    vectors: Vectors,
    form: Form,
) -> Result<Answer, ApiError> {
    let (items, tokens) = (answer.items.len(), answer.prompt_tokens);
    let large = reply::numbers(&answer) >= MANY_NUMBERS;
    let service = Arc::clone(&state.service);
    let work = move || {
        let card = service.model_card();
        let resident = reply::Resident {
            id: card.map_or("", |card| &card.id),
            vocab_size: card.map_or(0, |card| card.vocab_size),
            piece: |id| service.piece(id),
        };
        reply::write(&answer, vectors, form, resident)
    };
    let body = if large { off_thread(work).await? } else { work() };
    Ok(Answer { items, tokens, ..Answer::new(OK, body) })
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    // Fails only when the work panicked.
    let done = web::block(work).await;
    done.map_err(|error| ApiError::server(Code::InternalError, error.to_string()))
}
