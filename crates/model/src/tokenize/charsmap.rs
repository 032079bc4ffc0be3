//! sentencepiece's compiled character map: texts and their replacements, such as those of NFKC.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::double_array::DoubleArray;

/// The map as `tokenizer.json` holds it in `precompiled_charsmap`.
pub(super) struct Charsmap {
    /// A text's number is where its replacement starts.
    texts: DoubleArray,
    /// Each ended by a zero byte.
    replacements: String,
}

impl Charsmap {
    /// Reads base64 of: bytes of the trie as little-endian u32, the trie, the replacements.
    pub(super) fn from_base64(text: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(text).map_err(|error| format!("charsmap: {error}"))?;
        let (size, rest) = bytes.split_first_chunk().ok_or("charsmap: it is empty")?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, replacements) =
            rest.split_at_checked(size).ok_or("charsmap: it is shorter than its trie")?;
        let texts = DoubleArray::from_bytes(trie);
        let texts = texts.ok_or("charsmap: its trie is no list of 32-bit units")?;
        let replacements = std::str::from_utf8(replacements);
        let replacements = replacements.map_err(|error| format!("charsmap: {error}"))?;
        Ok(Self { texts, replacements: replacements.to_owned() })
    }

    /// The longest text of the map that `text` starts with: its bytes, and what replaces it.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let (length, start) = self.texts.prefixes(text.as_bytes()).last()?;
        Some((length, self.replacement(start)?))
    }

    /// What replaces the shortest text of the map that `text` starts with.
    pub(super) fn shortest(&self, text: &str) -> Option<&str> {
        let (_, start) = self.texts.prefixes(text.as_bytes()).next()?;
        self.replacement(start)
    }

    /// Whether a text of the map starts with `text`.
    pub(super) fn begins_with(&self, text: &str) -> bool {
        self.texts.begins_with(text.as_bytes())
    }

    fn replacement(&self, start: u32) -> Option<&str> {
        self.replacements.get(start as usize..)?.split('\0').next()
    }

    #[cfg(test)]
    pub(super) fn of(entries: &[(&str, &str)]) -> Self {
        let mut replacements = String::new();
        let mut texts = Vec::new();
        for (text, replacement) in entries {
            texts.push((text.as_bytes(), replacements.len() as u32));
            replacements.push_str(replacement);
            replacements.push('\0');
        }
        let texts = DoubleArray::build(texts).expect("the texts can be built");
        Self { texts, replacements }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_and_the_shortest_text_are_told_apart() {
        let map = Charsmap::of(&[("a", "x"), ("ab", "y"), ("abcd", "z"), ("c", "")]);
        for (text, longest, shortest) in [
            ("a", Some((1, "x")), Some("x")),
            ("abc", Some((2, "y")), Some("x")),
            ("abcde", Some((4, "z")), Some("x")),
            ("ca", Some((1, "")), Some("")),
            ("b", None, None),
            ("", None, None),
        ] {
            assert_eq!((map.longest(text), map.shortest(text)), (longest, shortest), "{text}");
        }
        assert!(map.begins_with("abc") && !map.begins_with("b"));
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in ["", "AAAA", "AAAAAA==", "/////w==", "AQAAAAA=", "not base64"] {
            assert!(Charsmap::from_base64(text).is_err(), "{text}");
        }
    }
}
