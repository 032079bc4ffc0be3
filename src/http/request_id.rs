//! The id under which client and log talk of one request.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header, in requests and in every answer.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longer ids would let a client fill the log.
const MAX_LENGTH: usize = 128;

/// The client's id when it is 1 to 128 printable ASCII characters, else a new one.
pub(super) fn of(headers: &HeaderMap) -> HeaderValue {
    match headers.get(X_REQUEST_ID) {
        Some(id) if is_fit(id.as_bytes()) => id.clone(),
        _ => HeaderValue::from_str(&new()).expect("a UUID is hexadecimal digits and hyphens"),
    }
}

/// The id of a request that names none.
pub(super) fn new() -> String {
    Uuid::new_v4().to_string()
}

fn is_fit(id: &[u8]) -> bool {
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(|byte| matches!(byte, b' '..=b'~'))
}
