//! The bytes of a request: is it JSON, does it fit, unpacked when it came as gzip.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, BufRead, Read};
use std::task::Poll;

use actix_web::error::PayloadError;
use actix_web::http::header::{CONTENT_LENGTH, HeaderMap, ORIGIN};
use actix_web::web;
use flate2::bufread::MultiGzDecoder;
use futures_util::StreamExt;

use super::error::{ApiError, Code};
use super::patience::Patience;
use super::single::single;
use crate::service::earned_bytes;
use settings::limits::MaxBodyBytes;

const CONTENT_TYPE: &str = "content-type";
const CONTENT_ENCODING: &str = "content-encoding";

/// Bytes that are unpacked between two looks at what may be held.
const UNPACKED_AT_ONCE: u64 = 256 * 1024;

/// A body of which so many bytes came gets room for all that it announces: to grow further, it
/// would be filled twice, and the system gives memory only as it is filled.
const WHOLE_FROM: usize = 1024 * 1024;

/// Packed bytes that are unpacked between two looks at whether somebody waits.
const FED_AT_ONCE: usize = 16 * 1024;

/// Packed bytes that may unpack to nothing: parts of the body are unpacked that nobody has seen.
const FED_AHEAD: usize = 2 * UNPACKED_AT_ONCE as usize;

/// How the bytes of a body are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
}

/// Refuses a body that is not JSON, is packed in an unknown way, or is announced as too large.
pub(super) fn check_headers(headers: &HeaderMap, limit: MaxBodyBytes) -> Result<Packing, ApiError> {
    let content_type = header_text(headers, CONTENT_TYPE)?;
    // A browser lets any page send a body without a type; for JSON it asks here first.
    let is_untyped = essence(content_type).is_empty() && headers.contains_key(ORIGIN);
    if is_untyped || !is_json(content_type) {
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
    single(headers, name)?.map_or(Ok(""), |value| {
        value.to_str().map_err(|_| {
            let message = format!("the header {name} is not ASCII; send another or none");
            ApiError::of(Code::UnsupportedMediaType, name, message)
        })
    })
}

/// `application/json` or any `…+json`, whatever its parameters; an absent type is taken as JSON.
fn is_json(content_type: &str) -> bool {
    let essence = essence(content_type);
    essence.is_empty()
        || essence == "application/json"
        || essence.split_once('/').is_some_and(|(_, subtype)| subtype.ends_with("+json"))
}

/// A content type without its parameters.
fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Bytes that the head announces; 0 when it does not.
pub(super) fn announced(headers: &HeaderMap) -> u64 {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    length.unwrap_or(0)
}

/// Reads the whole body as it was sent; takes memory for what came, and at first for as much again.
/// `look` is shown the body each time that more has come, and may refuse the rest. `patience` is
/// with a client of whose body a part is in memory.
pub(super) async fn read(
    announced: u64,
    mut payload: web::Payload,
    limit: MaxBodyBytes,
    mut patience: Patience,
    mut look: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let mut body = Vec::new();
    loop {
        let next = poll_fn(|context| match payload.poll_next_unpin(context) {
            Poll::Pending if !body.is_empty() => patience.poll_end(context).map(|()| None),
            next => next.map(Some),
        });
        let Some(chunk) = next.await.ok_or_else(ApiError::body_too_slow)? else { return Ok(body) };
        let chunk = chunk.map_err(|error| unreadable(&error, limit))?;
        patience.moved(chunk.len(), 1);
        if body.len() + chunk.len() > limit.as_usize() {
            return Err(ApiError::body_too_large(limit.get()));
        }
        let came = body.len() + chunk.len();
        // A body of which nobody knows the length grows as vectors do.
        if announced > 0 && came > body.capacity() {
            let room = match came {
                0..WHOLE_FROM => earned_bytes(came as u64, announced),
                _ => announced,
            };
            body.reserve_exact(room as usize - body.len());
        }
        body.extend_from_slice(&chunk);
        look(&body)?;
    }
}

fn unreadable(error: &PayloadError, limit: MaxBodyBytes) -> ApiError {
    if matches!(error, PayloadError::Overflow) {
        return ApiError::body_too_large(limit.get());
    }
    let message = "the body ended early, or its chunks are malformed or have more than 16 KiB of \
                   extensions and trailers; send it whole";
    ApiError::new(Code::InvalidBody, message)
}

/// Packed bytes on their way to be unpacked. They end with an error when they unpack to far less
/// than they are, as millions of empty members do, and when nobody waits for the body.
struct Feed<'a> {
    rest: &'a [u8],
    fed: usize,
    /// Bytes that were unpacked so far.
    unpacked: &'a Cell<usize>,
    is_wanted: &'a dyn Fn() -> bool,
}

impl BufRead for Feed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let unpacked = self.unpacked.get();
        if self.fed > FED_AHEAD + unpacked + unpacked / 4 || !(self.is_wanted)() {
            return Err(io::Error::other("the rest is not worth it"));
        }
        Ok(&self.rest[..self.rest.len().min(FED_AT_ONCE)])
    }

    fn consume(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        self.fed += bytes;
    }
}

impl Read for Feed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

/// Unpacks gzip, at most some kilobytes further than the limit, as long as `is_wanted`; blocks
/// while it computes. `look` is shown the body each time that more is unpacked, and may refuse the
/// rest.
pub(super) fn unpack(
    packed: &[u8],
    limit: MaxBodyBytes,
    is_wanted: &dyn Fn() -> bool,
    mut look: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let mut body = Vec::new();
    let bytes = Cell::new(0);
    let feed = Feed { rest: packed, fed: 0, unpacked: &bytes, is_wanted };
    let mut unpacked = MultiGzDecoder::new(feed);
    loop {
        let more = unpacked.by_ref().take(UNPACKED_AT_ONCE).read_to_end(&mut body);
        let more = more.map_err(|_| {
            let message = "the body is not valid gzip, or is gzip that packs next to nothing; \
                           send it whole, or without content-encoding";
            ApiError::of(Code::InvalidBody, CONTENT_ENCODING, message)
        })?;
        bytes.set(body.len());
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
    fn unpacking_stops_when_the_body_is_refused() {
        let packed = gzip(&vec![b' '; 50_000_000]);
        let limit = MaxBodyBytes::new(100_000_000).expect("it is within the range");
        let mut most = 0;
        let refused = unpack(&packed, limit, &|| true, |body| {
            most = body.len();
            if body.len() > 1_000_000 { Err(ApiError::bytes_exceeded()) } else { Ok(()) }
        });
        let code = refused.map_err(|error| error.code);
        assert_eq!(code, Err(Code::InflightBytesExceeded));
        assert!(most < 2_000_000, "{most}");
    }

    #[test]
    fn packed_bytes_that_unpack_to_next_to_nothing_are_refused() {
        let limit = MaxBodyBytes::nearest(u64::MAX);
        let fed = |packed: &[u8]| {
            let looks = Cell::new(0);
            let is_wanted = || {
                looks.set(looks.get() + 1);
                true
            };
            let unpacked = unpack(packed, limit, &is_wanted, |_| Ok(()));
            (unpacked.map(|body| body.len()).map_err(|error| error.code), looks.get())
        };
        let empty = gzip(b"").repeat(200_000);
        let (refused, looks) = fed(&empty);
        assert_eq!(refused, Err(Code::InvalidBody));
        assert!(looks < 200_000, "{looks} looks at 4 MB: it is not unpacked to its end");
        // What cannot be packed is a little larger then.
        let mut random = fastrand::Rng::with_seed(7);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(3_000_000).collect();
        assert_eq!(fed(&gzip(&noise)).0, Ok(noise.len()));
        let members: Vec<u8> = noise.chunks(1000).flat_map(gzip).collect();
        assert_eq!(fed(&members).0, Ok(noise.len()), "members of a kilobyte each");
    }

    #[test]
    fn unpacking_ends_when_nobody_waits() {
        let packed = gzip(&vec![b' '; 50_000_000]);
        let limit = MaxBodyBytes::nearest(100_000_000);
        let most = Cell::new(0);
        let is_wanted = || most.get() < 1_000_000;
        let ended = unpack(&packed, limit, &is_wanted, |body| {
            most.set(body.len());
            Ok(())
        });
        assert!(ended.is_err());
        assert!(most.get() < 20_000_000, "{most:?}");
    }

    #[test]
    fn gzip_that_is_cut_or_damaged_is_refused() {
        let whole = gzip(b"{\"input\":\"text\"}");
        let mut damaged = whole.clone();
        damaged[12] ^= 0xff;
        let mut trailed = whole.clone();
        trailed.extend(b"trailing");
        for bad in [&whole[..whole.len() - 1], &whole[..5], &[], b"{}", &damaged, &trailed] {
            let unpacked = unpack(bad, limit(), &|| true, |_| Ok(()));
            assert_eq!(unpacked.map_err(|error| error.code), Err(Code::InvalidBody));
        }
    }
}
