//! XLM-R's tokenizer: special tokens, words by sentencepiece's character map, Unigram pieces.
//!
//! It gives ids without offsets, so only one stretch of the normal form is in memory at a time.
//! Offsets are found by a second walk over the text, when somebody asks for them.
//!
//! An example: the text `Ｔhe cat sleeps<mask>!`, whose first letter is full-width, behind the
//! prompt `query: `, with the default package.
//!
//! | step | where | result |
//! |---|---|---|
//! | cut at special tokens | [`XlmR::encode`] | `query: Ｔhe cat sleeps` · `<mask>` · `!` |
//! | normal form of each part | `normalizer` | `▁query:▁The▁cat▁sleeps` · `▁!` |
//! | pieces of the largest sum | `unigram` | `▁que` `ry` `:` `▁The` `▁cat` `▁sleep` `s` · `▁!` |
//! | ids | `unigram` | 41 1294 12 581 7515 60268 7 · 250001 · 711 |
//!
//! `▁sleeps` is no piece. `▁sleep` `s` scores -12.9 - 5.1 = -18.0 and wins over `▁` `sleep` `s`
//! with -3.9 - 14.0 - 5.1 = -23.0. Three tokens come from the prompt alone, so they carry no
//! lexical weight. `TextTokenizer` puts 0 (`<s>`) in front and 2 (`</s>`) behind.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::AddedToken;

use super::TokenizeError;
use super::file::{AddedEntry, TokenizerFile, WordRules};
use super::found::{FoundIds, WantedPoll};
use super::normalizer::{Gaps, Lookup, Normalizer};
use super::span::{Span, SpanCollector};
use super::unigram::{self, Paths, Unigram};
use settings::{Normalization, SpecialTokenText};

/// A tokenizer of XLM-R's kind; used by many threads at once.
pub(super) struct XlmR {
    normalization: Normalization,
    normalizer: Normalizer,
    unigram: Unigram,
    /// A character that becomes a space before anything else.
    space: Option<char>,
    /// Finds the added tokens that are written in a text.
    finder: AhoCorasick,
    added: Vec<AddedEntry>,
    /// Whether the special ones of them are plain text all the same.
    is_plain: bool,
    pieces: Vec<String>,
}

/// A part of a text, by its bytes.
enum Part {
    /// Without special tokens.
    Words(Range<usize>),
    /// An added token that is written in the text; `end` is behind the white space that it takes.
    Added { at: Range<usize>, end: usize, id: u32 },
}

/// Work space of a thread.
#[derive(Default)]
struct Space {
    normal: Vec<u8>,
    paths: Paths,
}

thread_local! {
    static SPACE: Cell<Option<Box<Space>>> = const { Cell::new(None) };
}

impl XlmR {
    /// `words` is what the file says of words.
    pub(super) fn new(
        file: TokenizerFile,
        words: WordRules,
        special: SpecialTokenText,
        normalization: Normalization,
    ) -> Result<Self, String> {
        let WordRules { map, space, library_gaps } = words;
        let (lookup, gaps) = match normalization {
            Normalization::Sentencepiece => (Lookup::Longest, Gaps::Spaces),
            Normalization::Huggingface => {
                (Lookup::Grapheme, library_gaps.ok_or("its words are parted in an unknown way")?)
            }
        };
        let model: unigram::UnigramFile = serde_json::from_str(file.model.get())
            .map_err(|error| format!("its model: {error}"))?;
        let is_plain = special == SpecialTokenText::Plain;
        let excluded = file.added_tokens.iter().filter(|added| {
            let always = normalization == Normalization::Sentencepiece || is_plain;
            always && added.token.special
        });
        let excluded: Vec<u32> = excluded.map(|added| added.id).collect();
        let unigram = Unigram::new(&model, &excluded, normalization)?;
        let mut pieces: Vec<String> = model.vocab.into_iter().map(|(piece, _)| piece).collect();
        let added = file.added_tokens;
        for AddedEntry { id, token: AddedToken { content, .. } } in &added {
            if *id as usize == pieces.len() {
                pieces.push(content.clone());
            }
            if pieces.get(*id as usize) != Some(content) {
                return Err(format!("added token {content:?} is not the vocabulary's id {id}"));
            }
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(added.iter().map(|added| &added.token.content));
        let finder = finder.map_err(|error| format!("its added tokens: {error}"))?;
        let normalizer = Normalizer::new(map, lookup, gaps);
        Ok(Self { normalization, normalizer, unigram, space, finder, added, is_plain, pieces })
    }

    pub(super) const fn normalization(&self) -> Normalization {
        self.normalization
    }

    /// By id.
    pub(super) fn pieces(&self) -> &[String] {
        &self.pieces
    }

    /// How surprising an id is, in nats.
    pub(super) fn surprisal(&self, id: u32) -> f32 {
        if self.is_special(id) { 0.0 } else { self.unigram.surprisal(id) }
    }

    /// Whether an id is that of a token such as `</s>`.
    pub(super) fn is_special(&self, id: u32) -> bool {
        self.added.iter().any(|added| added.id == id && added.token.special)
    }

    /// Appends the ids of a text, of which the first bytes are a prompt.
    ///
    /// # Errors
    /// `Unwanted`, as soon as nobody waits.
    pub(super) fn encode(
        &self,
        text: &str,
        prompt_bytes: usize,
        found: &mut FoundIds,
        poll: &mut WantedPoll<'_>,
    ) -> Result<(), TokenizeError> {
        for part in self.parts(text) {
            match part {
                Part::Words(at) => {
                    let prompt_bytes = prompt_bytes.saturating_sub(at.start);
                    self.encode_part(&text[at], prompt_bytes, found, poll)?;
                }
                Part::Added { at, end, id } => {
                    found.expect_prompt(if end <= prompt_bytes { 1 } else { 0 });
                    found.push(id, false, || 1);
                    poll.held_bytes = found.held_bytes();
                    poll.spend(at.len())?;
                }
            }
        }
        Ok(())
    }

    /// Where the first tokens of a text stand, of which `lengths` has the characters in the normal
    /// form.
    ///
    /// # Errors
    /// `Unwanted`, as soon as nobody waits.
    pub(super) fn spans(
        &self,
        text: &str,
        lengths: &[usize],
        poll: &mut WantedPoll<'_>,
    ) -> Result<Vec<Span>, TokenizeError> {
        let mut collector = SpanCollector::new(lengths);
        let (mut bytes, mut characters) = (0, 0);
        for part in self.parts(text) {
            if collector.is_full() {
                break;
            }
            let (Part::Words(at) | Part::Added { at, .. }) = &part;
            let start = characters + text[bytes..at.start].chars().count();
            let end = start + text[at.clone()].chars().count();
            match &part {
                Part::Words(at) => {
                    // One character becomes one space, so that places stay as they are.
                    let words = self.with_spaces(&text[at.clone()]);
                    self.normalizer.sources(&words, poll, |source| {
                        collector.take(start + source.start..start + source.end);
                        collector.is_full()
                    })?;
                }
                Part::Added { .. } => {
                    collector.take(start..end);
                    poll.spend(at.len())?;
                }
            }
            (bytes, characters) = (at.end, end);
        }
        Ok(collector.into_spans())
    }

    /// The parts of a text between and at its special tokens; white space that such a token takes
    /// away is in none.
    fn parts(&self, text: &str) -> impl Iterator<Item = Part> {
        let mut start = 0;
        let places = self.finder.find_iter(text).map(Some).chain([None]);
        let parts = places.flat_map(move |place| {
            let Some(place) = place else {
                return [Some(Part::Words(start..text.len())), None];
            };
            let AddedEntry { id, token } = &self.added[place.pattern().as_usize()];
            if self.is_plain && token.special || place.start() < start {
                return [None, None];
            }
            let before = &text[start..place.start()];
            let before = if token.lstrip { before.trim_end() } else { before };
            let words = start..start + before.len();
            let behind = &text[place.end()..];
            let behind = if token.rstrip { behind.trim_start() } else { behind };
            start = text.len() - behind.len();
            let added = Part::Added { at: place.range(), end: start, id: *id };
            [Some(Part::Words(words)), Some(added)]
        });
        parts.flatten()
    }

    /// Appends the ids of a text without special tokens.
    fn encode_part(
        &self,
        text: &str,
        prompt_bytes: usize,
        found: &mut FoundIds,
        poll: &mut WantedPoll<'_>,
    ) -> Result<(), TokenizeError> {
        if text.is_empty() {
            return Ok(());
        }
        let prompt = text.get(..prompt_bytes).unwrap_or(text);
        let whole_bytes = text.len();
        let (text, prompt) = (self.with_spaces(text), self.with_spaces(prompt));
        found.expect_prompt(match prompt.len() {
            0 => 0,
            bytes if bytes == text.len() => usize::MAX,
            bytes => self.normalizer.characters_from(&text, bytes),
        });
        let mut space = SPACE.take().unwrap_or_default();
        let Space { normal, paths } = &mut *space;
        normal.clear();
        let mut normalizing = self.normalizer.of(&text);
        loop {
            let (is_last, bytes) = normalizing.stretch(normal);
            let done = self.unigram.advance(normal, is_last, paths, found);
            normal.drain(..done);
            if is_last {
                break;
            }
            poll.held_bytes = found.held_bytes();
            // Work space that is left in the middle of a text is not used again.
            poll.spend(bytes * whole_bytes / text.len())?;
        }
        SPACE.set(Some(space));
        Ok(())
    }

    fn with_spaces<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.space.filter(|space| text.contains(*space)) {
            Some(space) => Cow::Owned(text.replace(space, " ")),
            None => Cow::Borrowed(text),
        }
    }
}
