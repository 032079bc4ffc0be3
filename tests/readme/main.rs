//! The README and the documents say what the program says.

use std::path::Path;

mod api;
mod commands;
mod document;
mod examples;
mod links;
#[path = "../process/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the process")]
mod support;
mod tables;

use document::{Document, documents};

/// Whether the repository has a file or a folder of this name.
fn is_there(name: impl AsRef<Path>) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).exists()
}
