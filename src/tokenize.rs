//! Text → token ids: prompts, special tokens, truncation, counts.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::batch::TokenIds;
use crate::config::{Normalization, SpecialTokenText};
use crate::package::ModelPackage;
use crate::package::manifest::{Manifest, PromptName};

mod aside;
mod charsmap;
mod double_array;
mod file;
mod found;
mod library;
mod normalizer;
mod openai;
mod unigram;
mod xlm_r;

use file::TokenizerFile;
use found::{FoundIds, WantedPoll};
use library::LibraryTokenizer;
pub(crate) use openai::OpenAiEncoding;
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
    SpecialTokens { path: PathBuf, found: Vec<u32>, expected: [u32; 2] },
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
    /// Positions behind the first special token that belong to the prompt, not to the text; they
    /// carry no lexical weight.
    pub prompt_tokens: usize,
    /// Token count before the limit was applied.
    pub full_count: usize,
}

impl Tokenized {
    /// Whether the item had more tokens than the model takes.
    pub(crate) fn is_truncated(&self) -> bool {
        self.full_count > self.ids.len()
    }
}

/// The package's tokenizer; used by many threads at once.
pub struct TextTokenizer {
    kind: TokenizerKind,
    /// The special tokens in front of and behind every text.
    around: [u32; 2],
    limit: usize,
    query: Option<String>,
    passage: Option<String>,
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
        Self::read(&package.tokenizer_path(), package.manifest(), special, normalization)
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
        let (kind, around) = library::guarded(|| {
            let file: TokenizerFile =
                serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            let around = file.around();
            Ok((TokenizerKind::read(file, &bytes, special, normalization)?, around))
        })
        .map_err(unreadable)?;
        let (found, expected) = (kind.vocabulary_size(), manifest.vocab_size);
        if found != expected {
            let path = path.to_owned();
            return Err(TokenizeError::Vocabulary { path, found, expected });
        }
        let expected = [manifest.bos_token_id, manifest.eos_token_id];
        if around != Some(expected) {
            let (path, found) = (path.to_owned(), around.iter().flatten().copied().collect());
            return Err(TokenizeError::SpecialTokens { path, found, expected });
        }
        Ok(Self {
            kind,
            around: expected,
            limit: manifest.max_input_tokens,
            query: manifest.prompts.query.clone(),
            passage: manifest.prompts.passage.clone(),
        })
    }

    /// Tokenizes a text behind a prompt. An empty or blank text is legal. `wanted` is asked at
    /// least once in 16 KiB of text; it says whether somebody still waits for the ids.
    ///
    /// # Errors
    /// `Unwanted` as soon as `wanted` says no; `Text` when the tokenizer itself fails, which no
    /// valid UTF-8 is known to cause.
    pub fn tokenize(
        &self,
        text: &str,
        prompt: Option<PromptName>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Tokenized, TokenizeError> {
        let prompt = prompt.and_then(|name| match name {
            PromptName::Query => self.query.as_deref(),
            PromptName::Passage => self.passage.as_deref(),
        });
        let mut found = FoundIds::new(self.limit - 2);
        let mut poll = WantedPoll::new(wanted);
        match prompt {
            None => self.kind.encode(text, 0, &mut found, &mut poll)?,
            Some(prompt) => {
                let whole = [prompt, text].concat();
                self.kind.encode(&whole, prompt.len(), &mut found, &mut poll)?;
            }
        }
        let FoundIds { mut ids, count, prompt_tokens, .. } = found;
        let [first, last] = self.around;
        ids.insert(0, first);
        ids.push(last);
        let prompt_tokens = prompt_tokens.min(ids.len() - 2);
        Ok(Tokenized { ids: TokenIds::new(&ids), prompt_tokens, full_count: count + 2 })
    }

    /// Takes ids as they are; special tokens are added when absent.
    pub(crate) fn wrap(&self, ids: &[u32]) -> Tokenized {
        let [first, last] = self.around;
        let mut wrapped = Vec::with_capacity(ids.len() + 2);
        if ids.first() != Some(&first) {
            wrapped.push(first);
        }
        wrapped.extend_from_slice(ids);
        if wrapped.len() < 2 || wrapped.last() != Some(&last) {
            wrapped.push(last);
        }
        let full_count = wrapped.len();
        if full_count > self.limit {
            wrapped.truncate(self.limit - 1);
            wrapped.push(last);
        }
        Tokenized { ids: TokenIds::new(&wrapped), prompt_tokens: 0, full_count }
    }

    /// Whose normalization the ids follow.
    pub fn normalization(&self) -> Normalization {
        match &self.kind {
            TokenizerKind::XlmR(own) => own.normalization(),
            TokenizerKind::Library(_) => Normalization::Huggingface,
        }
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
            _ => Ok(Self::Library(Box::new(LibraryTokenizer::read(bytes, special)?))),
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
}

impl fmt::Debug for TextTokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TextTokenizer").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tiny() -> (PathBuf, Manifest) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
        let package = ModelPackage::open(&directory).expect("the fixture is whole");
        (package.tokenizer_path(), package.manifest().clone())
    }

    fn with(change: impl FnOnce(&mut Manifest)) -> Result<TextTokenizer, TokenizeError> {
        let (path, mut manifest) = tiny();
        change(&mut manifest);
        TextTokenizer::read(&path, &manifest, SpecialTokenText::Special, None)
    }

    #[test]
    fn empty_and_blank_texts_are_two_special_tokens() {
        let tokenizer = with(|_| {}).expect("it fits");
        for text in ["", " ", "\t\n  "] {
            let seen = tokenizer.tokenize(text, None, &|| true).expect("legal");
            assert_eq!(*seen.ids, [0, 2], "{text:?}");
            assert!(!seen.is_truncated());
        }
    }

    #[test]
    fn a_prompt_is_counted_apart_from_the_text() {
        let tokenizer = with(|manifest| manifest.prompts.query = Some("query: ".to_owned()));
        let tokenizer = tokenizer.expect("it fits");
        let plain = tokenizer.tokenize("hello", None, &|| true).expect("legal");
        let whole = tokenizer.tokenize("hello", Some(PromptName::Query), &|| true).expect("legal");
        assert_eq!(whole.ids[1 + whole.prompt_tokens..], plain.ids[1..]);
        let empty = tokenizer.tokenize("", Some(PromptName::Query), &|| true).expect("legal");
        assert_eq!(empty.ids.len(), 2 + empty.prompt_tokens);
        let none = tokenizer.tokenize("hello", Some(PromptName::Passage), &|| true).expect("legal");
        assert_eq!(none, plain);
    }

    #[test]
    fn a_text_that_melts_into_the_prompt_does_not_lose_its_own_tokens() {
        let tokenizer = with(|manifest| manifest.prompts.query = Some("query: ".to_owned()));
        let tokenizer = tokenizer.expect("it fits");
        for text in ["\u{301}a", "\u{200b}", "\u{fe0f}x", "\u{20dd}"] {
            let seen = tokenizer.tokenize(text, Some(PromptName::Query), &|| true).expect("legal");
            assert!(seen.prompt_tokens + 2 <= seen.ids.len(), "{text:?}");
        }
    }

    #[test]
    fn over_long_texts_keep_their_first_tokens_and_the_closing_token() {
        let tokenizer = with(|manifest| manifest.max_input_tokens = 6).expect("it fits");
        let long = tokenizer.tokenize("a b c d e f g h", None, &|| true).expect("legal");
        assert!(long.is_truncated());
        assert_eq!(long.ids.len(), 6);
        assert_eq!((long.ids[0], long.ids[5]), (0, 2));
        let start = tokenizer.tokenize("a b", None, &|| true).expect("legal");
        assert_eq!(long.ids[..3], start.ids[..3]);
        assert!(long.full_count > 8);
    }

    #[test]
    fn special_tokens_are_added_to_ids_only_when_absent() {
        let tokenizer = with(|_| {}).expect("it fits");
        for ids in [&[5, 6][..], &[0, 5, 6], &[5, 6, 2], &[0, 5, 6, 2]] {
            assert_eq!(*tokenizer.wrap(ids).ids, [0, 5, 6, 2]);
        }
        for ids in [&[][..], &[0], &[2], &[0, 2]] {
            assert_eq!(*tokenizer.wrap(ids).ids, [0, 2], "{ids:?}");
        }
    }

    #[test]
    fn special_tokens_in_a_text_are_special_unless_they_are_escaped() {
        let (path, manifest) = tiny();
        let mask = (manifest.vocab_size - 1) as u32;
        let ids = |special, text| {
            let tokenizer = TextTokenizer::read(&path, &manifest, special, None).expect("it fits");
            tokenizer.tokenize(text, None, &|| true).expect("legal").ids.to_vec()
        };
        assert_eq!(ids(SpecialTokenText::Special, "<mask>"), [0, mask, 2]);
        assert_eq!(ids(SpecialTokenText::Special, "a<s></s>b")[2..4], [0, 2]);
        for text in ["<mask>", "a <s> b", "<unk><pad>", "a</s>"] {
            let plain = ids(SpecialTokenText::Plain, text);
            assert!(plain[1..plain.len() - 1].iter().all(|id| (4..mask).contains(id)), "{text}");
            assert_ne!(plain, ids(SpecialTokenText::Special, text));
        }
        // Their normal form is that of a special token, but they are none.
        let wide = "\u{ff1c}mask\u{ff1e}";
        for special in [SpecialTokenText::Special, SpecialTokenText::Plain] {
            assert_eq!(ids(special, wide), ids(SpecialTokenText::Plain, "<mask>"));
        }
    }

    #[test]
    fn the_setting_stands_above_the_manifest() {
        let (path, mut manifest) = tiny();
        // The library drops the second mark.
        let text = "e\u{301}\u{323}";
        let mut ids = |in_manifest, setting| {
            manifest.tokenizer.normalization = in_manifest;
            let special = SpecialTokenText::Special;
            let tokenizer = TextTokenizer::read(&path, &manifest, special, setting);
            let tokenizer = tokenizer.expect("it fits");
            assert_eq!(
                tokenizer.normalization(),
                setting.or(in_manifest).unwrap_or(Normalization::Sentencepiece)
            );
            tokenizer.tokenize(text, None, &|| true).expect("legal").ids.to_vec()
        };
        let (own, library) = (Normalization::Sentencepiece, Normalization::Huggingface);
        let (own_ids, library_ids) = (ids(None, None), ids(None, Some(library)));
        assert_ne!(own_ids, library_ids);
        assert_eq!(ids(Some(library), None), library_ids);
        assert_eq!(ids(Some(library), Some(own)), own_ids);
    }

    #[test]
    fn a_tokenizer_of_another_vocabulary_is_refused() {
        let error = with(|manifest| manifest.vocab_size += 1).expect_err("one is missing");
        assert!(matches!(error, TokenizeError::Vocabulary { .. }), "{error}");
        let error = with(|manifest| manifest.bos_token_id = 4).expect_err("another start");
        assert!(matches!(error, TokenizeError::SpecialTokens { .. }), "{error}");
    }

    #[test]
    fn a_file_that_does_not_put_two_special_tokens_around_a_text_is_refused() {
        let (path, manifest) = tiny();
        let bytes = fs::read(&path).expect("the fixture is whole");
        let original: serde_json::Value = serde_json::from_slice(&bytes).expect("it is JSON");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let changes: [(&str, serde_json::Value); 4] = [
            ("/post_processor", json!(null)),
            ("/post_processor/special_tokens", json!({})),
            ("/post_processor/single", json!([{"Sequence": {"id": "A", "type_id": 0}}])),
            ("/post_processor/special_tokens/<s>/ids", json!([4])),
        ];
        for (place, value) in changes {
            let mut changed = original.clone();
            *changed.pointer_mut(place).expect("it is there") = value;
            let path = folder.path().join("tokenizer.json");
            fs::write(&path, changed.to_string()).expect("it can be written");
            let error = TextTokenizer::read(&path, &manifest, SpecialTokenText::Special, None);
            let error = error.expect_err(place);
            assert!(matches!(error, TokenizeError::SpecialTokens { .. }), "{place}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_refused() {
        let (_, manifest) = tiny();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = TextTokenizer::read(&path, &manifest, SpecialTokenText::Special, None)
            .expect_err("it is TOML");
        assert!(error.to_string().contains("Cargo.toml"), "{error}");
    }
}
