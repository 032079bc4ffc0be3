//! Finds an input text that is too large while its body still comes, so that the rest of the
//! body is neither kept nor parsed.
//!
//! The scanner follows the structure of the JSON alone: which string is the key, where the input
//! begins, which of its items a string belongs to. It counts an escape such as `\u00e4` as one
//! byte, and it passes over objects within the input, of whose fields the parser reads some: so it
//! never refuses what the parser would take. What it passes over is left to the parser, a malformed
//! body too.

use memchr::memchr2;

use super::input::{InputLimits, too_large};
use crate::http::error::ApiError;

/// Where in a body the scanner is.
pub(in crate::http) struct ItemScanner {
    limits: InputLimits,
    /// The field with the input.
    field: &'static str,
    /// Bytes of the body that were looked at.
    scanned: usize,
    /// How many lists and objects are open.
    depth: usize,
    /// How many of them are objects.
    objects: usize,
    in_string: bool,
    /// The last byte was a backslash.
    escaped: bool,
    /// Digits of `\u00e4` that are still to come.
    digits: usize,
    /// Bytes of the string so far, as text.
    string_bytes: usize,
    /// How the last string of the outermost object begins, one byte more than the field has.
    key: Vec<u8>,
    in_input: bool,
    item: usize,
}

impl ItemScanner {
    pub(in crate::http) const fn new(limits: InputLimits, field: &'static str) -> Self {
        Self {
            limits,
            field,
            scanned: 0,
            depth: 0,
            objects: 0,
            in_string: false,
            escaped: false,
            digits: 0,
            string_bytes: 0,
            key: Vec::new(),
            in_input: false,
            item: 0,
        }
    }

    /// Looks at what has come since the last call; `body` is the whole body so far.
    ///
    /// # Errors
    /// When a text of the input is too large; the message names the item.
    pub(in crate::http) fn scan(&mut self, body: &[u8]) -> Result<(), ApiError> {
        if body.len() <= self.limits.item_bytes.as_usize() {
            // No text of it is too large. Most bodies end here.
            return Ok(());
        }
        let mut rest = body.get(self.scanned..).unwrap_or_default();
        self.scanned = body.len();
        while let Some((&byte, behind)) = rest.split_first() {
            if self.in_string {
                rest = self.string(byte, rest, behind);
                let is_item = self.in_input && self.objects == 1;
                if is_item && self.string_bytes > self.limits.item_bytes.as_usize() {
                    return Err(too_large(self.item, self.limits, self.field));
                }
            } else {
                self.structure(byte);
                rest = behind;
            }
        }
        Ok(())
    }

    /// Takes one or more bytes of a string; gives what is left.
    fn string<'a>(&mut self, byte: u8, rest: &'a [u8], behind: &'a [u8]) -> &'a [u8] {
        if self.escaped {
            self.escaped = false;
            self.digits = if byte == b'u' { 4 } else { 0 };
            self.string_bytes += 1;
            return behind;
        }
        if self.digits > 0 && byte.is_ascii_hexdigit() {
            self.digits -= 1;
            return behind;
        }
        self.digits = 0;
        match byte {
            b'"' => self.in_string = false,
            b'\\' => self.escaped = true,
            _ => {
                let plain = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                let (text, behind) = rest.split_at(plain);
                self.string_bytes += plain;
                if self.depth == 1 {
                    let room = (self.field.len() + 1).saturating_sub(self.key.len());
                    self.key.extend_from_slice(&text[..plain.min(room)]);
                }
                return behind;
            }
        }
        behind
    }

    /// Takes a byte between strings.
    fn structure(&mut self, byte: u8) {
        match byte {
            b'"' => {
                (self.in_string, self.string_bytes) = (true, 0);
                if self.depth == 1 {
                    self.key.clear();
                }
            }
            b'[' | b'{' => {
                self.depth += 1;
                self.objects += usize::from(byte == b'{');
            }
            b']' | b'}' => {
                self.depth = self.depth.saturating_sub(1);
                self.objects = self.objects.saturating_sub(usize::from(byte == b'}'));
            }
            b':' if self.depth == 1 => {
                (self.in_input, self.item) = (self.key == self.field.as_bytes(), 0)
            }
            b',' if self.depth == 1 => self.in_input = false,
            b',' if self.depth == 2 => self.item += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::Code;
    use settings::limits::{MaxItemBytes, MaxItems};

    /// What is found when the body comes in parts of `part` bytes.
    fn found(body: &str, part: usize) -> Option<(Code, String)> {
        let item_bytes = MaxItemBytes::new(10).expect("in range");
        let limits = InputLimits { items: MaxItems::DEFAULT, item_bytes };
        let mut scanner = ItemScanner::new(limits, "input");
        let ends = (1..=body.len()).filter(|end| end % part == 0 || *end == body.len());
        let mut refused = ends.map(|end| scanner.scan(&body.as_bytes()[..end]));
        let error = refused.find_map(Result::err)?;
        Some((error.code, error.message))
    }

    #[test]
    fn a_text_above_the_limit_is_found_with_its_place_however_the_body_comes() {
        let long = "x".repeat(11);
        for (body, place) in [
            (format!(r#"{{"input":"{long}"}}"#), "item 0"),
            (format!(r#"{{"user":"input","input": "{long}"#), "item 0"),
            (format!(r#"{{"x":["a",{{"b":1}}],"input":["a","b\"]","{long}"]}}"#), "item 2"),
            (format!(r#"{{"input":[["a","b"],["{long}"]]}}"#), "item 1"),
            (format!(r#"{{"input":[{{"text":"a","b":{{}}}},"{long}"]}}"#), "item 1"),
            (format!(r#"{{"input":"{}"}}"#, r"\u00e4".repeat(11)), "item 0"),
            (format!(r#"{{"input":"{}"}}"#, r#"\"\\"#.repeat(6)), "item 0"),
        ] {
            for part in [1, 3, 7, 1000] {
                let (code, message) = found(&body, part).expect("it is too large");
                assert_eq!(code, Code::ItemTooLarge, "{body}");
                assert!(message.contains(place), "{body}: {message}");
            }
        }
    }

    #[test]
    fn other_bodies_are_left_to_the_parser() {
        let (most, long) = ("x".repeat(10), "x".repeat(11));
        for body in [
            format!(r#"{{"input":["{most}","{most}"]}}"#),
            format!(r#"{{"input":"{}"}}"#, r"\u00e4".repeat(10)),
            format!(r#"{{"input":"{}"}}"#, r#"\""#.repeat(10)),
            format!(r#"{{"user":"{long}","{long}":["{long}"],"inputs":"{long}","input":"a"}}"#),
            format!(r#"{{"a":{{"input":"{long}"}},"input":"a","user":"{long}"}}"#),
            format!(r#"{{"input":["a",{{"text":"a","b":"{long}"}},{{"a":[{{"b":"{long}"}}]}}]}}"#),
            format!(r#"["input","{long}"]"#),
            format!(r#"]]]"{long}"#),
        ] {
            for part in [1, 3, 1000] {
                assert_eq!(found(&body, part), None, "{body}");
            }
        }
    }
}
