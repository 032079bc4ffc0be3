//! The room that an answer takes, at most: it is held before the model is run.

use super::{AnswerFormat, DenseForm, DenseFormat, SparseFormat};
use crate::service::{AnswerBytes, EmbedReply, EmbeddedItem};
use vectors::small::NumberType;
use vectors::tokens::TokenVectors;

/// The longest decimal of a float, with its comma: `-0.000012345679,` or `-1.23456786e-20,`.
pub(in crate::http) const DECIMAL_BYTES: u64 = 17;
/// The longest token id, with a comma.
const ID_BYTES: u64 = 11;
/// Names, braces and counts around the vectors of one item.
const ITEM_BYTES: u64 = 192;
/// The same around all items, without the model's id.
const FRAME_BYTES: u64 = 192;
/// A character of the model's id may be written as an escape.
const ESCAPE_BYTES: u64 = 6;
/// Names and numbers of a chunk's place.
const CHUNK_BYTES: u64 = 160;
/// Names and numbers of one place.
const PLACE_BYTES: u64 = 112;
/// Names, shape and type around the vectors of an item's tokens.
const TOKENS_BYTES: u64 = 112;

/// The most bytes of what stands around all items of an answer.
pub(in crate::http) const fn frame_bytes(model_id: &str) -> u64 {
    FRAME_BYTES + ESCAPE_BYTES * model_id.len() as u64
}

/// The most bytes that the parts of an answer take.
pub(in crate::http) fn most_bytes(format: AnswerFormat, model_id: &str) -> AnswerBytes {
    AnswerBytes {
        frame: frame_bytes(model_id),
        item: ITEM_BYTES,
        chunk: CHUNK_BYTES,
        number: number_bytes(format.dense),
        // Quotes and a colon are around ids that are names.
        weight: ID_BYTES + DECIMAL_BYTES + 3,
        place: PLACE_BYTES,
        tokens: TOKENS_BYTES,
        token_number: if format.dense.numbers == NumberType::Float16 { 3 } else { 6 },
        has_pieces: format.sparse == SparseFormat::Tokens,
        has_texts: false,
    }
}

/// The most bytes of a number of a dense vector. Base64 makes four bytes of three, and its end may
/// be filled up.
pub(in crate::http) const fn number_bytes(DenseForm { numbers, format }: DenseForm) -> u64 {
    use NumberType::{Binary, Float, Float16, Int8, Ubinary, Uint8};
    match (format, numbers) {
        (DenseFormat::Float, Float | Float16) => DECIMAL_BYTES,
        // With a sign and a comma.
        (DenseFormat::Float, Int8 | Uint8) => 5,
        (DenseFormat::Base64, Float) => 6,
        (DenseFormat::Base64, Float16) => 3,
        (DenseFormat::Base64, Int8 | Uint8) => 2,
        // Eight of them are a byte.
        (_, Binary | Ubinary) => 1,
    }
}

/// Room for an answer, in bytes: no less than it takes, but for pieces that are longer than ids.
pub(in crate::http) fn room(reply: &EmbedReply, most: AnswerBytes) -> usize {
    let tokens = |all: &TokenVectors| most.tokens + most.token_number * all.count() as u64;
    let of = |item: &EmbeddedItem| {
        let places = item.occurrences.as_ref().map_or(0, Vec::len);
        let chunk = if item.chunk.is_some() { most.chunk } else { 0 };
        most.item
            + chunk
            + most.number * item.dense.len() as u64
            + most.weight * item.sparse.indices.len() as u64
            + most.place * places as u64
            + item.token_vectors.as_ref().map_or(0, tokens)
    };
    let bytes = most.frame + reply.items.iter().map(of).sum::<u64>();
    usize::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::reply::{Resident, write};
    use crate::service::chunking::TextChunk;
    use crate::service::{Milestones, Occurrence, Vectors};
    use model::tokenize::Span;
    use proptest::prelude::*;
    use vectors::small::NumberType::{Binary, Float, Float16, Int8, Ubinary, Uint8};
    use vectors::small::Ranges;
    use vectors::sparse::SparseVector;

    proptest! {
        #[test]
        fn no_answer_is_larger_than_the_room_for_it(
            numbers in prop::collection::vec(any::<f32>(), 0..40),
            ids in prop::collection::vec(any::<u32>(), 0..40),
        ) {
            let finite = |value: &f32| if value.is_finite() { *value } else { -f32::MIN_POSITIVE };
            let values: Vec<f32> = numbers.iter().map(finite).collect();
            let span = Span { start: usize::MAX, end: usize::MAX };
            let place = |&id: &u32| Occurrence { id, span, weight: -1.234_567_8e-20 };
            let chunk =
                TextChunk { input: usize::MAX, span, tokens: usize::MAX, window: Some(usize::MAX) };
            let one = EmbeddedItem {
                dense: values.clone(),
                sparse: SparseVector { values: vec![-1e-7; ids.len()], indices: ids.clone() },
                occurrences: Some(ids.iter().map(place).collect()),
                token_vectors: Some(TokenVectors::new(1, values)),
                chunk: Some(chunk),
                tokens: ids.len(),
                truncated_from: Some(usize::MAX),
            };
            let (items, milestones) = (vec![one; 3], Milestones::default());
            let reply =
                EmbedReply { items, prompt_tokens: u64::MAX, milestones, cache_use: None };
            let id = "a\u{1}\"/b";
            let mean = vec![0.0; reply.items[0].dense.len()];
            let small_vectors = &[Ranges { reach: 1e-3, mean }];
            let resident =
                Resident { id, vocab_size: usize::MAX, small_vectors, piece: &|_| None };
            let types = [Float, Float16, Int8, Uint8, Binary, Ubinary];
            let formats = [DenseFormat::Float, DenseFormat::Base64];
            for (numbers, format) in types.into_iter().flat_map(|n| formats.map(|f| (n, f))) {
                let dense = DenseForm { numbers, format };
                for sparse in [
                    SparseFormat::Indices,
                    SparseFormat::Dict,
                    SparseFormat::Tokens,
                    SparseFormat::PgVector,
                ] {
                    let format = AnswerFormat { dense, sparse };
                    let answer = write(Vec::new(), &reply, Vectors::Both, format, &resident);
                    let room = room(&reply, most_bytes(format, id));
                    prop_assert!(answer.len() <= room, "{} of {room}", answer.len());
                }
            }
        }
    }
}
