//! The texts that both servers embed.

use super::here::{Here, Prompt, Way};

/// What a probe can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeKind {
    /// Nothing but prompt, pooling and weights.
    Plain,
    Script,
    /// White space, and characters that tokenizers read differently.
    Characters,
    /// Special tokens that stand in the text.
    Special,
    /// A prompt that the client has put in front.
    Prompt,
    /// So many tokens.
    Length(usize),
}

impl ProbeKind {
    pub(super) fn is_plain(self) -> bool {
        self == Self::Plain
    }

    pub(super) const fn is_length(self) -> bool {
        matches!(self, Self::Length(_))
    }

    /// Whether it depends on how texts become tokens.
    pub(super) const fn is_written(self) -> bool {
        matches!(self, Self::Script | Self::Characters | Self::Special)
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Plain => "plain".to_owned(),
            Self::Script => "script".to_owned(),
            Self::Characters => "characters".to_owned(),
            Self::Special => "special tokens".to_owned(),
            Self::Prompt => "prompt".to_owned(),
            Self::Length(tokens) => format!("{tokens} tokens"),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) kind: ProbeKind,
    pub(super) text: String,
}

const PLAIN: [&str; 4] = [
    "the cat is in the house",
    "a quick test of the server",
    "water and bread for the dog",
    "is the search engine slow?",
];

const SCRIPTS: [&str; 10] = [
    "The Quick BROWN Fox",
    "Die Straße ist nicht schnell, Müller!",
    "L'été, le café est fermé à midi.",
    "быстрый тест 42",
    "هذا اختبار سريع",
    "यह एक तेज़ परीक्षा है",
    "今天天气快速测试。",
    "日本語のテストです",
    "빠른 시험입니다",
    "เร็ว ทดสอบ 🚀 ❤\u{fe0f}",
];

const CHARACTERS: [&str; 18] = [
    "  two spaces in front",
    "two spaces behind  ",
    "two  spaces   between",
    "a tab\tand a line\nor two\r\n\nmore",
    "no-break\u{a0}space and ideographic\u{3000}space",
    "zero\u{200b}width\u{200d}characters\u{feff}",
    "cafe\u{301} in two characters",
    "tie\u{302}\u{301}ng Vie\u{323}\u{302}t in three",
    "cafe\u{301}\u{323} e\u{301}te\u{301}\u{323} with two marks",
    "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af} in single letters",
    "half width \u{ff76}\u{ff9e}\u{ff78}\u{ff9e} \u{ff8a}\u{ff9f}",
    "\u{ff26}\u{ff55}\u{ff4c}\u{ff4c} width \u{ff11}\u{ff12}",
    "ligature \u{fb01}t, x\u{b2}, \u{2460}, \u{2122}",
    "control\u{1}characters\u{7f}here",
    "\u{2581}the piece of a space",
    "quotes \u{201c}and\u{201d} dashes \u{2014} …",
    "fn main() { let x = a[0] & !b; }",
    "https://example.org/a_b?c=%20#d",
];

const SPECIAL: [&str; 4] =
    ["a <s> in the text </s>", "the <mask> of the cat", "[CLS] the dog [SEP]", "<pad> or <unk>"];

/// Words that are one token each in nearly every vocabulary. Each row is a subject of its own: what
/// cuts a long text at half its length leaves a subject out.
const SUBJECTS: [&[&str]; 8] = [
    &["the", "cat", "house", "dog", "is", "in"],
    &["server", "test", "search", "engine", "model", "text"],
    &["water", "bread", "river", "tree", "food", "red"],
    &["law", "court", "state", "money", "bank", "tax"],
    &["music", "song", "play", "film", "art", "book"],
    &["war", "army", "king", "city", "east", "north"],
    &["sun", "moon", "star", "light", "night", "day"],
    &["run", "ball", "game", "team", "win", "field"],
];

/// Limits that models have, beside the package's own.
pub(super) const LIMITS: [usize; 10] = [32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192];

/// All of them, plain ones first; none has many more tokens than `longest`.
pub(super) fn all(here: &Here, longest: usize) -> Vec<Probe> {
    let of = |kind, text: &str| Probe { kind, text: text.to_owned() };
    let mut probes = Vec::new();
    for (kind, texts) in [
        (ProbeKind::Plain, &PLAIN[..]),
        (ProbeKind::Script, &SCRIPTS),
        (ProbeKind::Characters, &CHARACTERS),
        (ProbeKind::Special, &SPECIAL),
    ] {
        probes.extend(texts.iter().map(|text| of(kind, text)));
    }
    for prompt in here.prompts() {
        probes.push(of(ProbeKind::Prompt, &format!("{prompt}{}", PLAIN[0])));
    }
    let plain = Way { prompt: Prompt::Own(None), ..here.own_way() };
    let count = |text: &str| here.count(text, &plain);
    let limit = here.manifest().max_input_tokens;
    let shorter = LIMITS.iter().filter(|&&tokens| tokens + 1 < limit).map(|tokens| tokens + 1);
    let lengths = shorter.chain([limit, limit + 1, limit + limit / 4 + 1]);
    for tokens in lengths.filter(|&tokens| limit <= longest || tokens <= longest + 1) {
        let text = long(tokens, &count);
        probes.push(Probe { kind: ProbeKind::Length(count(&text)), text });
    }
    probes
}

/// A text of so many tokens, special ones included, as nearly as the vocabulary allows.
fn long(tokens: usize, count: &dyn Fn(&str) -> usize) -> String {
    let start = PLAIN[0];
    let base = count(start);
    let is_one = |word: &&&str| count(&format!("{start} {word}")) == base + 1;
    let mut subjects: Vec<Vec<&str>> =
        SUBJECTS.iter().map(|words| words.iter().filter(is_one).copied().collect()).collect();
    subjects.retain(|words| !words.is_empty());
    if subjects.is_empty() {
        // The vocabulary is of another language: the text is longer then.
        subjects.push(vec!["a"]);
    }
    let mut text = start.to_owned();
    for at in base..tokens {
        // A subject lasts from one power of two to the next.
        let subject = &subjects[at.ilog2() as usize % subjects.len()];
        text.push(' ');
        text.push_str(subject[at * 7 / 3 % subject.len()]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_have_so_many_tokens_and_begin_alike() {
        let count = |text: &str| text.split_whitespace().count() + 2;
        let [shorter, longer] = [long(129, &count), long(250, &count)];
        assert_eq!([count(&shorter), count(&longer)], [129, 250]);
        assert!(longer.starts_with(&shorter));
        let half = |text: &str| text.split_whitespace().skip(130).map(str::to_owned).collect();
        let words: Vec<String> = half(&longer);
        assert!(words.iter().all(|word| !shorter.contains(&format!(" {word} "))), "{words:?}");
    }

    #[test]
    fn a_vocabulary_without_the_words_gets_long_texts_too() {
        let count = |text: &str| 2 + 3 * text.split_whitespace().count();
        assert!(count(&long(100, &count)) >= 100);
    }
}
