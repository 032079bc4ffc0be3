//! Where a text has the ids of its lexical weights.

use std::ops::Range;

use super::Occurrence;
use model::tokenize::Tokenized;
use vectors::sparse::SparseVector;

/// Those of `tokens` whose ids are in `kept`, in the text's order. `weights` are those of all
/// positions of the text, the special tokens and the prompt among them.
pub(super) fn occurrences(
    text: &Tokenized,
    tokens: Range<usize>,
    weights: &[f32],
    kept: &SparseVector,
) -> Vec<Occurrence> {
    let first = text.own.start;
    let places = tokens.skip_while(|&token| token < first).map_while(|token| {
        let (&weight, &span) = (weights.get(token)?, text.spans.get(token - first)?);
        // A place may have no weight above zero where another place of the same id has one.
        Some(Occurrence { id: text.ids[token], span, weight: weight.max(0.0) })
    });
    places.filter(|place| kept.indices.binary_search(&place.id).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::tokenize::Span;
    use scheduling::batch::TokenIds;

    #[test]
    fn each_place_of_a_kept_id_has_its_own_weight() {
        let span = |start: usize| Span { start, end: start + 1 };
        let item = Tokenized {
            ids: TokenIds::new(&[0, 40, 7, 9, 7, 8, 2]),
            prompt_tokens: 1,
            own: 2..6,
            full_count: 7,
            spans: (0..4).map(span).collect(),
        };
        let weights = [0.9, 0.8, 0.1, 0.2, -0.3, 0.4, 0.9];
        let kept = SparseVector { indices: vec![7, 8], values: vec![0.1, 0.4] };
        let found = |tokens| {
            let found = occurrences(&item, tokens, &weights, &kept);
            found.iter().map(|o| (o.id, o.span.start, o.weight)).collect::<Vec<_>>()
        };
        assert_eq!(found(0..7), [(7, 0, 0.1), (7, 2, 0.0), (8, 3, 0.4)]);
        assert_eq!(found(3..5), [(7, 2, 0.0)]);
    }
}
