//! The bodies of requests on a connection of HTTP/1.1, and what is left of them after the answer.
//!
//! The next request of the connection begins where the body ends, so a body that its handler left
//! unread is read here or the connection is closed. Actix does neither with chunked bodies: it
//! drops their bytes for as long as they come.
//!
//! A client that waits for a word before it sends its body is given the word when a handler asks
//! for the body. An answer that comes before closes the connection: the body may come or not.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::Error;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::ConnectionType;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::middleware::Next;
use actix_web::rt::time::timeout;
use actix_web::web::{Bytes, Data};
use futures_util::{Stream, StreamExt, stream};

use super::activity::{Activity, RunningRequest};
use crate::http::held;
use crate::service::EmbeddingService;

/// More is not read: a new connection costs less than that.
const REST_BYTES: usize = 64 * 1024;

/// The answer is held back for no longer. Of most requests the body comes right behind the head.
const REST_TIME: Duration = Duration::from_millis(100);

/// The outermost layer: tells the connection that a request runs, and what became of its body.
pub(in crate::http) async fn finish_body<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // Connections of HTTP/2 end a request's body by themselves, and copy no answer.
    let Some(activity) = request.conn_data::<Rc<Activity>>().map(Rc::clone) else {
        return Ok(next.call(request).await?.map_into_boxed_body());
    };
    let body = UnreadBody::watch(&mut request, Rc::clone(&activity));
    let response = next.call(request).await?;
    let service = || response.request().app_data::<Data<EmbeddingService>>();
    let copy = held::copied_bytes(response.response().body())
        .and_then(|bytes| service()?.spare_room_for(bytes));
    // The connection would keep the memory of its longest head.
    let is_too_much =
        activity.had_long_head() && service().is_some_and(|service| service.door().calm() < 1.0);
    let mut response = response.map_body(|_, body| held::in_parts(body, copy));
    // What still comes of an unread body can be no request.
    if !body.finish().await || is_too_much {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(response)
}

/// The body of a request that runs.
struct UnreadBody {
    reader: Reader,
    /// More than `REST_BYTES` are announced.
    is_large: bool,
    _running: RunningRequest,
}

impl UnreadBody {
    /// Begins a request; its handler reads through what stays here.
    fn watch(request: &mut ServiceRequest, activity: Rc<Activity>) -> Self {
        let announced = request.headers().get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let is_large = announced.is_some_and(|length| length > REST_BYTES as u64);
        let payload = match request.parts_mut().1.take() {
            Payload::None => None,
            payload => Some(payload),
        };
        let running = activity.begin(payload.is_some());
        let has_open_body = activity.has_open_body();
        let reader = Reader { payload: Rc::new(RefCell::new(payload)), activity };
        if has_open_body {
            request.set_payload(Payload::Stream { payload: Box::pin(reader.clone()) });
        }
        Self { reader, is_large, _running: running }
    }

    /// Whether the body has been read to its end; a small rest is read now.
    async fn finish(mut self) -> bool {
        if !self.reader.activity.has_open_body() {
            return true;
        }
        let rest = async {
            if self.is_large || self.reader.activity.awaits_continue() {
                return;
            }
            let mut left = REST_BYTES;
            while let Some(Ok(chunk)) = self.reader.next().await {
                let Some(less) = left.checked_sub(chunk.len()) else { return };
                left = less;
            }
        };
        let _ = timeout(REST_TIME, rest).await;
        !self.reader.activity.has_open_body()
    }
}

/// Reads a body and tells when it has ended.
#[derive(Clone)]
struct Reader {
    /// `None` when it has ended or failed.
    payload: Rc<RefCell<Option<Payload>>>,
    activity: Rc<Activity>,
}

impl Stream for Reader {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut payload = self.payload.borrow_mut();
        let Some(open) = payload.as_mut() else { return Poll::Ready(None) };
        let chunk = match Pin::new(open).poll_next(context) {
            Poll::Ready(chunk) => chunk,
            Poll::Pending => {
                ready!(self.activity.poll_broken(context));
                Some(Err(PayloadError::EncodingCorrupted))
            }
        };
        match chunk {
            Some(Ok(_)) => {}
            // The client has left. Actix is about to drop the request; nobody reads an answer.
            Some(Err(PayloadError::Incomplete(_))) => {
                *payload = Some(Payload::Stream { payload: Box::pin(stream::pending()) });
                return Poll::Pending;
            }
            Some(Err(_)) => *payload = None,
            None => {
                *payload = None;
                self.activity.body_ended();
            }
        }
        Poll::Ready(chunk)
    }
}
