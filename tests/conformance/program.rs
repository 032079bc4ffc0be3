//! Answers questions of `tests/conformance` with the server's own code, a JSON line each.
//!
//! `{"tokenize": text, "escape": bool, "prompt": null | "query" | "passage"}` → `{"ids": […],
//! "prompt_tokens": n}`; `{"select": {"ids", "weights", "dropped", "top_k", "min_weight"}}`, where
//! weights are the bits of f32 → `{"indices": […], "values": [bits…]}`. The first argument is the
//! package, the second one a normalization: `sentencepiece` or `huggingface`.

use std::io::{self, BufRead, Write};
use std::path::Path;

use anyhow::Context;
use model::package::ModelPackage;
use model::package::manifest::PromptName;
use model::tokenize::TextTokenizer;
use serde::Deserialize;
use serde_json::{Value, json};
use settings::{Normalization, SpecialTokenText};
use vectors::sparse::{self, Selection};

#[derive(Deserialize)]
struct Select {
    ids: Vec<u32>,
    weights: Vec<u32>,
    dropped: Vec<u32>,
    top_k: Option<usize>,
    min_weight: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Question {
    Tokenize { tokenize: String, escape: bool, prompt: Option<PromptName> },
    Select { select: Select },
}

struct Answers {
    special: TextTokenizer,
    plain: TextTokenizer,
}

impl Answers {
    fn answer(&self, question: Question) -> anyhow::Result<Value> {
        match question {
            Question::Tokenize { tokenize, escape, prompt } => {
                let tokenizer = if escape { &self.plain } else { &self.special };
                let tokens = tokenizer.tokenize(&tokenize, prompt, &|_| true)?;
                Ok(json!({"ids": *tokens.ids, "prompt_tokens": tokens.prompt_tokens}))
            }
            Question::Select { select } => Ok(selected(&select)),
        }
    }
}

fn selected(select: &Select) -> Value {
    let weights: Vec<f32> = select.weights.iter().map(|bits| f32::from_bits(*bits)).collect();
    let min_weight = select.min_weight.map(f32::from_bits);
    let selection = Selection { top_k: select.top_k, min_weight };
    let vector = sparse::select(&select.ids, &weights, &select.dropped, selection);
    let values: Vec<u32> = vector.values.iter().map(|value| value.to_bits()).collect();
    json!({"indices": vector.indices, "values": values})
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
        let question = serde_json::from_str(&line?).context("a line is no question")?;
        writeln!(out, "{}", answers.answer(question)?)?;
    }
    Ok(())
}
