//! Token ids of the served model → the text that they stand for.

use super::{META, TextTokenizer, TokenizeError, TokenizerKind, guarded};

/// What becomes of special tokens such as `</s>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialPieces {
    /// They are no part of the text.
    LeaveOut,
    /// They stand in the text as they are written.
    Keep,
}

impl TextTokenizer {
    /// The text that `ids` stand for, as the crate `tokenizers` writes it: the normal form of what
    /// was tokenized. An id that the vocabulary lacks stands for nothing.
    ///
    /// # Errors
    /// `Text` when the tokenizer itself fails.
    pub fn text(&self, ids: &[u32], special: SpecialPieces) -> Result<String, TokenizeError> {
        let own = match &self.kind {
            TokenizerKind::XlmR(own) => own,
            TokenizerKind::Library(library) => {
                return guarded(|| library.text(ids, special)).map_err(TokenizeError::Text);
            }
        };
        let is_kept = |id: &u32| special == SpecialPieces::Keep || !own.is_special(*id);
        let pieces = ids.iter().copied().filter(is_kept).filter_map(|id| self.piece(id));
        let mut text = String::new();
        for (index, piece) in pieces.enumerate() {
            // The mark of a word's start; in front of the first word there is no space.
            let space = if index == 0 { "" } else { " " };
            text.push_str(&piece.replace(META, space));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::ModelPackage;
    use settings::{Normalization, SpecialTokenText};

    #[test]
    fn texts_are_those_of_the_crate() {
        let package = ModelPackage::open(&testing::tiny()).expect("the fixture is whole");
        let path = package.tokenizer_path();
        let reference = tokenizers::Tokenizer::from_file(path).expect("the crate reads it");
        let own = TextTokenizer::open(&package, SpecialTokenText::Special, None);
        let own = own.expect("it fits");
        assert_eq!(own.normalization(), Normalization::Sentencepiece);
        for text in
            ["hello world", "", "  a  b ", "Ｔhe cat<mask> sleeps", "猫が a\u{1f408}b", "<s>"]
        {
            let ids = own.tokenize(text, None, &|_| true).expect("legal").ids;
            for (special, skip) in [(SpecialPieces::LeaveOut, true), (SpecialPieces::Keep, false)] {
                let expected = reference.decode(&ids, skip).expect("the crate decodes");
                assert_eq!(own.text(&ids, special).expect("legal"), expected, "{text}");
            }
        }
        assert_eq!(own.text(&[u32::MAX], SpecialPieces::Keep).expect("legal"), "");
    }
}
