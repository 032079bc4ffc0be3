//! What runs for texts that are cut, with the tokenizer of the tests' package.

use super::*;
use model::package::ModelPackage;
use settings::SpecialTokenText;

/// Eight tokens for a text, so that windows are short, and one dense vector in a row of 8.
fn cutter(by: ChunkBy, late: bool, limit: usize) -> Cutter {
    let chunking = Chunking { by, late, of_inputs: false, most: 100 };
    let reading = TokenizeOptions { prompt: None, keep: Keep::ModelLimit, offsets: Offsets::Find };
    Cutter { chunking, reading, vectors: Vectors::Both, over_long: OverLong::Truncate, limit }
}

fn tokenizer() -> TextTokenizer {
    let package = ModelPackage::open(&testing::tiny()).expect("the fixture is whole");
    TextTokenizer::open(&package, SpecialTokenText::Special, None).expect("it fits")
}

fn texts(cutter: &Cutter, text: &str) -> Result<TextsToRun, EmbedError> {
    cutter.cut(&tokenizer(), (0, &Input::Text(text.into())), &|_| true)
}

const TEXT: &str = "the cat sees a dog and the dog sees a cat in the house";

#[test]
fn a_prompt_that_leaves_no_room_for_a_window_is_refused() {
    let refused = texts(&cutter(ChunkBy::Tokens { size: 5, overlap: 0 }, true, 2), TEXT);
    let fault = ChunkFault::NoRoom { limit: 2 };
    assert_eq!(refused.err(), Some(EmbedError::Chunks { index: 0, fault }));
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
fn windows_of_late_chunks_do_not_hold_a_text_many_times() {
    let late = |limit: usize, count: usize| {
        // Each is as long as a window, and begins two tokens behind the one before.
        let spans = (0..count).map(|at| Span { start: 8 * at, end: 8 * at + 4 * limit });
        let mut cutter = cutter(ChunkBy::Spans(vec![spans.collect()]), true, limit);
        cutter.chunking.most = count;
        texts(&cutter, &"dog ".repeat(limit + 2 * count))
    };
    let fault = EmbedError::Chunks { index: 0, fault: ChunkFault::Repeated };
    assert_eq!(late(512, 2000).err(), Some(fault));
    let told = "its chunks overlap so much that its text would run more than 16 times";
    assert_eq!(ChunkFault::Repeated.to_string(), told);
    let few = late(512, 100).expect("they are not many");
    assert_eq!(few.run.len(), 100);
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
