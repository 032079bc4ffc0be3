//! sentencepiece's compiled character map: NFKC and its like as a trie of texts and replacements.
//!
//! The `tokenizers` crate looks such a map up by grapheme and, when a grapheme is longer than five
//! bytes, by character. So it leaves decomposed Hangul, Vietnamese and kana as they are, and drops
//! a mark behind a character that has a replacement of its own. Here the longest text of the map
//! is replaced at every place, as sentencepiece does (`Normalizer::NormalizePrefix`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokenizers::{NormalizedString, Normalizer};

/// The map as `tokenizer.json` holds it in `precompiled_charsmap`.
#[derive(Debug, Clone)]
pub(super) struct Charsmap {
    /// Units of a double array (darts-clone): has a leaf (bit 8), label (bits 0 to 7), offset
    /// (bits 10 to 30, with bit 9 in units of 256), or as a leaf its value (bits 0 to 30).
    units: Vec<u32>,
    /// Replacements, each ended by a zero byte; a leaf's value is where one starts.
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
        let (units, []) = trie.as_chunks() else {
            return Err("charsmap: its trie is no list of 32-bit units".to_owned());
        };
        let replacements = std::str::from_utf8(replacements);
        let replacements = replacements.map_err(|error| format!("charsmap: {error}"))?;
        Ok(Self {
            units: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(),
            replacements: replacements.to_owned(),
        })
    }

    /// The longest text of the map that `text` starts with: its bytes, and what replaces it.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut found = None;
        let mut node = offset(*self.units.first()?);
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            node ^= usize::from(byte);
            // No text of the map has a zero byte, and a leaf's label is never that of a byte.
            let Some(&unit) = self.units.get(node) else { break };
            if byte == 0 || unit & 0x8000_00ff != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if unit & 0x100 != 0 {
                found = self.units.get(node).map(|leaf| (index + 1, (leaf & 0x7fff_ffff) as usize));
            }
        }
        let (length, start) = found?;
        let replacement = self.replacements.get(start..)?;
        Some((length, replacement.split('\0').next()?))
    }
}

/// From a unit to the exclusive-or with its children's places.
const fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 0x200) >> 6)) as usize
}

impl Normalizer for Charsmap {
    fn normalize(&self, normalized: &mut NormalizedString) -> tokenizers::Result<()> {
        let text = normalized.get().to_owned();
        let mut changes = Changes::default();
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            let length = match self.longest(rest) {
                Some((length, replacement)) => {
                    changes.replace(rest[..length].chars().count(), replacement);
                    length
                }
                None => {
                    changes.keep(first);
                    first.len_utf8()
                }
            };
            rest = &rest[length..];
        }
        changes.apply(normalized);
        Ok(())
    }
}

/// The new characters in the form of [`NormalizedString::transform`]: 0 for one that replaces one,
/// 1 for one more, below zero for one behind which so many are removed.
#[derive(Default)]
pub(super) struct Changes {
    characters: Vec<(char, isize)>,
    /// Characters removed in front of the first that stays.
    removed_first: usize,
    any: bool,
}

impl Changes {
    /// Whether no character stays so far.
    pub(super) const fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    pub(super) fn keep(&mut self, character: char) {
        self.characters.push((character, 0));
    }

    pub(super) fn replace(&mut self, old_count: usize, replacement: &str) {
        self.any |= old_count > 0 || !replacement.is_empty();
        let mut new_count = 0;
        for character in replacement.chars() {
            self.characters.push((character, isize::from(new_count >= old_count)));
            new_count += 1;
        }
        let removed = old_count.saturating_sub(new_count);
        match self.characters.last_mut() {
            Some((_, change)) => *change -= removed.cast_signed(),
            None => self.removed_first += removed,
        }
    }

    pub(super) fn apply(self, text: &mut NormalizedString) {
        if self.any {
            text.transform(self.characters, self.removed_first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map made by hand from texts and replacements, with a node's children side by side.
    fn map(entries: &[(&str, &str)]) -> Charsmap {
        let mut units = vec![0_u32; 1];
        let mut replacements = String::new();
        let mut open = vec![(0_usize, Vec::<u8>::new())];
        while let Some((place, prefix)) = open.pop() {
            let below = entries.iter().filter(|(text, _)| text.as_bytes().starts_with(&prefix));
            let mut labels: Vec<u8> =
                below.filter_map(|(text, _)| text.as_bytes().get(prefix.len()).copied()).collect();
            labels.sort_unstable();
            labels.dedup();
            let leaf = entries.iter().find(|(text, _)| text.as_bytes() == prefix);
            if labels.is_empty() && leaf.is_none() {
                continue;
            }
            // Each node has a block of 256 places of its own.
            let base = units.len().next_multiple_of(256);
            units.resize(base + 256, 0);
            units[place] |= ((place ^ base) as u32) << 10;
            if let Some((_, replacement)) = leaf {
                units[place] |= 0x100;
                units[base] = 0x8000_0000 | replacements.len() as u32;
                replacements.push_str(replacement);
                replacements.push('\0');
            }
            for label in labels {
                let child = base ^ usize::from(label);
                units[child] = u32::from(label);
                open.push((child, [&prefix[..], &[label]].concat()));
            }
        }
        Charsmap { units, replacements }
    }

    fn normal(map: &Charsmap, text: &str) -> NormalizedString {
        let mut normalized = NormalizedString::from(text);
        map.normalize(&mut normalized).expect("it never fails");
        normalized
    }

    #[test]
    fn the_longest_text_is_replaced() {
        let map = map(&[("a", "x"), ("ab", "y"), ("abcd", "z")]);
        for (text, expected) in
            [("a", "x"), ("ab", "y"), ("abc", "yc"), ("abcd", "z"), ("abcab", "ycy"), ("", "")]
        {
            assert_eq!(normal(&map, text).get(), expected, "{text}");
        }
    }

    #[test]
    fn decomposed_texts_of_any_length_are_composed() {
        let map = map(&[("\u{1112}\u{1161}\u{11ab}", "한"), ("\u{1112}\u{1161}", "하")]);
        assert_eq!(normal(&map, "\u{1112}\u{1161}\u{11ab}\u{1112}\u{1161}!").get(), "한하!");
    }

    #[test]
    fn a_mark_behind_a_replaced_character_stays() {
        let map = map(&[("ﬁ", "fi"), ("\u{7f}", "")]);
        assert_eq!(normal(&map, "ﬁ\u{301}").get(), "fi\u{301}");
        assert_eq!(normal(&map, "\u{7f}\u{301}\u{7f}\0").get(), "\u{301}\0");
    }

    #[test]
    fn places_in_the_text_are_kept() {
        let map = map(&[("\u{1}", ""), ("ﬁ", "fi"), ("e\u{301}", "é")]);
        for (text, expected, places) in [
            ("\u{1}\u{1}ab", "ab", vec![2, 3]),
            ("a\u{1}b", "ab", vec![0, 2]),
            ("ﬁb", "fib", vec![0, 0, 3]),
            ("ﬁ\u{1}b", "fib", vec![0, 3, 4]),
            ("e\u{301}b", "éb", vec![0, 3]),
            ("\u{1}", "", vec![]),
        ] {
            let normalized = normal(&map, text);
            assert_eq!(normalized.get(), expected);
            let starts = normalized.get().char_indices().map(|(at, character)| {
                let range = at..at + character.len_utf8();
                let range = tokenizers::tokenizer::normalizer::Range::Normalized(range);
                normalized.convert_offsets(range).expect("it is inside").start
            });
            // A character that was added shares the place of its neighbour.
            assert_eq!(starts.collect::<Vec<_>>(), places, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in ["", "AAAA", "/////w==", "AQAAAAA=", "not base64"] {
            Charsmap::from_base64(text).expect_err(text);
        }
    }
}
