//! The README and the documents say what the program says.

mod api;
mod commands;
mod document;
mod examples;
mod links;
mod tables;

use document::{Document, documents, root};
