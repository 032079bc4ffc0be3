//! Compares the golden numbers of a package with what an engine computed.

use std::fmt;

use crate::package::manifest::{Longest, Manifest};
use scheduling::batch::{Batch, BatchError, Bucket, TokenIds};
use vectors::ItemRows;
use vectors::dense::{cosine, is_finite};
use vectors::sparse::{self, Selection};

/// How far a run of the canary was from its golden numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Cosine to the golden dense vector, or the least of it and those to the golden vectors of
    /// tokens.
    pub dense_cosine: f64,
    /// Largest difference of a lexical weight; a missing id counts as weight zero.
    pub sparse_error: f32,
    /// Whether the cosine is at least the manifest's.
    pub dense_ok: bool,
    /// Whether the difference is at most the manifest's.
    pub sparse_ok: bool,
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dense_cosine, sparse_error, .. } = self;
        write!(
            formatter,
            "dense cosine {dense_cosine:.6}, largest difference of a lexical weight \
             {sparse_error:.4}"
        )
    }
}

impl Comparison {
    /// The numbers of both that are further from the golden ones.
    #[must_use]
    pub const fn worse(self, other: Self) -> Self {
        Self {
            dense_cosine: self.dense_cosine.min(other.dense_cosine),
            sparse_error: self.sparse_error.max(other.sparse_error),
            dense_ok: self.dense_ok && other.dense_ok,
            sparse_ok: self.sparse_ok && other.sparse_ok,
        }
    }

    /// Whether dense and sparse are both within the manifest's tolerances.
    pub const fn passed(&self) -> bool {
        self.dense_ok && self.sparse_ok
    }
}

/// The canary as it runs alone: with all outputs that the model has.
pub fn token_ids(manifest: &Manifest) -> TokenIds {
    let ids = TokenIds::new(&manifest.canary.token_ids);
    if manifest.token_vector_size.is_some() { ids.with_token_vectors() } else { ids }
}

/// Compares a run of the manifest's canary. Numbers that are not finite never pass.
pub fn compare(manifest: &Manifest, rows: &ItemRows) -> Comparison {
    let (canary, least) = (&manifest.canary, manifest.canary.tolerances.dense_cosine_min);
    let golden = (&canary.dense[..], &canary.sparse[..]);
    let whole = compare_text(manifest, &canary.token_ids, golden, rows);
    let token_vectors = &rows.token_vectors;
    let size = manifest.token_vector_size.unwrap_or_default();
    canary.token_vectors.iter().fold(whole, |so_far, (place, golden)| {
        let vector = token_vectors.get(place * size..(place + 1) * size).unwrap_or_default();
        let dense_cosine = cosine(vector, golden);
        let dense_ok = is_finite(vector) && dense_cosine >= least;
        so_far.worse(Comparison { dense_cosine, dense_ok, ..so_far })
    })
}

/// The same for a text that [`long_text`] made; `None` if there are no golden numbers for one of
/// its length.
pub fn compare_long(manifest: &Manifest, text: &TokenIds, rows: &ItemRows) -> Option<Comparison> {
    let golden = manifest.canary.longest.as_ref().filter(|golden| golden.tokens == text.len())?;
    let Longest { dense: golden, sparse, .. } = golden;
    Some(compare_text(manifest, text, (golden, sparse), rows))
}

fn compare_text(
    manifest: &Manifest,
    text: &[u32],
    golden: (&[f32], &[(u32, f32)]),
    ItemRows { dense, weights, words, .. }: &ItemRows,
) -> Comparison {
    let ids = if manifest.words().is_some() { words } else { text };
    let tolerances = manifest.canary.tolerances;
    let dense_cosine = cosine(dense, golden.0);
    let sparse_error = match &manifest.sparse {
        None => 0.0,
        Some(head) => {
            let dropped = &head.dropped_token_ids;
            let got = sparse::select(ids, weights, dropped, Selection::default());
            largest_difference(&got.pairs().collect::<Vec<_>>(), golden.1, head.words)
        }
    };
    Comparison {
        dense_cosine,
        sparse_error,
        dense_ok: is_finite(dense) && dense_cosine >= tolerances.dense_cosine_min,
        sparse_ok: is_finite(weights) && sparse_error <= tolerances.sparse_max_abs,
    }
}

/// A batch in which the canary stands again and again, first of all and between other texts: an
/// engine that lets a text see its neighbours, or takes one row for another, gives other numbers
/// then.
///
/// # Errors
/// When the canary does not fit a row of the bucket.
pub fn among_neighbours(manifest: &Manifest, bucket: Bucket) -> Result<Batch, BatchError> {
    let ids = &manifest.canary.token_ids;
    let canary = token_ids(manifest);
    // The other text is shorter each time, and in front of the canary every second time: so no two
    // rows have it at the same places.
    let pair = |number: usize| {
        let other: Vec<u32> = ids.iter().rev().skip(number % ids.len()).copied().collect();
        let mut pair = [canary.clone(), TokenIds::new(&other)];
        pair.rotate_left(number % 2);
        pair
    };
    let most = bucket.rows * bucket.spans();
    Batch::filled(bucket, (0..most).flat_map(pair).take(most).collect())
}

/// A text of so many tokens, which are the canary's again and again; `scripts/model_export` makes
/// the same text for its golden numbers. One with `another_end` must get other numbers: only its
/// last tokens are others.
pub fn long_text(manifest: &Manifest, tokens: usize, another_end: bool) -> TokenIds {
    let ids = &manifest.canary.token_ids;
    let [first, body @ .., last] = &ids[..] else { return TokenIds::new(ids) };
    let inner = tokens.saturating_sub(2);
    let mut text: Vec<u32> = body.iter().cycle().take(inner).copied().collect();
    if another_end {
        text[inner - inner.min(body.len() / 2)..].reverse();
    }
    text.insert(0, *first);
    text.push(*last);
    TokenIds::new(&text)
}

/// Compares all canaries of a batch that [`among_neighbours`] made. `rows_of` gives the rows of an
/// item.
pub fn compare_all(
    manifest: &Manifest,
    batch: &Batch,
    rows_of: impl Fn(usize) -> ItemRows,
) -> Comparison {
    let of = |item: usize| compare(manifest, &rows_of(item));
    let is_canary = |item: &usize| batch.items()[*item][..] == manifest.canary.token_ids[..];
    let others = (1..batch.items().len()).filter(is_canary).map(of);
    others.fold(of(0), Comparison::worse)
}

/// Largest absolute difference of two ascending lists of weights. In a list of the strongest `kept`
/// words, an absent one weighs at most as much as the weakest.
fn largest_difference(a: &[(u32, f32)], b: &[(u32, f32)], kept: Option<usize>) -> f32 {
    let found = |list: &[(u32, f32)], id: u32| {
        list.binary_search_by_key(&id, |pair| pair.0).ok().map(|at| list[at].1)
    };
    let most = |list: &[(u32, f32)]| match kept == Some(list.len()) {
        true => list.iter().map(|pair| pair.1).fold(f32::INFINITY, f32::min),
        false => 0.0,
    };
    let difference = |id: u32| match (found(a, id), found(b, id)) {
        (Some(a), Some(b)) => (a - b).abs(),
        (Some(a), None) => a - most(b).min(a),
        (None, Some(b)) => b - most(a).min(b),
        (None, None) => 0.0,
    };
    a.iter().chain(b).map(|pair| difference(pair.0)).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::ModelPackage;

    #[test]
    fn long_texts_differ_at_their_end_alone() {
        let package = ModelPackage::read_manifest(&testing::tiny()).expect("it is one");
        let manifest = package.manifest();
        let [one, other] = [false, true].map(|end| long_text(manifest, 64, end));
        let half = manifest.canary.token_ids.len() / 2;
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_eq!(one[..64 - half], other[..64 - half]);
        assert_ne!(one[64 - half..], other[64 - half..]);
        assert_eq!((one[0], one[63]), (other[0], other[63]));
    }

    #[test]
    fn a_token_with_another_vector_is_noticed() {
        let package = ModelPackage::read_manifest(&testing::tiny()).expect("it is one");
        let mut manifest = package.manifest().clone();
        assert!(!token_ids(&manifest).wants_token_vectors());
        manifest.token_vector_size = Some(2);
        manifest.canary.token_vectors = vec![(1, vec![0.6, 0.8]), (2, vec![1.0, 0.0])];
        assert!(token_ids(&manifest).wants_token_vectors());
        let golden = manifest.canary.clone();
        let tokens = golden.token_ids.len();
        let seen = |token_vectors: &[f32]| {
            let (dense, weights) = (golden.dense.clone(), vec![0.0; tokens]);
            let token_vectors = token_vectors.to_vec();
            compare(&manifest, &ItemRows { dense, weights, words: vec![], token_vectors })
        };
        assert!(seen(&[0.0, 1.0, 0.6, 0.8, 1.0, 0.0]).dense_ok);
        let swapped = seen(&[0.0, 1.0, 1.0, 0.0, 0.6, 0.8]);
        assert!(!swapped.dense_ok && (swapped.dense_cosine - 0.6).abs() < 1e-6);
        for lost in [&[][..], &[0.0, 1.0, 0.6, 0.8], &[0.0, 1.0, 0.6, 0.8, f32::NAN, 0.0]] {
            assert!(!seen(lost).dense_ok, "{lost:?}");
        }
    }

    #[test]
    fn an_absent_word_weighs_at_most_as_much_as_the_weakest_of_a_full_list() {
        let full = [(5, 0.25), (9, 0.5)];
        assert_eq!(largest_difference(&full, &[(7, 0.25), (9, 0.5)], Some(2)), 0.0);
        assert_eq!(largest_difference(&full, &[(7, 0.375), (9, 0.5)], Some(2)), 0.125);
        assert_eq!(largest_difference(&full, &[(9, 0.5)], Some(2)), 0.25);
    }

    #[test]
    fn a_missing_id_counts_as_zero() {
        let golden = [(5, 0.25), (9, 0.5)];
        let largest = |a, b| largest_difference(a, b, None);
        assert_eq!(largest(&golden, &golden), 0.0);
        assert_eq!(largest(&[(5, 0.25)], &golden), 0.5);
        assert_eq!(largest(&golden, &[(9, 0.375)]), 0.25);
    }
}
