//! Broken `tokenizer.json` files are refused or work; any text has the ids of the crate's own code.

use std::fs;
use std::path::Path;

use fastrand::Rng;
use model::package::{ModelPackage, digest};
use model::tokenize::{Keep, Offsets, TextTokenizer, TokenizeOptions};
use serde_json::{Value, json};
use settings::{Normalization, SpecialTokenText};
use tokenizers::Tokenizer;

use testing::{damage, pick, run_for, tiny};

/// What is hard: spaces of all kinds, marks, letters of Hangul, special tokens, unknown characters.
#[rustfmt::skip]
const PARTS: [&str; 40] = [
    " ", "  ", "\u{a0}", "\u{3000}", "\u{85}", "\u{2028}", "\t", "\r\n", "\0", "\u{7f}", "▁", "a",
    "the", "e\u{301}", "A\u{30a}", "e\u{323}\u{301}", "\u{301}", "\u{200d}", "\u{fe0f}", "한",
    "\u{1112}", "\u{1161}", "\u{11ab}", "ﬁ", "！", "＜", "＜unk＞", "<s>", "</s>", "<mask>", " <mask>",
    "<unk>", "<", "🇩", "🇪", "👩", "\u{10000}", "\u{94d}", "क", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

const WAYS: [Option<Normalization>; 3] =
    [None, Some(Normalization::Sentencepiece), Some(Normalization::Huggingface)];

fn text(rng: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..rng.usize(..12) {
        match rng.u8(..8) {
            0 => text.push(rng.char(..)),
            1 => text.push(rng.char('\0'..'\u{3100}')),
            2 => text.push_str(&pick(rng, &PARTS).repeat(rng.usize(..40))),
            _ => text.push_str(pick(rng, &PARTS)),
        }
    }
    text
}

/// The tiny package with another `tokenizer.json`.
fn package(folder: &Path, tokenizer: &[u8]) -> ModelPackage {
    let read = |name: &str| fs::read(tiny().join(name)).expect("the fixture is whole");
    let mut manifest: Value = serde_json::from_slice(&read("manifest.json")).expect("it is JSON");
    let entry = json!({"sha256": digest::of_bytes(tokenizer), "bytes": tokenizer.len()});
    manifest["files"]["tokenizer.json"] = entry;
    manifest["max_input_tokens"] = json!(64);
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).expect("it can be written");
    };
    write("tokenizer.json", tokenizer);
    write("model.onnx", &read("model.onnx"));
    write("manifest.json", manifest.to_string().as_bytes());
    ModelPackage::open(folder).expect("the package is whole")
}

/// The three ways in which files of XLM-R's kind part words.
fn forms(tokenizer: &Value) -> [Value; 3] {
    let map = &tokenizer["normalizer"]["normalizers"][1];
    let metaspace = &tokenizer["pre_tokenizer"]["pretokenizers"][1];
    let spaces = json!({"Regex": " {2,}"});
    let replace = |content| json!({"type": "Replace", "pattern": spaces, "content": content});
    let strip = json!({"type": "Strip", "strip_left": false, "strip_right": true});
    let with = |steps: Value, pre_tokenizer: &Value| {
        let mut form = tokenizer.clone();
        form["normalizer"] = json!({"type": "Sequence", "normalizers": steps});
        form["pre_tokenizer"] = pre_tokenizer.clone();
        form
    };
    [
        tokenizer.clone(),
        with(json!([map, replace(" ")]), metaspace),
        with(json!([map, strip, replace("▁")]), metaspace),
    ]
}

fn original() -> Value {
    let bytes = fs::read(tiny().join("tokenizer.json")).expect("the fixture is whole");
    serde_json::from_slice(&bytes).expect("it is JSON")
}

#[test]
fn any_text_has_the_ids_of_the_crate() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let both = forms(&original()).map(|form| {
        let bytes = serde_json::to_vec(&form).expect("it is JSON");
        let package = package(folder.path(), &bytes);
        let way = Some(Normalization::Huggingface);
        let own = TextTokenizer::open(&package, SpecialTokenText::Special, way);
        let library = Tokenizer::from_bytes(&bytes).expect("the crate reads it");
        (own.expect("the tokenizer is read"), library)
    });
    run_for("texts", |rng| {
        let text = text(rng);
        for (form, (own, library)) in both.iter().enumerate() {
            let seen = own.tokenize(&text, None, &|_| true).expect("it is tokenized");
            let expected = library.encode_fast(text.as_str(), true).expect("it is tokenized");
            let ids = expected.get_ids();
            assert_eq!(seen.full_count, ids.len(), "form {form}: {text:?}");
            let kept = seen.ids.len() - 1;
            assert_eq!(seen.ids[..kept], ids[..kept], "form {form}: {text:?}");
        }
    });
}

#[test]
fn the_tokens_of_any_text_stand_in_it_in_their_order() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let ways = forms(&original()).into_iter().flat_map(|form| {
        let bytes = serde_json::to_vec(&form).expect("it is JSON");
        let package = package(folder.path(), &bytes);
        WAYS.map(|way| TextTokenizer::open(&package, SpecialTokenText::Special, way))
    });
    let ways: Vec<_> = ways.map(|tokenizer| tokenizer.expect("the tokenizer is read")).collect();
    run_for("offsets", |rng| {
        let text = text(rng);
        for (way, tokenizer) in ways.iter().enumerate() {
            for keep in [Keep::ModelLimit, Keep::All] {
                let options = TokenizeOptions { prompt: None, keep, offsets: Offsets::Find };
                let seen = tokenizer.tokenize_with(&text, options, &|_| true);
                let seen = seen.expect("it is tokenized");
                assert_eq!(seen.spans.len() + 2, seen.ids.len(), "way {way}: {text:?}");
                let in_order = seen.spans.is_sorted_by_key(|span| (span.start, span.end));
                assert!(in_order, "way {way}: {text:?}: {:?}", seen.spans);
                let end = seen.spans.last().map_or(0, |span| span.end);
                assert!(end <= text.chars().count(), "way {way}: {text:?}");
            }
        }
    });
}

#[test]
fn broken_tokenizer_files_are_refused_or_work() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let forms = forms(&original()).map(|form| serde_json::to_vec(&form).expect("it is JSON"));
    run_for("tokenizer.json", |rng| {
        let mut bytes = forms[rng.usize(..forms.len())].clone();
        for _ in 0..rng.usize(1..4) {
            damage(rng, &mut bytes);
        }
        let package = package(folder.path(), &bytes);
        let special = if rng.bool() { SpecialTokenText::Special } else { SpecialTokenText::Plain };
        let way = WAYS[rng.usize(..WAYS.len())];
        if let Ok(tokenizer) = TextTokenizer::open(&package, special, way) {
            let text = text(rng);
            let seen = tokenizer.tokenize(&text, None, &|_| true);
            assert!(seen.is_ok_and(|seen| seen.ids.len() <= 64), "{text:?}");
        }
    });
}
