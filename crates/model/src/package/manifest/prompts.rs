//! What the model was trained with in front of texts.

#![allow(missing_docs, reason = "the fields are those of the file")]

use serde::Deserialize;

/// Texts that are put in front of an input.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompts {
    pub query: Option<String>,
    pub passage: Option<String>,
}

impl Prompts {
    /// What is put in front; `None` when the model has no such prompt.
    pub fn text(&self, name: PromptName) -> Option<&str> {
        match name {
            PromptName::Query => self.query.as_deref(),
            PromptName::Passage => self.passage.as_deref(),
        }
    }

    /// Whether the model has no prompt at all.
    pub fn are_none(&self) -> bool {
        PromptName::ALL.into_iter().all(|name| self.text(name).is_none())
    }
}

settings::named! {
    /// A prompt's name in the manifest, which is also the word of the setting and of answers.
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum PromptName {
        Query = "query",
        Passage = "passage",
    }
}
