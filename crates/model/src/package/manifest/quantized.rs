//! A graph in 8 bits that a package may have beside its own.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{FileEntry, ManifestError, Tolerances, require};

/// What is known of a graph in 8 bits.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantized {
    /// A graph that OpenVINO reads, or one that plans are built from; one of the package's files.
    pub file: String,
    /// How it was made, one sentence.
    pub method: String,
    /// How far it may be from the canary's golden numbers, which are in f32.
    pub tolerances: Tolerances,
    /// What it costs, measured when it was made.
    pub retrieval: Vec<RetrievalScore>,
}

/// nDCG@10 of one collection with either graph.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrievalScore {
    pub collection: String,
    pub queries: u64,
    pub f32: Ndcg,
    /// In the file under the name of the precision.
    #[serde(alias = "int8", alias = "fp8")]
    pub rounded: Ndcg,
}

/// nDCG@10 by kind of vector.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ndcg {
    pub dense: f64,
    /// Absent without a sparse head.
    pub sparse: Option<f64>,
}

impl Quantized {
    /// `field` is its own name in the manifest.
    pub(super) fn check(
        &self,
        field: &'static str,
        files: &BTreeMap<String, FileEntry>,
    ) -> Result<(), ManifestError> {
        require(files.contains_key(&self.file), field, || {
            format!("its file '{}' is not listed in `files`", self.file)
        })?;
        require(self.tolerances.are_usable(), field, || "its tolerances are not usable".into())
    }
}
