//! Headers that a request may have once.
//!
//! Of two, the first is as good as the last: a proxy in front that decides by one of them, and a
//! server that acts on the other, are two readers of two requests.

use actix_web::http::header::{HeaderMap, HeaderValue};

use super::error::{ApiError, Code};

/// The header `name`, if the request has it.
///
/// # Errors
/// When it comes more than once, whether or not the values are equal.
pub(super) fn single<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a HeaderValue>, ApiError> {
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() {
        let message = format!("the header {name} comes more than once; send it once");
        return Err(ApiError::of(Code::InvalidValue, name, message));
    }
    Ok(first)
}
