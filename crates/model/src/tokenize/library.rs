//! Tokenizers that are not XLM-R's, such as BERT's: the crate `tokenizers` as it is.

use tokenizers::Tokenizer;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

use super::decode::SpecialPieces;
use super::file::AddedEntry;
use super::found::{FoundIds, WantedPoll};
use super::span::Span;
use super::{TokenizeError, guarded};
use settings::SpecialTokenText;

/// Bytes of a text that BERT's tokenizer gets at once.
const PART_BYTES: usize = 8 * 1024;

/// A tokenizer of the crate; used by many threads at once.
pub(super) struct LibraryTokenizer {
    tokenizer: Tokenizer,
    /// Whether a text can be cut in front of any space without another token.
    splits_at_spaces: bool,
}

impl LibraryTokenizer {
    /// Reads the content of a `tokenizer.json`, whose added tokens are known.
    pub(super) fn read(
        bytes: &[u8],
        added_tokens: &[AddedEntry],
        special: SpecialTokenText,
    ) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
        let is_plain = special == SpecialTokenText::Plain;
        // The crate finds special pieces in texts again when it has not found special tokens.
        if is_plain && matches!(tokenizer.get_model(), ModelWrapper::Unigram(_)) {
            return Err("special tokens in texts cannot be plain text with it".to_owned());
        }
        tokenizer.set_encode_special_tokens(is_plain);
        for added in added_tokens {
            let (id, content) = (added.id, &added.token.content);
            if tokenizer.token_to_id(content) != Some(id) {
                return Err(format!("added token {content:?} is not the vocabulary's id {id}"));
            }
        }
        let is_bert =
            matches!(tokenizer.get_normalizer(), Some(NormalizerWrapper::BertNormalizer(_)))
                && matches!(
                    tokenizer.get_pre_tokenizer(),
                    Some(PreTokenizerWrapper::BertPreTokenizer(_))
                );
        let is_exact = |added: &AddedEntry| {
            let token = &added.token;
            !token.lstrip && !token.rstrip && !token.content.contains(char::is_whitespace)
        };
        let splits_at_spaces = is_bert && added_tokens.iter().all(is_exact);
        Ok(Self { tokenizer, splits_at_spaces })
    }

    pub(super) fn vocabulary_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    pub(super) fn piece(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// The text that ids stand for.
    ///
    /// # Errors
    /// What the crate says.
    pub(super) fn text(&self, ids: &[u32], special: SpecialPieces) -> Result<String, String> {
        let text = self.tokenizer.decode(ids, special == SpecialPieces::LeaveOut);
        text.map_err(|error| error.to_string())
    }

    /// Appends the ids of a text, of which the first bytes are a prompt.
    ///
    /// # Errors
    /// `Unwanted`, as soon as nobody waits, which is found out at spaces only; `Text` when the
    /// crate fails.
    pub(super) fn encode(
        &self,
        text: &str,
        prompt_bytes: usize,
        found: &mut FoundIds,
        poll: &mut WantedPoll<'_>,
    ) -> Result<(), TokenizeError> {
        let mut start = 0;
        while start < text.len() {
            let part = self.part(&text[start..]);
            let prompt_bytes = prompt_bytes.saturating_sub(start);
            guarded(|| self.encode_part(part, prompt_bytes, found)).map_err(TokenizeError::Text)?;
            start += part.len();
            poll.held_bytes = found.held_bytes();
            poll.spend(part.len())?;
        }
        Ok(())
    }

    /// Where the first `count` tokens of a text stand.
    ///
    /// # Errors
    /// Those of [`Self::encode`].
    pub(super) fn spans(
        &self,
        text: &str,
        count: usize,
        poll: &mut WantedPoll<'_>,
    ) -> Result<Vec<Span>, TokenizeError> {
        let mut spans = Vec::with_capacity(count);
        let (mut start, mut characters) = (0, 0);
        while start < text.len() && spans.len() < count {
            let part = self.part(&text[start..]);
            let encode = || self.tokenizer.encode_char_offsets(part, false);
            let encoding = guarded(|| encode().map_err(|error| error.to_string()));
            let encoding = encoding.map_err(TokenizeError::Text)?;
            let within = encoding.get_offsets().iter();
            let span =
                |&(from, to): &(usize, usize)| Span::from(characters + from..characters + to);
            spans.extend(within.map(span));
            start += part.len();
            characters += part.chars().count();
            poll.spend(part.len())?;
        }
        spans.truncate(count);
        Ok(spans)
    }

    /// What is tokenized at once: up to the first space behind some thousand bytes.
    fn part<'a>(&self, text: &'a str) -> &'a str {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\t');
        let behind = text.as_bytes().iter().skip(PART_BYTES).position(is_space);
        match behind {
            Some(at) if self.splits_at_spaces => &text[..PART_BYTES + at],
            _ => text,
        }
    }

    fn encode_part(
        &self,
        text: &str,
        prompt_bytes: usize,
        found: &mut FoundIds,
    ) -> Result<(), String> {
        let failed = |error: tokenizers::Error| error.to_string();
        if prompt_bytes == 0 {
            let ids = self.tokenizer.encode_fast(text, false).map_err(failed)?;
            found.expect_prompt(0);
            ids.get_ids().iter().for_each(|id| found.push(*id, false, || 1));
            return Ok(());
        }
        let encoding = self.tokenizer.encode(text, false).map_err(failed)?;
        for (id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            found.expect_prompt(usize::from(start < end && end <= prompt_bytes));
            found.push(*id, false, || 1);
        }
        Ok(())
    }
}
