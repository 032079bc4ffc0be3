//! Reads the header `traceparent` of the W3C's Trace Context.
//!
//! The propagator of `opentelemetry_sdk` is not used: it also takes ids that are too short, signs
//! before digits, and spaces around the header.

use opentelemetry::trace::{SpanId, TraceId};

/// The caller's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Of the whole trace.
    pub trace_id: TraceId,
    /// Of the caller's span.
    pub span_id: SpanId,
    /// Whether the caller records its trace: the flag `sampled`.
    pub sampled: bool,
}

/// Bytes of a header of version 0: `00-<32 digits>-<16 digits>-<2 digits>`.
const LENGTH: usize = 55;

/// Reads the header; `None` when it is malformed, which counts as absent.
pub fn parse(header: &[u8]) -> Option<TraceParent> {
    let text = std::str::from_utf8(header).ok()?;
    let (known, later) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split('-');
    let version = digits(parts.next()?, 2)?;
    let trace_id = TraceId::from(digits(parts.next()?, 32)?);
    let span_id = SpanId::from(u64::try_from(digits(parts.next()?, 16)?).ok()?);
    let flags = digits(parts.next()?, 2)?;
    // Later versions may add parts, and 255 is none.
    let fits = match version {
        0 => later.is_empty(),
        0xff => false,
        _ => later.is_empty() || later.starts_with('-'),
    };
    let valid = fits && trace_id != TraceId::INVALID && span_id != SpanId::INVALID;
    valid.then_some(TraceParent { trace_id, span_id, sampled: flags & 1 == 1 })
}

/// The value of exactly so many lowercase hexadecimal digits.
fn digits(text: &str, count: usize) -> Option<u128> {
    let fit = text.len() == count && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    fit.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_parent_is_read_with_its_flag() {
        for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            let parent = parse(format!("00-{TRACE}-{SPAN}-{flags}").as_bytes()).expect("it is one");
            assert_eq!(parent.trace_id.to_string(), TRACE);
            assert_eq!(parent.span_id.to_string(), SPAN);
            assert_eq!(parent.sampled, sampled, "{flags}");
        }
    }

    #[test]
    fn later_versions_may_be_longer() {
        for header in [
            format!("01-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01-what-the-future-brings"),
        ] {
            assert!(parse(header.as_bytes()).is_some(), "{header}");
        }
    }

    #[test]
    fn malformed_parents_are_none() {
        let zeros = "0".repeat(32);
        for header in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!("01-{TRACE}-{SPAN}-01more"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{TRACE}{SPAN}--01"),
            format!("0-0{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{}é-01", &SPAN[..14]),
        ] {
            assert_eq!(parse(header.as_bytes()), None, "{header}");
        }
    }
}
