//! Text → normal form, a stretch at a time: characters by the map, a `▁` in front of each word.

use std::ops::Range;
use std::sync::LazyLock;

use unicode_segmentation::UnicodeSegmentation;

use super::charsmap::Charsmap;
use super::found::WantedPoll;
use super::{META, TokenizeError};

/// Bytes of text that are read at once.
const STRETCH: usize = 4096;

/// How the map's texts are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The longest one at every place, as sentencepiece does.
    Longest,
    /// The shortest one at the start of a grapheme, which is replaced whole; of graphemes of six
    /// bytes and more each character on its own. The crate `tokenizers` does so.
    Grapheme,
}

/// What parts words, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gaps {
    /// Spaces; nothing stays of those at the ends.
    Spaces,
    /// White space of any kind; nothing stays of it at the ends.
    WhiteSpace,
    /// Spaces; those behind the last word are a `▁`.
    SpacesAndEnd,
    /// Spaces; white space of any kind at the end is taken away.
    SpacesStripped,
}

/// What one normalization needs.
pub(super) struct Normalizer {
    map: Charsmap,
    gaps: Gaps,
    /// Characters with which a text of the map starts.
    mapped: Characters,
    /// Characters that may be in one grapheme with others; none for `Lookup::Longest`.
    joining: Option<&'static Characters>,
    ascii: [Ascii; 256],
}

/// What a byte becomes when an ASCII character or nothing stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ascii {
    /// Itself.
    Plain,
    Space,
    /// It has to be looked up, or is no ASCII character.
    Other,
}

impl Normalizer {
    pub(super) fn new(map: Charsmap, lookup: Lookup, gaps: Gaps) -> Self {
        let mapped =
            Characters::which(|character| map.begins_with(character.encode_utf8(&mut [0; 4])));
        let ascii = std::array::from_fn(|byte| match byte as u8 {
            byte if !byte.is_ascii() || starts_mapped_ascii(&map, byte) => Ascii::Other,
            b' ' => Ascii::Space,
            byte if char::from(byte).is_whitespace() => Ascii::Other,
            _ => Ascii::Plain,
        });
        let joining = match lookup {
            Lookup::Longest => None,
            Lookup::Grapheme => Some(&*JOINING),
        };
        Self { map, gaps, mapped, joining, ascii }
    }

    pub(super) fn of<'a>(&'a self, text: &'a str) -> Normalizing<'a> {
        let (gap, held) = (Gap::Start, String::new());
        Normalizing { rules: self, text, at: 0, run_max: STRETCH, grapheme_end: 0, gap, held }
    }

    /// Characters of a text's normal form that come from nothing but its first bytes.
    pub(super) fn characters_from(&self, text: &str, bytes: usize) -> usize {
        let mut normalizing = Normalizing { run_max: 1, ..self.of(text) };
        let (mut normal, mut within) = (Vec::new(), 0);
        while normalizing.step(&mut normal) && normalizing.at <= bytes {
            within = normal.len();
        }
        normal[..within].iter().filter(|byte| starts_character(**byte)).count()
    }

    /// Tells of each character of a text's normal form which characters of the text it comes from,
    /// until `take` says that it has enough. A `▁` that stands for a gap comes from none.
    ///
    /// # Errors
    /// `Unwanted`, as soon as nobody waits.
    pub(super) fn sources(
        &self,
        text: &str,
        poll: &mut WantedPoll<'_>,
        mut take: impl FnMut(Range<usize>) -> bool,
    ) -> Result<(), TokenizeError> {
        let mut normalizing = Normalizing { run_max: 1, ..self.of(text) };
        let (mut normal, mut start) = (Vec::new(), 0);
        loop {
            // What is held is put first, as soon as anything is put.
            let (at, held_bytes) = (normalizing.at, normalizing.held.len());
            normal.clear();
            if !normalizing.step(&mut normal) {
                break;
            }
            let characters = text[at..normalizing.at].chars().count();
            // What puts nothing counts too: it may be nearly the whole text. What became a space
            // before may have had more bytes.
            poll.spend(characters * size_of::<char>())?;
            let end = start + characters;
            let put = std::str::from_utf8(&normal).expect("characters are put whole");
            for (place, character) in put.char_indices() {
                // A gap's mark is never the last one: it comes with what stands behind the gap.
                let is_last = place + character.len_utf8() == put.len();
                let is_gap = place < held_bytes || (character == META && !is_last);
                if take(if is_gap { start..start } else { start..end }) {
                    return Ok(());
                }
            }
            start = end;
        }
        if normalizing.ends_with_gap() {
            take(start..start);
        }
        Ok(())
    }
}

/// Whether the map has a text that starts with this character and holds only ASCII, at least up to
/// the second one.
fn starts_mapped_ascii(map: &Charsmap, byte: u8) -> bool {
    let text = |bytes: &[u8]| map.begins_with(std::str::from_utf8(bytes).expect("it is ASCII"));
    map.shortest(char::from(byte).encode_utf8(&mut [0; 4])).is_some()
        || (1..128).any(|next| text(&[byte, next]))
}

static JOINING: LazyLock<Characters> = LazyLock::new(|| Characters::which(joins));

/// Whether a character can be in one grapheme with an ordinary one or with its like. Then two
/// characters that cannot are always two graphemes.
fn joins(character: char) -> bool {
    let mut text = String::with_capacity(8);
    let mut is_one = |first: char, second: char| {
        text.clear();
        text.extend([first, second]);
        text.graphemes(true).nth(1).is_none()
    };
    character == '\r'
        || is_one('a', character)
        || is_one(character, 'a')
        || is_one(character, character)
}

/// A set of the characters of Unicode's first plane; those of the others count as members.
struct Characters(Vec<u64>);

impl Characters {
    fn which(is_member: impl Fn(char) -> bool) -> Self {
        let mut words = vec![0; 0x1_0000 / 64];
        for character in '\0'..='\u{ffff}' {
            let bit = u64::from(is_member(character)) << (character as usize % 64);
            words[character as usize / 64] |= bit;
        }
        Self(words)
    }

    #[inline]
    fn may_have(&self, character: char) -> bool {
        let word = self.0.get(character as usize / 64);
        word.is_none_or(|word| word >> (character as usize % 64) & 1 == 1)
    }
}

/// A text on its way to its normal form.
pub(super) struct Normalizing<'a> {
    rules: &'a Normalizer,
    text: &'a str,
    /// Bytes that are done.
    at: usize,
    /// Bytes of plain ASCII that are one step.
    run_max: usize,
    /// Up to here each character is looked up on its own.
    grapheme_end: usize,
    gap: Gap,
    /// White space that is taken away if nothing follows.
    held: String,
}

/// What stands in front of the next character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    Start,
    Space,
    None,
}

impl Normalizing<'_> {
    /// Appends the normal form of up to some thousand bytes. Whether these were the last ones, and
    /// how many they were.
    pub(super) fn stretch(&mut self, normal: &mut Vec<u8>) -> (bool, usize) {
        let (start, normal_end) = (self.at, normal.len() + STRETCH);
        let end = self.text.len().min(start + STRETCH);
        while self.at < end && normal.len() < normal_end {
            self.step(normal);
        }
        let is_last = self.at == self.text.len();
        if is_last && self.ends_with_gap() {
            push(normal, META);
        }
        (is_last, self.at - start)
    }

    /// Whether a mark of the gap behind the last word is still to come.
    fn ends_with_gap(&self) -> bool {
        self.rules.gaps == Gaps::SpacesAndEnd && self.gap == Gap::Space
    }

    /// Appends the normal form of the next text of the map, grapheme or character, or of a run of
    /// plain ASCII. Whether something was left.
    #[inline]
    fn step(&mut self, normal: &mut Vec<u8>) -> bool {
        let bytes = &self.text.as_bytes()[self.at..];
        let Some(&first) = bytes.first() else { return false };
        let is_alone = self.at >= self.grapheme_end && bytes.get(1).is_none_or(u8::is_ascii);
        match self.rules.ascii[usize::from(first)] {
            Ascii::Plain if is_alone => {
                self.begin(char::from(first), normal);
                let plain = |byte: &&u8| self.rules.ascii[usize::from(**byte)] == Ascii::Plain;
                let run = bytes.iter().take(self.run_max).take_while(plain).count();
                // A mark behind the last one would belong to it.
                let run = run - usize::from(bytes.get(run).is_some_and(|byte| !byte.is_ascii()));
                normal.extend_from_slice(&bytes[..run]);
                self.at += run;
            }
            Ascii::Space if is_alone => {
                self.gap = Gap::Space;
                self.at += 1;
            }
            _ => self.look_up(normal),
        }
        true
    }

    fn look_up(&mut self, normal: &mut Vec<u8>) {
        let rules = self.rules;
        let rest = &self.text[self.at..];
        let mut characters = rest.chars();
        let Some(first) = characters.next() else { return };
        let character = &rest[..first.len_utf8()];
        let found = match rules.joining {
            None if rules.mapped.may_have(first) => rules.map.longest(rest),
            None => None,
            Some(joining) => {
                let in_grapheme = |next: char| joining.may_have(first) || joining.may_have(next);
                let is_new = self.at >= self.grapheme_end;
                if is_new && characters.next().is_some_and(in_grapheme) {
                    let grapheme = rest.graphemes(true).next().unwrap_or(character);
                    if grapheme.len() < 6
                        && let Some(replacement) = rules.map.shortest(grapheme)
                    {
                        return self.replace(grapheme.len(), replacement, normal);
                    }
                    self.grapheme_end = self.at + grapheme.len();
                }
                let is_mapped = rules.mapped.may_have(first);
                let replacement = is_mapped.then(|| rules.map.shortest(character)).flatten();
                replacement.map(|replacement| (character.len(), replacement))
            }
        };
        match found {
            Some((length, replacement)) => self.replace(length, replacement, normal),
            None => {
                self.at += character.len();
                self.put(first, normal);
            }
        }
    }

    fn replace(&mut self, length: usize, replacement: &str, normal: &mut Vec<u8>) {
        self.at += length;
        replacement.chars().for_each(|character| self.put(character, normal));
    }

    #[inline]
    fn put(&mut self, character: char, normal: &mut Vec<u8>) {
        let is_space = match self.rules.gaps {
            Gaps::WhiteSpace => character.is_whitespace(),
            Gaps::Spaces | Gaps::SpacesAndEnd | Gaps::SpacesStripped => character == ' ',
        };
        if is_space {
            self.gap = Gap::Space;
        } else if self.rules.gaps == Gaps::SpacesStripped && character.is_whitespace() {
            if self.needs_meta(character) {
                self.held.push(META);
            }
            self.held.push(character);
            self.gap = Gap::None;
        } else {
            self.begin(character, normal);
            push(normal, character);
        }
    }

    /// What comes between the last character and one that stays.
    #[inline]
    fn begin(&mut self, character: char, normal: &mut Vec<u8>) {
        if !self.held.is_empty() {
            normal.extend_from_slice(self.held.as_bytes());
            self.held.clear();
        }
        if self.gap != Gap::None {
            if self.needs_meta(character) {
                push(normal, META);
            }
            self.gap = Gap::None;
        }
    }

    /// Whether a `▁` stands in front of a character; a `▁` of the text itself can serve as one.
    fn needs_meta(&self, character: char) -> bool {
        match (self.gap, self.rules.gaps) {
            (Gap::None, _) => false,
            (Gap::Start | Gap::Space, Gaps::Spaces) => true,
            (Gap::Space, Gaps::SpacesAndEnd | Gaps::SpacesStripped) => true,
            (Gap::Space, Gaps::WhiteSpace) | (Gap::Start, _) => character != META,
        }
    }
}

/// Whether a byte of UTF-8 is a character's first one.
pub(super) const fn starts_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

fn push(normal: &mut Vec<u8>, character: char) {
    normal.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &[(&str, &str)] = &[
        ("\u{1112}\u{1161}\u{11ab}", "한"),
        ("\u{1112}\u{1161}", "하"),
        ("e\u{323}", "ẹ"),
        ("e\u{323}\u{302}", "ệ"),
        ("ﬁ", "fi"),
        ("\u{7f}", ""),
        ("\u{3000}", " "),
        ("\t", " "),
        ("...", "…"),
    ];

    fn normal(lookup: Lookup, gaps: Gaps, text: &str) -> String {
        let normalizer = Normalizer::new(Charsmap::of(MAP), lookup, gaps);
        let (mut normalizing, mut normal) = (normalizer.of(text), Vec::new());
        while !normalizing.stretch(&mut normal).0 {}
        String::from_utf8(normal).expect("characters are never cut")
    }

    #[test]
    fn the_longest_text_of_the_map_is_replaced_at_every_place() {
        for (text, expected) in [
            ("\u{1112}\u{1161}\u{11ab}\u{1112}\u{1161}!", "▁한하!"),
            ("e\u{323}\u{302}e\u{323}x", "▁ệẹx"),
            ("ﬁ\u{301} \u{7f}\u{301}", "▁fi\u{301}▁\u{301}"),
            ("a...b..", "▁a…b.."),
            ("\0", "▁\0"),
        ] {
            assert_eq!(normal(Lookup::Longest, Gaps::Spaces, text), expected, "{text:?}");
        }
    }

    #[test]
    fn graphemes_are_replaced_by_their_shortest_beginning() {
        for (text, expected) in [
            // The mark behind the first five bytes is lost; longer ones are left as they are.
            ("e\u{323}\u{302}", "▁ẹ"),
            ("e\u{323}\u{302}\u{301}", "▁e\u{323}\u{302}\u{301}"),
            ("\u{1112}\u{1161}\u{11ab}", "▁\u{1112}\u{1161}\u{11ab}"),
            ("ﬁ\u{301}x", "▁fix"),
            ("a\r\nb", "▁a▁b"),
        ] {
            assert_eq!(normal(Lookup::Grapheme, Gaps::WhiteSpace, text), expected, "{text:?}");
        }
    }

    #[test]
    fn gaps_become_one_mark_in_front_of_each_word() {
        let text = " \t a  b\u{85}c \u{85} ";
        for (gaps, expected) in [
            (Gaps::Spaces, "▁a▁b\u{85}c▁\u{85}"),
            (Gaps::WhiteSpace, "▁a▁b▁c"),
            (Gaps::SpacesAndEnd, "▁a▁b\u{85}c▁\u{85}▁"),
            (Gaps::SpacesStripped, "▁a▁b\u{85}c"),
        ] {
            assert_eq!(normal(Lookup::Longest, gaps, text), expected, "{gaps:?}");
            assert_eq!(normal(Lookup::Longest, gaps, ""), "");
        }
        assert_eq!(normal(Lookup::Longest, Gaps::SpacesStripped, "\u{85} a"), "▁\u{85}▁a");
    }

    #[test]
    fn a_mark_of_the_text_can_stand_in_front_of_a_word() {
        for (gaps, expected) in [
            (Gaps::Spaces, "▁▁a▁▁b▁c"),
            (Gaps::WhiteSpace, "▁a▁b▁c"),
            (Gaps::SpacesAndEnd, "▁a▁▁b▁c"),
            (Gaps::SpacesStripped, "▁a▁▁b▁c"),
        ] {
            assert_eq!(normal(Lookup::Longest, gaps, "▁a ▁b▁c"), expected, "{gaps:?}");
        }
    }

    #[test]
    fn each_character_comes_from_its_own_of_the_text() {
        for (gaps, text, expected) in [
            (Gaps::Spaces, "  ab \u{3000}c ", vec![2..2, 2..3, 3..4, 6..6, 6..7]),
            // A ligature is two characters, three dots are one, and so is Hangul of three parts.
            (Gaps::Spaces, "ﬁ...", vec![0..0, 0..1, 0..1, 1..4]),
            (Gaps::Spaces, "\u{1112}\u{1161}\u{11ab}x", vec![0..0, 0..3, 3..4]),
            (Gaps::Spaces, "▁a", vec![0..0, 0..1, 1..2]),
            (Gaps::WhiteSpace, "▁a b", vec![0..1, 1..2, 3..3, 3..4]),
            (Gaps::SpacesAndEnd, "a ", vec![0..0, 0..1, 2..2]),
            (Gaps::SpacesStripped, "a\u{85}b", vec![0..0, 0..1, 2..2, 2..3]),
            (Gaps::Spaces, "", vec![]),
        ] {
            let normalizer = Normalizer::new(Charsmap::of(MAP), Lookup::Longest, gaps);
            let mut seen = Vec::new();
            let take = |source| {
                seen.push(source);
                false
            };
            normalizer.sources(text, &mut WantedPoll::new(&|_| true), take).expect("it is wanted");
            assert_eq!(seen, expected, "{text:?}");
            let characters = normal(Lookup::Longest, gaps, text).chars().count();
            assert_eq!(seen.len(), characters, "{text:?}");
        }
    }

    #[test]
    fn a_prompt_has_the_characters_that_come_from_it_alone() {
        let normalizer = Normalizer::new(Charsmap::of(MAP), Lookup::Longest, Gaps::Spaces);
        for (prompt, text, expected) in [
            ("query: ", "hello", "▁query:"),
            ("query:", "hello", "▁query:"),
            ("the e", "\u{323}nd", "▁the"),
            ("ab..", ".", "▁ab"),
            ("", "a", ""),
        ] {
            let whole = [prompt, text].concat();
            let found = normalizer.characters_from(&whole, prompt.len());
            assert_eq!(found, expected.chars().count(), "{whole:?}");
        }
    }
}
