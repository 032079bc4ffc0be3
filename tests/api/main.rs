//! The HTTP contract, over real connections on port 0.

mod auth;
mod collector;
mod dense;
mod engine;
mod fields;
mod health;
mod lifecycle;
mod log;
mod malformed;
mod metrics;
mod models;
mod package;
mod requests;
mod sparse;
mod sparse_rules;
mod support;
mod timing;
mod traces;
mod trouble;
mod wire;
