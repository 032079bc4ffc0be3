//! Rows of floats → lists of decimals: the bytes of `serde_json`, in less than half its time for
//! most numbers of a vector of length one. A third of what a request of one text cost beside the
//! model was this.

use std::io::{self, Write};
use std::ops::Range;

use serde::{Serialize, Serializer};
use serde_json::ser::{self, Formatter};

use super::{ALL_BYTES, DECIMAL_BYTES};

/// Writes `answer`, which may contain [`Decimals`], as JSON behind what `out` has.
pub(in crate::http) fn write_json(out: &mut Vec<u8>, answer: &impl Serialize) {
    answer.serialize(&mut ser::Serializer::with_formatter(out, Compact)).expect(ALL_BYTES);
}

/// JSON without spaces, in which bytes are a part that is JSON already.
struct Compact;

impl Formatter for Compact {
    fn write_byte_array<W: Write + ?Sized>(&mut self, out: &mut W, json: &[u8]) -> io::Result<()> {
        out.write_all(json)
    }
}

/// The shortest decimals that read back as the same floats, for [`write_json`].
pub(super) struct Decimals<'a>(pub(super) &'a [f32]);

impl Serialize for Decimals<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        json.collect_seq(self.0.chunks(STRETCH).map(Stretch))
    }
}

/// Floats that are written at once.
const STRETCH: usize = 32;

/// Some numbers of a list, and the commas between them.
struct Stretch<'a>(&'a [f32]);

impl Serialize for Stretch<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; STRETCH * DECIMAL_BYTES as usize + USUAL_BYTES];
        let mut end = 0;
        for &value in self.0 {
            text[end] = b'-';
            let start = end + usize::from(value < 0.0);
            let out = text[start..].first_chunk_mut().expect("it has room for all");
            if let Some(length) = write_usual(value.abs(), out) {
                end = start + length;
            } else {
                let mut out = &mut text[end..];
                let room = out.len();
                serde_json::to_writer(&mut out, &value).expect("it has room for all");
                end += room - out.len();
            }
            text[end] = b',';
            end += 1;
        }
        json.serialize_bytes(&text[..end - 1])
    }
}

/// The bits of 0.00001 to 1: smaller ones are written with an exponent.
const USUAL: Range<u32> = 1e-5_f32.to_bits()..1_f32.to_bits();

/// The last binary places of the usual floats.
const SCALES: Range<u32> = 24..41;

/// Room for a usual float without a sign: the longest are like `0.000012345679`.
const USUAL_BYTES: usize = 16;

/// Binary places of the numbers that are computed with.
const POINT: u32 = 32;

/// For each of [`SCALES`] half a unit of this place, times 10^[`places`], with [`POINT`] places.
const HALVES: [u64; 17] = {
    let mut halves = [0; 17];
    let mut scale = SCALES.start;
    while scale < SCALES.end {
        let places = places(scale);
        halves[(scale - SCALES.start) as usize] = 5_u64.pow(places) << (POINT + places - scale - 1);
        scale += 1;
    }
    halves
};

/// The most decimal places of which a unit is more than one of a binary place: 7 to 12.
const fn places(scale: u32) -> u32 {
    // log10(2)
    (scale * 1233) >> 12
}

/// Writes the shortest decimal that reads back as `value`, and of several as short the one next to
/// it. Returns its bytes; `None` for a float that is not [`USUAL`].
///
/// What rounds to `value` lies half a unit of its last binary place around it. There, a decimal of
/// [`places`] + 1 places can be found always, one of `places` at times, and a shorter one only if
/// that ends in zeros. The numbers have so few bits that none is rounded on the way.
#[inline]
fn write_usual(value: f32, out: &mut [u8; USUAL_BYTES]) -> Option<usize> {
    let bits = value.to_bits();
    if !USUAL.contains(&bits) {
        return None;
    }
    // It is significand / 2^scale.
    let scale = 150 - (bits >> 23);
    let significand = u64::from(bits & 0x7f_ffff | 0x80_0000);
    let half = HALVES[(scale - SCALES.start) as usize];
    let scaled = 2 * significand * half;
    let part = scaled & ((1 << POINT) - 1);
    let (down, up) = (part < half, part + half > 1 << POINT);
    let whole = (scaled >> POINT) + u64::from(up);
    // One more digit. Its 2.5 becomes the even 2, as its 7.5 becomes 8.
    let tie = u64::from(part == 1 << (POINT - 2));
    let last = (10 * part + (1 << (POINT - 1)) - tie) >> POINT;
    let last = if down | up { 0 } else { last };
    let eight = eight_digits(whole);
    let count = (8 - eight.leading_zeros() / 8).max(9 * u32::from(last > 0));
    // The first of the eight is where the point is if there are 7 places, but it is zero then.
    let before = places(scale) as usize - 6;
    *out = *b"0.00000000000000";
    out[before..][..8].copy_from_slice(&(eight + u64::from_le_bytes([b'0'; 8])).to_le_bytes());
    out[before + 8] = b'0' + last as u8;
    out[1] = b'.';
    Some(before + count as usize)
}

/// The decimal digits of a number below 10^8, the first in the lowest byte.
#[inline]
const fn eight_digits(number: u64) -> u64 {
    // Two numbers below 10^4, four below 100, eight below 10: all are divided at once.
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0xf_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn have_the_bytes_of_serde_json(row: &[f32]) {
        let mut written = Vec::new();
        write_json(&mut written, &Decimals(row));
        let expected = serde_json::to_string(row).expect("it has no names");
        assert_eq!(String::from_utf8(written), Ok(expected));
    }

    #[test]
    fn odd_floats_have_the_bytes_of_serde_json() {
        let small = [0.0, 1e-45, f32::MIN_POSITIVE, 1e-5, 1.234_567_9e-5, 9.999_999e-5, 1e-4];
        let usual = [0.1, 0.5, 0.25, 1.0 / 3.0, 0.002_441_406_2, 0.999_999_94];
        let large = [1.0, 2.0, 16_777_216.0, 1e16, 3.4e38, f32::MAX, f32::INFINITY, f32::NAN];
        let row = [small.as_slice(), &usual, &large].concat();
        have_the_bytes_of_serde_json(&row);
        have_the_bytes_of_serde_json(&row.iter().map(|value| -value).collect::<Vec<_>>());
        have_the_bytes_of_serde_json(&[-1.234_567_9e-5; 2 * STRETCH]);
    }

    #[test]
    fn rows_of_any_length_have_the_bytes_of_serde_json() {
        for length in 0..=3 * STRETCH {
            have_the_bytes_of_serde_json(&vec![0.5; length]);
        }
    }

    /// All whose digits end in a 5 behind the last that is written, and a sample of the others.
    #[test]
    fn floats_of_any_size_have_the_bytes_of_serde_json() {
        for first_bits in (1e-6_f32.to_bits() >> 13)..=(2_f32.to_bits() >> 13) {
            let bits = [0, 1, 0x0aaa, 0x1555, 0x1fff].map(|rest| first_bits << 13 | rest);
            have_the_bytes_of_serde_json(&bits.map(f32::from_bits));
        }
    }
}
