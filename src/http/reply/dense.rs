//! A dense vector in JSON: decimals, whole numbers, or base64.

use serde::{Deserialize, Serialize, Serializer};

use super::{Decimals, quoted};
use vectors::dense;
use vectors::small::{self, NumberType, Ranges};

/// How dense vectors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum DenseFormat {
    /// A list of numbers: the shortest decimals that read back as the same float.
    #[default]
    Float,
    /// Their bytes, little-endian.
    Base64,
}

/// The words for what dense vectors consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum OutputType {
    #[serde(alias = "float32")]
    Float,
    Float16,
    Int8,
    Uint8,
    Binary,
    Ubinary,
    /// Floats in the base64 of `encoding_format`, for clients that have one field for both.
    Base64,
}

impl OutputType {
    pub(in crate::http) const fn numbers(self) -> NumberType {
        match self {
            Self::Float | Self::Base64 => NumberType::Float,
            Self::Float16 => NumberType::Float16,
            Self::Int8 => NumberType::Int8,
            Self::Uint8 => NumberType::Uint8,
            Self::Binary => NumberType::Binary,
            Self::Ubinary => NumberType::Ubinary,
        }
    }
}

/// What dense vectors consist of, and how that is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::http) struct DenseForm {
    pub(in crate::http) numbers: NumberType,
    pub(in crate::http) format: DenseFormat,
}

/// A vector of length one, in the form of output_type and encoding_format.
pub(in crate::http) struct DenseVector<'a> {
    row: &'a [f32],
    form: DenseForm,
    ranges: Option<&'a Ranges>,
}

impl<'a> DenseVector<'a> {
    /// `small_vectors` are the ranges that the model has.
    pub(in crate::http) fn new(
        row: &'a [f32],
        form: DenseForm,
        small_vectors: &'a [Ranges],
    ) -> Self {
        Self { row, form, ranges: Ranges::of(small_vectors, row.len()) }
    }
}

impl Serialize for DenseVector<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let DenseForm { numbers, format } = self.form;
        match (format, numbers) {
            (DenseFormat::Base64, NumberType::Float) => {
                quoted(json, |text| dense::write_base64(self.row, text))
            }
            (DenseFormat::Base64, _) => {
                let bytes = small::to_bytes(self.row, numbers, self.ranges);
                quoted(json, |text| small::write_base64(&bytes, text))
            }
            (DenseFormat::Float, NumberType::Float) => Decimals(self.row).serialize(json),
            (DenseFormat::Float, _) => {
                small::to_numbers(self.row, numbers, self.ranges).serialize(json)
            }
        }
    }
}
