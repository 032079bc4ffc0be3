//! Every way a request ends has its row, and every message says what to do.

use super::*;
use crate::service::{EmbedError, InputType, prompt};
use model::package::ModelPackage;
use model::package::manifest::{Manifest, Prompts};
use model::tokenize::OpenAiEncoding;
use testing::check_table;

fn read(error: EmbedError) -> (u16, &'static str, &'static str, Option<&'static str>, String) {
    let error = ApiError::from_embed(error, Duration::from_secs(3), FieldNames::default());
    let (status, kind) = error.code.status_and_type();
    (status.as_u16(), kind, error.code.name(), error.param, error.message)
}

#[test]
fn every_way_a_request_ends_without_vectors_has_its_row() {
    let second = Duration::from_secs(1);
    let allowed = vec![4, 8];
    let (invalid, server) = ("invalid_request_error", "server_error");
    #[rustfmt::skip]
    let rows = [
        (EmbedError::Refused(Refusal::Loading), 503, server, "loading", None),
        (EmbedError::Refused(Refusal::Draining), 503, server, "draining", None),
        (EmbedError::Refused(Refusal::NoWorker), 503, server, "no_worker", None),
        (EmbedError::TokenIdOutOfRange {
            index: 0, position: 1, id: 9, vocab_size: 8, named: false },
            400, invalid, "token_id_out_of_range", Some("input")),
        (EmbedError::TokenInputRejected, 400, invalid, "token_encoding_missing", Some("input")),
        (EmbedError::TokenIdUnknown {
            index: 0, position: 1, id: 9, encoding: OpenAiEncoding::Cl100kBase },
            400, invalid, "token_id_out_of_range", Some("input")),
        (EmbedError::DecodedItemTooLarge { index: 0, limit: 9 },
            400, invalid, "item_too_large", Some("input")),
        (EmbedError::ContextLengthExceeded { index: 0, tokens: 9, limit: 8 },
            400, invalid, "context_length_exceeded", Some("input")),
        (EmbedError::QueryTooLong { tokens: 9, limit: 8 },
            400, invalid, "context_length_exceeded", Some("query")),
        (EmbedError::InvalidDimensions { requested: 5, allowed },
            400, invalid, "invalid_dimensions", Some("dimensions")),
        (EmbedError::NoPrompt { asked: InputType::Query, has_query: false },
            400, invalid, "invalid_value", Some("input_type")),
        (EmbedError::NoScores, 400, invalid, "invalid_value", Some("lexical")),
        (EmbedError::OffsetsWithoutText, 400, invalid, "invalid_value", Some("offsets")),
        (EmbedError::DenseNotAvailable, 400, invalid, "dense_not_available", None),
        (EmbedError::OffsetsOfWords, 400, invalid, "invalid_value", Some("offsets")),
        (EmbedError::LateChunksOfWords, 400, invalid, "invalid_value", Some("chunking")),
        (EmbedError::VectorsNotAvailable, 400, invalid, "vectors_not_available", None),
        (EmbedError::SparseNotAvailable, 400, invalid, "sparse_not_available", None),
        (EmbedError::Refused(Refusal::Full { retry_after: second }),
            429, "overloaded_error", "queue_full", None),
        (EmbedError::Refused(Refusal::BytesExceeded),
            429, "overloaded_error", "inflight_bytes_exceeded", None),
        (EmbedError::Refused(Refusal::NeverFits { limit: 9 }),
            413, invalid, "request_too_large", None),
        (EmbedError::DeadlineExceeded, 504, server, "deadline_exceeded", None),
        (EmbedError::EngineFailed("secret".into()), 500, server, "engine_failed", None),
        (EmbedError::NonFinite { index: 3 }, 500, server, "non_finite_output", Some("input")),
    ];
    for (error, status, kind, code, param) in rows {
        let (got_status, got_kind, got_code, got_param, _) = read(error.clone());
        assert_eq!((got_status, got_kind, got_code), (status, kind, code), "{error:?}");
        assert_eq!(got_param, param, "{error:?}");
    }
}

#[test]
fn a_use_without_prompt_is_told_those_that_the_model_takes() {
    let package = ModelPackage::read_manifest(&testing::tiny()).expect("the fixture is whole");
    let told = |has_query: bool, has_passage: bool, asked| {
        let text = |has: bool| has.then(|| "q: ".to_owned());
        let prompts = Prompts { query: text(has_query), passage: text(has_passage) };
        let card = Manifest { prompts, ..package.manifest().clone() };
        read(prompt(&card, asked).expect_err("the model has no prompt for it")).4
    };
    let message = |of, words| {
        format!("the model has no prompt for {of}; leave input_type out, or send {words}")
    };
    let (both, one) = ("\"query\" or \"passage\"", "\"passage\"");
    assert_eq!(told(true, true, InputType::Other), message("this use", both));
    assert_eq!(told(true, false, InputType::Other), message("this use", both));
    assert_eq!(told(false, true, InputType::Other), message("this use", one));
    assert_eq!(told(false, true, InputType::Query), message("queries", one));
}

#[test]
fn the_table_of_codes_is_that_of_the_program() {
    let row = |code: &Code| {
        let (status, kind) = code.status_and_type();
        format!("| `{}` | {} | `{kind}` | {} |", code.name(), status.as_u16(), code.when())
    };
    check_table("docs/api.md", "| code |", &Code::ALL.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn the_time_that_an_input_needs_is_told_in_milliseconds_rounded_up() {
    for (needed, told) in [(2_000, "2 ms"), (2_001, "3 ms"), (60_000_000, "60000 ms")] {
        let needed = Duration::from_micros(needed);
        let message = read(EmbedError::Refused(Refusal::TooShort { needed })).4;
        assert!(message.contains(&format!("needs about {told} for")), "{message}");
    }
}

#[test]
fn retry_after_is_whole_seconds_rounded_up_and_at_least_one() {
    for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_500, 60)] {
        let retry_after = Duration::from_millis(millis);
        let full = EmbedError::Refused(Refusal::Full { retry_after });
        let error = ApiError::from_embed(full, Duration::ZERO, FieldNames::default());
        assert_eq!(error.retry_after_s(), Some(seconds), "{millis} ms");
    }
}
