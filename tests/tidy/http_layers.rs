//! The layers within `src/http`.

use super::{assert_none, uses_of_higher_layers};

/// Files and folders of `src/http` by layer, lowest first: the wire, the dialects, the routes, and
/// what puts them together. A file uses those of lower layers and of its own entry only.
const HTTP_LAYERS: &[&[&str]] = &[
    &["connection/paused", "headers", "request_id", "reply", "timeline", "watched"],
    &["connection/activity", "connection/streams", "connection/turn", "error", "patience"],
    &["connection/timed_stream", "cors", "held", "single", "tls", "unix_socket"],
    &["auth", "body"],
    &["connection/gate", "connection/http_2", "connection/unread", "entrance", "state"],
    &["endpoint", "model_name"],
    &["payload", "record"],
    &["embed", "rerank", "route"],
    &["openapi"],
    &["health", "models", "nim", "offline", "pages", "tei", "tokenize"],
    &["app"],
    &["connection"],
];

#[test]
fn files_of_http_use_lower_layers_only() {
    assert_none(&uses_of_higher_layers(HTTP_LAYERS, "http/"));
}
