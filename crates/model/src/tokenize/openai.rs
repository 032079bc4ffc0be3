//! OpenAI's tokenizers, backwards: token ids that its clients send → the text they stand for.

use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

use settings::TokenInput;

/// A tokenizer of OpenAI's models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAiEncoding {
    /// That of GPT-4 and of `text-embedding-3`.
    Cl100kBase,
    /// That of GPT-4o.
    O200kBase,
}

impl OpenAiEncoding {
    /// The one that `input` names.
    pub const fn of(input: TokenInput) -> Option<Self> {
        match input {
            TokenInput::Reject | TokenInput::Model => None,
            TokenInput::Cl100kBase => Some(Self::Cl100kBase),
            TokenInput::O200kBase => Some(Self::O200kBase),
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cl100kBase => TokenInput::Cl100kBase.name(),
            Self::O200kBase => TokenInput::O200kBase.name(),
        }
    }

    /// Reads the vocabulary, once for the process; else the first request waits for it.
    pub fn load(self) {
        let _ = self.vocabulary();
    }

    /// The text that `ids` stand for. A client that cuts a list may cut within a character; what
    /// is left of one is U+FFFD, as in OpenAI's own library.
    ///
    /// # Errors
    /// The position of the first id that it does not have.
    pub fn decode(self, ids: &[u32]) -> Result<String, usize> {
        match self.vocabulary().decode_bytes(ids) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(unknown) => {
                let at = ids.iter().position(|&id| id == unknown.token);
                Err(at.expect("the unknown id is one of those that were sent"))
            }
        }
    }

    fn vocabulary(self) -> &'static CoreBPE {
        match self {
            Self::Cl100kBase => cl100k_base_singleton(),
            Self::O200kBase => o200k_base_singleton(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_each_encoding_are_its_text() {
        for (encoding, ids) in [
            (OpenAiEncoding::Cl100kBase, [15_339_u32, 1_917]),
            (OpenAiEncoding::O200kBase, [24_912, 2_375]),
        ] {
            assert_eq!(encoding.decode(&ids), Ok("hello world".to_owned()), "{encoding:?}");
        }
    }

    #[test]
    fn texts_of_every_script_come_back_from_their_ids() {
        for encoding in [OpenAiEncoding::Cl100kBase, OpenAiEncoding::O200kBase] {
            for text in
                ["", "naïve Straße", "猫がソファで寝ている。", "القطة نائمة", "👩‍👩‍👧", "\n\t  "]
            {
                let ids = encoding.vocabulary().encode_ordinary(text);
                assert_eq!(encoding.decode(&ids).as_deref(), Ok(text), "{encoding:?}");
            }
        }
    }

    #[test]
    fn an_unknown_id_is_told_by_its_position() {
        assert_eq!(OpenAiEncoding::Cl100kBase.decode(&[15_339, 100_256, 1_917]), Err(1));
        assert_eq!(OpenAiEncoding::O200kBase.decode(&[24_912, 2_375, u32::MAX]), Err(2));
    }

    #[test]
    fn a_character_that_was_cut_is_replaced() {
        let encoding = OpenAiEncoding::Cl100kBase;
        let ids = encoding.vocabulary().encode_ordinary("ok 𓀀");
        let cut = encoding.decode(&ids[..ids.len() - 1]).expect("they are known");
        assert!(cut.starts_with("ok ") && cut.ends_with('\u{fffd}'), "{cut:?}");
    }
}
