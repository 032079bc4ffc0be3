//! Token weights of a text → its lexical weights, by FlagEmbedding's rules for BGE-M3.
//!
//! The weight of a token id is the maximum over its positions; ids that carry no text leave; only
//! weights above zero stay; then `min_weight` and `top_k`.

/// Lexical weights of one text: ascending unique token ids, weights above zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SparseVector {
    /// Token ids.
    pub indices: Vec<u32>,
    /// Their weights.
    pub values: Vec<f32>,
}

impl SparseVector {
    /// Ids with their weights, ascending by id.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (u32, f32)> + '_ {
        self.indices.iter().copied().zip(self.values.iter().copied())
    }
}

/// Nats of surprisal up to which a token of a question says nothing: commas and full stops have
/// fewer. Measured for XLM-R's vocabulary, see `docs/decisions/0054`.
const LEAST_SURPRISAL: f32 = 3.75;

/// Makes scores about as large as those of the default package's sparse head.
const SURPRISAL_WEIGHT: f32 = 0.05;

/// The weights of a question's tokens by how surprising each is, in nats, instead of by a model.
/// They are divided by the square root of their norm, in which each id counts once.
pub fn by_surprisal(ids: &[u32], surprisal: impl Fn(u32) -> f32) -> Vec<f32> {
    let weight = |&id: &u32| SURPRISAL_WEIGHT * (surprisal(id) - LEAST_SURPRISAL).max(0.0);
    let mut distinct = ids.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let squares: f32 = distinct.iter().map(|id| weight(id).powi(2)).sum();
    let scale = if squares > 0.0 { squares.sqrt().sqrt() } else { 1.0 };
    ids.iter().map(|id| weight(id) / scale).collect()
}

/// The sum of products over the ids that both texts have.
pub fn dot(a: &SparseVector, b: &SparseVector) -> f64 {
    let mut others = b.pairs().peekable();
    a.pairs().fold(0.0, |sum, (id, weight)| {
        while others.next_if(|other| other.0 < id).is_some() {}
        let same = others.next_if(|other| other.0 == id);
        sum + same.map_or(0.0, |(_, other)| f64::from(weight) * f64::from(other))
    })
}

/// Which of the lexical weights stay.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Selection {
    /// The k heaviest; of equal weights the smaller ids. `None` keeps all.
    pub top_k: Option<usize>,
    /// Weights at or above it; `None` keeps all.
    pub min_weight: Option<f32>,
}

/// Selects the lexical weights of one text.
///
/// `ids` and `weights` are its positions in order, at most as many weights as ids; `dropped` are
/// the ids that never stay, ascending. Weights that are zero, negative or not a number never stay.
pub fn select(ids: &[u32], weights: &[f32], dropped: &[u32], selection: Selection) -> SparseVector {
    let least = selection.min_weight.unwrap_or(0.0);
    let mut pairs: Vec<(u32, f32)> = ids
        .iter()
        .copied()
        .zip(weights.iter().copied())
        .filter(|&(id, weight)| {
            weight > 0.0 && weight >= least && dropped.binary_search(&id).is_err()
        })
        .collect();
    // The heaviest position of an id comes first, so that `dedup` keeps it.
    pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    pairs.dedup_by_key(|pair| pair.0);
    keep_heaviest(&mut pairs, selection.top_k);
    let (indices, values) = pairs.into_iter().unzip();
    SparseVector { indices, values }
}

fn keep_heaviest(pairs: &mut Vec<(u32, f32)>, top_k: Option<usize>) {
    let Some(top_k) = top_k.filter(|&k| k < pairs.len()) else {
        return;
    };
    if top_k > 0 {
        let heavier = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        pairs.select_nth_unstable_by(top_k - 1, heavier);
    }
    pairs.truncate(top_k);
    pairs.sort_unstable_by_key(|pair| pair.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DROPPED: [u32; 4] = [0, 1, 2, 3];

    fn all(ids: &[u32], weights: &[f32]) -> Vec<(u32, f32)> {
        select(ids, weights, &DROPPED, Selection::default()).pairs().collect()
    }

    #[test]
    fn dropped_ids_and_weights_not_above_zero_leave() {
        assert_eq!(all(&[0, 1, 2, 3], &[1.0; 4]), []);
        assert_eq!(all(&[5, 6, 7, 8], &[0.0, -0.0, -1.0, f32::NAN]), []);
        assert_eq!(all(&[250_001], &[0.5]), [(250_001, 0.5)]);
        assert_eq!(all(&[], &[]), []);
    }

    #[test]
    fn a_token_weighs_by_its_surprisal_and_each_id_counts_once_in_the_norm() {
        // 3, 4 and nothing, times 0.05, whose norm is 0.25.
        let surprisal = |id| [63.75, 83.75, 3.5, 0.0][id as usize];
        let weights = by_surprisal(&[1, 0, 2, 1, 3], surprisal);
        let expected = [4.0 / 5.0_f32.sqrt(), 3.0 / 5.0_f32.sqrt(), 0.0, 4.0 / 5.0_f32.sqrt(), 0.0];
        let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        assert!(weights.iter().zip(&expected).all(near), "{weights:?}");
        assert_eq!(by_surprisal(&[2, 3], surprisal), [0.0, 0.0]);
        assert_eq!(by_surprisal(&[], surprisal), []);
    }

    #[test]
    fn texts_are_compared_by_the_ids_that_both_have() {
        let vector = |pairs: &[(u32, f32)]| {
            let (indices, values) = pairs.iter().copied().unzip();
            SparseVector { indices, values }
        };
        let a = vector(&[(4, 0.5), (7, 2.0), (9, 1.0)]);
        let b = vector(&[(1, 9.0), (4, 2.0), (8, 9.0), (9, 0.25), (11, 9.0)]);
        assert_eq!((dot(&a, &b), dot(&b, &a)), (1.25, 1.25));
        assert_eq!(dot(&a, &SparseVector::default()), 0.0);
    }

    /// Few weights, so that ties, zeros and both signs of zero are common.
    fn weight() -> impl Strategy<Value = f32> {
        let few = prop::sample::select(vec![-0.5, -0.0, 0.0, 0.125, 0.25, 0.375, 0.5]);
        prop_oneof![3 => few, 1 => -1.0_f32..1.0]
    }

    proptest! {
        #[test]
        fn selection_equals_its_definition(
            positions in prop::collection::vec((0_u32..12, weight()), 0..40),
            top_k in prop::option::of(1_usize..12),
            min_weight in prop::option::of(prop_oneof![Just(0.25_f32), 0.0_f32..0.5]),
        ) {
            let (ids, weights): (Vec<u32>, Vec<f32>) = positions.iter().copied().unzip();
            let got = select(&ids, &weights, &DROPPED, Selection { top_k, min_weight });
            let mut expected: Vec<(u32, f32)> = (4..12)
                .filter_map(|id| {
                    let of_id = positions.iter().filter(|position| position.0 == id);
                    of_id.map(|position| position.1).reduce(f32::max).map(|weight| (id, weight))
                })
                .filter(|pair| pair.1 > 0.0 && pair.1 >= min_weight.unwrap_or(0.0))
                .collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            expected.truncate(top_k.unwrap_or(usize::MAX));
            expected.sort_by_key(|pair| pair.0);
            prop_assert_eq!(got.pairs().collect::<Vec<_>>(), expected);
        }
    }
}
