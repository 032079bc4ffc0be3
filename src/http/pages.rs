//! The pages of the binary: `/docs` is Swagger UI, `/playground` shows what the service does, and
//! `/` leads to it. They ask no other host for anything.

use std::io::Read;
use std::sync::OnceLock;

use actix_web::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderMap,
    HeaderName, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::web::{Bytes, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::error::OK;
use super::openapi::is_served;
use super::route::get;
use super::state::AppState;
use settings::{Dialect, DocsRoutes};

/// Only what this server sends may run, be shown, or be asked; the two images of Swagger UI's style
/// sheet lie in it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file of a page: its path, its content type, and how it lies in the binary.
type PageFile = (&'static str, &'static str, Stored);

enum Stored {
    Plain(&'static str),
    /// Packed, and unpacked once for all who want it so.
    Gzip(&'static [u8], OnceLock<Bytes>),
}

static DOCS: [PageFile; 5] = [
    ("/docs", HTML, Stored::Plain(include_str!("pages/docs/page.html"))),
    ("/docs/page.js", SCRIPT, Stored::Plain(include_str!("pages/docs/page.js"))),
    ("/docs/page.css", STYLE, Stored::Plain(include_str!("pages/docs/page.css"))),
    (
        "/docs/swagger-ui-bundle.js",
        SCRIPT,
        Stored::Gzip(
            include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz")),
            OnceLock::new(),
        ),
    ),
    (
        "/docs/swagger-ui.css",
        STYLE,
        Stored::Gzip(
            include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz")),
            OnceLock::new(),
        ),
    ),
];

static PLAYGROUND: [PageFile; 3] = [
    ("/playground", HTML, Stored::Plain(include_str!("pages/playground/page.html"))),
    ("/playground/page.js", SCRIPT, Stored::Plain(include_str!("pages/playground/page.js"))),
    ("/playground/page.css", STYLE, Stored::Plain(include_str!("pages/playground/page.css"))),
];

/// A route for each file of each page.
pub(super) fn routes(app: &mut ServiceConfig) {
    for (name, files) in [("/docs", DOCS.as_slice()), ("/playground", &PLAYGROUND)] {
        for file in files {
            let handler =
                move |request: HttpRequest| async move { answer(file, request.headers()) };
            app.service(get(Endpoint::open(file.0).named(name), handler));
        }
    }
}

/// Answers `/`: a browser gets the playground, where it is served and its routes are; a program
/// gets an index of the routes, relative to this address.
pub(super) async fn root(state: Data<AppState>, request: HttpRequest) -> HttpResponse {
    let index = index(&state);
    let wants_page = accepts(request.headers(), ACCEPT, &["text/html"]);
    let mut response = if wants_page && index["playground"].is_string() && index["both"].is_string()
    {
        // Its links are relative to the root, so that they work here too.
        answer(&PLAYGROUND[0], request.headers())
    } else {
        HttpResponse::build(OK).json(index)
    };
    response.headers_mut().append(VARY, HeaderValue::from_static("accept"));
    response
}

/// What this server serves with the model that it has.
fn index(state: &AppState) -> Value {
    let mut index = json!({
        "name": env!("CARGO_PKG_NAME"),
        "version": env!("CARGO_PKG_VERSION"),
        "health": "health",
    });
    let has_pages = state.config.docs == DocsRoutes::Serve;
    let speaks_openai = state.config.speaks(Dialect::OpenAi);
    let card = state.service.model_card();
    for (name, path, is_told) in [
        ("metrics", "metrics", state.config.metrics),
        ("playground", "playground", has_pages && is_served("/v1/embeddings:both", card)),
        ("docs", "docs", has_pages),
        ("openapi", "openapi.json", has_pages),
        ("embeddings", "v1/embeddings", speaks_openai),
        ("sparse_embeddings", "v1/sparse-embeddings", speaks_openai),
        ("both", "v1/embeddings:both", speaks_openai),
        ("rerank", "v1/rerank", speaks_openai),
        ("tokenize", "v1/tokenize", speaks_openai),
        ("models", "v1/models", speaks_openai),
    ] {
        if is_told && is_served(&format!("/{path}"), card) {
            index[name] = path.into();
        }
    }
    index
}

/// Answers with a file, packed when the client can unpack it.
fn answer((_, content_type, stored): &PageFile, headers: &HeaderMap) -> HttpResponse {
    let mut response = HttpResponse::build(OK);
    response
        .content_type(*content_type)
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        // A new release of the server may bring another page.
        .insert_header((CACHE_CONTROL, "no-cache"));
    let (packed, plain) = match stored {
        Stored::Plain(text) => return response.body(*text),
        Stored::Gzip(packed, plain) => (*packed, plain),
    };
    response.insert_header((VARY, "accept-encoding"));
    if accepts(headers, ACCEPT_ENCODING, &["gzip", "x-gzip", "*"]) {
        response.insert_header((CONTENT_ENCODING, "gzip")).body(packed)
    } else {
        response.body(plain.get_or_init(|| unpack(packed)).clone())
    }
}

fn unpack(packed: &[u8]) -> Bytes {
    let mut plain = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut plain).expect("the build packed it whole");
    plain.into_boxed_slice().into()
}

/// Whether a header names one of `words` and does not forbid it with `q=0`.
fn accepts(headers: &HeaderMap, name: HeaderName, words: &[&str]) -> bool {
    let accepted = headers.get(name).and_then(|value| value.to_str().ok());
    accepted.unwrap_or_default().split(',').any(|choice| {
        let (word, parameters) = choice.split_once(';').unwrap_or((choice, ""));
        let mut parameters = parameters.split(';').map(str::trim);
        let weight = parameters.find_map(|parameter| parameter.strip_prefix("q="));
        words.contains(&word.trim()) && weight.and_then(|q| q.parse().ok()).unwrap_or(1.0) > 0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_page_names_is_there() {
        for (files, name, count) in [(DOCS.as_slice(), "docs/", 4), (&PLAYGROUND, "playground/", 2)]
        {
            let Stored::Plain(page) = files[0].2 else { panic!("a page is not packed") };
            let named = page.split('"').filter(|word| word.starts_with(name));
            let named: Vec<&str> = named.collect();
            assert_eq!(named.len(), count);
            for path in named {
                assert!(files.iter().any(|(known, ..)| known[1..] == *path), "{path}");
            }
        }
    }
}
