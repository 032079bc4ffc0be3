//! The header `traceparent`, against a second reader that follows the W3C's grammar word by word.

use duovec::traces::traceparent::{TraceParent, parse};
use fastrand::Rng;

use testing::{damage, pick, run_for};

const LATER: [&str; 5] = ["", "", "-", "-more", "more"];

#[test]
fn traceparent_is_read_as_its_grammar_says() {
    run_for("traceparent", |rng| {
        let mut header = valid(rng);
        for _ in 0..rng.u8(..3) {
            damage(rng, &mut header);
        }
        let expected = by_the_grammar(&header);
        let found = parse(&header).map(|TraceParent { trace_id, span_id, sampled }| {
            (trace_id.to_string(), span_id.to_string(), sampled)
        });
        assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(&header));
    });
}

fn valid(rng: &mut Rng) -> Vec<u8> {
    let version = pick(rng, &["00", "00", "00", "01", "cc", "ff"]);
    let (trace, span) = match rng.u8(..8) {
        0 => (0, rng.u64(..)),
        1 => (rng.u128(..), 0),
        _ => (rng.u128(..), rng.u64(..)),
    };
    let later = pick(rng, &LATER);
    format!("{version}-{trace:032x}-{span:016x}-{:02x}{later}", rng.u8(..)).into_bytes()
}

/// Trace, span and whether it is sampled.
fn by_the_grammar(header: &[u8]) -> Option<(String, String, bool)> {
    let text = std::str::from_utf8(header).ok()?;
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let (&[version, trace, span, flags], later) = parts.split_first_chunk()?;
    let digits = |text: &str, count| {
        text.len() == count && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    };
    let well_formed =
        digits(version, 2) && digits(trace, 32) && digits(span, 16) && digits(flags, 2);
    let zero = |text: &str| text.chars().all(|c| c == '0');
    let known = version != "ff" && (version != "00" || later.is_empty());
    let valid = well_formed && known && !zero(trace) && !zero(span);
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
    valid.then(|| (trace.to_owned(), span.to_owned(), sampled))
}
