//! Judges the head of a request: where it ends, where the request's body will end, and whether
//! actix may see it.
//!
//! It is the crate `httparse` that finds the parts of a head, here as in actix, with the same
//! settings. What is told of the framing is compared with actix's own codec by a test. A head that
//! actix would refuse, or that could be understood in two ways, is refused here, so that it gets an
//! answer in the form of all refusals.

use std::mem::MaybeUninit;
use std::ops::Range;

use actix_web::http::{Method, Uri};
use httparse::{Error, Header, Request, Status};

use super::body::Rest;
use crate::http::error::ApiError;

/// A longer head is refused. One name of a header longer than this would be a panic of actix.
pub(super) const HEAD_MAX_BYTES: usize = 64 * 1024;

/// As many as actix reads.
const HEADERS_MAX: usize = 96;

// What is wrong with a head, and what to do.
const REQUEST_LINE: &str = "its first line is not METHOD TARGET HTTP/1.1; send HTTP/1.1";
const HEADER: &str = "a header is not NAME: VALUE on one line; send each header so";
const CONTENT_LENGTH: &str =
    "content-length comes twice, or is not a decimal number below 2^64; send one such number";
const TRANSFER_ENCODING: &str =
    "transfer-encoding is not the one word chunked; send that word, or content-length";
const TWO_FRAMINGS: &str = "it has both content-length and transfer-encoding; send one of them";
const OLD_CHUNKS: &str = "HTTP/1.0 has no transfer-encoding; send content-length, or HTTP/1.1";
const OLD_POST: &str = "a POST of HTTP/1.0 needs content-length; send that header, or HTTP/1.1";
const HOST: &str = "it needs the header host, once; send one";

/// What is known of the bytes that begin with a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadVerdict {
    /// Its end has not come.
    Partial,
    Whole(JudgedHead),
    Refused(ApiError),
}

/// A head that actix understands in the same way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JudgedHead {
    /// Of the head with its last line's end, and with empty lines before it.
    pub(super) length: usize,
    /// The request's body, of which nothing has been looked at.
    pub(super) body: Rest,
    /// The client sends its body when it is told to.
    pub(super) awaits_continue: bool,
}

/// Judges `bytes`. In a whole head the words that ask for another protocol, or for a word before
/// the body, are overwritten with spaces: actix would act on them.
pub(super) fn judge(bytes: &mut [u8]) -> HeadVerdict {
    let mut fields = Fields::default();
    let verdict = read(bytes, &mut fields);
    if matches!(verdict, HeadVerdict::Whole(_)) {
        for range in fields.ignored {
            bytes[range].fill(b' ');
        }
    }
    verdict
}

fn read(bytes: &[u8], fields: &mut Fields) -> HeadVerdict {
    let mut headers: [MaybeUninit<Header<'_>>; HEADERS_MAX] =
        [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(Status::Complete(length)) if length <= HEAD_MAX_BYTES => {
            match fields.judge(&request, bytes) {
                Ok(body) => {
                    let awaits_continue = fields.awaits_continue;
                    HeadVerdict::Whole(JudgedHead { length, body, awaits_continue })
                }
                Err(problem) => HeadVerdict::Refused(ApiError::malformed_head(problem)),
            }
        }
        Ok(Status::Partial) if bytes.len() <= HEAD_MAX_BYTES => HeadVerdict::Partial,
        Ok(_) | Err(Error::TooManyHeaders) => {
            HeadVerdict::Refused(ApiError::head_too_large(HEAD_MAX_BYTES, HEADERS_MAX))
        }
        Err(Error::HeaderName | Error::HeaderValue) => {
            HeadVerdict::Refused(ApiError::malformed_head(HEADER))
        }
        Err(_) => HeadVerdict::Refused(ApiError::malformed_head(REQUEST_LINE)),
    }
}

/// How many bytes at the start are whole empty lines, which may come before a head.
pub(super) fn empty_lines(bytes: &[u8]) -> usize {
    let mut length = 0;
    loop {
        length += match &bytes[length..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return length,
        };
    }
}

/// What the headers say that matters here.
#[derive(Default)]
struct Fields {
    content_length: Option<u64>,
    is_chunked: bool,
    has_host: bool,
    awaits_continue: bool,
    /// Places of values that actix must not see.
    ignored: Vec<Range<usize>>,
}

impl Fields {
    /// The framing of the request's body, or what is wrong with the head.
    fn judge(&mut self, request: &Request<'_, '_>, bytes: &[u8]) -> Result<Rest, &'static str> {
        let is_old = request.version == Some(0);
        for header in &*request.headers {
            self.read(header, is_old, bytes)?;
        }
        let (method, target) = (request.method.unwrap_or_default(), request.path);
        let has_method = Method::from_bytes(method.as_bytes()).is_ok();
        if !has_method || Uri::try_from(target.unwrap_or_default()).is_err() {
            return Err(REQUEST_LINE);
        }
        if !is_old && !self.has_host {
            return Err(HOST);
        }
        match (self.content_length, self.is_chunked) {
            (Some(_), true) => Err(TWO_FRAMINGS),
            (Some(length), false) => Ok(Rest::Bytes(length)),
            (None, true) => Ok(Rest::chunks()),
            (None, false) if is_old && method == "POST" => Err(OLD_POST),
            (None, false) => Ok(Rest::Bytes(0)),
        }
    }

    fn read(
        &mut self,
        header: &Header<'_>,
        is_old: bool,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let (name, value) = (header.name, header.value);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("content-length") {
            let length = decimal(value).filter(|_| self.content_length.is_none());
            self.content_length = Some(length.ok_or(CONTENT_LENGTH)?);
        } else if is("transfer-encoding") {
            if is_old {
                return Err(OLD_CHUNKS);
            }
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(TRANSFER_ENCODING);
            }
            self.is_chunked = true;
        } else if is("host") {
            if self.has_host {
                return Err(HOST);
            }
            self.has_host = true;
        } else if is("upgrade") {
            self.ignored.push(place(value, bytes));
        } else if is("connection") {
            let options = value.split(|byte| *byte == b',');
            let upgrades = options.filter(|option| is_word(option, b"upgrade"));
            self.ignored.extend(upgrades.map(|option| place(option, bytes)));
        } else if is("expect") && !is_old {
            let mut words = value.split(|byte| *byte == b',');
            self.awaits_continue |= words.any(|word| is_word(word, b"100-continue"));
            self.ignored.push(place(value, bytes));
        }
        Ok(())
    }
}

fn is_word(bytes: &[u8], word: &[u8]) -> bool {
    bytes.trim_ascii().eq_ignore_ascii_case(word)
}

/// A number of digits alone; other forms are read in different ways.
fn decimal(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

/// Where `part` lies in `bytes`.
fn place(part: &[u8], bytes: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - bytes.as_ptr().addr();
    start..start + part.len()
}
