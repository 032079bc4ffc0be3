//! What one text may cost, whatever stands in it: memory, and how soon its work ends.
// An allocator that counts is the only way to see memory, and its trait is unsafe.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use model::package::ModelPackage;
use model::package::manifest::PromptName;
use model::tokenize::{Keep, Offsets, TextTokenizer, TokenizeError, TokenizeOptions};
use settings::{Normalization, SpecialTokenText};

/// Bytes of each text: so many that what a text of any length needs does not count.
const TEXT_BYTES: usize = 256 * 1024;
/// Bytes that tokenizing may hold at once for each byte of the text.
const HELD_MAX: usize = 12;
/// Bytes of text within which it must ask whether it is still wanted.
const UNASKED_MAX: usize = 16 * 1024;

/// Counts the bytes that each thread holds; what moves is counted twice while it does.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a hostile client may send: a name, and what is repeated until the text is long.
const TEXTS: &[(&str, &str)] = &[
    ("words", "the quick brown fox jumps over a lazy dog, "),
    ("single letters", "a b c d "),
    ("one huge word", "a"),
    ("one huge word of ties", "_"),
    ("one huge word of another script", "\u{4eca}\u{5929}\u{7684}\u{5929}\u{6c14}\u{597d}"),
    ("spaces", " "),
    ("spaces of another kind", "\u{85}"),
    ("combining marks", "\u{301}"),
    ("decomposed", "e\u{323}\u{302}\u{1112}\u{1161}\u{11ab}"),
    ("emoji", "\u{1f469}\u{200d}\u{1f4bb}\u{1f3fd}"),
    ("joiners", "\u{200d}"),
    ("unknown", "\u{10000}"),
    ("one that becomes four", "\u{2057}"),
    ("one that becomes six", "\u{3316}"),
    ("one that becomes four words", "\u{fdfa}"),
    ("special tokens", "<mask>"),
    ("special tokens among words", " a <mask> b</s>"),
    ("what looks like special tokens", "<"),
];

fn text_of(repeated: &str) -> String {
    repeated.repeat(TEXT_BYTES.div_ceil(repeated.len()))
}

fn tokenizer(normalization: Normalization) -> TextTokenizer {
    let package =
        ModelPackage::open(&testing::default_package()).expect("it is there: run scripts/test.sh");
    TextTokenizer::open(&package, SpecialTokenText::Special, Some(normalization))
        .expect("the tokenizer is read")
}

#[test]
fn memory_stays_in_proportion_to_the_text() {
    for normalization in [Normalization::Sentencepiece, Normalization::Huggingface] {
        let tokenizer = tokenizer(normalization);
        for (name, repeated) in TEXTS {
            let text = text_of(repeated);
            let asked = Cell::new(0_usize);
            let wanted = |_| {
                asked.set(asked.get() + 1);
                true
            };
            let before = HELD.get();
            PEAK.set(before);
            let tokens = tokenizer.tokenize(&text, Some(PromptName::Passage), &wanted);
            let held = (PEAK.get() - before).cast_unsigned();
            println!("{name}: {:.2} bytes a byte", held as f64 / text.len() as f64);
            let (count, asked) = (tokens.expect("it is tokenized").full_count, asked.get());
            assert!(
                held <= HELD_MAX * text.len() && asked >= text.len() / UNASKED_MAX,
                "{normalization:?}, {name}: {count} tokens, {held} bytes, asked {asked} times"
            );
        }
    }
}

#[test]
fn work_says_what_it_holds_beyond_that() {
    let tokenizer = tokenizer(Normalization::Huggingface);
    let options = TokenizeOptions { prompt: None, keep: Keep::All, offsets: Offsets::Find };
    for (name, repeated) in TEXTS {
        let text = text_of(repeated);
        let said = Cell::new(0);
        let wanted = |bytes| {
            said.set(bytes);
            true
        };
        let before = HELD.get();
        PEAK.set(before);
        tokenizer.tokenize_with(&text, options, &wanted).expect("it is tokenized");
        let (held, said) = ((PEAK.get() - before).cast_unsigned(), said.get());
        let of = |bytes: usize| bytes as f64 / text.len() as f64;
        println!("{name}: {:.2} bytes a byte, {:.2} said", of(held), of(said));
        assert!(held <= said + HELD_MAX * text.len(), "{name}: {held} bytes, {said} said");
    }
}

#[test]
fn work_ends_as_soon_as_nobody_waits() {
    for normalization in [Normalization::Sentencepiece, Normalization::Huggingface] {
        let tokenizer = tokenizer(normalization);
        let before = tokenizer.tokenize("a quick test", None, &|_| true).expect("it is short");
        for (name, repeated) in TEXTS {
            let asked = Cell::new(0);
            let wanted = |_| {
                asked.set(asked.get() + 1);
                asked.get() < 3
            };
            let error = tokenizer.tokenize(&text_of(repeated), None, &wanted).expect_err(name);
            assert!(matches!(error, TokenizeError::Unwanted), "{name}: {error}");
            assert_eq!(asked.get(), 3, "{name}");
            // The thread goes on with other texts.
            let next = tokenizer.tokenize("a quick test", None, &|_| true).expect(name);
            assert_eq!(next, before, "{name}");
        }
    }
}

#[test]
fn the_walk_that_finds_places_asks_too_whether_somebody_waits() {
    for normalization in [Normalization::Sentencepiece, Normalization::Huggingface] {
        let tokenizer = tokenizer(normalization);
        for (name, repeated) in TEXTS {
            // It ends at the last token, which stands at the end.
            let text = [&text_of(repeated), " b"].concat();
            let [ids, both] = [Offsets::Skip, Offsets::Find].map(|offsets| {
                let asked = Cell::new(0);
                let wanted = |_| {
                    asked.set(asked.get() + 1);
                    true
                };
                let options = TokenizeOptions { prompt: None, keep: Keep::All, offsets };
                tokenizer.tokenize_with(&text, options, &wanted).expect("it is tokenized");
                asked.get()
            });
            assert!(
                both >= ids + text.len() / UNASKED_MAX,
                "{normalization:?}, {name}: asked {ids} times for ids, {both} times with places"
            );
        }
    }
}
