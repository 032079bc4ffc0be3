//! A package of a thousand words: the tokens of a text are its words and two special ones.

use std::fs;

use duovec::engine::fake::{expected_dense, expected_token_vectors, expected_words};
use model::package::{ModelPackage, digest};
use scheduling::batch::TokenIds;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use testing::joined;

use crate::engine::weights_of;

pub(crate) const MODEL: &str = "org/stub-model";
pub(crate) const ALIAS: &str = "text-embedding-ada-002";
pub(crate) const HIDDEN: usize = 8;
pub(crate) const CUT: usize = 4;
pub(crate) const VOCAB: usize = 1000;
/// Floats of a token's vector.
pub(crate) const TOKEN_SIZE: usize = 3;
pub(crate) const MAX_TOKENS: usize = 16;

/// The token ids of the canary.
pub(crate) const CANARY: [u32; 4] = [0, 100, 101, 2];

const QUESTIONS: &str = "questions.f32";

/// The id of `<mask>`: special, but it carries weight.
pub(crate) const MASK: u32 = 999;

/// Ids of words start here; below are the special tokens and pieces that no text has.
const FIRST_WORD: usize = 100;
/// Words of the tests; all others are one unknown word.
const WORDS: [&str; 12] = [
    "one", "two", "three", "words", "here", "text", "short", "a", "query:", "passage:", "hello",
    "world",
];
/// The id of the word "two".
pub(crate) const TWO_ID: u32 = 101;

/// The ids of a text of such words, without special tokens.
pub(crate) fn ids_of(text: &str) -> Vec<u32> {
    let place = |word| WORDS.iter().position(|known| *known == word).expect("it is known");
    text.split_whitespace().map(|word| (FIRST_WORD + place(word)) as u32).collect()
}

/// The vocabulary piece of a token id below the words; it needs escaping in JSON.
pub(crate) fn piece(id: u32) -> String {
    format!("▁p\"{id}")
}

/// What a package's model gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gives {
    /// Vectors of tokens too.
    DenseAndSparse,
    /// It has a prompt for queries alone, which is its default.
    Dense,
    /// It is a cross-encoder.
    Scores,
    /// Weights of words that a text need not have, and a table for questions.
    Words,
}

/// Words of a text that have weights, at most.
pub(crate) const KEPT_WORDS: usize = 6;

/// What a token weighs in a question.
pub(crate) fn question_weight(id: u32) -> f32 {
    if id < FIRST_WORD as u32 { 0.0 } else { id as f32 / 64.0 }
}

impl Gives {
    /// Floats of a dense vector.
    pub(crate) fn hidden_size(self) -> usize {
        if self == Self::Scores { 2 } else { HIDDEN }
    }
}

/// A package in a folder that lives as long as it.
pub(crate) fn package(gives: Gives) -> (TempDir, ModelPackage) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("it is written");
        json!({name: {"sha256": digest::of_bytes(bytes), "bytes": bytes.len()}})
    };
    let tokenizer = write("tokenizer.json", tokenizer().to_string().as_bytes());
    let mut files = joined(write("model.onnx", b"not read"), &tokenizer);
    if gives == Gives::Words {
        let table = (0..VOCAB as u32).flat_map(|id| question_weight(id).to_le_bytes());
        files = joined(files, &write(QUESTIONS, &table.collect::<Vec<u8>>()));
    }
    let manifest = joined(manifest(gives), &json!({ "files": files }));
    write("manifest.json", manifest.to_string().as_bytes());
    let package = ModelPackage::open(folder.path()).expect("the package is whole");
    (folder, package)
}

fn manifest(gives: Gives) -> Value {
    let ids = TokenIds::new(&CANARY);
    let size = gives.hidden_size();
    let all = json!({
        "format_version": 2, "model_id": MODEL, "aliases": [ALIAS], "revision": "r1",
        "license": "Apache-2.0", "hidden_size": size, "vocab_size": VOCAB,
        "max_input_tokens": MAX_TOKENS, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "unk_token_id": 3, "pooling": "mean", "default_prompt": null,
        "outputs": {"dense": "float32"},
        "canary": {"text": "one two", "token_ids": *ids, "dense": expected_dense(&ids, size),
                   "sparse": [], "tolerances": {"dense_cosine_min": 0.999, "sparse_max_abs": 0.01}},
    });
    let own = match gives {
        Gives::Dense => json!({
            "matryoshka_dimensions": [CUT], "small_vectors": [ranges(HIDDEN)],
            "prompts": {"query": "query: "}, "default_prompt": "query",
        }),
        Gives::Scores => json!({"kind": "cross-encoder"}),
        Gives::Words => {
            let mut golden = expected_words(&ids, KEPT_WORDS);
            golden.retain(|(_, weight)| *weight > 0.0);
            golden.sort_by_key(|(word, _)| *word);
            json!({
                "kind": "sparse", "outputs": {"word_weights": "float32"},
                "sparse": {"dropped_token_ids": [], "words": KEPT_WORDS, "questions": QUESTIONS},
                "canary": {"sparse": golden},
            })
        }
        Gives::DenseAndSparse => {
            let weights = weights_of(&ids);
            let last = &expected_token_vectors(&ids, TOKEN_SIZE)[3 * TOKEN_SIZE..];
            json!({
                "matryoshka_dimensions": [CUT], "small_vectors": [ranges(HIDDEN), ranges(CUT)],
                "prompts": {"query": "query: ", "passage": "passage: "},
                "sparse": {"dropped_token_ids": [0, 1, 2, 3], "head": "by id"},
                "token_vector_size": TOKEN_SIZE,
                "outputs": {"token_weights": "float32", "token_vectors": "float32"},
                "canary": {"sparse": [[100, weights[1]], [101, weights[2]]],
                           "token_vectors": [[3, last]]},
            })
        }
    };
    joined(all, &own)
}

/// The largest number of a vector in bytes.
pub(crate) const REACH: f32 = 0.5;

/// What vectors of `length` numbers have in bytes and bits: means of a tenth, from above zero on.
fn ranges(length: usize) -> Value {
    let mean: Vec<f32> = (0..length).map(mean).collect();
    json!({"reach": REACH, "mean": mean})
}

/// The mean of a dimension.
pub(crate) fn mean(dimension: usize) -> f32 {
    if dimension.is_multiple_of(2) { 0.1 } else { -0.1 }
}

fn tokenizer() -> Value {
    let special = ["<s>", "<pad>", "</s>", "<unk>"];
    let word = |id: usize| match id {
        0..4 => special[id].to_owned(),
        FIRST_WORD.. if id - FIRST_WORD < WORDS.len() => WORDS[id - FIRST_WORD].to_owned(),
        // Texts of the order test.
        200..250 => (id - 200).to_string(),
        _ if id == MASK as usize => "<mask>".to_owned(),
        _ => piece(id as u32),
    };
    let vocab: Map<String, Value> = (0..VOCAB).map(|id| (word(id), json!(id))).collect();
    let specials = (0..).zip(special).chain([(MASK, "<mask>")]);
    let added = specials.map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    });
    let token = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let single = json!([token("<s>"), text("A"), token("</s>")]);
    let pair = [token("<s>"), text("A"), token("</s>"), token("</s>"), text("B"), token("</s>")];
    let ids = |name: &str, id: u32| json!({"id": name, "ids": [id], "tokens": [name]});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": {"<s>": ids("<s>", 0), "</s>": ids("</s>", 2)}},
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    })
}
