//! What no route of the tests' models answers, and the table of codes. Other refusals are tested
//! over HTTP.

use super::*;
use crate::service::{EmbedError, InputType, prompt};
use model::package::ModelPackage;
use model::package::manifest::{Manifest, Prompts};
use testing::check_table;

fn message(error: EmbedError) -> String {
    ApiError::from_embed(error, Duration::ZERO, FieldNames::default()).message
}

#[test]
fn a_use_without_prompt_is_told_those_that_the_model_takes() {
    let package = ModelPackage::read_manifest(&testing::tiny()).expect("the fixture is whole");
    let told = |has_query: bool, has_passage: bool, asked| {
        let text = |has: bool| has.then(|| "q: ".to_owned());
        let prompts = Prompts { query: text(has_query), passage: text(has_passage) };
        let card = Manifest { prompts, ..package.manifest().clone() };
        message(prompt(&card, asked).expect_err("the model has no prompt for it"))
    };
    let expected = |of, words| {
        format!("the model has no prompt for {of}; leave input_type out, or send {words}")
    };
    let (both, one) = ("\"query\" or \"passage\"", "\"passage\"");
    assert_eq!(told(true, true, InputType::Other), expected("this use", both));
    assert_eq!(told(true, false, InputType::Other), expected("this use", both));
    assert_eq!(told(false, true, InputType::Other), expected("this use", one));
    assert_eq!(told(false, true, InputType::Query), expected("queries", one));
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
        let message = message(EmbedError::Refused(Refusal::TooShort { needed }));
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
