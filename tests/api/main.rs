//! The HTTP contract, over real connections on port 0.

mod auth;
mod collector;
mod cors;
mod crowd;
mod dense;
mod docs;
mod door;
mod engine;
mod fields;
mod fuzz;
mod health;
mod http_2;
mod lifecycle;
mod log;
mod malformed;
mod metrics;
mod models;
mod nim;
mod package;
mod requests;
#[path = "../fuzz/runner.rs"]
mod runner;
mod slow;
mod sparse;
mod sparse_rules;
mod storm;
mod support;
mod tei;
mod timing;
mod tls;
mod token_ids;
mod tokenize;
mod traces;
mod trouble;
mod unix_socket;
mod wire;
