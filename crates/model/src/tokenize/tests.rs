//! What a package's tokenizer makes of texts and of broken files.

use super::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What takes longer has no end that anybody waits for.
const PATIENCE: Duration = Duration::from_secs(20);

fn tiny() -> (PathBuf, Manifest) {
    let package = ModelPackage::open(&testing::tiny()).expect("the fixture is whole");
    (package.tokenizer_path(), package.manifest().clone())
}

/// The content of the tiny tokenizer's file.
fn tiny_file() -> Value {
    let bytes = fs::read(tiny().0).expect("the fixture is whole");
    serde_json::from_slice(&bytes).expect("it is JSON")
}

/// Reads a tokenizer from the content of a file.
fn read(
    file: &Value,
    manifest: &Manifest,
    normalization: Option<Normalization>,
) -> Result<TextTokenizer, TokenizeError> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, file.to_string()).expect("it can be written");
    TextTokenizer::read(&path, manifest, SpecialTokenText::Special, normalization)
}

fn with(change: impl FnOnce(&mut Manifest)) -> Result<TextTokenizer, TokenizeError> {
    let (path, mut manifest) = tiny();
    change(&mut manifest);
    TextTokenizer::read(&path, &manifest, SpecialTokenText::Special, None)
}

#[test]
fn empty_and_blank_texts_are_two_special_tokens() {
    let tokenizer = with(|_| {}).expect("it fits");
    for text in ["", " ", "\t\n  "] {
        let seen = tokenizer.tokenize(text, None, &|_| true).expect("legal");
        assert_eq!(*seen.ids, [0, 2], "{text:?}");
        assert!(!seen.is_truncated());
    }
}

#[test]
fn a_prompt_is_counted_apart_from_the_text() {
    let tokenizer = with(|manifest| manifest.prompts.query = Some("query: ".to_owned()));
    let tokenizer = tokenizer.expect("it fits");
    let plain = tokenizer.tokenize("hello", None, &|_| true).expect("legal");
    let whole = tokenizer.tokenize("hello", Some(PromptName::Query), &|_| true).expect("legal");
    assert_eq!(whole.ids[whole.own.start..], plain.ids[1..]);
    let empty = tokenizer.tokenize("", Some(PromptName::Query), &|_| true).expect("legal");
    assert_eq!(empty.ids.len(), 2 + empty.prompt_tokens);
    let none = tokenizer.tokenize("hello", Some(PromptName::Passage), &|_| true).expect("legal");
    assert_eq!(none, plain);
}

#[test]
fn a_text_that_begins_with_a_prompt_of_the_model_gets_no_other() {
    let tokenizer = with(|manifest| {
        manifest.prompts.query = Some("query: ".to_owned());
        manifest.prompts.passage = Some("passage: ".to_owned());
    });
    let tokenizer = tokenizer.expect("it fits");
    let (query, passage) = (Some(PromptName::Query), Some(PromptName::Passage));
    let options = |prompt| TokenizeOptions { prompt, keep: Keep::All, offsets: Offsets::Find };
    let tokens = |text: &str, prompt| {
        tokenizer.tokenize_with(text, options(prompt), &|_| true).expect("legal")
    };
    for (written, means) in [("query: ", query), ("passage: ", passage)] {
        for text in ["hello", "", " x"] {
            let by_server = tokens(text, means);
            for asked in [None, query, passage] {
                let by_client = tokens(&[written, text].concat(), asked);
                assert_eq!(by_client.ids, by_server.ids, "{written}{text} {asked:?}");
                assert_eq!(by_client.prompt_tokens, by_server.prompt_tokens);
                // Places are those of the text as sent.
                let moved = by_client.spans.iter().map(|span| span.since(written.len()));
                assert_eq!(moved.collect::<Vec<_>>(), by_server.spans);
            }
        }
    }
    for text in ["Query: a", "query:a", " query: a", "a query: a"] {
        assert!(tokens(text, passage).ids.len() > tokens(text, None).ids.len(), "{text}");
    }
}

#[test]
fn of_two_prompts_that_begin_alike_the_longer_one_is_the_texts() {
    let tokenizer = with(|manifest| {
        manifest.prompts.query = Some("a ".to_owned());
        manifest.prompts.passage = Some("a b ".to_owned());
    });
    let tokenizer = tokenizer.expect("it fits");
    let expected = tokenizer.tokenize("c", Some(PromptName::Passage), &|_| true).expect("legal");
    assert!(expected.prompt_tokens > 1);
    assert_eq!(tokenizer.tokenize("a b c", None, &|_| true).expect("legal"), expected);
}

#[test]
fn a_text_that_melts_into_the_prompt_does_not_lose_its_own_tokens() {
    let tokenizer = with(|manifest| manifest.prompts.query = Some("query: ".to_owned()));
    let tokenizer = tokenizer.expect("it fits");
    for text in ["\u{301}a", "\u{200b}", "\u{fe0f}x", "\u{20dd}"] {
        let seen = tokenizer.tokenize(text, Some(PromptName::Query), &|_| true).expect("legal");
        assert!(seen.prompt_tokens + 2 <= seen.ids.len(), "{text:?}");
    }
}

#[test]
fn special_tokens_are_added_to_ids_only_when_absent() {
    let tokenizer = with(|_| {}).expect("it fits");
    for ids in [&[5, 6][..], &[0, 5, 6], &[5, 6, 2], &[0, 5, 6, 2]] {
        assert_eq!(*tokenizer.wrap(ids, Keep::ModelLimit).ids, [0, 5, 6, 2]);
    }
    for ids in [&[][..], &[0], &[2], &[0, 2]] {
        assert_eq!(*tokenizer.wrap(ids, Keep::ModelLimit).ids, [0, 2], "{ids:?}");
    }
}

#[test]
fn special_tokens_in_a_text_are_special_unless_they_are_escaped() {
    let (path, manifest) = tiny();
    let mask = (manifest.vocab_size - 1) as u32;
    let ids = |special, text| {
        let tokenizer = TextTokenizer::read(&path, &manifest, special, None).expect("it fits");
        tokenizer.tokenize(text, None, &|_| true).expect("legal").ids.to_vec()
    };
    assert_eq!(ids(SpecialTokenText::Special, "<mask>"), [0, mask, 2]);
    assert_eq!(ids(SpecialTokenText::Special, "a<s></s>b")[2..4], [0, 2]);
    for text in ["<mask>", "a <s> b", "<unk><pad>", "a</s>"] {
        let plain = ids(SpecialTokenText::Plain, text);
        assert!(plain[1..plain.len() - 1].iter().all(|id| (4..mask).contains(id)), "{text}");
        assert_ne!(plain, ids(SpecialTokenText::Special, text));
    }
    // Their normal form is that of a special token, but they are none.
    let wide = "\u{ff1c}mask\u{ff1e}";
    for special in [SpecialTokenText::Special, SpecialTokenText::Plain] {
        assert_eq!(ids(special, wide), ids(SpecialTokenText::Plain, "<mask>"));
    }
}

#[test]
fn the_setting_stands_above_the_manifest() {
    let (path, mut manifest) = tiny();
    // The library drops the second mark.
    let text = "e\u{301}\u{323}";
    let mut ids = |in_manifest, setting| {
        manifest.tokenizer.normalization = in_manifest;
        let special = SpecialTokenText::Special;
        let tokenizer = TextTokenizer::read(&path, &manifest, special, setting);
        let tokenizer = tokenizer.expect("it fits");
        assert_eq!(
            tokenizer.normalization(),
            setting.or(in_manifest).unwrap_or(Normalization::Sentencepiece)
        );
        tokenizer.tokenize(text, None, &|_| true).expect("legal").ids.to_vec()
    };
    let (own, library) = (Normalization::Sentencepiece, Normalization::Huggingface);
    let (own_ids, library_ids) = (ids(None, None), ids(None, Some(library)));
    assert_ne!(own_ids, library_ids);
    assert_eq!(ids(Some(library), None), library_ids);
    assert_eq!(ids(Some(library), Some(own)), own_ids);
}

#[test]
fn a_tokenizer_of_another_vocabulary_is_refused() {
    let error = with(|manifest| manifest.vocab_size += 1).expect_err("one is missing");
    assert!(matches!(error, TokenizeError::Vocabulary { .. }), "{error}");
    let error = with(|manifest| manifest.bos_token_id = Some(4)).expect_err("another start");
    assert!(matches!(error, TokenizeError::SpecialTokens { .. }), "{error}");
}

/// The tiny tokenizer with these parts around a text, in a list behind what BPE over bytes needs.
fn with_template(single: &[&str], manifest: &mut Manifest) -> TextTokenizer {
    let mut file = tiny_file();
    let part = |&name: &&str| match name {
        "A" => json!({"Sequence": {"id": "A", "type_id": 0}}),
        special => json!({"SpecialToken": {"id": special, "type_id": 0}}),
    };
    file["post_processor"]["single"] = single.iter().map(part).collect();
    let template = file["post_processor"].take();
    let of_bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true});
    file["post_processor"] = json!({"type": "Sequence", "processors": [of_bytes, template]});
    manifest.bos_token_id = single.contains(&"<s>").then_some(0);
    manifest.eos_token_id = single.contains(&"</s>").then_some(2);
    read(&file, manifest, None).expect("it fits")
}

#[test]
fn a_tokenizer_may_have_one_special_token_on_either_side() {
    let (_, mut manifest) = tiny();
    manifest.prompts.query = Some("query: ".to_owned());
    manifest.max_input_tokens = 6;
    let both = with_template(&["<s>", "A", "</s>"], &mut manifest);
    for (single, first, last) in [(["A", "</s>"], None, Some(2)), (["<s>", "A"], Some(0), None)] {
        let one = with_template(&single, &mut manifest);
        let around = |own: &[u32]| -> Vec<u32> {
            first.into_iter().chain(own.iter().copied()).chain(last).collect()
        };
        for text in ["", "cat", "the cat in the house of the dog"] {
            for prompt in [None, Some(PromptName::Query)] {
                let options = TokenizeOptions { prompt, keep: Keep::All, offsets: Offsets::Find };
                let [expected, seen] = [&both, &one].map(|tokenizer| {
                    tokenizer.tokenize_with(text, options, &|_| true).expect("legal")
                });
                let own = &expected.ids[1..expected.ids.len() - 1];
                assert_eq!(*seen.ids, around(own), "{single:?} {text}");
                assert_eq!(seen.ids[seen.own.clone()], expected.ids[expected.own.clone()]);
                assert_eq!(seen.spans, expected.spans);
                assert_eq!(seen.full_count, own.len() + 1);
                let cut = one.tokenize(text, prompt, &|_| true).expect("legal");
                assert_eq!(*cut.ids, around(&own[..own.len().min(5)]), "{single:?} {text}");
                assert_eq!(cut.is_truncated(), own.len() > 5);
            }
        }
        for (ids, expected) in [
            (vec![], around(&[])),
            (around(&[7, 8]), around(&[7, 8])),
            (vec![7, 8], around(&[7, 8])),
            (vec![7; 9], around(&[7; 5])),
        ] {
            let wrapped = one.wrap(&ids, Keep::ModelLimit);
            assert_eq!(*wrapped.ids, expected, "{single:?} {ids:?}");
            assert_eq!(wrapped.own.len(), expected.len() - 1);
        }
    }
}

#[test]
fn a_file_that_does_not_put_special_tokens_around_a_text_is_refused() {
    let (_, manifest) = tiny();
    let changes: [(&str, Value); 4] = [
        ("/post_processor", json!(null)),
        ("/post_processor/special_tokens", json!({})),
        ("/post_processor/single", json!([{"Sequence": {"id": "A", "type_id": 0}}])),
        ("/post_processor/special_tokens/<s>/ids", json!([4])),
    ];
    for (place, value) in changes {
        let mut changed = tiny_file();
        *changed.pointer_mut(place).expect("it is there") = value;
        let error = read(&changed, &manifest, None).expect_err(place);
        assert!(matches!(error, TokenizeError::SpecialTokens { .. }), "{place}: {error}");
    }
}

/// As `save_pretrained` of transformers 4.38 and later writes an XLM-R tokenizer.
fn saved_by_transformers() -> Value {
    let mut saved = tiny_file();
    let steps = saved["normalizer"]["normalizers"].as_array().expect("it is a list");
    let map = steps.iter().find(|step| step["type"] == "Precompiled").expect("it has a map");
    saved["normalizer"] = json!({"type": "Sequence", "normalizers": [
        map,
        {"type": "Strip", "strip_left": false, "strip_right": true},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u{2581}"},
    ]});
    saved["pre_tokenizer"] = json!({
        "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true,
    });
    saved
}

#[test]
fn a_tokenizer_saved_by_transformers_has_the_same_ids() {
    let (_, manifest) = tiny();
    let saved = saved_by_transformers();
    let [original, saved] = [tiny_file(), saved].map(|file| read(&file, &manifest, None));
    let (original, saved) = (original.expect("it fits"), saved.expect("it fits"));
    for text in ["a  b", "  -h, --help", "\n  x", "x  ", " ", "a \u{3000} b"] {
        let [expected, seen] = [&original, &saved]
            .map(|tokenizer| tokenizer.tokenize(text, None, &|_| true).expect("legal").ids);
        assert_eq!(seen, expected, "{text:?}");
    }
}

#[test]
fn a_file_that_is_no_tokenizer_is_refused() {
    let (_, manifest) = tiny();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let error = TextTokenizer::read(&path, &manifest, SpecialTokenText::Special, None)
        .expect_err("it is TOML");
    assert!(error.to_string().contains("Cargo.toml"), "{error}");
}

/// The stretches of a text where its tokens stand, a `-` for one that stands between two.
fn stretches(tokenizer: &TextTokenizer, text: &str, prompt: Option<PromptName>) -> Vec<String> {
    let options = TokenizeOptions { prompt, keep: Keep::ModelLimit, offsets: Offsets::Find };
    let seen = tokenizer.tokenize_with(text, options, &|_| true).expect("legal");
    let plain = tokenizer.tokenize(text, prompt, &|_| true).expect("legal");
    assert_eq!(plain, Tokenized { spans: Vec::new(), ..seen.clone() }, "{text:?}");
    assert_eq!(seen.spans.len(), seen.own.len(), "{text:?}");
    let stretch = |span: &Span| match span.end - span.start {
        0 => "-".to_owned(),
        length => text.chars().skip(span.start).take(length).collect(),
    };
    seen.spans.iter().map(stretch).collect()
}

#[test]
fn every_character_but_gaps_is_in_the_stretch_of_a_token() {
    let tokenizer = with(|manifest| manifest.prompts.query = Some("query: ".to_owned()));
    let tokenizer = tokenizer.expect("it fits");
    for (text, expected) in [
        ("  the  cat ", "thecat"),
        ("😀 猫が the ﬁ", "😀猫がtheﬁ"),
        ("e\u{301}\u{323}x", "e\u{301}\u{323}x"),
        ("\u{1112}\u{1161}\u{11ab} a", "\u{1112}\u{1161}\u{11ab}a"),
        ("مرحبا", "مرحبا"),
        ("a <mask>b", "a<mask>b"),
        ("", ""),
        (" ", ""),
    ] {
        for prompt in [None, Some(PromptName::Query)] {
            let mut found = stretches(&tokenizer, text, prompt);
            // A character that became several has several tokens.
            found.dedup();
            assert_eq!(found.concat().replace('-', ""), expected, "{text:?} {found:?}");
        }
    }
}

/// 1 MiB of white space that is held until a word follows. The time of a walk that counts all of it
/// again and again grows with its square: it took minutes.
#[test]
fn places_behind_white_space_that_is_held_are_found_soon() {
    const HELD: usize = 500_000;
    let (_, manifest) = tiny();
    let tokenizer = read(&saved_by_transformers(), &manifest, Some(Normalization::Huggingface));
    let tokenizer = tokenizer.expect("it fits");
    let text = ["a", &"\u{85}".repeat(HELD), "b"].concat();
    let begin = Instant::now();
    let options = TokenizeOptions { prompt: None, keep: Keep::ModelLimit, offsets: Offsets::Find };
    let seen = tokenizer.tokenize_with(&text, options, &|_| begin.elapsed() < PATIENCE);
    let spans = seen.expect("it is done in seconds").spans;
    assert_eq!(spans.first().map(|span| (span.start, span.end)), Some((0, 1)));
    assert_eq!(spans.last().map(|span| (span.start, span.end)), Some((HELD + 1, HELD + 2)));
}

#[test]
fn a_cut_text_keeps_its_first_tokens_with_their_offsets_and_the_closing_token() {
    let tokenizer = with(|manifest| manifest.max_input_tokens = 6).expect("it fits");
    let text = "the the the the the the the";
    let [cut, whole] = [Keep::ModelLimit, Keep::All].map(|keep| {
        let options = TokenizeOptions { prompt: None, keep, offsets: Offsets::Find };
        tokenizer.tokenize_with(text, options, &|_| true).expect("legal")
    });
    assert_eq!((cut.ids.len(), whole.ids.len()), (6, whole.full_count));
    assert_eq!((&cut.ids[..5], cut.ids[5]), (&whole.ids[..5], 2));
    assert_eq!(cut.spans, whole.spans[..4]);
    assert_eq!(whole.spans.last().map(|span| span.end), Some(text.len()));
    assert!(cut.is_truncated() && !whole.is_truncated());
}

/// The tokenizer of a cross-encoder that takes `limit` tokens, read from the content of a file.
fn of_pairs(limit: usize, file: &Value) -> Result<TextTokenizer, TokenizeError> {
    let (_, mut manifest) = tiny();
    manifest.kind = ModelKind::CrossEncoder;
    manifest.max_input_tokens = limit;
    read(file, &manifest, Some(Normalization::Huggingface))
}

/// The content of the tiny tokenizer's file with another `post_processor`.
fn placing(processor: Value) -> Value {
    let mut file = tiny_file();
    file["post_processor"] = processor;
    file
}

#[test]
fn a_pair_is_joined_and_cut_as_the_library_does_it() {
    use tokenizers::{Tokenizer, TruncationParams, TruncationStrategy::LongestFirst};
    let bert = json!({"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]});
    let roberta = json!({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0],
                         "trim_offsets": true, "add_prefix_space": false});
    let texts =
        ["", "cat", "the cat", "the cat in the house", "где 猫 is the small cat of the dog"];
    for processor in [template("<s>A</s></s>B</s>"), bert, roberta] {
        let file = placing(processor);
        let mut library: Tokenizer = file.to_string().parse().expect("it is a tokenizer");
        for limit in [5, 6, 7, 9, 12, 17, 512] {
            let tokenizer = of_pairs(limit, &file).expect("it fits");
            for (first, second) in texts.iter().flat_map(|one| texts.map(|other| (*one, other))) {
                let mut ids = |cut: Option<TruncationParams>| {
                    library.with_truncation(cut).expect("there is room");
                    library.encode((first, second), true).expect("legal").get_ids().to_vec()
                };
                let whole = ids(None);
                let cut = TruncationParams { max_length: limit, ..TruncationParams::default() };
                let cut = ids(Some(TruncationParams { strategy: LongestFirst, ..cut }));
                let [one, other] = [first, second]
                    .map(|text| tokenizer.tokenize(text, None, &|_| true).expect("legal"));
                let seen = tokenizer.pair(&one, &other);
                let place = format!("{limit} {first:?} {second:?}");
                assert_eq!(*seen.ids, cut, "{place}");
                assert_eq!(seen.full_count, whole.len(), "{place}");
                assert_eq!(seen.is_truncated(), whole.len() > limit, "{place}");
                assert_eq!(seen.own, 1..seen.ids.len() - 1);
            }
        }
    }
}

/// What puts special tokens around a text and this pair.
fn template(pair: &str) -> Value {
    let mut template = json!({"type": "TemplateProcessing", "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]},
                           "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}});
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    template["single"] = json!([special("<s>"), text("A"), special("</s>")]);
    let spaced = pair.replace('<', " <").replace('>', "> ");
    let part = |part: &str| if part.len() == 1 { text(part) } else { special(part) };
    template["pair"] = spaced.split_whitespace().map(part).collect();
    template
}

#[test]
fn a_cross_encoder_needs_a_way_to_join_texts_and_room_for_them() {
    let xlm_r = placing(template("<s>A</s></s>B</s>"));
    of_pairs(5, &xlm_r).expect("there is room for one token");
    assert!(matches!(of_pairs(4, &xlm_r), Err(TokenizeError::Pairs { .. })));
    assert_eq!(xlm_r, tiny_file());
    for pair in
        ["", "<s>A</s>", "<s>B</s>A</s>", "<s>A</s>B", "</s>A</s>B</s>", "<s>A<no>B</s>", "A</s>B"]
    {
        let error = of_pairs(99, &placing(template(pair))).expect_err(pair).to_string();
        assert!(error.contains("how two texts become one"), "{error}");
    }
}

#[test]
fn pairs_have_the_ids_that_transformers_gave_them() {
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/families");
    let expected = fs::read(families.join("xlm-roberta-pairs/expected.json")).expect("it is there");
    let expected: Value = serde_json::from_slice(&expected).expect("it is JSON");
    let tokenizer = of_pairs(160, &placing(template("<s>A</s></s>B</s>"))).expect("it fits");
    for pair in expected["texts"].as_array().expect("a list") {
        let [query, document] = ["query", "document"].map(|name| {
            let text = pair[name].as_str().expect("a text");
            tokenizer.tokenize(text, None, &|_| true).expect("legal")
        });
        assert_eq!(json!(*tokenizer.pair(&query, &document).ids), pair["ids"], "{pair}");
    }
}
