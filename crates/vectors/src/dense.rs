//! Dense rows: are they finite, cut to fewer dimensions, written as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Floats encoded at once. Their bytes are a multiple of three, so that only the last ones of a row
/// are padded.
const BASE64_FLOATS: usize = 192;

/// What rounding to single precision leaves of a row's length.
const UNIT_ERROR: f64 = 1e-6;

/// Whether every float of a row is finite. fp16 overflows on some real texts, and one such row must
/// fail its own request only.
pub fn is_finite(row: &[f32]) -> bool {
    // The loop has no early end, so that it becomes vector instructions.
    row.iter().fold(true, |so_far, value| so_far & value.is_finite())
}

/// Keeps the first `dimensions` floats and makes their length one again (Matryoshka).
///
/// A row whose kept part is all zero stays zero.
pub fn cut(mut row: Vec<f32>, dimensions: usize) -> Vec<f32> {
    if dimensions >= row.len() {
        return row;
    }
    row.truncate(dimensions);
    make_unit(&mut row);
    row
}

/// Makes a row's length one. A row that has that length already keeps its bits, and one that is all
/// zero or not finite stays so.
pub fn make_unit(row: &mut [f32]) {
    let length = sum_of_squares(row).sqrt();
    if length > 0.0 && (length - 1.0).abs() > UNIT_ERROR {
        for value in row {
            *value = (f64::from(*value) / length) as f32;
        }
    }
}

/// Keeps sixteen sums side by side, which become vector instructions. In a single sum each addition
/// would wait for the one before.
fn sum_of_squares(row: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value).powi(2);
    let (chunks, rest) = row.as_chunks::<16>();
    let mut sums = [0.0; 16];
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += square(value);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|&value| square(value)).sum::<f64>()
}

/// Writes little-endian f32 in base64, the form of OpenAI's clients, behind what `out` has.
pub fn write_base64(row: &[f32], out: &mut Vec<u8>) {
    for floats in row.chunks(BASE64_FLOATS) {
        let mut bytes = [0; BASE64_FLOATS * size_of::<f32>()];
        for (slot, value) in bytes.chunks_exact_mut(size_of::<f32>()).zip(floats) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        let bytes = &bytes[..size_of_val(floats)];
        let start = out.len();
        out.resize(start + bytes.len().div_ceil(3) * 4, 0);
        STANDARD.encode_slice(bytes, &mut out[start..]).expect("the room was just made");
    }
}

/// Cosine of the angle between two rows of equal length; 0 when either is all zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| -> f64 {
        x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
    };
    let scale = (dot(a, a) * dot(b, b)).sqrt();
    if scale > 0.0 { dot(a, b) / scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_with_nan_or_infinity_are_not_finite() {
        assert!(is_finite(&[0.0, -1.5, f32::MAX, f32::MIN_POSITIVE]));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!is_finite(&[0.0, bad, 1.0]));
        }
    }

    #[test]
    fn base64_is_little_endian_f32() {
        let mut out = b"before".to_vec();
        write_base64(&[1.0, -2.0], &mut out);
        assert_eq!(out, b"beforeAACAPwAAAMA=");
        write_base64(&[], &mut out);
        assert_eq!(out, b"beforeAACAPwAAAMA=");
    }

    #[test]
    fn a_row_that_is_cut_to_zeros_stays_zero() {
        assert_eq!(cut(vec![0.0, 0.0, 1.0], 2), [0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn base64_of_any_length_is_that_of_all_bytes(
            row in prop::collection::vec(any::<f32>(), 0..600),
        ) {
            let mut out = Vec::new();
            write_base64(&row, &mut out);
            let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
            prop_assert_eq!(String::from_utf8(out), Ok(STANDARD.encode(bytes)));
        }

        #[test]
        fn a_cut_row_has_length_one_and_the_same_direction(
            row in prop::collection::vec(0.01_f32..1.0, 64..400),
            dimensions in 1_usize..64,
        ) {
            let kept = cut(row.clone(), dimensions);
            prop_assert_eq!(kept.len(), dimensions);
            let squares: f32 = kept.iter().map(|value| value * value).sum();
            prop_assert!((squares - 1.0).abs() < 1e-5);
            prop_assert!(cosine(&kept, &row[..dimensions]) > 0.999_999);
        }
    }
}
