//! A map from texts to numbers that is read byte by byte, as a double array.
//!
//! The form is that of darts-clone: sentencepiece's character maps hold it, and the crate `yada`
//! builds it, so one reader serves both.

use yada::builder::DoubleArrayBuilder;

/// Each unit: has a leaf (bit 8), label (bits 0 to 7), offset (bits 10 to 30, with bit 9 in units
/// of 256), or as a leaf its number (bits 0 to 30).
pub(super) struct DoubleArray(Vec<u32>);

impl DoubleArray {
    /// Of two equal texts the last one counts. Fails when a text holds a zero byte, or when there
    /// is none at all.
    pub(super) fn build(mut texts: Vec<(&[u8], u32)>) -> Result<Self, String> {
        texts.reverse();
        texts.sort_by_key(|(text, _)| *text);
        texts.dedup_by_key(|(text, _)| *text);
        let bytes = DoubleArrayBuilder::build(&texts).map_err(|error| error.to_string())?;
        Self::from_bytes(&bytes).ok_or_else(|| "it has no units".to_owned())
    }

    /// Little-endian units; none when the bytes are no whole units.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (units, []) = bytes.as_chunks() else { return None };
        let units: Vec<u32> = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        (!units.is_empty()).then_some(Self(units))
    }

    /// The texts that `bytes` starts with, shortest first: their length and number.
    pub(super) fn prefixes<'a>(&'a self, bytes: &'a [u8]) -> Prefixes<'a> {
        Prefixes { units: &self.0, bytes, length: 0, node: offset(self.0[0]) }
    }

    /// Whether a text starts with `bytes`, or is equal to it.
    pub(super) fn begins_with(&self, bytes: &[u8]) -> bool {
        let mut node = Some(offset(self.0[0]));
        bytes.iter().all(|&byte| {
            node = node.and_then(|node| child(&self.0, node, byte)).map(|(node, _)| node);
            node.is_some()
        })
    }
}

pub(super) struct Prefixes<'a> {
    units: &'a [u32],
    bytes: &'a [u8],
    length: usize,
    node: usize,
}

impl Iterator for Prefixes<'_> {
    type Item = (usize, u32);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while let Some(&byte) = self.bytes.get(self.length) {
            let (node, has_leaf) = child(self.units, self.node, byte)?;
            self.node = node;
            self.length += 1;
            if has_leaf {
                return Some((self.length, self.units.get(node)? & 0x7fff_ffff));
            }
        }
        None
    }
}

/// Where the children of a node's child are, and whether a text ends at that child.
#[inline]
fn child(units: &[u32], node: usize, byte: u8) -> Option<(usize, bool)> {
    let place = node ^ usize::from(byte);
    let unit = *units.get(place)?;
    // No text has a zero byte, and a leaf's label is never that of a byte.
    (byte != 0 && unit & 0x8000_00ff == u32::from(byte))
        .then(|| (place ^ offset(unit), unit & 0x100 != 0))
}

/// From a unit to the exclusive-or with its children's places.
const fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 0x200) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(array: &DoubleArray, text: &str) -> Vec<(usize, u32)> {
        array.prefixes(text.as_bytes()).collect()
    }

    #[test]
    fn every_text_that_stands_in_front_is_found() {
        let texts = [("abc", 1), ("a", 2), ("b", 3), ("한", 4), ("abcd", 5)];
        let array = DoubleArray::build(texts.map(|(text, id)| (text.as_bytes(), id)).to_vec());
        let array = array.expect("they can be built");
        assert_eq!(found(&array, "abcx"), [(1, 2), (3, 1)]);
        assert_eq!(found(&array, "한a"), [(3, 4)]);
        for text in ["", "x", "\0", "하", "\u{10ffff}"] {
            assert_eq!(found(&array, text), [], "{text:?}");
        }
        assert!(array.begins_with(b"ab") && !array.begins_with(b"ac"));
    }

    #[test]
    fn of_equal_texts_the_last_one_counts() {
        let array = DoubleArray::build(vec![(b"a", 1), (b"b", 2), (b"a", 3)]);
        assert_eq!(found(&array.expect("it can be built"), "a"), [(1, 3)]);
    }

    #[test]
    fn what_cannot_be_built_or_read_is_refused() {
        assert!(DoubleArray::build(Vec::new()).is_err());
        assert!(DoubleArray::build(vec![(b"a\0b", 1)]).is_err());
        assert!(DoubleArray::from_bytes(&[]).is_none());
        assert!(DoubleArray::from_bytes(&[1, 2, 3]).is_none());
    }
}
