//! The real binary as its operator meets it: bad input at the start, signals, exit codes.

mod adopt;
mod answers;
mod batch;
mod bench;
mod configuration;
mod corpus;
mod drain;
mod faults;
#[path = "../shared/http_2.rs"]
mod http_2_client;
mod kinds;
mod lexical_table;
mod served;
mod start;
mod support;
mod systemd;
