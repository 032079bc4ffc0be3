//! Dense vectors in fewer bytes: half floats, a byte for each number, a bit for each number.
//!
//! Bytes and bits need to know where a model's numbers lie, see [`Ranges`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use half::f16;
use serde::{Deserialize, Serialize};

/// The largest byte of a number. -128 stands for no number, so that signs can be turned.
const MOST: f32 = 127.0;

/// What a vector consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NumberType {
    /// Floats of 32 bits.
    #[default]
    Float,
    /// Floats of 16 bits.
    Float16,
    /// `round(x · 127 / reach)`, from -127 to 127.
    Int8,
    /// The same with 128 added.
    Uint8,
    /// Whether each number is above the mean of its dimension. The bits of eight numbers are a
    /// byte, the first one is its highest bit; a byte is signed: 128 is taken away from it.
    Binary,
    /// The same bits as unsigned bytes.
    Ubinary,
}

impl NumberType {
    /// Whether vectors cannot be made without [`Ranges`].
    pub const fn needs_ranges(self) -> bool {
        !matches!(self, Self::Float | Self::Float16)
    }

    /// How many numbers a vector of so many dimensions consists of.
    pub const fn length(self, dimensions: usize) -> usize {
        match self {
            Self::Float | Self::Float16 | Self::Int8 | Self::Uint8 => dimensions,
            Self::Binary | Self::Ubinary => dimensions.div_ceil(8),
        }
    }
}

/// Where the numbers of a model's vectors lie, as texts have shown.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// What no number of a vector is above or below; what is comes out as the largest byte.
    pub reach: f32,
    /// The mean of each dimension.
    pub mean: Vec<f32>,
}

impl Ranges {
    /// Those of vectors of so many dimensions, if they are known.
    pub fn of(known: &[Self], dimensions: usize) -> Option<&Self> {
        known.iter().find(|ranges| ranges.mean.len() == dimensions)
    }

    fn byte(&self, value: f32) -> i8 {
        (value * (MOST / self.reach)).round_ties_even().clamp(-MOST, MOST) as i8
    }

    fn bits(&self, row: &[f32]) -> impl Iterator<Item = u8> {
        row.chunks(8).zip(self.mean.chunks(8)).map(|(values, means)| {
            let pairs = values.iter().zip(means).enumerate();
            pairs.fold(0, |byte, (at, (value, mean))| byte | (u8::from(value > mean) << (7 - at)))
        })
    }
}

/// A vector as bytes, little-endian. Signed bytes are in two's complement, so that `as i8` reads
/// them.
///
/// # Panics
/// When `numbers` needs ranges and gets none.
pub fn to_bytes(row: &[f32], numbers: NumberType, ranges: Option<&Ranges>) -> Vec<u8> {
    let ranges = || ranges.expect("whoever chose the type has found its ranges");
    // Adding 128 to a signed byte, or taking it away from an unsigned one, turns the highest bit.
    let shifted = |byte: u8| byte ^ 0x80;
    match numbers {
        NumberType::Float => row.iter().flat_map(|value| value.to_le_bytes()).collect(),
        NumberType::Float16 => {
            row.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect()
        }
        NumberType::Int8 => row.iter().map(|&value| ranges().byte(value) as u8).collect(),
        NumberType::Uint8 => row.iter().map(|&value| shifted(ranges().byte(value) as u8)).collect(),
        NumberType::Binary => ranges().bits(row).map(shifted).collect(),
        NumberType::Ubinary => ranges().bits(row).collect(),
    }
}

/// What a vector consists of, one by one.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NumberList {
    /// Of 32 bits, or as half floats hold them.
    Floats(Vec<f32>),
    /// From -128 to 127.
    Signed(Vec<i8>),
    /// From 0 to 255.
    Unsigned(Vec<u8>),
}

/// A vector as numbers.
///
/// # Panics
/// As [`to_bytes`].
pub fn to_numbers(row: &[f32], numbers: NumberType, ranges: Option<&Ranges>) -> NumberList {
    let bytes = || to_bytes(row, numbers, ranges);
    match numbers {
        NumberType::Float => NumberList::Floats(row.to_vec()),
        NumberType::Float16 => {
            NumberList::Floats(row.iter().map(|&value| f16::from_f32(value).to_f32()).collect())
        }
        NumberType::Int8 | NumberType::Binary => {
            NumberList::Signed(bytes().into_iter().map(|byte| byte as i8).collect())
        }
        NumberType::Uint8 | NumberType::Ubinary => NumberList::Unsigned(bytes()),
    }
}

/// Writes bytes in base64 behind what `out` has.
pub fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> Ranges {
        Ranges { reach: 0.5, mean: vec![0.0, 0.1, -0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25] }
    }

    fn of(row: &[f32], numbers: NumberType) -> Vec<u8> {
        to_bytes(row, numbers, Some(&ranges()))
    }

    #[test]
    fn a_byte_is_a_number_in_127ths_of_the_reach_and_never_beyond() {
        let row = [0.0, 0.5, -0.5, 0.25, 0.7, -9.0];
        let signed = to_numbers(&row, NumberType::Int8, Some(&ranges()));
        // 63.5 goes to the even neighbour.
        assert_eq!(signed, NumberList::Signed(vec![0, 127, -127, 64, 127, -127]));
        assert_eq!(of(&row, NumberType::Uint8), [128, 255, 1, 192, 255, 1]);
    }

    #[test]
    fn a_bit_says_whether_a_number_is_above_its_mean_and_the_first_is_the_highest() {
        let row = [0.1, 0.1, 0.0, -0.1, 0.0, 0.0, 0.0, 0.2, 0.3];
        assert_eq!(of(&row, NumberType::Ubinary), [0b1010_0001, 0b1000_0000]);
        let signed = to_numbers(&row, NumberType::Binary, Some(&ranges()));
        assert_eq!(signed, NumberList::Signed(vec![0b0010_0001, 0]), "128 less");
        assert_eq!(NumberType::Binary.length(row.len()), 2);
    }

    #[test]
    fn floats_need_no_ranges() {
        assert_eq!(to_bytes(&[1.0], NumberType::Float, None), 1.0_f32.to_le_bytes());
        assert_eq!(to_bytes(&[1.0, -2.0], NumberType::Float16, None), [0, 0x3c, 0, 0xc0]);
        let half = NumberList::Floats(vec![0.099_975_586]);
        assert_eq!(to_numbers(&[0.1], NumberType::Float16, None), half);
        let mut text = b"before".to_vec();
        write_base64(&[0, 0x3c, 0, 0xc0], &mut text);
        assert_eq!(text, b"beforeADwAwA==");
    }

    proptest! {
        #[test]
        fn bytes_are_within_half_a_step_and_keep_their_order(
            a in -0.5_f32..0.5,
            b in -0.5_f32..0.5,
        ) {
            let bytes = of(&[a, b], NumberType::Int8);
            let [x, y] = [bytes[0] as i8, bytes[1] as i8];
            prop_assert!((f32::from(x) * 0.5 / 127.0 - a).abs() <= 0.5 / 254.0 + 1e-6);
            prop_assert!(a < b || x >= y);
        }
    }
}
