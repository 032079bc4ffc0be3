//! The layers within `src/http`.

use super::{Source, assert_none, rust_sources};

/// Files and folders of `src/http` by layer, lowest first: the wire, the dialects, the routes, and
/// what puts them together. A file uses those of lower layers and of its own entry only.
const HTTP_LAYERS: &[&[&str]] = &[
    &["connection/paused", "headers", "request_id", "reply", "timeline", "watched"],
    &["connection/activity", "connection/streams", "error", "patience"],
    &["auth", "body", "connection/timed_stream", "cors", "held", "tls", "unix_socket"],
    &["connection/gate", "connection/http_2", "connection/unread", "entrance", "state"],
    &["endpoint", "model_name"],
    &["payload", "record"],
    &["embed", "openapi", "rerank", "route"],
    &["health", "models", "nim", "offline", "pages", "tei", "tokenize"],
    &["app"],
    &["connection"],
];

/// The paths of modules that a file of `src/http` uses, relative to that folder.
fn used_within_http(source: &Source) -> Vec<String> {
    let code: String = source.code().map(|(_, line)| line.trim()).collect();
    let own: Vec<&str> = source.module.split('/').skip(1).collect();
    let mut used = Vec::new();
    for (at, _) in code.match_indices("super::").chain(code.match_indices("crate::http::")) {
        // `super::super::` is read from its first word.
        if code[..at].ends_with("super::") {
            continue;
        }
        let (mut base, mut rest) = (own.clone(), &code[at..]);
        if let Some(below) = rest.strip_prefix("crate::http::") {
            (base, rest) = (Vec::new(), below);
        }
        while let Some(above) = rest.strip_prefix("super::") {
            base.pop();
            rest = above;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let (path, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let group = behind.strip_prefix('{').and_then(|group| group.split_once('}'));
        for name in group.map_or("", |(names, _)| names).split(',') {
            let path = path.split("::").chain(name.trim().split("::"));
            let path = base.iter().copied().chain(path.filter(|part| !part.is_empty()));
            used.push(path.collect::<Vec<_>>().join("/"));
        }
    }
    used
}

#[test]
fn files_of_http_use_lower_layers_only() {
    let within = |path: &str, entry: &str| {
        path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
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
        for used in used_within_http(&source) {
            let Some((layer, used_entry)) = entry(&used) else { continue };
            uses += 1;
            if layer >= own_layer && used_entry != own_entry {
                problems.push(format!("{} uses {used_entry}", source.path));
            }
        }
    }
    assert!(uses > 100, "uses are found: {uses}");
    assert_none(&problems);
}
