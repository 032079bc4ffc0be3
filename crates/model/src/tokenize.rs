//! Text → token ids: prompts, special tokens, truncation, counts.

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::package::ModelPackage;
use crate::package::manifest::{Manifest, ModelKind, PromptName, Prompts};
use scheduling::batch::TokenIds;
use settings::{Normalization, SpecialTokenText};

mod aside;
mod charsmap;
mod decode;
mod double_array;
mod file;
mod found;
mod library;
mod normalizer;
mod openai;
mod span;
mod unigram;
mod xlm_r;

pub use decode::SpecialPieces;
use file::TokenizerFile;
use found::{FoundIds, WantedPoll};
use library::LibraryTokenizer;
pub use openai::OpenAiEncoding;
pub use span::Span;
use xlm_r::XlmR;

/// Stands for a space in sentencepiece's pieces.
const META: char = '▁';

/// Why a package's tokenizer cannot be used, or a text not be tokenized.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum TokenizeError {
    #[error("cannot use {}: it is not a tokenizer that can be read ({reason})", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("cannot use {}: it has {found} tokens, the manifest says {expected}: tokenizer and \
             model belong to different vocabularies", path.display())]
    Vocabulary { path: PathBuf, found: usize, expected: usize },
    #[error("cannot use {}: the empty text gives ids {found:?}, the manifest says {expected:?}",
            path.display())]
    SpecialTokens { path: PathBuf, found: Vec<u32>, expected: Vec<u32> },
    #[error("cannot use {}: it does not say how two texts become one, or the manifest's \
             max_input_tokens leave no room for them; a cross-encoder needs both", path.display())]
    Pairs { path: PathBuf },
    #[error("a text cannot be tokenized: {0}")]
    Text(String),
    #[error("a text's tokens are not wanted any more")]
    Unwanted,
}

/// A tokenized item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokenized {
    /// What is run, special tokens included; at most the model's limit.
    pub ids: TokenIds,
    /// Positions in front of the text's own that belong to the prompt, whoever wrote it; they carry
    /// no lexical weight.
    pub prompt_tokens: usize,
    /// The text's own tokens: behind the prompt, and between the special tokens around the text.
    pub own: Range<usize>,
    /// Token count before the limit was applied.
    pub full_count: usize,
    /// Where its own tokens stand in the text. Empty when nobody asked, and for token ids.
    pub spans: Vec<Span>,
}

/// What becomes of a text's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenizeOptions {
    /// What is put in front of a text that begins with no prompt of the model.
    pub prompt: Option<PromptName>,
    /// Which tokens of a long text are kept.
    pub keep: Keep,
    /// Whether their places in the text are found too, which takes about as long again.
    pub offsets: Offsets,
}

/// Which tokens of a long text are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The first ones, as many as the model takes.
    ModelLimit,
    /// Every one, for those who count tokens or cut texts.
    All,
}

/// Whether the places of tokens are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offsets {
    /// Ids alone.
    Skip,
    /// A [`Span`] for each token of the text.
    Find,
}

impl Tokenized {
    /// Whether the item had more tokens than the model takes.
    pub fn is_truncated(&self) -> bool {
        self.full_count > self.ids.len()
    }
}

/// The package's tokenizer; used by many threads at once.
pub struct TextTokenizer {
    kind: TokenizerKind,
    /// The special tokens in front of and behind every text; some tokenizers have one of them.
    around: [Option<u32>; 2],
    /// The special tokens between the texts of a pair; none of a model that reads single texts.
    joint: Vec<u32>,
    limit: usize,
    prompts: Prompts,
    /// What each token weighs in a question, of a model that has such a table.
    questions: Vec<f32>,
}

enum TokenizerKind {
    XlmR(Box<XlmR>),
    Library(Box<LibraryTokenizer>),
}

impl TextTokenizer {
    /// Reads `tokenizer.json` and checks it against the manifest, whose word on normalization
    /// counts when there is no `normalization`.
    pub fn open(
        package: &ModelPackage,
        special: SpecialTokenText,
        normalization: Option<Normalization>,
    ) -> Result<Self, TokenizeError> {
        let manifest = package.manifest();
        let mut read = Self::read(&package.tokenizer_path(), manifest, special, normalization)?;
        if let Some(name) = manifest.sparse.iter().find_map(|sparse| sparse.questions.as_ref()) {
            let path = package.directory().join(name);
            let bytes = fs::read(&path).map_err(|error| {
                let reason = error.to_string();
                TokenizeError::Unreadable { path, reason }
            })?;
            let (floats, _) = bytes.as_chunks();
            read.questions = floats.iter().copied().map(f32::from_le_bytes).collect();
        }
        Ok(read)
    }

    fn read(
        path: &Path,
        manifest: &Manifest,
        special: SpecialTokenText,
        normalization: Option<Normalization>,
    ) -> Result<Self, TokenizeError> {
        let unreadable =
            |reason: String| TokenizeError::Unreadable { path: path.to_owned(), reason };
        let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let normalization = normalization.or(manifest.tokenizer.normalization);
        let (kind, around, joint) = guarded(|| {
            let file: TokenizerFile =
                serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            let (around, joint) = (file.around(), file.joint());
            Ok((TokenizerKind::read(file, &bytes, special, normalization)?, around, joint))
        })
        .map_err(unreadable)?;
        let (found, expected) = (kind.vocabulary_size(), manifest.vocab_size);
        if found != expected {
            let path = path.to_owned();
            return Err(TokenizeError::Vocabulary { path, found, expected });
        }
        let expected = [manifest.bos_token_id, manifest.eos_token_id];
        if around != Some(expected) {
            let path = path.to_owned();
            let found = around.into_iter().flatten().flatten().collect();
            let expected = expected.into_iter().flatten().collect();
            return Err(TokenizeError::SpecialTokens { path, found, expected });
        }
        let (around, limit) = (expected, manifest.max_input_tokens);
        let has_room = |joint: &Vec<u32>| around.iter().flatten().count() + joint.len() < limit;
        let joint = match manifest.kind {
            ModelKind::Embedding | ModelKind::Sparse => Vec::new(),
            ModelKind::CrossEncoder => joint
                .filter(has_room)
                .ok_or_else(|| TokenizeError::Pairs { path: path.to_owned() })?,
        };
        let (prompts, questions) = (manifest.prompts.clone(), Vec::new());
        Ok(Self { kind, around, joint, limit, prompts, questions })
    }

    /// Tokenizes a text behind a prompt. A text that begins with a prompt of the model gets no
    /// other. An empty or blank text is legal. `wanted` is asked at least once in 16 KiB of text,
    /// with the bytes that the work holds in memory; it says whether somebody still waits for the
    /// ids, and there is memory for so many.
    ///
    /// # Errors
    /// `Unwanted` as soon as `wanted` says no; `Text` when the tokenizer itself fails, which no
    /// valid UTF-8 is known to cause.
    pub fn tokenize(
        &self,
        text: &str,
        prompt: Option<PromptName>,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Tokenized, TokenizeError> {
        let options = TokenizeOptions { prompt, keep: Keep::ModelLimit, offsets: Offsets::Skip };
        self.tokenize_with(text, options, wanted)
    }

    /// Tokenizes a text as [`Self::tokenize`] does, in the way that `options` say.
    ///
    /// # Errors
    /// Those of [`Self::tokenize`].
    pub fn tokenize_with(
        &self,
        text: &str,
        options: TokenizeOptions,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Tokenized, TokenizeError> {
        let (whole, prompt_bytes) = self.behind_prompt(text, options.prompt);
        let found = FoundIds::new(match options.keep {
            Keep::ModelLimit => self.limit - self.special_tokens(),
            Keep::All => usize::MAX,
        });
        let mut found = match options.offsets {
            Offsets::Skip => found,
            Offsets::Find => found.with_lengths(),
        };
        let mut poll = WantedPoll::new(wanted);
        self.kind.encode(&whole, prompt_bytes, &mut found, &mut poll)?;
        let prompt_tokens = found.prompt_tokens.min(found.ids.len());
        poll.held_bytes = found.held_bytes() + found.span_bytes();
        let mut spans = self.kind.spans(&whole, &found, &mut poll)?;
        // Of what is not in the text as sent.
        let added_characters = whole[..whole.len() - text.len()].chars().count();
        spans.drain(..prompt_tokens.min(spans.len()));
        spans.iter_mut().for_each(|span| *span = span.since(added_characters));
        let FoundIds { mut ids, count, .. } = found;
        let [first, last] = self.around;
        if let Some(first) = first {
            ids.insert(0, first);
        }
        ids.extend(last);
        let (ids, full_count) = (TokenIds::new(&ids), count + self.special_tokens());
        let own = self.between(&ids, prompt_tokens);
        Ok(Tokenized { ids, prompt_tokens, own, full_count, spans })
    }

    /// Two texts as a cross-encoder reads them: with special tokens between them, and around both.
    /// Where the model does not take all of their tokens, the longer text loses its last ones until
    /// it is as long as the other one, then both do: `longest_first` of `transformers`.
    pub fn pair(&self, first: &Tokenized, second: &Tokenized) -> Tokenized {
        let special = self.special_tokens() + self.joint.len();
        let [one, other] = [first, second].map(|text| text.full_count - self.special_tokens());
        let room = self.limit - special;
        let shorter = one.min(other).min(room / 2);
        let longer = (room - shorter).min(one.max(other));
        let kept = if one <= other { [shorter, longer] } else { [longer, shorter] };
        let [before, behind] = self.around;
        let mut ids = Vec::with_capacity(special + shorter + longer);
        ids.extend(before);
        ids.extend_from_slice(&first.ids[first.own.clone()][..kept[0]]);
        ids.extend_from_slice(&self.joint);
        ids.extend_from_slice(&second.ids[second.own.clone()][..kept[1]]);
        ids.extend(behind);
        let ids = TokenIds::new(&ids);
        let own = self.between(&ids, 0);
        let full_count = special + one + other;
        Tokenized { ids, prompt_tokens: 0, own, full_count, spans: Vec::new() }
    }

    /// How many there are around a text.
    fn special_tokens(&self) -> usize {
        self.around.iter().flatten().count()
    }

    /// The tokens between the special ones and behind the prompt.
    fn between(&self, ids: &TokenIds, prompt_tokens: usize) -> Range<usize> {
        let [first, last] = self.around.map(|token| usize::from(token.is_some()));
        first + prompt_tokens..ids.len() - last
    }

    /// A text behind its prompt, and the prompt's bytes. The prompt is the one that the text itself
    /// begins with, for clients that write prompts into their texts; else the one that is asked
    /// for.
    fn behind_prompt<'a>(&self, text: &'a str, asked: Option<PromptName>) -> (Cow<'a, str>, usize) {
        let all = PromptName::ALL.iter().filter_map(|&name| self.prompts.text(name));
        let own = all.filter(|prompt| text.starts_with(prompt)).map(str::len).max();
        if let Some(bytes) = own.filter(|&bytes| bytes > 0) {
            return (Cow::Borrowed(text), bytes);
        }
        match asked.and_then(|name| self.prompts.text(name)).unwrap_or_default() {
            "" => (Cow::Borrowed(text), 0),
            prompt => (Cow::Owned([prompt, text].concat()), prompt.len()),
        }
    }

    /// Takes ids as they are; special tokens are added when absent.
    pub fn wrap(&self, ids: &[u32], keep: Keep) -> Tokenized {
        let [first, last] = self.around;
        let mut wrapped = Vec::with_capacity(ids.len() + 2);
        wrapped.extend(first.filter(|first| ids.first() != Some(first)));
        wrapped.extend_from_slice(ids);
        let is_closed = wrapped.len() >= self.special_tokens() && wrapped.last() == last.as_ref();
        wrapped.extend(last.filter(|_| !is_closed));
        let full_count = wrapped.len();
        if keep == Keep::ModelLimit && full_count > self.limit {
            wrapped.truncate(self.limit - usize::from(last.is_some()));
            wrapped.extend(last);
        }
        let ids = TokenIds::new(&wrapped);
        let own = self.between(&ids, 0);
        Tokenized { ids, prompt_tokens: 0, own, full_count, spans: Vec::new() }
    }

    /// Whose normalization the ids follow.
    pub fn normalization(&self) -> Normalization {
        match &self.kind {
            TokenizerKind::XlmR(own) => own.normalization(),
            TokenizerKind::Library(_) => Normalization::Huggingface,
        }
    }

    /// How surprising an id is in texts, in nats: the negative logarithm of its piece's
    /// probability. It is zero for special tokens. `None` when the tokenizer's file does not say.
    pub fn surprisal(&self, id: u32) -> Option<f32> {
        match &self.kind {
            TokenizerKind::XlmR(own) => Some(own.surprisal(id)),
            TokenizerKind::Library(_) => None,
        }
    }

    /// What each token weighs in a question, of a model that has such a table.
    pub fn question_table(&self) -> Option<&[f32]> {
        (!self.questions.is_empty()).then_some(&self.questions)
    }

    /// The vocabulary piece of an id.
    pub fn piece(&self, id: u32) -> Option<String> {
        match &self.kind {
            TokenizerKind::XlmR(own) => own.pieces().get(id as usize).cloned(),
            TokenizerKind::Library(library) => library.piece(id),
        }
    }
}

impl TokenizerKind {
    /// What is not of XLM-R's kind is read by the crate, and so as the crate does.
    fn read(
        file: TokenizerFile,
        bytes: &[u8],
        special: SpecialTokenText,
        normalization: Option<Normalization>,
    ) -> Result<Self, String> {
        let is_own = normalization.unwrap_or(Normalization::Sentencepiece);
        match (file.words()?, normalization) {
            (Some(words), _) if words.can_be_read(is_own) => {
                Ok(Self::XlmR(Box::new(XlmR::new(file, words, special, is_own)?)))
            }
            (_, Some(Normalization::Sentencepiece)) => {
                Err("its normalizer is not XLM-R's, so its normalization can only be huggingface"
                    .to_owned())
            }
            _ => Ok(Self::Library(Box::new(LibraryTokenizer::read(
                bytes,
                &file.added_tokens,
                special,
            )?))),
        }
    }

    fn vocabulary_size(&self) -> usize {
        match self {
            Self::XlmR(own) => own.pieces().len(),
            Self::Library(library) => library.vocabulary_size(),
        }
    }

    fn encode(
        &self,
        text: &str,
        prompt_bytes: usize,
        found: &mut FoundIds,
        poll: &mut WantedPoll<'_>,
    ) -> Result<(), TokenizeError> {
        match self {
            Self::XlmR(own) => own.encode(text, prompt_bytes, found, poll),
            Self::Library(library) => library.encode(text, prompt_bytes, found, poll),
        }
    }

    /// Where the kept tokens of a text stand; none when nobody asked.
    fn spans(
        &self,
        text: &str,
        found: &FoundIds,
        poll: &mut WantedPoll<'_>,
    ) -> Result<Vec<Span>, TokenizeError> {
        match (&found.lengths, self) {
            (None, _) => Ok(Vec::new()),
            (Some(lengths), Self::XlmR(own)) => own.spans(text, lengths, poll),
            (Some(_), Self::Library(library)) => library.spans(text, found.ids.len(), poll),
        }
    }
}

impl fmt::Debug for TextTokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TextTokenizer").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Calls the crate's code, which panics on some broken files: that is an error like others.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err("the crate `tokenizers` panics on it".to_owned()))
}

#[cfg(test)]
mod tests;
