//! The HTTP contract, over real connections on port 0.

mod auth;
mod dense;
mod docs;
mod engine;
mod fields;
mod health;
mod lifecycle;
mod log;
mod malformed;
mod models;
mod package;
mod requests;
mod sparse;
mod sparse_rules;
mod support;
mod trouble;
mod wire;
