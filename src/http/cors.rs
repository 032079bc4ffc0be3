//! Which web pages may read answers: `Access-Control-*` headers for the configured origins.

use actix_cors::Cors;
use actix_web::middleware::Condition;

/// An origin that stands for every one.
const ANY: &str = "*";

/// How long a browser remembers the answer to its question, in seconds; Chromium's own limit.
const MAX_AGE_S: usize = 7200;

/// What pages may read besides the few headers that they always may.
const EXPOSED: [&str; 9] = [
    "allow",
    "retry-after",
    "server-timing",
    "www-authenticate",
    "x-compute-tokens",
    "x-input-type",
    "x-request-id",
    "x-request-timeout-ms",
    "x-score",
];

/// Answers browsers' questions (preflights) itself, before keys are looked at, and adds headers to
/// the other answers. Does nothing without origins.
///
/// Every request header is allowed: keys are sent by the page's own code, never by the browser, so
/// that a foreign page gains nothing by a header, and OpenAI's library sends many of its own.
pub(super) fn layer(origins: &[String]) -> Condition<Cors> {
    let cors = Cors::default()
        .allowed_methods(["GET", "HEAD", "POST"])
        .allow_any_header()
        .expose_headers(EXPOSED)
        .block_on_origin_mismatch(false)
        .max_age(MAX_AGE_S);
    let cors = if origins.iter().any(|origin| origin == ANY) {
        cors.allow_any_origin().send_wildcard()
    } else {
        origins.iter().fold(cors, |cors, origin| cors.allowed_origin(origin))
    };
    Condition::new(!origins.is_empty(), cors)
}
