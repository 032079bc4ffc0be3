//! The layers within `src/http`.

use super::{assert_none, rust_sources, within};

/// Files and folders of `src/http` by layer, lowest first: the wire, the dialects, the routes, and
/// what puts them together. A file uses those of lower layers and of its own entry only.
const HTTP_LAYERS: &[&[&str]] = &[
    &["connection/paused", "headers", "request_id", "reply", "timeline", "watched"],
    &["connection/activity", "connection/streams", "error", "patience"],
    &["auth", "body", "connection/timed_stream", "cors", "held", "tls", "unix_socket"],
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
    let entry = |path: &str| {
        let entries = HTTP_LAYERS.iter().enumerate();
        let entries =
            entries.flat_map(|(layer, names)| names.iter().map(move |name| (layer, *name)));
        entries.filter(|(_, name)| within(path, name)).max_by_key(|(_, name)| name.len())
    };
    let (mut problems, mut uses) = (Vec::new(), 0);
    for source in rust_sources() {
        let Some(own) = source.module.strip_prefix("http/") else { continue };
        let (own_layer, own_entry) = entry(own).unwrap_or_else(|| panic!("{own} has no layer"));
        for used in source.used() {
            let used = used.strip_prefix("http/").and_then(entry);
            let Some((layer, used_entry)) = used else { continue };
            uses += 1;
            if layer >= own_layer && used_entry != own_entry {
                problems.push(format!("{} uses {used_entry}", source.path));
            }
        }
    }
    assert!(uses > 100, "uses are found: {uses}");
    assert_none(&problems);
}
