//! Text → token ids: prompts, special tokens, truncation, counts.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::batch::TokenIds;
use crate::config::SpecialTokenText;
use crate::package::ModelPackage;
use crate::package::manifest::{Manifest, PromptName};

mod charsmap;
mod pipeline;
mod unigram;

use pipeline::Pipeline;

/// Stands for a space in sentencepiece's pieces.
const META: char = '▁';

/// Why a package's tokenizer cannot be used, or a text not be tokenized.
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
    pub fn is_truncated(&self) -> bool {
        self.full_count > self.ids.len()
    }
}

/// A prompt with the ids that it gives on its own.
#[derive(Debug, Clone)]
struct Prompt {
    text: String,
    ids: Vec<u32>,
}

/// The package's tokenizer; used by many threads at once.
#[derive(Debug)]
pub struct TextTokenizer {
    pipeline: Pipeline,
    bos: u32,
    eos: u32,
    limit: usize,
    query: Option<Prompt>,
    passage: Option<Prompt>,
}

impl TextTokenizer {
    /// Reads `tokenizer.json` and checks it against the manifest.
    pub fn open(package: &ModelPackage, special: SpecialTokenText) -> Result<Self, TokenizeError> {
        Self::read(&package.tokenizer_path(), package.manifest(), special)
    }

    fn read(
        path: &Path,
        manifest: &Manifest,
        special: SpecialTokenText,
    ) -> Result<Self, TokenizeError> {
        let unreadable =
            |reason: String| TokenizeError::Unreadable { path: path.to_owned(), reason };
        let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let mut pipeline = pipeline::read(&bytes).map_err(|error| unreadable(error.to_string()))?;
        pipeline.set_encode_special_tokens(match special {
            SpecialTokenText::Special => false,
            SpecialTokenText::Plain => true,
        });
        let found = pipeline.get_vocab_size(true);
        if found != manifest.vocab_size {
            let (path, expected) = (path.to_owned(), manifest.vocab_size);
            return Err(TokenizeError::Vocabulary { path, found, expected });
        }
        let mut this = Self {
            pipeline,
            bos: manifest.bos_token_id,
            eos: manifest.eos_token_id,
            limit: manifest.max_input_tokens,
            query: None,
            passage: None,
        };
        let empty = this.encode("")?;
        let expected = [this.bos, this.eos];
        if empty != expected {
            let path = path.to_owned();
            return Err(TokenizeError::SpecialTokens { path, found: empty, expected });
        }
        this.query = this.prompt(manifest.prompts.query.as_deref())?;
        this.passage = this.prompt(manifest.prompts.passage.as_deref())?;
        Ok(this)
    }

    /// Tokenizes a text behind a prompt. An empty or blank text is legal.
    ///
    /// # Errors
    /// `Text` when the tokenizer itself fails, which no valid UTF-8 is known to cause.
    pub fn tokenize(
        &self,
        text: &str,
        prompt: Option<PromptName>,
    ) -> Result<Tokenized, TokenizeError> {
        let prompt = prompt.and_then(|name| match name {
            PromptName::Query => self.query.as_ref(),
            PromptName::Passage => self.passage.as_ref(),
        });
        let Some(prompt) = prompt else {
            return Ok(self.limited(self.encode(text)?, 0));
        };
        let whole = format!("{}{text}", prompt.text);
        let ids = self.encode(&whole)?;
        // The prompt nearly always keeps its own tokens; a text that melts into it (a combining
        // mark at its start) needs the slower way by byte offsets.
        let prompt_tokens = if ids[1..].starts_with(&prompt.ids) {
            prompt.ids.len()
        } else {
            self.tokens_within(&whole, prompt.text.len())?
        };
        Ok(self.limited(ids, prompt_tokens))
    }

    /// Takes ids as they are; special tokens are added when absent.
    pub fn wrap(&self, ids: &[u32]) -> Tokenized {
        let mut wrapped = Vec::with_capacity(ids.len() + 2);
        if ids.first() != Some(&self.bos) {
            wrapped.push(self.bos);
        }
        wrapped.extend_from_slice(ids);
        if wrapped.len() < 2 || wrapped.last() != Some(&self.eos) {
            wrapped.push(self.eos);
        }
        self.limited(wrapped, 0)
    }

    /// The vocabulary piece of an id.
    pub fn piece(&self, id: u32) -> Option<String> {
        self.pipeline.id_to_token(id)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizeError> {
        let encoding = self.pipeline.encode_fast(text, true);
        let encoding = encoding.map_err(|error| TokenizeError::Text(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn tokens_within(&self, text: &str, bytes: usize) -> Result<usize, TokenizeError> {
        let encoding = self.pipeline.encode(text, true);
        let encoding = encoding.map_err(|error| TokenizeError::Text(error.to_string()))?;
        let offsets = encoding.get_offsets().iter().skip(1);
        Ok(offsets.take_while(|&&(start, end)| start < end && end <= bytes).count())
    }

    fn prompt(&self, text: Option<&str>) -> Result<Option<Prompt>, TokenizeError> {
        let Some(text) = text else { return Ok(None) };
        let ids = self.encode(text)?;
        let ids = ids[1..ids.len() - 1].to_vec();
        Ok(Some(Prompt { text: text.to_owned(), ids }))
    }

    /// Keeps the first tokens and the closing special token.
    fn limited(&self, mut ids: Vec<u32>, prompt_tokens: usize) -> Tokenized {
        let full_count = ids.len();
        if full_count > self.limit {
            ids.truncate(self.limit - 1);
            ids.push(self.eos);
        }
        let prompt_tokens = prompt_tokens.min(ids.len() - 2);
        Tokenized { ids: TokenIds::new(&ids), prompt_tokens, full_count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> (PathBuf, Manifest) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
        let package = ModelPackage::open(&directory).expect("the fixture is whole");
        (package.tokenizer_path(), package.manifest().clone())
    }

    fn with(change: impl FnOnce(&mut Manifest)) -> Result<TextTokenizer, TokenizeError> {
        let (path, mut manifest) = tiny();
        change(&mut manifest);
        TextTokenizer::read(&path, &manifest, SpecialTokenText::Special)
    }

    #[test]
    fn empty_and_blank_texts_are_two_special_tokens() {
        let tokenizer = with(|_| {}).expect("it fits");
        for text in ["", " ", "\t\n  "] {
            let seen = tokenizer.tokenize(text, None).expect("legal");
            assert_eq!(*seen.ids, [0, 2], "{text:?}");
            assert!(!seen.is_truncated());
        }
    }

    #[test]
    fn a_prompt_is_counted_apart_from_the_text() {
        let tokenizer = with(|manifest| manifest.prompts.query = Some("query: ".to_owned()));
        let tokenizer = tokenizer.expect("it fits");
        let plain = tokenizer.tokenize("hello", None).expect("legal");
        let whole = tokenizer.tokenize("hello", Some(PromptName::Query)).expect("legal");
        assert_eq!(whole.ids[1 + whole.prompt_tokens..], plain.ids[1..]);
        let empty = tokenizer.tokenize("", Some(PromptName::Query)).expect("legal");
        assert_eq!(empty.ids.len(), 2 + empty.prompt_tokens);
        let none = tokenizer.tokenize("hello", Some(PromptName::Passage)).expect("legal");
        assert_eq!(none, plain);
    }

    #[test]
    fn a_text_that_melts_into_the_prompt_does_not_lose_its_own_tokens() {
        let tokenizer = with(|manifest| manifest.prompts.query = Some("query: ".to_owned()));
        let tokenizer = tokenizer.expect("it fits");
        for text in ["\u{301}a", "\u{200b}", "\u{fe0f}x", "\u{20dd}"] {
            let seen = tokenizer.tokenize(text, Some(PromptName::Query)).expect("legal");
            assert!(seen.prompt_tokens + 2 <= seen.ids.len(), "{text:?}");
        }
    }

    #[test]
    fn over_long_texts_keep_their_first_tokens_and_the_closing_token() {
        let tokenizer = with(|manifest| manifest.max_input_tokens = 6).expect("it fits");
        let long = tokenizer.tokenize("a b c d e f g h", None).expect("legal");
        assert!(long.is_truncated());
        assert_eq!(long.ids.len(), 6);
        assert_eq!((long.ids[0], long.ids[5]), (0, 2));
        let start = tokenizer.tokenize("a b", None).expect("legal");
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
            let tokenizer = TextTokenizer::read(&path, &manifest, special).expect("it fits");
            tokenizer.tokenize(text, None).expect("legal").ids.to_vec()
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
    fn a_tokenizer_of_another_vocabulary_is_refused() {
        let error = with(|manifest| manifest.vocab_size += 1).expect_err("one is missing");
        assert!(matches!(error, TokenizeError::Vocabulary { .. }), "{error}");
        let error = with(|manifest| manifest.bos_token_id = 4).expect_err("another start");
        assert!(matches!(error, TokenizeError::SpecialTokens { .. }), "{error}");
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_refused() {
        let (_, manifest) = tiny();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = TextTokenizer::read(&path, &manifest, SpecialTokenText::Special)
            .expect_err("it is TOML");
        assert!(error.to_string().contains("Cargo.toml"), "{error}");
    }
}
