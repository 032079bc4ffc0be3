//! Compares the golden numbers of a package with what an engine computed.

use crate::dense::{cosine, is_finite};
use crate::package::manifest::Manifest;
use crate::sparse::{self, Selection};

/// How far a run of the canary was from its golden numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Cosine to the golden dense vector.
    pub dense_cosine: f64,
    /// Largest difference of a lexical weight; a missing id counts as weight zero.
    pub sparse_error: f32,
    /// Whether the cosine is at least the manifest's.
    pub dense_ok: bool,
    /// Whether the difference is at most the manifest's.
    pub sparse_ok: bool,
}

impl Comparison {
    /// Whether dense and sparse are both within the manifest's tolerances.
    pub const fn passed(&self) -> bool {
        self.dense_ok && self.sparse_ok
    }
}

/// Compares a run of the manifest's canary: `dense` has `hidden_size` floats, `weights` one float
/// for each of the canary's tokens (none for a model without a sparse head).
///
/// Numbers that are not finite never pass.
pub(crate) fn compare(manifest: &Manifest, dense: &[f32], weights: &[f32]) -> Comparison {
    let canary = &manifest.canary;
    let dense_cosine = cosine(dense, &canary.dense);
    let sparse_error = match &manifest.sparse {
        None => 0.0,
        Some(head) => {
            let dropped = &head.dropped_token_ids;
            let got = sparse::select(&canary.token_ids, weights, dropped, Selection::default());
            largest_difference(&got.pairs().collect::<Vec<_>>(), &canary.sparse)
        }
    };
    Comparison {
        dense_cosine,
        sparse_error,
        dense_ok: is_finite(dense) && dense_cosine >= canary.tolerances.dense_cosine_min,
        sparse_ok: is_finite(weights) && sparse_error <= canary.tolerances.sparse_max_abs,
    }
}

/// Largest absolute difference of two ascending lists of weights.
fn largest_difference(a: &[(u32, f32)], b: &[(u32, f32)]) -> f32 {
    let weight = |list: &[(u32, f32)], id: u32| {
        list.binary_search_by_key(&id, |pair| pair.0).map_or(0.0, |at| list[at].1)
    };
    let ids = a.iter().chain(b).map(|pair| pair.0);
    ids.map(|id| (weight(a, id) - weight(b, id)).abs()).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_id_counts_as_zero() {
        let golden = [(5, 0.25), (9, 0.5)];
        assert_eq!(largest_difference(&golden, &golden), 0.0);
        assert_eq!(largest_difference(&[(5, 0.25)], &golden), 0.5);
        assert_eq!(largest_difference(&golden, &[(9, 0.375)]), 0.25);
    }
}
