//! The embedding routes: bytes → request → service → bytes.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderValue};
use actix_web::web::{self, Bytes, BytesMut, Data};
use actix_web::{HttpRequest, HttpResponse, rt};

use super::body::{self, Packing};
use super::error::{ApiError, Code, FieldNames, OK};
use super::headers::{JSON, X_INPUT_TYPE, X_REQUEST_TIMEOUT_MS};
use super::held;
use super::patience::Patience;
use super::payload::{self, Body, InputLimits, ItemScanner, Question};
use super::record::{RequestContext, Served};
use super::reply::{self, MANY_NUMBERS, Resident};
use super::single::single;
use super::state::AppState;
use super::timeline::{SERVER_TIMING, Timeline, X_COMPUTE_TOKENS};
use crate::service::{EmbedError, EmbedReply, Permit, RequestHead, Vectors, Wanted, ignores};
use clock::Moment;
use scheduling::batch::Priority;
use settings::HttpConfig;
use settings::limits::{MaxBodyBytes, MaxRequestTimeoutMs};

/// The routes that embed, and what each gives.
pub(super) const EMBEDDING_ROUTES: [(&str, Vectors); 4] = [
    ("/v1/embeddings", Vectors::Dense),
    ("/v1/sparse-embeddings", Vectors::Sparse),
    ("/v1/embeddings:both", Vectors::Both),
    // Some proxies cannot pass a path with a colon on.
    ("/v1/embeddings/both", Vectors::Both),
];

/// The header with which a client names its request's priority.
const X_PRIORITY: &str = "x-priority";

/// Bodies from this size are parsed on the threads for such work: the other connections would feel
/// their milliseconds. Handing over a smaller one would cost more than it saves.
const LARGE_BODY_BYTES: usize = 1024 * 1024;

/// Packed bodies of up to this size are unpacked where they arrive, as long as they are not large
/// unpacked.
const SMALL_PACKED_BYTES: usize = 64 * 1024;

/// A client whose body stops is waited for so much longer than any body may take.
const LONGER: Duration = Duration::from_secs(1);

/// What the head of a request tells: how long it may take, what it is, and how its body comes.
#[derive(Clone, Copy)]
pub(super) struct Head {
    arrival: Moment,
    /// Time of the request, counted from its arrival, its body included.
    pub(super) timeout: Duration,
    packing: Packing,
    /// What the service asks at the door.
    pub(super) asked: RequestHead,
}

impl Head {
    fn read(
        headers: &HeaderMap,
        config: &HttpConfig,
        context: &RequestContext,
    ) -> Result<Self, ApiError> {
        let (timeout, is_cut) = timeout(headers, config)?;
        context.cut_ms.set(is_cut.then_some(timeout.as_millis() as u64));
        let arrival = context.arrival;
        let priority = priority(headers)?;
        let packing = body::check_headers(headers, config.max_body_bytes)?;
        let announced_bytes = body::announced(headers);
        let asked = RequestHead { announced_bytes, priority, deadline: arrival + timeout };
        Ok(Self { arrival, timeout, packing, asked })
    }

    /// What is left of the request's time; refuses when nothing is.
    fn left(&self, now: Moment) -> Result<Duration, ApiError> {
        let left = self.asked.deadline.since(now);
        if left.is_zero() { Err(ApiError::deadline(self.timeout)) } else { Ok(left) }
    }
}

/// Answers one request. What is wrong in its head is refused before its body is read.
pub(super) async fn embed<Q: Question>(
    state: Data<AppState>,
    request: HttpRequest,
    payload: web::Payload,
    vectors: Vectors,
) -> Result<HttpResponse, ApiError> {
    let admit = |asked: &RequestHead| state.service.admit(asked);
    let work =
        async |question: Q, head, permit| work(&state, question, head, vectors, permit).await;
    let answered = within_time(&state, &request, payload, admit, work).await?;
    let Answer { body, items, tokens, timeline, no_prompt } = answered;
    let context = RequestContext::of(&request);
    context.served.set(Served { items, tokens, stages: Some(timeline.stages()) });
    let mut response = HttpResponse::build(OK);
    response.insert_header((SERVER_TIMING, timeline.server_timing()));
    response.insert_header((X_COMPUTE_TOKENS, HeaderValue::from(tokens)));
    if no_prompt {
        response.insert_header((X_INPUT_TYPE, HeaderValue::from_static("ignored")));
    }
    Ok(response.content_type(JSON).body(body))
}

/// An answer with vectors, and what is told of it.
struct Answer {
    body: Bytes,
    items: usize,
    tokens: u64,
    timeline: Timeline,
    /// The request asks for a prompt, and the model has none at all.
    no_prompt: bool,
}

async fn work<Q: Question>(
    state: &AppState,
    question: Q,
    head: Head,
    vectors: Vectors,
    mut permit: Permit,
) -> Result<Answer, ApiError> {
    let names = question.names();
    let (request, format) = question.ask(vectors, &head.asked, &state.config, &state.service)?;
    let parsed = state.clock.now();
    let card = state.service.model_card();
    let most = Q::most_bytes(&format, card.map_or("", |card| &card.model_id));
    let asked = request.options.input_type;
    let no_prompt = card.is_some_and(|card| ignores(card, asked));
    let answer = state.service.embed(request, most, &mut permit).await;
    let answer = answer.map_err(|error| ApiError::from_embed(error, head.timeout, names))?;
    let (items, tokens) = (answer.items.len(), answer.prompt_tokens);
    let (milestones, cache_use) = (answer.milestones, answer.cache_use);
    let body = write::<Q>(state, answer, vectors, format, permit).await?;
    let written = state.clock.now();
    let timeline = Timeline { arrival: head.arrival, parsed, milestones, written, cache_use };
    Ok(Answer { body, items, tokens, timeline, no_prompt })
}

/// Answers one request that needs no run of the model: `work` writes the answer within the
/// request's time, from the body, the head, and what the request holds at the door, which the
/// answer holds then.
///
/// # Errors
/// When the request is refused before its body is read, its body is not of its form, its time is
/// over, or `work` refuses it.
pub(super) async fn without_model<B: Body + Send + 'static>(
    state: &AppState,
    request: &HttpRequest,
    payload: web::Payload,
    work: impl AsyncFnOnce(B, Head, Permit) -> Result<Bytes, ApiError>,
) -> Result<HttpResponse, ApiError> {
    let admit = |asked: &RequestHead| state.service.admit_to_tokenize(asked);
    let answer = within_time(state, request, payload, admit, work).await?;
    Ok(HttpResponse::build(OK).content_type(JSON).body(answer))
}

/// The way of every request with a body: what is wrong in its head is refused before its body is
/// read, `admit` lets it in at the door, and one deadline is over all that follows: the body,
/// parsing, and `work`, which gets the body, the head, and what the request holds at the door.
async fn within_time<B: Body + Send + 'static, T>(
    state: &AppState,
    request: &HttpRequest,
    payload: web::Payload,
    admit: impl FnOnce(&RequestHead) -> Result<Permit, EmbedError>,
    work: impl AsyncFnOnce(B, Head, Permit) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    state.service.check_available().map_err(ApiError::unavailable)?;
    let head = Head::read(request.headers(), &state.config, &RequestContext::of(request))?;
    let permit = admit(&head.asked);
    let refused = |error| ApiError::from_embed(error, head.timeout, FieldNames::default());
    let mut permit = permit.map_err(refused)?;
    let bytes = receive::<B>(state, head, payload, &mut permit).await?;
    let left = head.left(state.clock.now())?;
    // In a box: a request takes room for its work only when its body is there.
    let work = Box::pin(async {
        let (body, permit) = parse::<B>(state, bytes, head.packing, permit).await?;
        work(body, head, permit).await
    });
    rt::time::timeout(left, work).await.map_err(|_| ApiError::deadline(head.timeout))?
}

/// Reads the body, whose bytes `permit` holds.
async fn receive<B: Body>(
    state: &AppState,
    head: Head,
    payload: web::Payload,
    permit: &mut Permit,
) -> Result<Vec<u8>, ApiError> {
    // Whichever time is over first: it is the client who is late.
    let left = head.left(state.clock.now())?;
    let body_timeout = Duration::from_millis(state.config.body_timeout.get());
    let limit = state.config.max_body_bytes;
    let announced = head.asked.announced_bytes;
    let mut scanner = ItemScanner::new(input_limits(&state.config), B::INPUT);
    // Any byte is progress while there is memory: one time is over all of them. It ends first, so
    // that patience ends only where scarce memory shortens it.
    let patience = Patience::new(body_timeout + LONGER, 0, state.service.door());
    let reading = body::read(announced, payload, limit, patience, |body| {
        permit.hold_body(body.len() as u64).map_err(ApiError::unavailable)?;
        if head.packing == Packing::Plain { scanner.scan(body) } else { Ok(()) }
    });
    let bytes = rt::time::timeout(body_timeout.min(left), reading).await;
    bytes.map_err(|_| ApiError::body_timeout(body_timeout.min(head.timeout)))?
}

/// Holds `bytes` from now on; refuses when there is no room.
fn hold(permit: &mut Permit, bytes: u64) -> Result<(), ApiError> {
    permit.hold(bytes).map_err(ApiError::unavailable)
}

pub(super) const fn input_limits(config: &HttpConfig) -> InputLimits {
    InputLimits { items: config.max_items, item_bytes: config.max_item_bytes }
}

/// The request's time: the server's own, or what the client asks for, cut to the longest one that
/// the operator allows. Says whether it was cut.
fn timeout(headers: &HeaderMap, config: &HttpConfig) -> Result<(Duration, bool), ApiError> {
    let Some(value) = single(headers, X_REQUEST_TIMEOUT_MS)? else {
        return Ok((Duration::from_millis(config.request_timeout.get()), false));
    };
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let digits = value.to_str().ok().filter(is_number);
    // More digits than a number has are a long time.
    let asked: Option<u64> = digits.map(|digits| digits.parse().unwrap_or(u64::MAX));
    let asked = asked.filter(|&millis| millis >= MaxRequestTimeoutMs::MIN).ok_or_else(|| {
        let message = format!("{X_REQUEST_TIMEOUT_MS} must be whole milliseconds above zero");
        ApiError::of(Code::InvalidValue, X_REQUEST_TIMEOUT_MS, message)
    })?;
    let most = config.max_request_timeout.get();
    Ok((Duration::from_millis(asked.min(most)), asked > most))
}

fn priority(headers: &HeaderMap) -> Result<Option<Priority>, ApiError> {
    match single(headers, X_PRIORITY)?.map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"interactive") => Ok(Some(Priority::Interactive)),
        Some(b"bulk") => Ok(Some(Priority::Bulk)),
        Some(_) => {
            let message =
                format!("{X_PRIORITY} must be interactive or bulk; else leave the header out");
            Err(ApiError::of(Code::InvalidValue, X_PRIORITY, message))
        }
    }
}

/// Parses the body, and gives the permit back: it counts the body's bytes as long as texts may be
/// parts of the body.
async fn parse<B: Body + Send + 'static>(
    state: &AppState,
    bytes: Vec<u8>,
    packing: Packing,
    mut permit: Permit,
) -> Result<(B, Permit), ApiError> {
    let (limits, max_body_bytes) = (input_limits(&state.config), state.config.max_body_bytes);
    let small = match packing {
        Packing::Plain if bytes.len() < LARGE_BODY_BYTES => Ok(bytes),
        Packing::Gzip if bytes.len() <= SMALL_PACKED_BYTES => {
            let most = max_body_bytes.min(MaxBodyBytes::nearest(LARGE_BODY_BYTES as u64));
            match unpack::<B>(&bytes, most, &|| true, limits, &mut permit) {
                Err(error) if error.code == Code::BodyTooLarge && most < max_body_bytes => {
                    Err(bytes)
                }
                unpacked => Ok(unpacked?),
            }
        }
        Packing::Plain | Packing::Gzip => Err(bytes),
    };
    let bytes = match small {
        Ok(small) => return Ok((payload::read(small, limits)?, permit)),
        Err(large) => large,
    };
    let bytes = Bytes::from(bytes);
    // This thread frees it last: what another thread frees, the allocator would keep for this one
    // alone.
    let _received = bytes.clone();
    let turn = Arc::clone(&state.parsing).acquire_owned().await.expect("it is never closed");
    // The same holds for the room for copies, so that this thread keeps a byte of it. Room takes
    // memory only once it is filled.
    let mut room = BytesMut::with_capacity(bytes.len() + 1);
    let _room = room.split_off(bytes.len());
    off_thread(state, move |wanted| {
        let _turn = turn;
        let bytes = match packing {
            Packing::Plain => bytes,
            Packing::Gzip => {
                let is_wanted = || wanted.get();
                unpack::<B>(&bytes, max_body_bytes, &is_wanted, limits, &mut permit)?.into()
            }
        };
        Ok((payload::read_into(bytes, room, limits)?, permit))
    })
    .await?
}

/// Unpacks a body, whose bytes are held as they come, packed and unpacked.
fn unpack<B: Body>(
    packed: &[u8],
    limit: MaxBodyBytes,
    is_wanted: &dyn Fn() -> bool,
    limits: InputLimits,
    permit: &mut Permit,
) -> Result<Vec<u8>, ApiError> {
    let mut scanner = ItemScanner::new(limits, B::INPUT);
    body::unpack(packed, limit, is_wanted, |body| {
        hold(permit, (packed.len() + body.len()) as u64)?;
        scanner.scan(body)
    })
}

async fn write<Q: Question>(
    state: &AppState,
    answer: EmbedReply,
    vectors: Vectors,
    format: Q::Format,
    permit: Permit,
) -> Result<Bytes, ApiError> {
    let large = Q::work(&format, &answer)? >= MANY_NUMBERS;
    let model_id = state.service.model_card().map_or("", |card| &card.model_id);
    // This thread frees it: what another thread frees, the allocator would keep for this one alone.
    let out = held::room(reply::room(&answer, Q::most_bytes(&format, model_id)));
    let service = Arc::clone(&state.service);
    let work = move || {
        let card = service.model_card();
        let resident = Resident {
            id: card.map_or("", |card| &card.model_id),
            vocab_size: card.map_or(0, |card| card.vocab_size),
            small_vectors: card.map_or(&[], |card| &card.small_vectors),
            piece: &|id| service.piece(id),
        };
        held::hold(Q::write(out, &answer, vectors, &format, &resident), permit)
    };
    if large { off_thread(state, |_| work()).await } else { Ok(work()) }
}

pub(super) async fn off_thread<T: Send + 'static>(
    state: &AppState,
    work: impl FnOnce(&Wanted) -> T + Send + 'static,
) -> Result<T, ApiError> {
    // Fails only when the work panicked.
    state.service.compute(work).await.map_err(|error| ApiError::server(Code::InternalError, error))
}
