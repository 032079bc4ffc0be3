//! The vectors of a text's tokens: compared with those of another text, and written as base64.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::small::{self, NumberType};

/// Numbers that are written at once. Their bytes are a multiple of three, so that only the last
/// ones are filled up.
const PART: usize = 768;

/// Vectors of length one, one behind the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenVectors {
    width: usize,
    numbers: Vec<f32>,
}

/// What a [`TokenVectors`] is written as.
#[derive(Debug, Clone, Copy)]
pub struct Base64<'a> {
    numbers: &'a [f32],
    half: bool,
}

impl TokenVectors {
    /// Vectors of `width` numbers each.
    ///
    /// # Panics
    /// When the last one is not whole.
    pub fn new(width: usize, numbers: Vec<f32>) -> Self {
        assert!(width > 0 && numbers.len().is_multiple_of(width), "the vectors are whole");
        Self { width, numbers }
    }

    /// How many there are, and how many numbers each has.
    pub fn shape(&self) -> [usize; 2] {
        [self.numbers.len().checked_div(self.width).unwrap_or_default(), self.width]
    }

    /// Numbers of all of them.
    pub const fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Their bytes, little-endian, as floats of 16 bits if `half`, else of 32.
    pub fn base64(&self, half: bool) -> Base64<'_> {
        Base64 { numbers: &self.numbers, half }
    }

    /// How near a document is to these, which are a query's: the largest product of each with one
    /// of the document's, in the mean. It is from -1 to 1, and 0 when either has none.
    pub fn nearness(&self, document: &Self) -> f64 {
        if self.numbers.is_empty() || document.numbers.is_empty() {
            return 0.0;
        }
        let nearest = |query: &[f32]| {
            let products = document.numbers.chunks_exact(self.width).map(|one| dot(query, one));
            f64::from(products.fold(f32::NEG_INFINITY, f32::max))
        };
        let queries = self.numbers.chunks_exact(self.width);
        queries.map(nearest).sum::<f64>() / self.shape()[0] as f64
    }
}

/// Sixteen sums side by side, which become vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<16>();
    let (b, b_rest) = b.as_chunks::<16>();
    let mut sums = [0.0_f32; 16];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>();
    sums.iter().sum::<f32>() + rest
}

impl fmt::Display for Base64<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.half { NumberType::Float16 } else { NumberType::Float };
        let mut text = String::new();
        for part in self.numbers.chunks(PART) {
            text.clear();
            STANDARD.encode_string(small::to_bytes(part, kind, None), &mut text);
            formatter.write_str(&text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_nearest_token_of_a_document_counts_for_each_of_the_query() {
        let query = TokenVectors::new(2, vec![1.0, 0.0, 0.0, 1.0]);
        let document = TokenVectors::new(2, vec![0.6, 0.8, -1.0, 0.0, 0.8, 0.6]);
        assert!((query.nearness(&document) - 0.8).abs() < 1e-6);
        let far = TokenVectors::new(2, vec![-1.0, 0.0]);
        assert!((query.nearness(&far) + 0.5).abs() < 1e-6);
        assert!((document.nearness(&query) - (0.8 + 0.0 + 0.8) / 3.0).abs() < 1e-6);
        for none in [TokenVectors::default(), TokenVectors::new(2, Vec::new())] {
            assert_eq!((query.nearness(&none), none.nearness(&query)), (0.0, 0.0));
            assert_eq!(none.shape()[0], 0);
        }
    }

    #[test]
    fn numbers_are_little_endian() {
        let one = TokenVectors::new(2, vec![1.0, -2.0]);
        assert_eq!(one.base64(false).to_string(), "AACAPwAAAMA=");
        assert_eq!(one.base64(true).to_string(), "ADwAwA==");
    }

    proptest! {
        #[test]
        fn base64_of_any_length_is_that_of_all_bytes(
            numbers in prop::collection::vec(any::<f32>(), 0..2000),
            half in any::<bool>(),
        ) {
            let kind = if half { NumberType::Float16 } else { NumberType::Float };
            let bytes = small::to_bytes(&numbers, kind, None);
            let written = TokenVectors::new(1, numbers).base64(half).to_string();
            prop_assert_eq!(written, STANDARD.encode(bytes));
        }

        #[test]
        fn a_product_is_that_of_all_numbers(
            pairs in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 1..70),
        ) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let exact: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            prop_assert!((f64::from(dot(&a, &b)) - exact).abs() < 1e-5);
        }
    }
}
