//! `/docs`: Swagger UI out of the binary. The page asks no other host for anything.

use std::io::Read;

use actix_web::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderMap,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::web::ServiceConfig;
use actix_web::{HttpRequest, HttpResponse};
use flate2::read::GzDecoder;

use super::app::{Endpoint, get};
use super::error::OK;

/// Only what this server sends may run, be shown, or be asked; the two images of Swagger UI's style
/// sheet lie in it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file of the page: its path, its content type, and how it lies in the binary.
type File = (&'static str, &'static str, Stored);

enum Stored {
    Plain(&'static str),
    Gzip(&'static [u8]),
}

static FILES: [File; 5] = [
    ("/docs", HTML, Stored::Plain(include_str!("pages/docs/page.html"))),
    ("/docs/page.js", SCRIPT, Stored::Plain(include_str!("pages/docs/page.js"))),
    ("/docs/page.css", STYLE, Stored::Plain(include_str!("pages/docs/page.css"))),
    (
        "/docs/swagger-ui-bundle.js",
        SCRIPT,
        Stored::Gzip(include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz"))),
    ),
    (
        "/docs/swagger-ui.css",
        STYLE,
        Stored::Gzip(include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz"))),
    ),
];

/// A route for each file.
pub(super) fn routes(app: &mut ServiceConfig) {
    for file in &FILES {
        let handler = move |request: HttpRequest| async move { answer(file, request.headers()) };
        app.service(get(file.0, Endpoint::open("/docs"), handler));
    }
}

/// Answers with a file, packed when the client can unpack it.
fn answer((_, content_type, stored): &File, headers: &HeaderMap) -> HttpResponse {
    let mut response = HttpResponse::build(OK);
    response
        .content_type(*content_type)
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        // A new release of the server may bring another page.
        .insert_header((CACHE_CONTROL, "no-cache"));
    let packed = match stored {
        Stored::Plain(text) => return response.body(*text),
        Stored::Gzip(packed) => *packed,
    };
    response.insert_header((VARY, "accept-encoding"));
    if takes_gzip(headers) {
        response.insert_header((CONTENT_ENCODING, "gzip")).body(packed)
    } else {
        response.body(unpack(packed))
    }
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
        let page = include_str!("pages/docs/page.html");
        let named = page.split('"').filter(|word| word.starts_with("docs/"));
        let named: Vec<&str> = named.collect();
        assert_eq!(named.len(), 4);
        for path in named {
            assert!(FILES.iter().any(|(known, ..)| known[1..] == *path), "{path}");
        }
    }
}
