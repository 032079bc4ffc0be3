//! What runs for texts that are cut, with the tokenizer of the tests' package.

use std::path::Path;

use super::*;
use crate::config::SpecialTokenText;
use crate::package::ModelPackage;

/// Eight tokens for a text, so that windows are short, and one dense vector in a row of 8.
fn cutter(by: ChunkBy, late: bool, limit: usize) -> Cutter {
    let chunking = Chunking { by, late, of_inputs: false, most: 100 };
    let reading = TokenizeOptions { prompt: None, keep: Keep::ModelLimit, offsets: Offsets::Find };
    Cutter { chunking, reading, vectors: Vectors::Both, over_long: OverLong::Truncate, limit }
}

fn tokenizer() -> TextTokenizer {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
    let package = ModelPackage::open(&directory).expect("the fixture is whole");
    TextTokenizer::open(&package, SpecialTokenText::Special, None).expect("it fits")
}

fn texts(cutter: &Cutter, text: &str) -> Result<TextsToRun, EmbedError> {
    cutter.cut(&tokenizer(), (0, &Input::Text(text.into())), &|| true)
}

fn all(text: &str) -> Tokenized {
    let options = TokenizeOptions { prompt: None, keep: Keep::All, offsets: Offsets::Find };
    tokenizer().tokenize_with(text, options, &|| true).expect("legal")
}

const TEXT: &str = "the cat sees a dog and the dog sees a cat in the house";

#[test]
fn late_chunks_of_a_short_text_are_parts_of_one_run() {
    let whole = all(TEXT);
    let own = whole.ids.len() - 2;
    let cutter = cutter(ChunkBy::Tokens { size: 4, overlap: 1 }, true, 512);
    let texts = texts(&cutter, TEXT).expect("it can be cut");
    assert_eq!(texts.run.len(), 1);
    assert_eq!(*texts.run[0].ids, *whole.ids);
    let parts = texts.parts.expect("it was cut");
    let spans: Vec<_> = texts.run[0].ids.spans().collect();
    let expected: Vec<_> =
        (0..own.div_ceil(3)).map(|chunk| 1 + 3 * chunk..1 + own.min(3 * chunk + 4)).collect();
    assert_eq!(spans[..expected.len() - 1], expected[..expected.len() - 1]);
    for (vector, (part, span)) in parts.iter().zip(&spans).enumerate() {
        assert_eq!(part.within, Some((vector, span.clone())));
        let chunk = part.chunk.expect("the answer tells it");
        assert_eq!((chunk.tokens, chunk.window), (span.len(), None));
        assert_eq!(chunk.span.start, whole.spans[span.start - 1].start);
        assert_eq!(chunk.span.end, whole.spans[span.end - 2].end);
    }
}

#[test]
fn chunks_alone_are_the_texts_that_a_client_could_send() {
    let cutter = cutter(ChunkBy::Tokens { size: 5, overlap: 0 }, false, 512);
    let texts = texts(&cutter, TEXT).expect("it can be cut");
    let parts = texts.parts.expect("it was cut");
    assert_eq!(parts.len(), texts.run.len());
    let characters: Vec<char> = TEXT.chars().collect();
    for (part, text) in parts.iter().zip(&texts.run) {
        let span = part.chunk.expect("the answer tells it").span;
        let chunk: String = characters[span.start..span.end].iter().collect();
        let sent = all(&chunk);
        assert_eq!(text.ids, sent.ids);
        let starts = |text: &Tokenized, from: usize| -> Vec<usize> {
            text.spans.iter().map(|place| place.start - from).collect()
        };
        assert_eq!(starts(text, span.start), starts(&sent, 0), "places are in the whole text");
    }
}

#[test]
fn a_long_text_runs_in_windows_and_each_chunk_says_its_own() {
    let whole = all(TEXT);
    let cutter = cutter(ChunkBy::Tokens { size: 2, overlap: 0 }, true, 10);
    let texts = texts(&cutter, TEXT).expect("it can be cut");
    assert!(texts.run.len() > 1);
    let parts = texts.parts.expect("it was cut");
    for (number, part) in parts.iter().enumerate() {
        let text = &texts.run[part.text];
        assert!(text.ids.len() <= 10 && text.ids.room() <= 10);
        let chunk = part.chunk.expect("the answer tells it");
        assert!(chunk.window.is_some());
        let (_, tokens) = part.within.clone().expect("it is a part");
        let first = 1 + 2 * number;
        assert_eq!(text.ids[tokens.clone()], whole.ids[first..first + tokens.len()]);
        assert_eq!(part.truncated_from, None);
    }
    let tokens: usize = parts.iter().filter_map(|part| Some(part.chunk?.tokens)).sum();
    assert_eq!(tokens, whole.ids.len() - 2);
}

#[test]
fn a_chunk_longer_than_the_model_is_cut_or_refused() {
    let mut cutter = cutter(ChunkBy::Sentences { size: 100 }, true, 10);
    let tokens = all(TEXT).ids.len() - 2;
    let cut = texts(&cutter, TEXT).expect("it is cut");
    let parts = cut.parts.expect("it was cut");
    assert_eq!(parts[0].truncated_from, Some(tokens));
    assert_eq!(parts[0].chunk.map(|chunk| chunk.tokens), Some(8));
    cutter.over_long = OverLong::Refuse;
    let fault = ChunkFault::TooLong { chunk: 0, tokens, limit: 8 };
    assert_eq!(texts(&cutter, TEXT).err(), Some(EmbedError::Chunks { index: 0, fault }));
}

#[test]
fn a_blank_text_runs_whole() {
    let cutter = cutter(ChunkBy::Tokens { size: 5, overlap: 0 }, true, 512);
    let texts = texts(&cutter, "  ").expect("legal");
    assert_eq!(*texts.run[0].ids, [0, 2]);
    let parts = texts.parts.expect("it was cut");
    assert_eq!(parts[0].within, None);
    assert_eq!(parts[0].chunk.map(|chunk| (chunk.span.end, chunk.tokens)), Some((2, 0)));
}

#[test]
fn spans_without_tokens_and_prompts_without_room_are_refused() {
    let span = Span { start: 3, end: 4 };
    let fault = |cutter: &Cutter| match texts(cutter, TEXT) {
        Err(EmbedError::Chunks { fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    let by = ChunkBy::Spans(vec![vec![Span { start: 0, end: 3 }, span]]);
    assert_eq!(fault(&cutter(by, true, 512)), ChunkFault::NoToken { chunk: 1, span });
    let by = ChunkBy::Tokens { size: 5, overlap: 0 };
    assert_eq!(fault(&cutter(by, true, 2)), ChunkFault::NoRoom { limit: 2 });
}

#[test]
fn chunks_alone_do_not_tokenize_a_text_many_times() {
    let text = "a ".repeat(FREE_BYTES / 16);
    let spans = |count| ChunkBy::Spans(vec![vec![Span { start: 0, end: text.len() }; count]]);
    assert!(texts(&cutter(spans(16), false, 512), &text).is_ok());
    let fault = EmbedError::Chunks { index: 0, fault: ChunkFault::Repeated };
    assert_eq!(texts(&cutter(spans(17), false, 512), &text).err(), Some(fault));
    assert!(texts(&cutter(spans(17), true, 512), &text).is_ok());
    assert!(texts(&cutter(spans(1), false, 512), TEXT).is_err(), "it leaves the text");
}

#[test]
fn items_are_put_together_with_a_space_where_none_is() {
    let inputs =
        ["One.", "Two. ", "three", "\nvier", "", "五"].map(|text| Input::Text(text.into()));
    let (text, spans) = joined(&inputs);
    assert_eq!(text, "One. Two. three\nvier 五");
    let characters: Vec<char> = text.chars().collect();
    for (input, span) in inputs.iter().zip(spans) {
        let part: String = characters[span.start..span.end].iter().collect();
        assert_eq!(*input, Input::Text(part.into()));
    }
}

#[test]
fn chunks_of_several_texts_follow_each_other() {
    let cutter = cutter(ChunkBy::Tokens { size: 9, overlap: 0 }, true, 512);
    let tokenizer = tokenizer();
    let mut texts = TextsToRun::default();
    for (index, text) in ["the cat", TEXT].into_iter().enumerate() {
        let next = cutter.cut(&tokenizer, (index, &Input::Text(text.into())), &|| true);
        texts.add(next.expect("it can be cut"), 100).expect("few");
    }
    let parts = texts.parts.as_ref().expect("they were cut");
    let inputs: Vec<usize> = parts.iter().filter_map(|part| Some(part.chunk?.input)).collect();
    assert!(inputs.len() > 2 && inputs[0] == 0 && inputs[1..].iter().all(|&input| input == 1));
    assert_eq!((parts[0].text, parts[1].text), (0, 1));
    assert_eq!((texts.input_of(0), texts.input_of(1)), (0, 1));
    let again = cutter.cut(&tokenizer, (2, &Input::Text("a".into())), &|| true);
    let refused = texts.add(again.expect("it can be cut"), 2);
    let fault = ChunkFault::TooMany { most: 2 };
    assert_eq!(refused.err(), Some(EmbedError::Chunks { index: 2, fault }));
}
