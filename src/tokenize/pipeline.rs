//! The `tokenizers` crate's pipeline, in which sentencepiece models follow sentencepiece.
//!
//! XLM-R's vocabulary was made with sentencepiece, and the crate differs from it in what it makes
//! of unusual texts. Three parts are replaced: the character map (see `charsmap`), the model (see
//! `unigram`), and the separation of words: only by what the map made a space.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{
    AddedToken, DecoderWrapper, Model, NormalizedString, Normalizer, NormalizerWrapper,
    PostProcessorWrapper, PreTokenizedString, PreTokenizer, Result, Token, TokenizerImpl,
};

use super::META;
use super::charsmap::{Changes, Charsmap};
use super::unigram::Unigram;

const META_TEXT: &str = "▁";

/// Normalizer, pre-tokenizer, model and post-processor of a package.
pub(super) type Pipeline =
    TokenizerImpl<Pieces, Steps, Words, PostProcessorWrapper, DecoderWrapper>;

/// `tokenizer.json`. Truncation and padding are ours, the decoder is not used.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    model: Box<RawValue>,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// Reads the content of a `tokenizer.json`.
pub(super) fn read(bytes: &[u8]) -> Result<Pipeline> {
    let file: File = serde_json::from_slice(bytes)?;
    let special = file.added_tokens.iter().filter(|added| added.token.special);
    let special: Vec<u32> = special.map(|added| added.id).collect();
    let mut pipeline = Pipeline::new(Pieces::read(file.model.get(), &special)?);
    let steps = file.normalizer.as_ref().map(Steps::read).transpose()?;
    if let Some(pre_tokenizer) = file.pre_tokenizer {
        let by_sentencepiece = steps.as_ref().is_some_and(Steps::have_charsmap);
        pipeline.with_pre_tokenizer(Some(match by_sentencepiece && splits_words(&pre_tokenizer) {
            true => Words::Sentencepiece,
            false => Words::Other(pre_tokenizer),
        }));
    }
    pipeline.with_normalizer(steps)?;
    pipeline.with_post_processor(file.post_processor);
    for Added { id, token } in file.added_tokens {
        let content = token.content.clone();
        pipeline.add_tokens([token])?;
        if pipeline.token_to_id(&content) != Some(id) {
            return Err(format!("added token {content:?} is not the vocabulary's id {id}").into());
        }
    }
    Ok(pipeline)
}

/// Whether a pre-tokenizer is XLM-R's: words with a `▁` in front of each.
fn splits_words(pre_tokenizer: &PreTokenizerWrapper) -> bool {
    let metaspace = |part: &PreTokenizerWrapper| {
        let xlm_r = Metaspace::new(META, PrependScheme::Always, true);
        matches!(part, PreTokenizerWrapper::Metaspace(metaspace) if *metaspace == xlm_r)
    };
    match pre_tokenizer {
        PreTokenizerWrapper::Sequence(parts) => match parts.as_ref() {
            [PreTokenizerWrapper::WhitespaceSplit(_), last] => metaspace(last),
            _ => false,
        },
        single => metaspace(single),
    }
}

/// A normalizer in its steps.
#[derive(Debug)]
pub(super) struct Steps(Vec<Step>);

#[derive(Debug)]
enum Step {
    Charsmap(Charsmap),
    Other(NormalizerWrapper),
}

impl Steps {
    fn read(value: &Value) -> Result<Self> {
        let parts = match value["normalizers"].as_array() {
            Some(parts) if value["type"] == "Sequence" => parts.as_slice(),
            _ => std::slice::from_ref(value),
        };
        let step = |part: &Value| match part["precompiled_charsmap"].as_str() {
            Some(text) if part["type"] == "Precompiled" => {
                Ok(Step::Charsmap(Charsmap::from_base64(text)?))
            }
            _ => Ok(Step::Other(NormalizerWrapper::deserialize(part)?)),
        };
        parts.iter().map(step).collect::<Result<_>>().map(Self)
    }

    fn have_charsmap(&self) -> bool {
        self.0.iter().any(|step| matches!(step, Step::Charsmap(_)))
    }
}

impl Normalizer for Steps {
    fn normalize(&self, normalized: &mut NormalizedString) -> Result<()> {
        self.0.iter().try_for_each(|step| match step {
            Step::Charsmap(charsmap) => charsmap.normalize(normalized),
            Step::Other(other) => other.normalize(normalized),
        })
    }
}

/// What the model sees at once.
#[derive(Debug)]
pub(super) enum Words {
    /// A text with a `▁` in place of each run of spaces and in front.
    Sentencepiece,
    Other(PreTokenizerWrapper),
}

impl PreTokenizer for Words {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        match self {
            Self::Sentencepiece => text.split(|_, mut part| {
                join_words(&mut part);
                Ok([part])
            }),
            Self::Other(other) => other.pre_tokenize(text),
        }
    }
}

/// `"  two  words "` → `"▁two▁words"`; nothing of a text of spaces.
fn join_words(text: &mut NormalizedString) {
    let mut changes = Changes::default();
    let spaced = text.get().to_owned();
    let mut rest = spaced.as_str();
    while let Some(spaces) = rest.find(|character| character != ' ') {
        let word = &rest[spaces..];
        let word = &word[..word.find(' ').unwrap_or(word.len())];
        changes.replace(spaces, if changes.is_empty() { "" } else { META_TEXT });
        word.chars().for_each(|character| changes.keep(character));
        rest = &rest[spaces + word.len()..];
    }
    changes.replace(rest.len(), "");
    changes.apply(text);
    if !text.is_empty() {
        text.prepend(META_TEXT);
    }
}

/// The vocabulary.
#[derive(Debug)]
pub(super) enum Pieces {
    Sentencepiece(Unigram),
    Other(ModelWrapper),
}

impl Pieces {
    /// `special` are the ids that no text becomes.
    fn read(json: &str, special: &[u32]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            r#type: Option<&'a str>,
        }
        let kind: Kind<'_> = serde_json::from_str(json)?;
        Ok(match kind.r#type {
            Some("Unigram") => {
                Self::Sentencepiece(Unigram::new(serde_json::from_str(json)?, special)?)
            }
            _ => Self::Other(serde_json::from_str(json)?),
        })
    }
}

impl Model for Pieces {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        match self {
            Self::Sentencepiece(unigram) => unigram.tokenize(text),
            Self::Other(other) => other.tokenize(text),
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Sentencepiece(unigram) => unigram.token_to_id(token),
            Self::Other(other) => other.token_to_id(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            Self::Sentencepiece(unigram) => unigram.id_to_token(id),
            Self::Other(other) => other.id_to_token(id),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            Self::Sentencepiece(unigram) => unigram.get_vocab(),
            Self::Other(other) => other.get_vocab(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            Self::Sentencepiece(unigram) => unigram.get_vocab_size(),
            Self::Other(other) => other.get_vocab_size(),
        }
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        match self {
            Self::Sentencepiece(unigram) => unigram.save(folder, prefix),
            Self::Other(other) => other.save(folder, prefix),
        }
    }

    fn get_trainer(&self) -> TrainerWrapper {
        match self {
            Self::Sentencepiece(unigram) => unigram.get_trainer(),
            Self::Other(other) => other.get_trainer(),
        }
    }
}
