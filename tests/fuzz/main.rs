//! Fuzz targets of what the crate shows: each runs as long as `DUOVEC_FUZZ_SECONDS` says.
//!
//! Others are in `src/http/payload/fuzz.rs` and `tests/api/fuzz.rs`, beside what they need.

mod manifest;
mod tokenizer;
mod traceparent;
