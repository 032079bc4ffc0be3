//! The real binary as its operator meets it: bad input at the start, signals, exit codes.

mod adopt;
mod answers;
mod batch;
mod bench;
mod configuration;
mod corpus;
mod cross_encoder;
mod drain;
mod faults;
#[path = "../shared/http_2.rs"]
mod http_2_client;
mod lexical_table;
mod lifecycle;
mod start;
mod support;
mod systemd;
mod words;
