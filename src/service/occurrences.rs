//! Where a text has the ids of its lexical weights.

use super::Occurrence;
use crate::sparse::SparseVector;
use crate::tokenize::Tokenized;

/// The tokens of a text whose ids are in `kept`, in the text's order. `weights` are those of all
/// its positions, the special tokens and the prompt among them.
pub(super) fn occurrences(
    item: &Tokenized,
    weights: &[f32],
    kept: &SparseVector,
) -> Vec<Occurrence> {
    let start = 1 + item.prompt_tokens;
    let ids = item.ids.iter().zip(weights).skip(start);
    let places = ids.zip(&item.spans).map(|((&id, &weight), &span)| {
        // A place may have no weight above zero where another place of the same id has one.
        Occurrence { id, span, weight: weight.max(0.0) }
    });
    places.filter(|place| kept.indices.binary_search(&place.id).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::TokenIds;
    use crate::tokenize::Span;

    #[test]
    fn each_place_of_a_kept_id_has_its_own_weight() {
        let span = |start: usize| Span { start, end: start + 1 };
        let item = Tokenized {
            ids: TokenIds::new(&[0, 40, 7, 9, 7, 8, 2]),
            prompt_tokens: 1,
            full_count: 7,
            spans: (0..4).map(span).collect(),
        };
        let weights = [0.9, 0.8, 0.1, 0.2, -0.3, 0.4, 0.9];
        let kept = SparseVector { indices: vec![7, 8], values: vec![0.1, 0.4] };
        let found = occurrences(&item, &weights, &kept);
        let found: Vec<_> = found.iter().map(|o| (o.id, o.span.start, o.weight)).collect();
        assert_eq!(found, [(7, 0, 0.1), (7, 2, 0.0), (8, 3, 0.4)]);
    }
}
