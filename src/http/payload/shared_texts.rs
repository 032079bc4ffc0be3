//! What a request keeps in memory: its body, of which its texts are parts, or copies of its texts.

use actix_web::web::Bytes;

use super::{EmbeddingRequest, InputLimits, read};
use crate::http::error::ApiError;
use crate::limits::{MaxItemBytes, MaxItems};
use crate::service::Input;

/// Of several scripts, one of them empty.
const TEXTS: [&str; 4] = ["a text", "\u{e4}\u{4eca}", "", "\u{1f469}"];

fn body(json: impl Into<String>) -> Bytes {
    Bytes::from(json.into())
}

fn items(body: &Bytes) -> Result<Vec<Input>, ApiError> {
    let limits = InputLimits { items: MaxItems::DEFAULT, item_bytes: MaxItemBytes::DEFAULT };
    read::<EmbeddingRequest>(body.clone(), limits).map(|request| request.input)
}

/// The texts of a body, and for each whether it is a part of the body.
fn texts(body: &Bytes) -> Vec<(String, bool)> {
    let within = body.as_ptr_range();
    let text = |item: &Input| match item {
        Input::Text(text) => (text.to_string(), within.contains(&text.as_ptr())),
        Input::TokenIds(ids) => panic!("{ids:?} is no text"),
    };
    items(body).expect("it is right").iter().map(text).collect()
}

#[test]
fn texts_without_escapes_are_parts_of_the_body() {
    let one = body(r#"{"user": "\n", "input": "a text"}"#);
    assert_eq!(texts(&one), [("a text".to_owned(), true)]);
    let several = body(format!("{{\"input\": {TEXTS:?}}}\n"));
    assert_eq!(texts(&several), TEXTS.map(|text| (text.to_owned(), !text.is_empty())));
}

#[test]
fn a_text_with_an_escape_makes_copies_of_all_and_the_body_is_free() {
    let more = r#""\u00e4\n", "\ud83d\ude00", "end""#;
    let body = body(format!("{{\"input\": {TEXTS:?}, {more}]}}").replacen("], ", ", ", 1));
    let copies = TEXTS.iter().chain(&["\u{e4}\n", "\u{1f600}", "end"]);
    let copies: Vec<_> = copies.map(|&text| (text.to_owned(), false)).collect();
    assert_eq!(texts(&body), copies);
    let items = items(&body).expect("it is right");
    assert!(body.is_unique());
    drop(items);
}

#[test]
fn a_body_is_free_as_soon_as_no_text_is_a_part_of_it() {
    for json in [
        r#"{"input": ["a", "b"]}"#,
        r#"{"input": [1, 2]}"#,
        r#"{"input": ["a", 2]}"#,
        r#"{"input": ["a"], "input": ["b"]}"#,
        r#"{"input": ["a"], "truncate": "START"}"#,
        r#"{"input": ["a"]"#,
        r#"["a"]"#,
    ] {
        let body = body(json);
        if let Ok(mut items) = items(&body) {
            let is_text = matches!(items[0], Input::Text(_));
            assert_eq!(body.is_unique(), !is_text, "{json}");
            items.truncate(1);
            assert_eq!(body.is_unique(), !is_text, "{json}: its first text is there");
        }
        assert!(body.is_unique(), "{json}");
    }
}
