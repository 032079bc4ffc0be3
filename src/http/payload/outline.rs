//! A look at a large body before it is parsed: serde copies a string that has an escape, and a
//! string of the size of the body would be there twice or more before its length is known.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::InputLimits;
use super::input::too_large;
use crate::http::error::ApiError;

/// Bytes of JSON for one byte of text, at most: `\\u0041` is `A`.
const ESCAPED_BYTES: usize = 6;

#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// Refuses a body with a string that is too large whatever its escapes are.
pub(super) fn check(text: &str, limits: InputLimits) -> Result<(), ApiError> {
    let most = limits.item_bytes.as_usize().saturating_mul(ESCAPED_BYTES);
    if text.len() <= most || !has_longer_string(text.as_bytes(), most) {
        return Ok(());
    }
    let outline = serde_json::from_str::<Outline<'_>>(text).ok();
    let input = outline.and_then(|outline| outline.input).map_or("", RawValue::get);
    let items = serde_json::from_str::<Vec<&RawValue>>(input).unwrap_or_default();
    let is_large = |item: &&RawValue| has_longer_string(item.get().as_bytes(), most);
    match items.iter().position(is_large) {
        Some(index) => Err(too_large(index, limits)),
        None if has_longer_string(input.as_bytes(), most) => Err(too_large(0, limits)),
        // It is in a field that the parser passes over or refuses.
        None => Ok(()),
    }
}

/// Whether a JSON text has a string of more than `most` bytes between its quotes, escapes as they
/// stand.
fn has_longer_string(json: &[u8], most: usize) -> bool {
    let (mut start, mut at) = (None, 0);
    while let Some(&byte) = json.get(at) {
        match (byte, start) {
            (b'"', None) => start = Some(at + 1),
            (_, Some(first)) if at - first > most => return true,
            (b'"', Some(_)) => start = None,
            // What is escaped ends no string.
            (b'\\', Some(_)) => at += 1,
            _ => {}
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::Code;
    use crate::limits::{MaxItemBytes, MaxItems};

    fn code(body: &str) -> Option<(Code, String)> {
        let item_bytes = MaxItemBytes::new(10).expect("in range");
        let refused = check(body, InputLimits { items: MaxItems::DEFAULT, item_bytes }).err();
        refused.map(|error| (error.code, error.message))
    }

    #[test]
    fn strings_that_no_escape_makes_short_enough_are_refused_with_their_place() {
        let long = "x".repeat(61);
        for (body, place) in [
            (format!(r#"{{"input":"{long}"}}"#), "item 0"),
            (format!(r#"{{"input":["a","{long}"]}}"#), "item 1"),
            (format!(r#"{{"input":[["{long}"]]}}"#), "item 0"),
        ] {
            let (code, message) = code(&body).expect("it is too large");
            assert_eq!(code, Code::ItemTooLarge, "{body}");
            assert!(message.contains(place), "{body}: {message}");
        }
    }

    #[test]
    fn other_bodies_are_left_to_the_parser() {
        let most = "x".repeat(60);
        for body in [
            format!(r#"{{"input":["{most}","{most}"]}}"#),
            format!(r#"{{"input":"{}"}}"#, r"\u0041".repeat(10)),
            format!(r#"{{"input":["{}\"","{most}"]}}"#, "x".repeat(58)),
            format!(r#"{{"user":"{most}x","{most}x":1,"input":"a"}}"#),
            "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]".to_owned(),
        ] {
            assert_eq!(code(&body), None, "{body}");
        }
    }
}
