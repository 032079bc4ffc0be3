//! The README and the documents say what the program says.

mod api;
mod commands;
mod document;
mod examples;
mod links;
#[path = "../process/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the process")]
mod support;
mod tables;

use document::{Document, documents, root};
