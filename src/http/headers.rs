//! Headers and their values that several routes answer with.

use actix_web::http::header::{CACHE_CONTROL, HeaderName};

/// The content type of all answers but `/metrics` and `/docs`.
pub(super) const JSON: &str = "application/json";

/// The header of answers that are true for their moment only.
pub(super) const NO_STORE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

/// The header with which a client shortens or lengthens its request's time, and with which an
/// answer tells a time that was cut.
pub(super) const X_REQUEST_TIMEOUT_MS: &str = "x-request-timeout-ms";

/// The header that says that a request's `input_type` had no effect.
pub(super) const X_INPUT_TYPE: HeaderName = HeaderName::from_static("x-input-type");
