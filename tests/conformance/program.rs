//! Answers questions of `tests/conformance` with the server's own tokenizer, a JSON line each.
//!
//! `{"tokenize": text, "escape": bool, "prompt": null | "query" | "passage"}` → `{"ids": […],
//! "prompt_tokens": n}`. The first argument is the package, the second one a normalization:
//! `sentencepiece` or `huggingface`.

use std::io::{self, BufRead, Write};
use std::path::Path;

use anyhow::Context;
use model::package::ModelPackage;
use model::package::manifest::PromptName;
use model::tokenize::TextTokenizer;
use serde::Deserialize;
use serde_json::{Value, json};
use settings::{Normalization, SpecialTokenText};

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Prompt {
    Query,
    Passage,
}

#[derive(Deserialize)]
struct Question {
    tokenize: String,
    escape: bool,
    prompt: Option<Prompt>,
}

struct Answers {
    special: TextTokenizer,
    plain: TextTokenizer,
}

impl Answers {
    fn answer(&self, question: &Question) -> anyhow::Result<Value> {
        let tokenizer = if question.escape { &self.plain } else { &self.special };
        let prompt = question.prompt.as_ref().map(|prompt| match prompt {
            Prompt::Query => PromptName::Query,
            Prompt::Passage => PromptName::Passage,
        });
        let tokens = tokenizer.tokenize(&question.tokenize, prompt, &|| true)?;
        Ok(json!({"ids": *tokens.ids, "prompt_tokens": tokens.prompt_tokens}))
    }
}

fn main() -> anyhow::Result<()> {
    let directory = std::env::args_os().nth(1).context("name a package")?;
    let normalization = match std::env::args().nth(2).as_deref() {
        Some("huggingface") => Some(Normalization::Huggingface),
        Some("sentencepiece") => Some(Normalization::Sentencepiece),
        _ => None,
    };
    let package = ModelPackage::open(Path::new(&directory))?;
    let answers = Answers {
        special: TextTokenizer::open(&package, SpecialTokenText::Special, normalization)?,
        plain: TextTokenizer::open(&package, SpecialTokenText::Plain, normalization)?,
    };
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let question: Question = serde_json::from_str(&line?).context("a line is no question")?;
        writeln!(out, "{}", answers.answer(&question)?)?;
    }
    Ok(())
}
