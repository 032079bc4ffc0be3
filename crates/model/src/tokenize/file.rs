//! Reads `tokenizer.json`: which kind of tokenizer it is, and how that kind reads texts.

use serde::Deserialize;
use serde_json::value::RawValue;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, Encoding, PostProcessor, Token};

use super::charsmap::Charsmap;
use super::normalizer::Gaps;
use super::{META, guarded};
use settings::Normalization;

/// Stand for the texts between special tokens; no vocabulary has so many tokens.
const MARKS: [u32; 2] = [u32::MAX - 1, u32::MAX];

/// The parts that are read here. Truncation and padding are ours, the decoder is not used.
#[derive(Deserialize)]
pub(super) struct TokenizerFile {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedEntry>,
    normalizer: Option<Box<RawValue>>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    pub(super) model: Box<RawValue>,
}

#[derive(Deserialize)]
pub(super) struct AddedEntry {
    pub(super) id: u32,
    #[serde(flatten)]
    pub(super) token: AddedToken,
}

/// How a tokenizer of XLM-R's kind makes words of a text.
pub(super) struct WordRules {
    pub(super) map: Charsmap,
    /// A character that becomes a space before the map sees it.
    pub(super) space: Option<char>,
    /// As the crate `tokenizers` parts words; none when the file's way is not known here.
    pub(super) library_gaps: Option<Gaps>,
}

impl WordRules {
    /// Whether ids in that normalization need nothing but what is said here.
    pub(super) fn can_be_read(&self, normalization: Normalization) -> bool {
        normalization == Normalization::Sentencepiece || self.library_gaps.is_some()
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum NormalizerStep {
    Sequence {
        normalizers: Vec<NormalizerStep>,
    },
    Precompiled {
        precompiled_charsmap: String,
    },
    Replace {
        pattern: Pattern,
        content: String,
    },
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
enum Pattern {
    String(String),
    Regex(String),
}

/// What the steps behind the map do with spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spaces {
    Stay,
    /// Several become one.
    Join,
    /// Those at the end are taken away, several become a `▁`.
    StripAndJoin,
}

impl TokenizerFile {
    /// The kind of the model: Unigram, WordPiece …
    fn model_kind(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct ModelType {
            r#type: Option<String>,
        }
        serde_json::from_str::<ModelType>(self.model.get()).ok()?.r#type
    }

    /// None when the tokenizer is not of XLM-R's kind.
    ///
    /// # Errors
    /// When its character map cannot be read.
    pub(super) fn words(&self) -> Result<Option<WordRules>, String> {
        let (Some(normalizer), Some(pre_tokenizer)) = (&self.normalizer, &self.pre_tokenizer)
        else {
            return Ok(None);
        };
        let is_exact = |token: &AddedToken| {
            !token.content.is_empty() && !token.normalized && !token.single_word
        };
        if self.model_kind().as_deref() != Some("Unigram")
            || !self.added_tokens.iter().all(|added| is_exact(&added.token))
        {
            return Ok(None);
        }
        let Ok(step) = serde_json::from_str(normalizer.get()) else { return Ok(None) };
        let steps = match step {
            NormalizerStep::Sequence { normalizers } => normalizers,
            single => vec![single],
        };
        let (space, steps) = match steps.as_slice() {
            [NormalizerStep::Replace { pattern: Pattern::String(text), content }, rest @ ..] => {
                let mut characters = text.chars();
                let (Some(character), None) = (characters.next(), characters.next()) else {
                    return Ok(None);
                };
                if content != " " {
                    return Ok(None);
                }
                (Some(character), rest)
            }
            all => (None, all),
        };
        let [NormalizerStep::Precompiled { precompiled_charsmap }, behind @ ..] = steps else {
            return Ok(None);
        };
        let (Some(spaces), Some(at_white_space)) = (spaces(behind), splits(pre_tokenizer)) else {
            return Ok(None);
        };
        let library_gaps = match (at_white_space, spaces) {
            (true, Spaces::Stay | Spaces::Join) => Some(Gaps::WhiteSpace),
            (false, Spaces::Join) => Some(Gaps::SpacesAndEnd),
            (false, Spaces::StripAndJoin) => Some(Gaps::SpacesStripped),
            (true, Spaces::StripAndJoin) | (false, Spaces::Stay) => None,
        };
        let map = Charsmap::from_base64(precompiled_charsmap)?;
        Ok(Some(WordRules { map, space, library_gaps }))
    }

    /// The special tokens in front of and behind every text, of which one may be absent; none when
    /// there are not just these.
    pub(super) fn around(&self) -> Option<[Option<u32>; 2]> {
        match self.put_around(&MARKS[..1])?.as_slice() {
            [before, behind] if before.len() < 2 && behind.len() < 2 => {
                Some([before, behind].map(|ids| ids.first().copied()))
            }
            _ => None,
        }
    }

    /// The special tokens between the texts of a pair, around which there are the same ones as
    /// around a single text; none when there are others.
    pub(super) fn joint(&self) -> Option<Vec<u32>> {
        let [first, last] = self.around()?;
        match self.put_around(&MARKS)?.as_slice() {
            [before, between, behind] if before.iter().eq(&first) && behind.iter().eq(&last) => {
                Some(between.clone())
            }
            _ => None,
        }
    }

    /// The special tokens in front of, between and behind one or two texts, for which marks stand;
    /// none when the texts are not there once each in their order, or the crate fails.
    fn put_around(&self, marks: &[u32]) -> Option<Vec<Vec<u32>>> {
        let processor = self.post_processor.as_ref()?;
        let text =
            |&mark: &u32| Encoding::from_tokens(vec![Token::new(mark, String::new(), (0, 0))], 0);
        let put = || {
            let put = processor.process(text(&marks[0]), marks.get(1).map(text), true);
            put.map_err(|error| error.to_string())
        };
        let put = guarded(put).ok()?;
        let is_mark = |id: &u32| MARKS.contains(id);
        let found = put.get_ids().iter().filter(|id| is_mark(id));
        found.eq(marks).then(|| put.get_ids().split(is_mark).map(<[u32]>::to_vec).collect())
    }
}

/// None when they do more than that.
fn spaces(steps: &[NormalizerStep]) -> Option<Spaces> {
    let joins = |pattern: &Pattern| matches!(pattern, Pattern::Regex(regex) if regex == " {2,}");
    match steps {
        [] => Some(Spaces::Stay),
        [NormalizerStep::Replace { pattern, content }] if joins(pattern) && content == " " => {
            Some(Spaces::Join)
        }
        [
            NormalizerStep::Strip { strip_left: false, strip_right: true },
            NormalizerStep::Replace { pattern, content },
        ] if joins(pattern) && content.chars().eq([META]) => Some(Spaces::StripAndJoin),
        _ => None,
    }
}

/// Whether XLM-R's pre-tokenizer, which puts a `▁` in front of each word, splits at white space of
/// any kind before. None when it is another one.
fn splits(pre_tokenizer: &PreTokenizerWrapper) -> Option<bool> {
    let metaspace = |part: &PreTokenizerWrapper| {
        let xlm_r = Metaspace::new(META, PrependScheme::Always, true);
        matches!(part, PreTokenizerWrapper::Metaspace(metaspace) if *metaspace == xlm_r)
    };
    match pre_tokenizer {
        PreTokenizerWrapper::Sequence(parts) => match parts.as_ref() {
            [PreTokenizerWrapper::WhitespaceSplit(_), last] if metaspace(last) => Some(true),
            [single] if metaspace(single) => Some(false),
            _ => None,
        },
        single => metaspace(single).then_some(false),
    }
}
