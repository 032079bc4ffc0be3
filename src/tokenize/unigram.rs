//! sentencepiece's Unigram model: a text → the pieces of the largest sum of scores.
//!
//! The `tokenizers` crate sums in f64 and word by word, sentencepiece in f32 over the whole text.
//! Both find the best path, but where paths are equal or nearly so (`____` `_`, `_` `____`) only
//! the same sums choose the same one, so this follows sentencepiece's `Model::EncodeOptimized`.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::unigram::UnigramTrainer;
use tokenizers::{Model, Token};

use super::META;

/// How far an unknown character scores below the worst piece.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The part `model` of a `tokenizer.json`.
#[derive(Deserialize)]
pub(super) struct File {
    vocab: Vec<(String, f64)>,
    unk_id: Option<u32>,
    #[serde(default)]
    byte_fallback: bool,
}

/// A vocabulary of pieces with their scores, natural logarithms.
pub(super) struct Unigram {
    pieces: Vec<String>,
    scores: Vec<f32>,
    unknown: u32,
    unknown_score: f32,
    /// All pieces but the special ones, which no text is.
    trie: Trie,
    /// Whether a piece has a `▁` behind its first character, so that words cannot be looked at one
    /// by one.
    spans_words: bool,
}

impl Unigram {
    /// `special` are the ids that no text becomes.
    pub(super) fn new(file: File, special: &[u32]) -> tokenizers::Result<Self> {
        let unknown = file.unk_id.filter(|id| (*id as usize) < file.vocab.len());
        let unknown = unknown.ok_or("the vocabulary has no piece for unknown characters")?;
        if file.byte_fallback {
            return Err("unknown characters as bytes are not supported".into());
        }
        let (pieces, scores): (Vec<String>, Vec<f32>) =
            file.vocab.into_iter().map(|(piece, score)| (piece, score as f32)).unzip();
        let normal = (0..)
            .zip(&pieces)
            .filter(|(id, piece)| *id != unknown && !special.contains(id) && !piece.is_empty());
        let normal: Vec<(u32, &str)> = normal.map(|(id, piece)| (id, piece.as_str())).collect();
        let worst = normal.iter().map(|(id, _)| scores[*id as usize]).fold(f32::MAX, f32::min);
        let spans_words = normal.iter().any(|(_, piece)| piece.char_indices().skip(1).any(is_meta));
        let trie = Trie::new(normal);
        Ok(Self {
            unknown_score: worst - UNKNOWN_PENALTY,
            pieces,
            scores,
            unknown,
            trie,
            spans_words,
        })
    }

    /// The ids of a text with where they end, ascending.
    fn encode(&self, text: &str) -> Vec<(u32, usize)> {
        let mut route = Route::default();
        let mut rest = text;
        while !rest.is_empty() {
            let mut starts = rest.char_indices().skip(1).filter(|at| is_meta(*at));
            let end = starts.next().filter(|_| !self.spans_words).map_or(rest.len(), |at| at.0);
            let (word, behind) = rest.split_at(end);
            self.word(word, &mut route);
            rest = behind;
        }
        route.found
    }

    /// Continues a path by the best path of a word.
    fn word(&self, word: &str, route: &mut Route) {
        route.best.clear();
        route.best.resize(word.len() + 1, Best::NONE);
        route.best[0].score = route.score;
        let mut start = 0;
        for character in word.chars() {
            let single = start + character.len_utf8();
            let score = route.best[start].score;
            let mut has_single = false;
            for (length, id) in self.trie.prefixes(&word.as_bytes()[start..]) {
                let end = start + length;
                has_single |= end == single;
                route.best[end].offer(self.scores[id as usize] + score, start, id);
            }
            if !has_single {
                route.best[single].offer(self.unknown_score + score, start, self.unknown);
            }
            start = single;
        }
        self.follow_back(word.len(), route);
    }

    /// Appends the best path to the end of a word; a run of unknown characters is one piece.
    fn follow_back(&self, length: usize, route: &mut Route) {
        let first = route.found.len();
        let mut end = length;
        let mut behind = None;
        while end > 0 {
            let Best { start, id, .. } = route.best[end];
            if id != self.unknown || behind != Some(id) {
                route.found.push((id, route.done + end));
            }
            behind = Some(id);
            end = start as usize;
        }
        route.found[first..].reverse();
        route.score = route.best[length].score;
        route.done += length;
    }
}

fn is_meta((_, character): (usize, char)) -> bool {
    character == META
}

/// The best path over the words so far.
#[derive(Default)]
struct Route {
    /// Ids with where they end in the text.
    found: Vec<(u32, usize)>,
    score: f32,
    /// Bytes of the text that the path covers.
    done: usize,
    /// For each byte of the current word the best path that ends there.
    best: Vec<Best>,
}

#[derive(Clone, Copy)]
struct Best {
    score: f32,
    start: u32,
    id: u32,
}

impl Best {
    const NONE: Self = Self { score: 0.0, start: u32::MAX, id: 0 };

    /// Takes a path that ends here when it is better than the one that is known.
    fn offer(&mut self, score: f32, start: usize, id: u32) {
        if self.start == u32::MAX || score > self.score {
            *self = Self { score, start: start as u32, id };
        }
    }
}

/// Texts by their bytes. The children of a node stand side by side, ascending by their byte.
struct Trie {
    /// The byte on the way to each node; the root, node 0, has none.
    bytes: Vec<u8>,
    /// Where the children of each node start; they end where those of the next start.
    children: Vec<u32>,
    /// The id of the text that ends at each node, or `NO_ID`.
    ids: Vec<u32>,
}

const NO_ID: u32 = u32::MAX;

impl Trie {
    fn new(mut texts: Vec<(u32, &str)>) -> Self {
        texts.sort_unstable_by_key(|(id, text)| (*text, *id));
        texts.dedup_by_key(|(_, text)| *text);
        let mut trie = Self { bytes: vec![0], children: Vec::new(), ids: Vec::new() };
        // For each node in order: its texts, and how many of their bytes lead to it.
        let mut open = vec![(texts.as_slice(), 0)];
        let mut node = 0;
        while let Some(&(mut below, depth)) = open.get(node) {
            let mut id = NO_ID;
            if let Some((first, rest)) = below.split_first()
                && first.1.len() == depth
            {
                (id, below) = (first.0, rest);
            }
            trie.ids.push(id);
            trie.children.push(open.len() as u32);
            let byte = |text: &(u32, &str)| text.1.as_bytes()[depth];
            for same in below.chunk_by(|a, b| byte(a) == byte(b)) {
                trie.bytes.push(byte(&same[0]));
                open.push((same, depth + 1));
            }
            node += 1;
        }
        trie.children.push(open.len() as u32);
        trie
    }

    /// The texts that `bytes` starts with, ascending: their length and id.
    fn prefixes(&self, bytes: &[u8]) -> impl Iterator<Item = (usize, u32)> {
        let mut node = Some(0);
        let nodes = bytes.iter().map_while(move |&byte| {
            node = self.child(node?, byte);
            node
        });
        let ids = nodes.map(|node| self.ids[node]);
        (1..).zip(ids).filter(|(_, id)| *id != NO_ID)
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        let start = self.children[node] as usize;
        let siblings = &self.bytes[start..self.children[node + 1] as usize];
        siblings.binary_search(&byte).ok().map(|at| start + at)
    }
}

impl fmt::Debug for Unigram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Unigram")
            .field("pieces", &self.pieces.len())
            .finish_non_exhaustive()
    }
}

impl Model for Unigram {
    type Trainer = TrainerWrapper;

    /// The tokens have no text: nobody reads it.
    fn tokenize(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        let mut start = 0;
        let token =
            |(id, end)| Token::new(id, String::new(), (std::mem::replace(&mut start, end), end));
        Ok(self.encode(text).into_iter().map(token).collect())
    }

    /// Slow; for a few added tokens.
    fn token_to_id(&self, token: &str) -> Option<u32> {
        (0..).zip(&self.pieces).find(|(_, piece)| *piece == token).map(|(id, _)| id)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.pieces.get(id as usize).cloned()
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.pieces.iter().cloned().zip(0..).collect()
    }

    fn get_vocab_size(&self) -> usize {
        self.pieces.len()
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Err("a model that is served is not saved".into())
    }

    fn get_trainer(&self) -> TrainerWrapper {
        TrainerWrapper::UnigramTrainer(UnigramTrainer::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const META_ID: u32 = 3;

    fn model(pieces: &[(&str, f64)]) -> Unigram {
        let special = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)];
        let pieces = special.iter().chain(pieces);
        let vocab = pieces.map(|(piece, score)| ((*piece).to_owned(), *score)).collect();
        Unigram::new(File { vocab, unk_id: Some(2), byte_fallback: false }, &[0, 1])
            .expect("it is a model")
    }

    fn pieces(model: &Unigram, text: &str) -> Vec<String> {
        let tokens = model.tokenize(text).expect("it never fails");
        let known = tokens.iter().map(|token| {
            let covered = &text[token.offsets.0..token.offsets.1];
            let piece = model.id_to_token(token.id).expect("it is in the vocabulary");
            assert!(token.id == model.unknown || piece == covered, "{piece} {covered}");
            covered.to_owned()
        });
        known.collect()
    }

    #[test]
    fn the_largest_sum_wins() {
        let model = model(&[("a", -1.0), ("b", -1.0), ("ab", -1.5), ("abc", -9.0), ("c", -3.0)]);
        assert_eq!(pieces(&model, "▁abc"), ["▁", "ab", "c"]);
        assert_eq!(pieces(&model, "▁ba▁b"), ["▁", "b", "a", "▁", "b"]);
        assert_eq!(pieces(&model, ""), [""; 0]);
    }

    #[test]
    fn of_equal_sums_the_earlier_longer_piece_wins() {
        let model = model(&[("_", -1.0), ("__", -1.5)]);
        // Both ways are worth -2.5; the one whose last piece starts first is kept.
        assert_eq!(pieces(&model, "▁___"), ["▁", "_", "__"]);
    }

    #[test]
    fn a_run_of_unknown_characters_is_one_piece() {
        let model = model(&[("a", -1.0)]);
        assert_eq!(pieces(&model, "▁xyあ€a€▁€"), ["▁", "xyあ€", "a", "€", "▁", "€"]);
        let ids: Vec<u32> = model.encode("▁xa").iter().map(|found| found.0).collect();
        assert_eq!(ids, [META_ID, 2, 4]);
    }

    #[test]
    fn special_pieces_are_text() {
        let model = model(&[("<", -5.0), ("s", -5.0), (">", -5.0)]);
        assert_eq!(pieces(&model, "▁<s>"), ["▁", "<", "s", ">"]);
        assert_eq!(model.token_to_id("<s>"), Some(0));
    }

    #[test]
    fn a_piece_of_two_words_is_found() {
        let model = model(&[("▁a", -1.0), ("▁b", -1.0), ("▁a▁b", -1.5)]);
        assert_eq!(pieces(&model, "▁a▁b▁a"), ["▁a▁b", "▁a"]);
    }

    #[test]
    fn a_vocabulary_that_cannot_be_used_is_refused() {
        let vocab = || vec![("a".to_owned(), 0.0)];
        for (unk_id, byte_fallback) in [(None, false), (Some(1), false), (Some(0), true)] {
            let file = File { vocab: vocab(), unk_id, byte_fallback };
            Unigram::new(file, &[]).expect_err("it lacks something");
        }
    }
}
