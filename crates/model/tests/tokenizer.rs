//! The real package's tokenizer against sentencepiece's own library.
//!
//! `golden/xlm-r-token-ids.json` comes from `scripts/make_test_files.py`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use model::package::ModelPackage;
use model::tokenize::TextTokenizer;
use serde::Deserialize;
use settings::SpecialTokenText;

#[derive(Deserialize)]
struct Golden {
    texts: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    rule: String,
    text: String,
    /// Without the special tokens around them.
    ids: Vec<u32>,
    /// Absent when they are the same.
    escaped_ids: Option<Vec<u32>>,
}

fn golden() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/xlm-r-token-ids.json");
    let bytes = fs::read(path).expect("the golden file is there");
    let golden: Golden = serde_json::from_slice(&bytes).expect("it is JSON");
    golden.texts
}

fn package() -> ModelPackage {
    ModelPackage::open(&testing::default_package())
        .expect("the default package is there: run scripts/test.sh")
}

/// The vocabulary's scores, to tell a tie from a difference: sentencepiece sums in f32 over the
/// whole text, so of ways that are worth the same it may take another one.
struct Scores(Vec<f64>);

impl Scores {
    fn read(package: &ModelPackage) -> Self {
        #[derive(Deserialize)]
        struct File {
            model: Model,
        }
        #[derive(Deserialize)]
        struct Model {
            vocab: Vec<(String, f64)>,
        }
        let bytes = fs::read(package.tokenizer_path()).expect("it is there");
        let file: File = serde_json::from_slice(&bytes).expect("it is a tokenizer");
        Self(file.model.vocab.into_iter().map(|(_, score)| score).collect())
    }

    fn are_equal(&self, one: &[u32], other: &[u32]) -> bool {
        let sum = |ids: &[u32]| ids.iter().map(|id| self.0[*id as usize]).sum::<f64>();
        let (one, other) = (sum(one), sum(other));
        (one - other).abs() <= 1e-6 * one.abs()
    }
}

#[test]
fn hard_texts_have_the_token_ids_of_the_reference() {
    let (package, texts) = (package(), golden());
    let limit = package.manifest().max_input_tokens;
    let (bos, eos) = (package.manifest().bos_token_id, package.manifest().eos_token_id);
    let (mut different, mut ties) = (Vec::new(), 0);
    let scores = Scores::read(&package);
    for special in [SpecialTokenText::Special, SpecialTokenText::Plain] {
        let tokenizer =
            TextTokenizer::open(&package, special, None).expect("the tokenizer is read");
        for row in &texts {
            let ids = match special {
                SpecialTokenText::Special => &row.ids,
                SpecialTokenText::Plain => row.escaped_ids.as_ref().unwrap_or(&row.ids),
            };
            let cut = ids.iter().copied().take(limit - 2);
            let expected: Vec<u32> = bos.into_iter().chain(cut).chain(eos).collect();
            let seen = tokenizer.tokenize(&row.text, None, &|_| true).expect("it is tokenized");
            if *seen.ids != expected || seen.full_count != ids.len() + 2 {
                let (text, rule) = (&row.text, &row.rule);
                let seen = &*seen.ids;
                if scores.are_equal(seen, &expected) {
                    ties += 1;
                    continue;
                }
                different.push(format!("{rule}, {special:?}: {text:?}\n{seen:?}\n{expected:?}"));
            }
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    println!("{ties} ties");
    assert!(ties <= 6, "{ties} ties");
}

#[test]
fn the_table_has_every_kind_of_hard_text() {
    let texts = golden();
    let rules: BTreeSet<&str> = texts.iter().map(|row| row.rule.as_str()).collect();
    assert!(texts.len() >= 120 && rules.len() >= 15, "{} texts, {rules:?}", texts.len());
    assert!(texts.iter().filter(|row| row.escaped_ids.is_some()).count() >= 10);
    assert!(texts.iter().any(|row| row.ids.len() > 510));
}
