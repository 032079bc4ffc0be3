//! sentencepiece's Unigram model: a normal form → the pieces of the largest sum of scores.
//!
//! Scores are summed in f64 and from each word's start, as the crate `tokenizers` does, so a word
//! has the same ids wherever it stands. The best path is certain up to each place that no piece
//! crosses. Such places come every few bytes, so the tables are small; `Aside` is for the rest.

use serde::Deserialize;

use super::META;
use super::aside::Aside;
use super::double_array::DoubleArray;
use super::found::FoundIds;
use settings::Normalization;

/// How far an unknown character scores below the worst piece.
const UNKNOWN_PENALTY: f64 = 10.0;

/// Bytes of the longest piece that a vocabulary may have; XLM-R's has 48.
const PIECE_BYTES_MAX: usize = 1024;

/// Bytes behind the last certain place from which on the next one is looked for within a word too.
/// Going back more often costs more than it spares.
const OPEN_BYTES_MIN: usize = 128;

/// Bytes behind the last certain place for which the table has paths.
const OPEN_BYTES_MAX: usize = 1024;

/// The part `model` of a `tokenizer.json`.
#[derive(Debug, Deserialize)]
pub(super) struct UnigramFile {
    pub(super) vocab: Vec<(String, f64)>,
    unk_id: Option<u32>,
    #[serde(default)]
    byte_fallback: bool,
}

/// A vocabulary of pieces with their scores, natural logarithms.
pub(super) struct Unigram {
    /// By id; behind the last one that of a text which spells the unknown piece.
    scores: Vec<f64>,
    /// How many characters each piece has, in the order of `scores`.
    characters: Vec<u16>,
    unknown: u32,
    unknown_score: f64,
    trie: DoubleArray,
    longest_bytes: usize,
    /// Whether no piece has a `▁` behind its first character, so that each word is on its own.
    words_apart: bool,
}

impl Unigram {
    /// `excluded` are the ids that no text becomes. The crate `tokenizers` finds the unknown piece
    /// where a text spells it, and no piece of several words; sentencepiece the other way round.
    pub(super) fn new(
        file: &UnigramFile,
        excluded: &[u32],
        normalization: Normalization,
    ) -> Result<Self, String> {
        let UnigramFile { vocab, unk_id, byte_fallback } = file;
        let unknown = unk_id.filter(|id| (*id as usize) < vocab.len());
        let unknown = unknown.ok_or("the vocabulary has no piece for unknown characters")?;
        if *byte_fallback {
            return Err("unknown characters as bytes are not supported".to_owned());
        }
        let by_library = normalization == Normalization::Huggingface;
        let has_words = |piece: &str| piece.chars().skip(1).any(|character| character == META);
        let (mut texts, mut worst, mut longest_bytes) = (Vec::new(), f64::INFINITY, 0);
        for (id, (piece, score)) in (0..).zip(vocab) {
            let is_normal = id != unknown && !excluded.contains(&id);
            if by_library || is_normal {
                worst = worst.min(*score);
            }
            let is_found = match normalization {
                Normalization::Sentencepiece => is_normal,
                Normalization::Huggingface => !excluded.contains(&id) && !has_words(piece),
            };
            if is_found && !piece.is_empty() {
                longest_bytes = longest_bytes.max(piece.len());
                let id = if id == unknown { vocab.len() as u32 } else { id };
                texts.push((piece.as_bytes(), id));
            }
        }
        if longest_bytes > PIECE_BYTES_MAX {
            return Err(format!("a piece has {longest_bytes} bytes, more than {PIECE_BYTES_MAX}"));
        }
        let with_spelled_unknown = || vocab.iter().chain([&vocab[unknown as usize]]);
        let characters = |(piece, _): &(String, f64)| piece.chars().count() as u16;
        let words_apart = by_library
            || !texts
                .iter()
                .any(|(_, id)| vocab.get(*id as usize).is_some_and(|(piece, _)| has_words(piece)));
        let mut characters: Vec<u16> = with_spelled_unknown().map(characters).collect();
        characters[unknown as usize] = 1;
        Ok(Self {
            scores: with_spelled_unknown().map(|(_, score)| *score).collect(),
            characters,
            unknown,
            unknown_score: worst - UNKNOWN_PENALTY,
            trie: DoubleArray::build(texts).map_err(|error| format!("the pieces: {error}"))?,
            longest_bytes,
            words_apart,
        })
    }

    /// The negative logarithm of a piece's probability; zero for an id that is no piece.
    pub(super) fn surprisal(&self, id: u32) -> f32 {
        self.scores.get(id as usize).map_or(0.0, |score| -score as f32)
    }

    /// Continues the best paths by the next part of a normal form and hands out the ids that are
    /// certain. Returns how many bytes are done: all when they are the last ones.
    pub(super) fn advance(
        &self,
        normal: &[u8],
        is_last: bool,
        paths: &mut Paths,
        found: &mut FoundIds,
    ) -> usize {
        paths.make_room(self.longest_bytes);
        let end =
            if is_last { normal.len() } else { normal.len().saturating_sub(self.longest_bytes) };
        let (mut at, mut word_end) = (0, 0);
        while at < end {
            if at >= word_end {
                word_end = self.end_of_word(normal, at);
            }
            if self.words_apart && normal[at..].starts_with(META_BYTES) {
                self.settle(paths, found);
                paths.table[0].score = 0.0;
                found.end_unknown();
            } else if paths.done >= OPEN_BYTES_MIN && paths.is_certain(self.longest_bytes) {
                self.settle(paths, found);
            } else if paths.done >= OPEN_BYTES_MAX {
                paths.put_aside(self.longest_bytes);
            }
            at += self.extend(&normal[at..word_end], end.min(word_end) - at, paths);
        }
        if is_last {
            self.settle(paths, found);
            paths.table[0].score = 0.0;
            found.end_unknown();
        }
        at
    }

    /// Where the pieces that start at a byte end at the latest.
    fn end_of_word(&self, normal: &[u8], at: usize) -> usize {
        let behind = normal[at..].windows(META_BYTES.len()).skip(1);
        let mut behind = behind.take_while(|_| self.words_apart);
        behind.position(|bytes| bytes == META_BYTES).map_or(normal.len(), |found| at + 1 + found)
    }

    /// Offers every piece that starts in the next `ready` bytes of a word, or in fewer when many
    /// bytes are open. Returns the bytes that are done.
    #[inline]
    fn extend(&self, word: &[u8], ready: usize, paths: &mut Paths) -> usize {
        let mut at = 0;
        while at < ready {
            let start = paths.done + at;
            let open = &mut paths.table[start..];
            let score = open[0].score;
            let width = bytes_of_character(word[at]);
            let mut has_single = false;
            for (length, id) in self.trie.prefixes(&word[at..]) {
                has_single |= length == width;
                open[length].offer(self.scores[id as usize] + score, start, id);
            }
            if !has_single {
                open[width].offer(self.unknown_score + score, start, self.unknown);
            }
            at += width;
            if start >= OPEN_BYTES_MIN {
                break;
            }
        }
        paths.done += at;
        at
    }

    /// Hands out the pieces of the best path up to here.
    fn settle(&self, paths: &mut Paths, found: &mut FoundIds) {
        let Paths { table, done, aside, pieces } = paths;
        let (mut start, mut end) = (*done as i32, 0);
        while start > 0 {
            end = start as usize;
            pieces.push(table[end].id);
            start = table[end].start;
        }
        if !aside.is_empty() {
            // The first of these pieces may start among the characters that were put aside.
            let inside = table[1..=end].iter().filter(|best| best.is_reached()).count();
            let characters = pieces.last().filter(|_| start < 0).map(|id| self.length(*id));
            let crossing = characters.map_or(0, |characters| characters - inside);
            let length = |id| self.length(id);
            aside.take(aside.len() - crossing, length, |id| self.hand_out(id, found));
        }
        pieces.drain(..).rev().for_each(|id| self.hand_out(id, found));
        let score = table[*done].score;
        table[..=*done].fill(Best::NONE);
        table[0].score = score;
        *done = 0;
    }

    #[inline]
    fn hand_out(&self, id: u32, found: &mut FoundIds) {
        let is_unknown = id == self.unknown || id as usize == self.scores.len() - 1;
        let shown = if is_unknown { self.unknown } else { id };
        found.push(shown, is_unknown, || self.length(id));
    }

    fn length(&self, id: u32) -> usize {
        usize::from(self.characters[id as usize])
    }
}

/// By the first byte of its UTF-8.
const fn bytes_of_character(first: u8) -> usize {
    match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    }
}

const META_BYTES: &[u8] = "▁".as_bytes();

/// Best paths through the part of a normal form that is not certain yet. Kept from text to text,
/// since making it costs more than a short text does.
#[derive(Default)]
pub(super) struct Paths {
    /// By bytes since the last certain place.
    table: Vec<Best>,
    /// Bytes from which all pieces were offered.
    done: usize,
    /// What stands in front of the table.
    aside: Aside,
    /// The pieces of a path on their way out, last one first.
    pieces: Vec<u32>,
}

impl Paths {
    fn make_room(&mut self, longest_bytes: usize) {
        let needed = OPEN_BYTES_MAX + longest_bytes + 8;
        if self.table.len() < needed {
            self.table.resize(needed, Best::NONE);
        }
    }

    /// Whether no piece crosses from what is done to what follows.
    fn is_certain(&self, longest_bytes: usize) -> bool {
        let behind = &self.table[self.done + 1..][..longest_bytes];
        !behind.iter().any(|best| best.is_reached())
    }

    /// Empties the table up to here, so that it has room for more.
    fn put_aside(&mut self, longest_bytes: usize) {
        let Self { table, done, aside, .. } = self;
        let reached = table[1..=*done].iter().filter(|best| best.is_reached());
        reached.for_each(|best| aside.push(best.id));
        let open = *done..*done + longest_bytes + 1;
        table.copy_within(open.clone(), 0);
        table[open.len()..open.end].fill(Best::NONE);
        let still_open = table[1..open.len()].iter_mut().filter(|best| best.is_reached());
        still_open.for_each(|best| best.start -= *done as i32);
        *done = 0;
    }
}

/// The best path that ends at a byte.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// Where its last piece starts; below zero that many bytes in front of the table.
    start: i32,
    id: u32,
}

impl Best {
    const NONE: Self = Self { score: 0.0, start: i32::MAX, id: 0 };

    /// Takes a path that ends here when it is better than the one that is known.
    #[inline]
    fn offer(&mut self, score: f64, start: usize, id: u32) {
        if !self.is_reached() || score > self.score {
            *self = Self { score, start: start as i32, id };
        }
    }

    /// Whether a path ends here; one does behind every character.
    const fn is_reached(self) -> bool {
        self.start != i32::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const META_ID: u32 = 3;
    const UNKNOWN_ID: u32 = 2;

    fn model(pieces: &[(&str, f64)], normalization: Normalization) -> Unigram {
        let special = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)];
        let pieces = special.iter().chain(pieces);
        let vocab = pieces.map(|(piece, score)| ((*piece).to_owned(), *score)).collect();
        let file = UnigramFile { vocab, unk_id: Some(UNKNOWN_ID), byte_fallback: false };
        let excluded: &[u32] = match normalization {
            Normalization::Sentencepiece => &[0, 1],
            Normalization::Huggingface => &[],
        };
        Unigram::new(&file, excluded, normalization).expect("it is a model")
    }

    fn sentencepiece(pieces: &[(&str, f64)]) -> Unigram {
        model(pieces, Normalization::Sentencepiece)
    }

    /// The ids when the normal form comes in parts of so many bytes.
    fn ids_by_parts(model: &Unigram, text: &str, bytes: usize) -> Vec<u32> {
        let (mut paths, mut found) = (Paths::default(), FoundIds::new(usize::MAX));
        let mut waiting = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.ceil_char_boundary(bytes.min(rest.len())));
            waiting.extend_from_slice(part.as_bytes());
            rest = behind;
            let done = model.advance(&waiting, rest.is_empty(), &mut paths, &mut found);
            waiting.drain(..done);
        }
        assert!(waiting.is_empty() && paths.aside.is_empty());
        found.ids
    }

    fn ids(model: &Unigram, text: &str) -> Vec<u32> {
        let found = ids_by_parts(model, text, usize::MAX);
        for bytes in [1, 7, 100] {
            assert_eq!(ids_by_parts(model, text, bytes), found, "{text} in parts of {bytes}");
        }
        found
    }

    #[test]
    fn the_largest_sum_wins() {
        let pieces = [("a", -1.0), ("b", -1.0), ("ab", -1.5), ("abc", -9.0), ("c", -3.0)];
        let model = sentencepiece(&pieces);
        assert_eq!(ids(&model, "▁abc"), [META_ID, 6, 8]);
        assert_eq!(ids(&model, "▁ba▁b"), [META_ID, 5, 4, META_ID, 5]);
        assert_eq!(ids(&model, ""), [0; 0]);
    }

    #[test]
    fn of_equal_sums_the_earlier_longer_piece_wins() {
        let model = sentencepiece(&[("_", -1.0), ("__", -1.5)]);
        // Both ways are worth -2.5; the one whose last piece starts first is kept.
        assert_eq!(ids(&model, "▁___"), [META_ID, 4, 5]);
    }

    #[test]
    fn a_run_of_unknown_characters_is_one_piece() {
        let model = sentencepiece(&[("a", -1.0)]);
        let (meta, unknown, a) = (META_ID, UNKNOWN_ID, 4);
        let expected = [meta, unknown, a, unknown, a, meta, unknown];
        assert_eq!(ids(&model, "▁xyあ€a€a▁€"), expected);
    }

    #[test]
    fn special_pieces_are_text_for_sentencepiece_alone() {
        let pieces = [("<", -5.0), ("s", -5.0), (">", -5.0), ("unk", -5.0)];
        let text = "▁<s><unk>x";
        let found = ids(&model(&pieces, Normalization::Sentencepiece), text);
        assert_eq!(found, [META_ID, 4, 5, 6, 4, 7, 6, UNKNOWN_ID]);
        let found = ids(&model(&pieces, Normalization::Huggingface), text);
        assert_eq!(found, [META_ID, 0, UNKNOWN_ID]);
    }

    #[test]
    fn a_piece_of_two_words_is_found_by_sentencepiece_alone() {
        let pieces = [("▁a", -1.0), ("▁b", -1.0), ("▁a▁b", -1.5)];
        let found = ids(&model(&pieces, Normalization::Sentencepiece), "▁a▁b▁a");
        assert_eq!(found, [6, 4]);
        let found = ids(&model(&pieces, Normalization::Huggingface), "▁a▁b▁a");
        assert_eq!(found, [4, 5, 4]);
    }

    #[test]
    fn long_stretches_without_a_certain_place_are_exact() {
        // No place is certain, and the best path depends on the whole length: it takes threes.
        let pieces = [("a", -5.0), ("aa", -5.5), ("aaa", -6.0), ("é", -1.0), ("aé", -1.2)];
        let model = sentencepiece(&pieces);
        for length in [OPEN_BYTES_MAX - 1, OPEN_BYTES_MAX, 3 * OPEN_BYTES_MAX + 1, 100_001] {
            let found = ids(&model, &format!("▁{}é", "a".repeat(length)));
            let rest: &[u32] = match length % 3 {
                0 => &[5, 8],
                1 => &[8],
                _ => &[4, 8],
            };
            let threes = (length + 1 - rest.len()) / 3;
            let characters = |id: &u32| model.length(*id);
            assert_eq!(found.iter().map(characters).sum::<usize>(), length + 2, "{length}");
            assert!(found.len() <= threes + 3, "{length}: {} pieces", found.len());
        }
    }

    #[test]
    fn a_vocabulary_that_cannot_be_used_is_refused() {
        let long = "a".repeat(PIECE_BYTES_MAX + 1);
        for (piece, unk_id, byte_fallback) in [
            ("a", None, false),
            ("a", Some(2), false),
            ("a", Some(0), true),
            ("", Some(0), false),
            ("\0", Some(0), false),
            (long.as_str(), Some(0), false),
        ] {
            let vocab = vec![("<unk>".to_owned(), 0.0), (piece.to_owned(), -1.0)];
            let file = UnigramFile { vocab, unk_id, byte_fallback };
            let refused = Unigram::new(&file, &[], Normalization::Sentencepiece);
            assert!(refused.is_err(), "{piece:.10}");
        }
    }
}
