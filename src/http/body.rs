//! The bytes of a request: is it JSON, does it fit, unpacked when it came as gzip.

use std::io::Read;

use actix_web::error::PayloadError;
use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use actix_web::web;
use flate2::read::MultiGzDecoder;
use futures_util::StreamExt;

use super::error::{ApiError, Code};
use crate::limits::MaxBodyBytes;

const CONTENT_TYPE: &str = "content-type";
const CONTENT_ENCODING: &str = "content-encoding";

/// Bytes that are unpacked between two looks at what may be held.
const UNPACKED_AT_ONCE: u64 = 256 * 1024;

/// How the bytes of a body are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
}

/// Refuses a body that is not JSON, is packed in an unknown way, or is announced as too large.
pub(super) fn check_headers(headers: &HeaderMap, limit: MaxBodyBytes) -> Result<Packing, ApiError> {
    if !is_json(header_text(headers, CONTENT_TYPE)?) {
        let message = "the content type is not JSON; send content-type: application/json";
        return Err(ApiError::of(Code::UnsupportedMediaType, CONTENT_TYPE, message));
    }
    let encoding = header_text(headers, CONTENT_ENCODING)?.trim();
    let packing = match encoding.to_ascii_lowercase().as_str() {
        "" | "identity" => Packing::Plain,
        "gzip" | "x-gzip" => Packing::Gzip,
        _ => {
            let message = "the content encoding is not known here; send gzip or identity";
            return Err(ApiError::of(Code::UnsupportedMediaType, CONTENT_ENCODING, message));
        }
    };
    if announced(headers) > limit.get() {
        return Err(ApiError::body_too_large(limit.get()));
    }
    Ok(packing)
}

/// A header that is absent counts as empty.
fn header_text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, ApiError> {
    headers.get(name).map_or(Ok(""), |value| {
        value.to_str().map_err(|_| {
            let message = format!("the header {name} is not ASCII; send another or none");
            ApiError::of(Code::UnsupportedMediaType, name, message)
        })
    })
}

/// `application/json` or any `…+json`, whatever its parameters; an absent type is taken as JSON.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.is_empty()
        || essence == "application/json"
        || essence.split_once('/').is_some_and(|(_, subtype)| subtype.ends_with("+json"))
}

/// Bytes that the head announces; 0 when it does not.
pub(super) fn announced(headers: &HeaderMap) -> u64 {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    length.unwrap_or(0)
}

/// Reads the whole body as it was sent. `look` is shown the body each time that more has come, and
/// may refuse the rest.
pub(super) async fn read(
    announced: u64,
    mut payload: web::Payload,
    limit: MaxBodyBytes,
    mut look: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<Vec<u8>, ApiError> {
    // The system gives memory only as it is filled, so that a large announcement takes nothing from
    // others.
    let mut body = Vec::with_capacity(usize::try_from(announced).unwrap_or(0));
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| unreadable(&error, limit))?;
        if body.len() + chunk.len() > limit.as_usize() {
            return Err(ApiError::body_too_large(limit.get()));
        }
        body.extend_from_slice(&chunk);
        look(&body)?;
    }
    Ok(body)
}

fn unreadable(error: &PayloadError, limit: MaxBodyBytes) -> ApiError {
    if matches!(error, PayloadError::Overflow) {
        return ApiError::body_too_large(limit.get());
    }
    let message = "the body ended early or its chunks are malformed; send it whole";
    ApiError::new(Code::InvalidBody, message)
}

/// Unpacks gzip, at most some kilobytes further than the limit; blocks while it computes. `look` is
/// shown the body each time that more is unpacked, and may refuse the rest.
pub(super) fn unpack(
    packed: &[u8],
    limit: MaxBodyBytes,
    mut look: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let mut body = Vec::new();
    let mut unpacked = MultiGzDecoder::new(packed);
    loop {
        let more = unpacked.by_ref().take(UNPACKED_AT_ONCE).read_to_end(&mut body);
        let more = more.map_err(|_| {
            let message = "the body is not valid gzip; send it whole, or without content-encoding";
            ApiError::of(Code::InvalidBody, CONTENT_ENCODING, message)
        })?;
        if body.len() > limit.as_usize() {
            return Err(ApiError::body_too_large(limit.get()));
        }
        if more == 0 {
            return Ok(body);
        }
        look(&body)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn limit() -> MaxBodyBytes {
        MaxBodyBytes::new(1024).expect("it is within the range")
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("a Vec takes all");
        encoder.finish().expect("a Vec takes all")
    }

    #[test]
    fn json_types_are_accepted_with_any_parameters() {
        for good in [
            "",
            " ",
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json;charset=\"utf-8\"",
            "application/vnd.api+json",
            "application/ld+json ;x",
        ] {
            assert!(is_json(good), "{good:?}");
        }
        for bad in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "text/json",
            "+json",
            "json",
            "application/jsonl",
            "application/json5",
            "multipart/form-data",
        ] {
            assert!(!is_json(bad), "{bad:?}");
        }
    }

    #[test]
    fn encodings_other_than_gzip_are_refused() {
        let with = |encoding| {
            let mut headers = HeaderMap::new();
            let name = HeaderName::from_static(CONTENT_ENCODING);
            headers.insert(name, HeaderValue::from_static(encoding));
            check_headers(&headers, limit()).map_err(|error| error.code)
        };
        assert_eq!(with("GZip"), Ok(Packing::Gzip));
        assert_eq!(with("identity"), Ok(Packing::Plain));
        for unknown in ["br", "zstd", "deflate", "gzip, gzip", "gzip, identity"] {
            assert_eq!(with(unknown), Err(Code::UnsupportedMediaType), "{unknown}");
        }
    }

    #[test]
    fn the_limit_counts_unpacked_bytes() {
        let unpacked = |length| unpack(&gzip(&vec![b' '; length]), limit(), |_| Ok(()));
        assert_eq!(unpacked(1024).map(|body| body.len()), Ok(1024));
        assert_eq!(unpacked(1025).map_err(|error| error.code), Err(Code::BodyTooLarge));
        assert_eq!(unpacked(50_000_000).map_err(|error| error.code), Err(Code::BodyTooLarge));
    }

    #[test]
    fn unpacking_stops_when_the_body_is_refused() {
        let packed = gzip(&vec![b' '; 50_000_000]);
        let limit = MaxBodyBytes::new(100_000_000).expect("it is within the range");
        let mut most = 0;
        let refused = unpack(&packed, limit, |body| {
            most = body.len();
            if body.len() > 1_000_000 { Err(ApiError::bytes_exceeded()) } else { Ok(()) }
        });
        let code = refused.map_err(|error| error.code);
        assert_eq!(code, Err(Code::InflightBytesExceeded));
        assert!(most < 2_000_000, "{most}");
    }

    #[test]
    fn gzip_that_is_cut_or_damaged_is_refused() {
        let whole = gzip(b"{\"input\":\"text\"}");
        let mut damaged = whole.clone();
        damaged[12] ^= 0xff;
        let mut trailed = whole.clone();
        trailed.extend(b"trailing");
        for bad in [&whole[..whole.len() - 1], &whole[..5], &[], b"{}", &damaged, &trailed] {
            let unpacked = unpack(bad, limit(), |_| Ok(()));
            assert_eq!(unpacked.map_err(|error| error.code), Err(Code::InvalidBody));
        }
    }
}
