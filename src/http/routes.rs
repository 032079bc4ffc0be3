//! The table of routes: method and raw path → what is asked for.
//!
//! Our own table rather than actix's router, so that percent-encoded colons, slashes in model
//! names, 404 and 405 are answered alike, in JSON, with `Allow`.

use actix_web::http::Method;

use super::docs::Part;
use super::error::{ApiError, Code};
use crate::config::{DocsRoutes, HttpConfig};
use crate::service::Vectors;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Embed(Vectors),
    Health,
    DeepHealth,
    Live,
    Metrics,
    Models,
    /// The decoded name.
    Model(String),
    OpenApi,
    Docs(Part),
}

impl Target {
    /// Whether a key must be shown, where keys are configured.
    pub(super) const fn needs_key(&self, config: &HttpConfig) -> bool {
        match self {
            Self::Metrics => config.metrics_need_key,
            _ if self.is_docs() => false,
            _ => !self.is_probe(),
        }
    }

    /// The route's name in the log.
    pub(super) const fn route(&self) -> &'static str {
        match self {
            Self::Embed(Vectors::Dense) => "/v1/embeddings",
            Self::Embed(Vectors::Sparse) => "/v1/sparse-embeddings",
            Self::Embed(Vectors::Both) => "/v1/embeddings:both",
            Self::Health => "/health",
            Self::DeepHealth => "/health/deep",
            Self::Live => "/health/live",
            Self::Metrics => "/metrics",
            Self::Models => "/v1/models",
            Self::Model(_) => "/v1/models/{id}",
            Self::OpenApi => "/openapi.json",
            Self::Docs(_) => "/docs",
        }
    }

    /// Whether the route is polled all day.
    pub(super) const fn is_probe(&self) -> bool {
        matches!(self, Self::Health | Self::DeepHealth | Self::Live)
    }

    /// Whether the route describes the API.
    const fn is_docs(&self) -> bool {
        matches!(self, Self::OpenApi | Self::Docs(_))
    }

    /// The value of the `Allow` header.
    const fn methods(&self) -> &'static str {
        match self {
            Self::Embed(_) => "POST",
            _ => "GET, HEAD",
        }
    }

    fn allows(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method.as_str())
    }
}

/// Finds the target of a raw, still percent-encoded path; routes that are not served are not there.
pub(super) fn find(docs: DocsRoutes, method: &Method, path: &str) -> Result<Target, ApiError> {
    let target = target(path).filter(|target| docs == DocsRoutes::Serve || !target.is_docs());
    let target = target.ok_or_else(not_found)?;
    if target.allows(method) {
        return Ok(target);
    }
    let methods = target.methods();
    let message = format!("{} does not take this method; use {methods}", target.route());
    Err(ApiError { allow: Some(methods), ..ApiError::new(Code::MethodNotAllowed, message) })
}

/// What every path without a route is answered.
fn not_found() -> ApiError {
    let message = "there is no such route; the routes are POST /v1/embeddings, \
                   /v1/sparse-embeddings, /v1/embeddings:both and GET /v1/models, /health, \
                   /health/deep, /health/live, /metrics, each without a slash at its end";
    ApiError::new(Code::NotFound, message)
}

fn target(path: &str) -> Option<Target> {
    Some(match path {
        "/v1/embeddings" => Target::Embed(Vectors::Dense),
        "/v1/sparse-embeddings" => Target::Embed(Vectors::Sparse),
        // Some HTTP stacks percent-encode the colon.
        "/v1/embeddings:both" | "/v1/embeddings%3Aboth" | "/v1/embeddings%3aboth" => {
            Target::Embed(Vectors::Both)
        }
        "/health" => Target::Health,
        "/health/deep" => Target::DeepHealth,
        "/health/live" => Target::Live,
        "/metrics" => Target::Metrics,
        "/v1/models" => Target::Models,
        "/openapi.json" => Target::OpenApi,
        _ => match path.strip_prefix("/v1/models/") {
            Some(name) => Target::Model(decode(name).filter(|name| !name.is_empty())?),
            None => Target::Docs(Part::at(path)?),
        },
    })
}

/// Percent-decodes; `None` when an escape is cut short or the bytes are not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? * 16 + hex(bytes.next()?)?,
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(method: &Method, path: &str) -> Result<Target, ApiError> {
        super::find(DocsRoutes::Serve, method, path)
    }

    #[test]
    fn every_spelling_of_a_route_is_found() {
        for path in ["/v1/embeddings:both", "/v1/embeddings%3Aboth", "/v1/embeddings%3aboth"] {
            assert_eq!(find(&Method::POST, path), Ok(Target::Embed(Vectors::Both)), "{path}");
        }
        for path in ["/v1/models/org/a%20b", "/v1/models/org%2Fa%20b", "/v1/models/org%2fa b"] {
            let model = Target::Model("org/a b".to_owned());
            assert_eq!(find(&Method::GET, path), Ok(model), "{path}");
        }
    }

    #[test]
    fn other_paths_are_not_found() {
        for path in [
            "",
            "*",
            "/",
            "/v1",
            "/v1/embeddings/",
            "//v1/embeddings",
            "/v1/embeddings:",
            "/V1/models",
            "/v1/models/",
            "/health/",
            "/health/deep/",
            "/v1/models/%",
            "/v1/models/%f",
            "/v1/models/%zz",
            "/v1/models/%ff",
            "/v1/embeddings%3Bboth",
            "/v1/%65mbeddings",
        ] {
            let error = find(&Method::POST, path).expect_err(path);
            assert_eq!(error.code, Code::NotFound, "{path}");
        }
    }

    #[test]
    fn wrong_methods_are_told_the_right_ones() {
        for (method, path, allow) in [
            (Method::GET, "/v1/embeddings", "POST"),
            (Method::HEAD, "/v1/sparse-embeddings", "POST"),
            (Method::OPTIONS, "/v1/embeddings:both", "POST"),
            (Method::POST, "/health", "GET, HEAD"),
            (Method::DELETE, "/v1/models/x", "GET, HEAD"),
        ] {
            let error = find(&method, path).expect_err(path);
            assert_eq!((error.code, error.allow), (Code::MethodNotAllowed, Some(allow)), "{path}");
        }
        assert_eq!(find(&Method::HEAD, "/health"), Ok(Target::Health));
    }
}
