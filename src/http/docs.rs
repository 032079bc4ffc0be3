//! `/docs`: Swagger UI out of the binary. The page asks no other host for anything.

use std::io::Read;

use actix_web::http::header::{ACCEPT_ENCODING, HeaderMap};
use flate2::read::GzDecoder;

use super::Answer;
use super::error::OK;

/// Only what this server sends may run, be shown, or be asked; the two images of Swagger UI's style
/// sheet lie in it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// A part of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Page,
    PageScript,
    PageStyle,
    Script,
    Style,
}

/// How a part lies in the binary.
enum Stored {
    Plain(&'static str),
    Gzip(&'static [u8]),
}

impl Part {
    /// The part at this path.
    pub(super) fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/docs" => Self::Page,
            "/docs/page.js" => Self::PageScript,
            "/docs/page.css" => Self::PageStyle,
            "/docs/swagger-ui-bundle.js" => Self::Script,
            "/docs/swagger-ui.css" => Self::Style,
            _ => return None,
        })
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::PageScript | Self::Script => "text/javascript; charset=utf-8",
            Self::PageStyle | Self::Style => "text/css; charset=utf-8",
        }
    }

    const fn stored(self) -> Stored {
        match self {
            Self::Page => Stored::Plain(include_str!("docs/page.html")),
            Self::PageScript => Stored::Plain(include_str!("docs/page.js")),
            Self::PageStyle => Stored::Plain(include_str!("docs/page.css")),
            Self::Script => {
                Stored::Gzip(include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz")))
            }
            Self::Style => {
                Stored::Gzip(include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz")))
            }
        }
    }
}

/// Answers with a part, packed when the client can unpack it.
pub(super) fn part(part: Part, headers: &HeaderMap) -> Answer {
    let mut answer_headers = vec![
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        // A new release of the server may bring another page.
        ("cache-control", "no-cache"),
    ];
    let body = match part.stored() {
        Stored::Plain(text) => text.as_bytes().to_vec(),
        Stored::Gzip(packed) => {
            answer_headers.push(("vary", "accept-encoding"));
            if takes_gzip(headers) {
                answer_headers.push(("content-encoding", "gzip"));
                packed.to_vec()
            } else {
                unpack(packed)
            }
        }
    };
    Answer { content_type: part.content_type(), headers: answer_headers, ..Answer::new(OK, body) }
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut plain).expect("the build packed it whole");
    plain
}

/// Whether `accept-encoding` names gzip and does not forbid it with `q=0`.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.unwrap_or_default().split(',').any(|choice| {
        let (coding, weight) = choice.split_once(';').unwrap_or((choice, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok());
        matches!(coding.trim(), "gzip" | "x-gzip" | "*") && weight.unwrap_or(1.0) > 0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (value, takes) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, gzip;q=0.8", true),
            ("*", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
            ("gzip; q=0.0, br", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(takes_gzip(&headers), takes, "{value:?}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn every_file_that_the_page_names_is_there() {
        let page = include_str!("docs/page.html");
        let named = page.split('"').filter(|word| word.starts_with("docs/"));
        let parts: Vec<_> = named.map(|path| Part::at(&format!("/{path}"))).collect();
        assert_eq!(parts.len(), 4);
        assert!(parts.iter().all(Option::is_some), "{parts:?}");
    }
}
