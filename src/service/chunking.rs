//! Texts that are cut into chunks, each with vectors of its own.
//!
//! A chunk that runs alone is a text like any other. One that runs late is pooled out of the run of
//! its whole text, or of a window of a text that is longer than the model takes: its tokens have
//! seen those around it. The special tokens and the prompt belong to no late chunk.

use std::ops::Range;
use std::slice;

use thiserror::Error;

use super::tokenizing::{check_wanted, held_bytes, tokenize_text};
use super::{EmbedError, Input, OverLong, Vectors};
use model::tokenize::{Keep, Offsets, Span, TextTokenizer, TokenizeOptions, Tokenized};
use scheduling::batch::{Bucket, TokenIds};

mod cuts;
mod windows;

use cuts::{Cut, cut};

/// Chunks that run alone may have each byte of their text so many times, since each is tokenized
/// anew; and windows of late chunks each of its token ids.
const REPEATED_MAX: usize = 16;

/// Chunks, or ids, of so many bytes may be the same text as often as they like.
const FREE_BYTES: usize = 256 * 1024;

/// How the texts of a request are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunking {
    pub(crate) by: ChunkBy,
    /// Whether chunks are pooled out of the run of their whole text.
    pub(crate) late: bool,
    /// The texts of the request are the chunks of one text, which was put together of them.
    pub(crate) of_inputs: bool,
    /// Chunks of a request, at most.
    pub(crate) most: usize,
}

/// Where texts are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChunkBy {
    /// So many tokens of the text each, of which the first `overlap` are the last ones of the chunk
    /// before.
    Tokens { size: usize, overlap: usize },
    /// Sentences, of so many tokens together at most.
    Sentences { size: usize },
    /// Characters of each text.
    Spans(Vec<Vec<Span>>),
}

/// A chunk of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextChunk {
    /// The text's place in the request.
    pub(crate) input: usize,
    /// Its characters.
    pub(crate) span: Span,
    /// Its own tokens that ran, without special tokens and prompt.
    pub(crate) tokens: usize,
    /// Which window of its text ran for it; `None` when the text has one.
    pub(crate) window: Option<usize>,
}

/// Why a text cannot be cut as asked. `chunk` is its number among those of the text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ChunkFault {
    #[error("span {chunk} is empty, or not within the {characters} characters of the text")]
    Span { chunk: usize, span: Span, characters: usize },
    #[error("chunk {chunk} has no token to pool")]
    NoToken { chunk: usize, span: Span },
    /// The same of a chunk that is an item of the request.
    #[error("it has no token to pool")]
    Blank,
    /// A chunk that is an item of the request has no character.
    #[error("it is empty")]
    Empty,
    #[error("chunk {chunk} has {tokens} tokens, the limit is {limit}")]
    TooLong { chunk: usize, tokens: usize, limit: usize },
    #[error("the prompt leaves nothing of the model's {limit} tokens for a window of the text")]
    NoRoom { limit: usize },
    #[error("its chunks overlap so much that its text would run more than {REPEATED_MAX} times")]
    Repeated,
    #[error("more than {most} chunks")]
    TooMany { most: usize },
}

/// The texts that run for a request, and what of them is answered.
#[derive(Debug, Default)]
pub(crate) struct TextsToRun {
    pub(crate) run: Vec<Tokenized>,
    /// `None` when each of them is answered whole, in their order.
    pub(crate) parts: Option<Vec<RunPart>>,
}

/// A chunk that is answered.
#[derive(Debug, Clone)]
pub(crate) struct RunPart {
    /// `None` when the answer need not tell.
    pub(super) chunk: Option<TextChunk>,
    /// Which of the texts that run.
    pub(crate) text: usize,
    /// Which of its dense vectors, and its tokens; `None` for the whole text.
    pub(super) within: Option<(usize, Range<usize>)>,
    /// Its tokens, when not all of them ran.
    pub(super) truncated_from: Option<usize>,
}

/// Cuts texts of one request.
#[derive(Debug)]
pub(crate) struct Cutter {
    pub(crate) chunking: Chunking,
    /// Those of texts that run whole.
    pub(crate) reading: TokenizeOptions,
    pub(crate) vectors: Vectors,
    pub(crate) over_long: OverLong,
    /// Tokens of a text that runs, at most.
    pub(crate) limit: usize,
}

impl Chunking {
    /// The texts that are cut.
    pub(super) fn texts(&mut self, inputs: Vec<Input>) -> Vec<Input> {
        if !self.of_inputs {
            return inputs;
        }
        let (text, spans) = joined(&inputs);
        self.by = ChunkBy::Spans(vec![spans]);
        vec![Input::Text(text.into())]
    }
}

/// One text of all inputs, with a space between two that have none there, and where each stands.
fn joined(inputs: &[Input]) -> (String, Vec<Span>) {
    let (mut whole, mut characters, mut spans) = (String::new(), 0, Vec::new());
    for input in inputs {
        let Input::Text(text) = input else { continue };
        let is_space = |end: Option<char>| end.is_none_or(char::is_whitespace);
        if !is_space(whole.chars().next_back()) && !is_space(text.chars().next()) {
            whole.push(' ');
            characters += 1;
        }
        whole.push_str(text);
        let start = characters;
        characters += text.chars().count();
        spans.push(Span { start, end: characters });
    }
    (whole, spans)
}

impl RunPart {
    /// Its token ids.
    pub(super) fn tokens_of<'a>(&self, text: &'a Tokenized) -> &'a [u32] {
        self.within.as_ref().map_or(&text.ids[..], |(_, tokens)| &text.ids[tokens.clone()])
    }
}

impl TextsToRun {
    /// Texts that are answered whole.
    pub(crate) const fn whole(run: Vec<Tokenized>) -> Self {
        Self { run, parts: None }
    }

    /// Adds those of the next text of the request; refuses more than `most` chunks.
    pub(crate) fn add(&mut self, next: Self, most: usize) -> Result<(), EmbedError> {
        let (before, parts) = (self.run.len(), self.parts.get_or_insert_default());
        let moved = |part: RunPart| RunPart { text: part.text + before, ..part };
        parts.extend(next.parts.into_iter().flatten().map(moved));
        self.run.extend(next.run);
        let index = parts.last().and_then(|part| part.chunk).map_or(0, |chunk| chunk.input);
        match parts.len() > most {
            true => Err(EmbedError::Chunks { index, fault: ChunkFault::TooMany { most } }),
            false => Ok(()),
        }
    }

    /// How many vectors of each kind the answer has.
    pub(crate) fn answered(&self) -> usize {
        self.parts.as_ref().map_or(self.run.len(), Vec::len)
    }

    /// The place in the request of a text that runs, or of its first chunk when each item is one.
    pub(crate) fn input_of(&self, text: usize) -> usize {
        let mut parts = self.parts.iter().flatten().enumerate();
        let first = parts.find(|(_, part)| part.text == text);
        first.map_or(text, |(item, part)| part.chunk.map_or(item, |chunk| chunk.input))
    }

    /// How many of those that are answered did not run whole.
    pub(crate) fn truncated(&self) -> usize {
        match &self.parts {
            Some(parts) => parts.iter().filter(|part| part.truncated_from.is_some()).count(),
            None => self.run.iter().filter(|text| text.is_truncated()).count(),
        }
    }
}

impl Cutter {
    /// Chunks of a request, at most.
    pub(super) const fn most(&self) -> usize {
        self.chunking.most
    }

    /// What runs for an input, which is a text, at its place in the request.
    pub(crate) fn cut(
        &self,
        tokenizer: &TextTokenizer,
        (index, input): (usize, &Input),
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<TextsToRun, EmbedError> {
        let Input::Text(text) = input else { return Err(EmbedError::ChunksWithoutText) };
        let options = TokenizeOptions { keep: Keep::All, offsets: Offsets::Find, ..self.reading };
        let whole = tokenize_text(tokenizer, text, options, wanted)?;
        let whole_bytes = held_bytes(slice::from_ref(&whole));
        let wanted = |more| wanted(whole_bytes + more);
        let Chunking { by, late, most, .. } = &self.chunking;
        let cuts = cut(by, (index, text), &whole.spans, *most);
        let cuts = cuts.map_err(|fault| self.fault(index, fault))?;
        // Without tokens there is nothing to pool; the whole text still has a vector.
        let is_blank = whole.spans.is_empty() && !matches!(by, ChunkBy::Spans(_));
        match *late && !is_blank {
            true => self.late(index, &whole, &cuts, &wanted),
            false => self.alone(tokenizer, (index, text), &cuts, &wanted),
        }
    }

    /// A fault of one chunk, in the words of a request whose items are the chunks or the texts.
    fn fault(&self, index: usize, fault: ChunkFault) -> EmbedError {
        match fault {
            ChunkFault::Span { chunk, .. } if self.chunking.of_inputs => {
                EmbedError::Chunks { index: chunk, fault: ChunkFault::Empty }
            }
            ChunkFault::NoToken { chunk, .. } if self.chunking.of_inputs => {
                EmbedError::Chunks { index: chunk, fault: ChunkFault::Blank }
            }
            ChunkFault::TooLong { chunk, tokens, limit } if self.chunking.of_inputs => {
                EmbedError::ContextLengthExceeded { index: chunk, tokens, limit }
            }
            fault => EmbedError::Chunks { index, fault },
        }
    }

    fn chunk(
        &self,
        input: usize,
        cut: &Cut,
        tokens: usize,
        window: Option<usize>,
    ) -> Option<TextChunk> {
        (!self.chunking.of_inputs).then_some(TextChunk { input, span: cut.span, tokens, window })
    }

    /// Each chunk as a text of its own.
    fn alone(
        &self,
        tokenizer: &TextTokenizer,
        (input, text): (usize, &str),
        cuts: &[Cut],
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<TextsToRun, EmbedError> {
        let bytes = byte_places(text, cuts);
        let lengths = cuts.iter().map(|cut| bytes(cut.span.end) - bytes(cut.span.start));
        if lengths.sum::<usize>() > FREE_BYTES.max(text.len() * REPEATED_MAX) {
            return Err(self.fault(input, ChunkFault::Repeated));
        }
        let (mut run, mut parts) = (Vec::with_capacity(cuts.len()), Vec::new());
        let mut held = 0;
        for (number, cut) in cuts.iter().enumerate() {
            let wanted = |more| wanted(held + more);
            check_wanted(wanted(0))?;
            let chunk = &text[bytes(cut.span.start)..bytes(cut.span.end)];
            let mut chunk = tokenize_text(tokenizer, chunk, self.reading, &wanted)?;
            held += held_bytes(slice::from_ref(&chunk));
            if self.over_long == OverLong::Refuse && chunk.is_truncated() {
                let (tokens, limit) = (chunk.full_count, self.limit);
                return Err(self.fault(input, ChunkFault::TooLong { chunk: number, tokens, limit }));
            }
            for place in &mut chunk.spans {
                *place =
                    Span { start: place.start + cut.span.start, end: place.end + cut.span.start };
            }
            parts.push(RunPart {
                chunk: self.chunk(input, cut, chunk.own.len(), None),
                text: run.len(),
                within: None,
                truncated_from: chunk.is_truncated().then_some(chunk.full_count),
            });
            run.push(chunk);
        }
        Ok(TextsToRun { run, parts: Some(parts) })
    }

    /// All chunks out of the run of the whole text, or of its windows.
    fn late(
        &self,
        input: usize,
        whole: &Tokenized,
        cuts: &[Cut],
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<TextsToRun, EmbedError> {
        let (before, others) = (whole.own.start, whole.ids.len() - whole.own.len());
        let (tokens, size) = (whole.spans.len(), self.limit.saturating_sub(others));
        if size == 0 {
            return Err(self.fault(input, ChunkFault::NoRoom { limit: self.limit }));
        }
        self.check(input, cuts, size)?;
        let chunks: Vec<Range<usize>> = cuts.iter().map(|cut| cut.tokens.clone()).collect();
        let windows = windows::plan(tokens, size, &chunks);
        let ids: usize = windows.windows.iter().map(ExactSizeIterator::len).sum();
        if ids * size_of::<u32>() > FREE_BYTES.max(tokens * size_of::<u32>() * REPEATED_MAX) {
            return Err(self.fault(input, ChunkFault::Repeated));
        }
        check_wanted(wanted(ids * size_of::<u32>()))?;
        let (mut run, mut parts) = (Vec::new(), vec![None; cuts.len()]);
        let mut chunks_of = vec![Vec::new(); windows.windows.len()];
        for (chunk, &window) in windows.of_chunks.iter().enumerate() {
            chunks_of[window].push(chunk);
        }
        // Only so many dense vectors have room beside each other.
        let most = Bucket { rows: 1, length: self.limit }.spans();
        let most = if self.vectors.dense() { most } else { cuts.len() };
        for (number, window) in windows.windows.iter().enumerate() {
            let text = self.window(whole, window.clone());
            for group in chunks_of[number].chunks(most) {
                let mut places = Vec::new();
                for (vector, &chunk) in group.iter().enumerate() {
                    let (cut, all) = (&cuts[chunk], &chunks[chunk]);
                    let kept = all.start..all.end.min(window.end);
                    let place =
                        before + kept.start - window.start..before + kept.end - window.start;
                    places.push(place.clone());
                    let window = (tokens > size).then_some(number);
                    parts[chunk] = Some(RunPart {
                        chunk: self.chunk(input, cut, kept.len(), window),
                        text: run.len(),
                        within: Some((vector, place)),
                        truncated_from: (kept.len() < all.len()).then_some(all.len()),
                    });
                }
                let ids = match self.vectors.dense() {
                    true => text.ids.clone().with_parts(&places),
                    false => text.ids.clone(),
                };
                run.push(Tokenized { ids, ..text.clone() });
            }
        }
        Ok(TextsToRun { run, parts: Some(parts.into_iter().flatten().collect()) })
    }

    /// Refuses chunks that cannot be pooled.
    fn check(&self, input: usize, cuts: &[Cut], size: usize) -> Result<(), EmbedError> {
        for (chunk, cut) in cuts.iter().enumerate() {
            let (tokens, span) = (cut.tokens.len(), cut.span);
            if tokens == 0 {
                return Err(self.fault(input, ChunkFault::NoToken { chunk, span }));
            }
            if self.over_long == OverLong::Refuse && tokens > size {
                let limit = size;
                return Err(self.fault(input, ChunkFault::TooLong { chunk, tokens, limit }));
            }
        }
        Ok(())
    }

    /// A window of the text's own tokens, behind the prompt and between the special tokens.
    fn window(&self, whole: &Tokenized, window: Range<usize>) -> Tokenized {
        let (ids, before) = (&whole.ids, whole.own.start);
        let own = &ids[before + window.start..before + window.end];
        let ids = TokenIds::new(&[&ids[..before], own, &ids[whole.own.end..]].concat());
        let own = before..before + window.len();
        let spans = match self.reading.offsets {
            Offsets::Find => whole.spans[window].to_vec(),
            Offsets::Skip => Vec::new(),
        };
        Tokenized { full_count: ids.len(), ids, own, spans, prompt_tokens: whole.prompt_tokens }
    }
}

/// Gives the byte of each character at which a chunk begins or ends.
fn byte_places(text: &str, cuts: &[Cut]) -> impl Fn(usize) -> usize + use<> {
    let ends = cuts.iter().flat_map(|cut| [cut.span.start, cut.span.end]);
    let mut characters: Vec<usize> = ends.collect();
    characters.sort_unstable();
    characters.dedup();
    let all = text.char_indices().map(|(byte, _)| byte).chain([text.len()]);
    let mut all = all.enumerate();
    let byte = |&character: &usize| {
        all.find(|(number, _)| *number == character).map_or(text.len(), |(_, byte)| byte)
    };
    let bytes: Vec<usize> = characters.iter().map(byte).collect();
    move |character| {
        let found = characters.binary_search(&character);
        bytes[found.expect("a chunk begins or ends there")]
    }
}

#[cfg(test)]
mod tests;
