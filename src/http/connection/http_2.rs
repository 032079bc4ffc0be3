//! A connection of HTTP/2, on the crate `h2`: each stream is a request for the application.
//!
//! Actix's own speaks HTTP/2 without a cap on streams, and lets a request run on whose stream was
//! reset or whose connection is gone. Here all requests of a connection are part of one future, so
//! they end with it, and one that is reset is dropped before its place is given away.
//!
//! What is waited for, and how long:
//!
//! | wait | time | then |
//! |---|---|---|
//! | the client's first frames | `head` | closed |
//! | a request, while none runs | `idle`, less by `http::patience` | the client is told to leave |
//! | the client to leave, while no request runs | [`GOAWAY_TIMEOUT`] | closed |
//! | a request's answer | the request's own deadline | |
//! | a request's body | where it is read | |
//! | room for an answer in its window | by `http::patience` | the stream is reset |
//! | room for bytes in the socket | the same, by [`TimedStream`] | closed |
//!
//! Two states say what becomes of new requests; those that have begun are answered in both:
//!
//! | from | to | when |
//! |---|---|---|
//! | (new) | `Open` | the connection is opened |
//! | `Open` | `Closed` | no request ran for `idle`: the client is told to leave (GOAWAY) |
//! | `Open` | `Closed` | the server drains: likewise |
//! | `Open` | `Closed` | an answer would close a connection of HTTP/1.1: likewise |
//! | `Closed` | (ended) | no request has run for [`GOAWAY_TIMEOUT`] |
//! | both | (ended) | the client closes the connection, or breaks the protocol |

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_http::{Request, Response, ServiceConfig};
use actix_service::Service;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, Method, Uri, Version};
use actix_web::web::{Buf, Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use futures_util::{Stream, StreamExt};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::streams::AllStreams;
use super::timed_stream::TimedStream;
use crate::http::patience::{Patience, Timeouts};

/// The fields of one request, as the standard counts them. A field that was sent once takes a byte
/// in each later head, so that heads are far larger here than on the wire.
const FIELDS_MAX_BYTES: u32 = 16 * 1024;

/// The head of a request in memory, on average over those of a connection; more of them are refused
/// by the protocol, and may be sent again.
const HEAD_BYTES: usize = 4 * 1024;

/// What a field takes in memory besides its bytes.
const FIELD_BYTES: usize = 128;

/// What a connection takes in memory, about, without what permits hold: at first; more for good
/// since `h2` has read requests, whose room it keeps; for each request.
const NEW_BYTES: u64 = 40 * 1024;
const USED_BYTES: u64 = 110 * 1024;
const STREAM_BYTES: u64 = 12 * 1024;

/// Bytes of an answer that wait for the socket: of one stream.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Bytes of a body that a client may send ahead of its reader: of one stream, and of all together.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// A connection without a request is kept for so long whatever memory is free: a client that comes
/// back costs a handshake.
const QUIET_MIN: Duration = Duration::from_secs(10);

/// A client that was told to leave and has no request is waited for no longer.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream that was opened: the request, and where its answer goes.
type Opened = (http::Request<RecvStream>, SendResponse<SentPart>);

/// Whether the client may begin more requests on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    Open,
    Closed,
}

/// What connections have in common.
pub(super) struct Common<'a> {
    pub(super) all_streams: &'a AllStreams,
    pub(super) dates: &'a ServiceConfig,
    pub(super) timeouts: Timeouts,
}

/// Serves a connection until its client leaves, has been idle for too long, or has been told to
/// leave, as when `draining` resolves.
///
/// # Errors
/// When the client does not speak HTTP/2, breaks its rules, or takes nothing for too long.
pub(super) async fn serve<T, A>(
    stream: T,
    application: Rc<A>,
    Common { all_streams, dates, timeouts }: Common<'_>,
    draining: impl Future<Output = ()>,
) -> Result<(), h2::Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Service<Request>,
    A::Response: Into<Response<BoxBody>>,
    A::Error: Into<Response<BoxBody>>,
{
    let granted = all_streams.grant();
    let stream = TimedStream::new(stream, timeouts.patience(), NEW_BYTES);
    let mut builder = Builder::new();
    let handshake = builder
        .max_concurrent_streams(granted.streams as u32)
        .max_header_list_size(FIELDS_MAX_BYTES)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .handshake::<_, SentPart>(stream);
    // In a box, which is gone when the connection is there.
    let handshake = timeout(timeouts.head, Box::pin(handshake));
    let Ok(connection) = handshake.await else { return Ok(()) };
    let mut connection = connection?;
    let (streams, head_bytes, idle) = (Cell::new(0), Cell::new(0), timeouts.idle);
    let serving = Serving { application, dates, timeouts, streams, head_bytes };
    let mut running = FuturesUnordered::new();
    let mut draining = pin!(draining);
    let (mut intake, mut used) = (Intake::Open, None);
    let door = Arc::clone(&serving.timeouts.door);
    let waiting = |time| Patience::new(time, 0, Arc::clone(&door)).of_at_least(QUIET_MIN);
    let mut quiet = waiting(idle);
    loop {
        let has_place = running.len() < granted.streams;
        serving.streams.set(running.len());
        let after = tokio::select! {
            biased;
            // First: those that were reset give their places back before others take them.
            Some(after) = running.next() => after,
            opened = next(&mut connection, has_place) => match opened {
                None => return Ok(()),
                Some(opened) => {
                    let (request, mut respond) = opened?;
                    used.get_or_insert_with(|| door.count_beside(USED_BYTES));
                    // One that waited would be in memory with its body, which nobody counts.
                    match serving.head_bytes.get() < granted.streams * HEAD_BYTES {
                        true => running.push(serving.answer(request, respond)),
                        false => respond.send_reset(Reason::REFUSED_STREAM),
                    }
                    continue;
                }
            },
            () = &mut draining, if intake == Intake::Open => Intake::Closed,
            () = poll_fn(|context| quiet.poll_end(context)), if running.is_empty() => match intake {
                Intake::Open => Intake::Closed,
                Intake::Closed => return Ok(()),
            },
        };
        if intake == Intake::Open && after == Intake::Closed {
            connection.graceful_shutdown();
            intake = after;
        }
        quiet = waiting(match intake {
            Intake::Open => idle,
            Intake::Closed => GOAWAY_TIMEOUT,
        });
    }
}

/// The next stream that the client opens; `None` when the connection has ended.
async fn next<T: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<T, SentPart>,
    has_place: bool,
) -> Option<Result<Opened, h2::Error>> {
    poll_fn(|context| match has_place {
        true => connection.poll_accept(context),
        // Without a place frames are still read and written.
        false => connection.poll_closed(context).map(|ended| ended.err().map(Err)),
    })
    .await
}

/// A connection, for its requests.
struct Serving<'a, A> {
    application: Rc<A>,
    dates: &'a ServiceConfig,
    timeouts: Timeouts,
    /// Requests that run.
    streams: Cell<usize>,
    /// What their heads take.
    head_bytes: Cell<usize>,
}

/// A head that is in memory.
struct HeadInMemory<'a> {
    all: &'a Cell<usize>,
    bytes: usize,
}

impl<'a> HeadInMemory<'a> {
    fn count(request: &http::Request<RecvStream>, all: &'a Cell<usize>) -> Self {
        let fields = request.headers().iter();
        let of = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            FIELD_BYTES + name.as_str().len() + value.len()
        };
        let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        let bytes = path + fields.map(of).sum::<usize>();
        all.set(all.get() + bytes);
        Self { all, bytes }
    }
}

impl Drop for HeadInMemory<'_> {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.bytes);
    }
}

impl<A> Serving<'_, A>
where
    A: Service<Request>,
    A::Response: Into<Response<BoxBody>>,
    A::Error: Into<Response<BoxBody>>,
{
    /// The head and the body of an answer, unless the client takes its request back; whether the
    /// connection stays open.
    async fn ask(
        &self,
        request: http::Request<RecvStream>,
        respond: &mut SendResponse<SentPart>,
    ) -> Option<(http::Response<()>, Bytes, Intake)> {
        let _head_in_memory = HeadInMemory::count(&request, &self.head_bytes);
        let answer = tokio::select! {
            biased;
            _ = poll_fn(|context| respond.poll_reset(context)) => return None,
            answer = self.application.call(to_actix(request)) => answer,
        };
        let (mut head, body) = answer.map_or_else(Into::into, Into::into).into_parts();
        // Actix uses heads again, with the version of their last answer: HTTP/1.0 would mean to
        // close.
        head.head_mut().version = Version::HTTP_2;
        let intake = match head.head().connection_type() {
            ConnectionType::Close => Intake::Closed,
            _ => Intake::Open,
        };
        let head = from_actix(&head, body.size(), self.dates);
        // All answers of the application lie in memory whole.
        Some((head, body.try_into_bytes().unwrap_or_default(), intake))
    }

    /// Answers one request, unless its client takes it back.
    async fn answer(
        &self,
        request: http::Request<RecvStream>,
        mut respond: SendResponse<SentPart>,
    ) -> Intake {
        let _memory = self.timeouts.door.count_beside(STREAM_BYTES);
        let is_head = request.method() == http::Method::HEAD;
        // In a box of its own, which is gone when the answer waits for the client.
        let asking = Box::pin(self.ask(request, &mut respond));
        let Some((head, answer, intake)) = asking.await else { return Intake::Open };
        let has_no_body = is_head || answer.is_empty();
        // An error means that the stream is gone; nobody reads the answer.
        let Ok(mut stream) = respond.send_response(head, has_no_body) else { return intake };
        if !has_no_body && !self.send(&mut stream, answer).await {
            tracing::debug!("a client did not take its answer; its stream is reset");
            stream.send_reset(Reason::CANCEL);
        }
        intake
    }

    /// Hands an answer on as there is room for it, until all of it is sent or nobody reads it any
    /// more; false when the client wears the server's patience out.
    async fn send(&self, stream: &mut SendStream<SentPart>, mut rest: Bytes) -> bool {
        let (progress, mut patience) = (Rc::new(SendProgress::default()), self.timeouts.patience());
        poll_fn(|context| {
            progress.sender.register(context.waker());
            let moved = progress.moved.take();
            if moved > 0 {
                patience.moved(moved, self.streams.get());
            }
            while !rest.is_empty() {
                stream.reserve_capacity(rest.len());
                match stream.poll_capacity(context) {
                    Poll::Pending => return patience.poll_end(context).map(|()| false),
                    Poll::Ready(Some(Ok(room))) => {
                        let part = SentPart::new(rest.split_to(room.min(rest.len())), &progress);
                        if stream.send_data(part, rest.is_empty()).is_err() {
                            return Poll::Ready(true);
                        }
                    }
                    Poll::Ready(_) => return Poll::Ready(true),
                }
            }
            match progress.parts.get() {
                0 => Poll::Ready(true),
                _ => patience.poll_end(context).map(|()| false),
            }
        })
        .await
    }
}

/// A part of an answer, which `h2` keeps until the client's window and the socket have taken it.
/// The client may close its window meanwhile.
struct SentPart {
    bytes: Bytes,
    progress: Rc<SendProgress>,
}

/// What has become of the parts of an answer.
#[derive(Debug, Default)]
struct SendProgress {
    /// Parts that are not sent.
    parts: Cell<usize>,
    /// Bytes that were written since somebody asked.
    moved: Cell<usize>,
    /// Who hands the answer on.
    sender: AtomicWaker,
}

impl SentPart {
    fn new(bytes: Bytes, progress: &Rc<SendProgress>) -> Self {
        progress.parts.set(progress.parts.get() + 1);
        Self { bytes, progress: Rc::clone(progress) }
    }
}

impl Buf for SentPart {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.progress.moved.set(self.progress.moved.get() + count);
        self.progress.sender.wake();
    }
}

impl Drop for SentPart {
    fn drop(&mut self) {
        self.progress.parts.set(self.progress.parts.get() - 1);
        self.progress.sender.wake();
    }
}

/// Actix is built on older types of the same crate.
fn to_actix(request: http::Request<RecvStream>) -> Request {
    let (head, body) = request.into_parts();
    // No handler reads the body of these, which would be kept meanwhile and is not counted.
    let is_unread = matches!(head.method, http::Method::GET | http::Method::HEAD);
    let payload: Payload = match is_unread || body.is_end_stream() {
        true => Payload::None,
        false => Payload::Stream { payload: Box::pin(StreamBody(body)) },
    };
    let mut request = Request::with_payload(payload);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let to = request.head_mut();
    to.version = Version::HTTP_2;
    to.method = Method::from_bytes(head.method.as_str().as_bytes()).unwrap_or(Method::CONNECT);
    to.uri = Uri::try_from(path).unwrap_or_default();
    for (name, value) in &head.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            to.headers.append(name, value);
        }
    }
    request
}

/// The head of an answer, without what HTTP/2 has no use for.
fn from_actix(head: &Response<()>, size: BodySize, dates: &ServiceConfig) -> http::Response<()> {
    let mut to = http::Response::new(());
    *to.status_mut() = head.status().as_u16().try_into().unwrap_or_default();
    let fields = to.headers_mut();
    for (name, value) in head.headers() {
        let name = http::HeaderName::from_bytes(name.as_str().as_bytes());
        if let (Ok(name), Ok(value)) = (name, http::HeaderValue::from_bytes(value.as_bytes())) {
            fields.append(name, value);
        }
    }
    for of_http_1 in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        fields.remove(of_http_1);
    }
    if let BodySize::Sized(length) = size {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    let mut line = BytesMut::new();
    dates.write_date_header(&mut line, false);
    let date = line.strip_prefix(b"date: ").map(<[u8]>::trim_ascii_end).unwrap_or_default();
    if let Ok(date) = http::HeaderValue::from_bytes(date) {
        fields.insert(DATE, date);
    }
    to
}

/// The body of a request; what has been read makes room for more.
struct StreamBody(RecvStream);

impl Stream for StreamBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(chunk) = ready!(self.0.poll_data(context)) else { return Poll::Ready(None) };
        let chunk = chunk
            .and_then(|chunk| self.0.flow_control().release_capacity(chunk.len()).map(|()| chunk));
        Poll::Ready(Some(chunk.map_err(|_| PayloadError::Incomplete(None))))
    }
}

#[cfg(test)]
mod tests;
