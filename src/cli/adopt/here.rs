//! The package's vectors under settings that are tried.

use std::collections::HashMap;

use anyhow::Context;

use crate::cli::load::Loaded;
use crate::engine::Session;
use model::package::manifest::{Manifest, PromptName};
use model::tokenize::{Keep, Offsets, TextTokenizer, TokenizeOptions};
use scheduling::batch::{Batch, Pooling, TokenIds};
use settings::{Config, Normalization, SpecialTokenText};

/// Settings that decide a text's vector.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Way {
    pub(super) prompt: Prompt,
    /// Which of the readings.
    pub(super) reading: usize,
    /// The most tokens of a text.
    pub(super) tokens: usize,
    pub(super) pooling: Pooling,
}

/// What is put in front of texts.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Prompt {
    /// Nothing, or one of the package's.
    Own(Option<PromptName>),
    /// A text that the package does not have.
    Other(String),
}

/// A way of making tokens of texts.
pub(super) struct Reading {
    pub(super) normalization: Normalization,
    pub(super) special: SpecialTokenText,
    tokenizer: TextTokenizer,
}

/// The package and its engine.
pub(super) struct Here {
    loaded: Loaded,
    session: Box<dyn Session>,
    /// That of the settings first.
    readings: Vec<Reading>,
    /// Vectors of what has run.
    seen: HashMap<TokenIds, Vec<f32>>,
}

impl Here {
    pub(super) fn new(loaded: Loaded, config: &Config) -> anyhow::Result<Self> {
        let open = |special, normalization| {
            let tokenizer = TextTokenizer::open(&loaded.package, special, normalization)?;
            let normalization = tokenizer.normalization();
            anyhow::Ok(Reading { normalization, special, tokenizer })
        };
        let mut readings = vec![open(config.special_token_text, config.normalization)?];
        for special in
            [config.special_token_text, SpecialTokenText::Special, SpecialTokenText::Plain]
        {
            for normalization in [Normalization::Sentencepiece, Normalization::Huggingface] {
                // Not every tokenizer can be read in every way.
                let Ok(reading) = open(special, Some(normalization)) else { continue };
                let is_same = |known: &Reading| {
                    (known.special, known.normalization) == (special, reading.normalization)
                };
                if !readings.iter().any(is_same) {
                    readings.push(reading);
                }
            }
        }
        let session = loaded.chosen.engine.open_session(loaded.chosen.shapes.prepared())?;
        Ok(Self { loaded, session, readings, seen: HashMap::new() })
    }

    pub(super) fn manifest(&self) -> &Manifest {
        self.loaded.package.manifest()
    }

    /// The package and the engine, in a line.
    pub(super) fn name(&self) -> String {
        let info = self.loaded.chosen.engine.info();
        let place = self.loaded.package.directory().display();
        format!("{place} ({}), {} {}", self.manifest().model_id, info.kind, info.precision)
    }

    pub(super) fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// What `duovec serve` does with the settings that were given.
    pub(super) fn own_way(&self) -> Way {
        let manifest = self.manifest();
        Way {
            prompt: Prompt::Own(manifest.default_prompt),
            reading: 0,
            tokens: manifest.max_input_tokens,
            pooling: manifest.pooling,
        }
    }

    pub(super) fn prompts(&self) -> impl Iterator<Item = &str> {
        PromptName::ALL.iter().filter_map(|&name| self.manifest().prompts.text(name))
    }

    /// Tokens of a text before it is cut, special ones and the prompt's included.
    pub(super) fn count(&self, text: &str, way: &Way) -> usize {
        let whole = Way { tokens: usize::MAX, ..way.clone() };
        self.ids(text, &whole).map_or(0, |ids| ids.len())
    }

    /// The dense vector, of length one.
    pub(super) fn vector(&mut self, text: &str, way: &Way) -> anyhow::Result<Vec<f32>> {
        let ids = TokenIds::new(&self.ids(text, way)?);
        let ids = match way.pooling == self.manifest().pooling {
            true => ids,
            // A part of a text is the mean of its tokens, so one part can stand for any pooling.
            false => {
                let tokens = way.pooling.tokens(ids.len());
                ids.with_parts(&[tokens])
            }
        };
        if let Some(seen) = self.seen.get(&ids) {
            return Ok(seen.clone());
        }
        let batch = Batch::new(self.loaded.chosen.shapes.row(ids.room()), vec![ids.clone()])?;
        let output = self.session.run(&batch)?;
        let dense = output.dense_of(batch.places()[0]);
        self.seen.insert(ids, dense.clone());
        Ok(dense)
    }

    fn ids(&self, text: &str, way: &Way) -> anyhow::Result<Vec<u32>> {
        let (text, prompt) = match &way.prompt {
            Prompt::Own(prompt) => (text.to_owned(), *prompt),
            Prompt::Other(prompt) => (format!("{prompt}{text}"), None),
        };
        let options = TokenizeOptions { prompt, keep: Keep::All, offsets: Offsets::Skip };
        let tokenizer = &self.readings[way.reading].tokenizer;
        let whole = tokenizer.tokenize_with(&text, options, &|_| true);
        let whole = whole.with_context(|| format!("cannot tokenize {text:?}"))?;
        let (mut ids, end) = (whole.ids.to_vec(), whole.own.end);
        if ids.len() > way.tokens {
            // What closes the text stays.
            let closing = ids.len() - end;
            ids.drain(way.tokens - closing..end);
        }
        Ok(ids)
    }
}
