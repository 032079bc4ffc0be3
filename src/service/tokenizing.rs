//! Tokenizing a request: a short one where it arrives, a long one on the threads for such work.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::compute::ComputePool;
use super::{EmbedError, Input, Resident};
use crate::package::manifest::PromptName;
use crate::tokenize::{TextTokenizer, TokenizeError, Tokenized};

/// Texts of up to this many bytes together are tokenized where they arrive, about 1 ms; handing
/// them to another thread would cost more than it spares the other connections.
pub(super) const INLINE_BYTES: u64 = 16 * 1024;

/// What a long request gives the threads at once, some 10 ms: requests of others come in between.
const PART_BYTES: u64 = 256 * 1024;

/// Token ids of every input, in their order. Dropping the future ends the work, within a text too.
pub(super) async fn tokenize(
    resident: &Arc<Resident>,
    compute: &ComputePool,
    inputs: Vec<Input>,
    prompt: Option<PromptName>,
) -> Result<Vec<Tokenized>, EmbedError> {
    let bytes: u64 = inputs.iter().map(Input::bytes).sum();
    if bytes <= INLINE_BYTES {
        let tokenizer = &resident.tokenizer;
        let one = |input: &Input| one(tokenizer, input, prompt, &|| true);
        return inputs.iter().map(one).collect();
    }
    let parts = stream::iter(split(inputs, PART_BYTES)).map(|part| {
        let resident = Arc::clone(resident);
        let work = compute.run(move |wanted| {
            let one = |input: &Input| match wanted.get() {
                true => one(&resident.tokenizer, input, prompt, &|| wanted.get()),
                // Nobody reads this answer.
                false => Err(EmbedError::DeadlineExceeded),
            };
            part.iter().map(one).collect::<Result<Vec<_>, _>>()
        });
        async { work.await.map_err(EmbedError::EngineFailed)? }
    });
    let parts: Vec<Vec<Tokenized>> = parts.buffered(compute.threads()).try_collect().await?;
    Ok(parts.into_iter().flatten().collect())
}

/// Parts of neighbours, each of about `part_bytes`, in their order.
fn split(inputs: Vec<Input>, part_bytes: u64) -> Vec<Vec<Input>> {
    let mut parts = vec![Vec::new()];
    let mut filled = 0;
    for input in inputs {
        let bytes = input.bytes();
        // What would go over by more than it fills begins the next part.
        let over = (filled + bytes).saturating_sub(part_bytes);
        if filled > 0 && over > bytes / 2 {
            parts.push(Vec::new());
            filled = 0;
        }
        filled += bytes;
        parts.last_mut().expect("there is at least one").push(input);
    }
    parts
}

fn one(
    tokenizer: &TextTokenizer,
    input: &Input,
    prompt: Option<PromptName>,
    wanted: &dyn Fn() -> bool,
) -> Result<Tokenized, EmbedError> {
    match input {
        Input::Text(text) => {
            let failed = |error| match error {
                // Nobody reads this answer.
                TokenizeError::Unwanted => EmbedError::DeadlineExceeded,
                other => EmbedError::EngineFailed(other.to_string()),
            };
            tokenizer.tokenize(text, prompt, wanted).map_err(failed)
        }
        Input::TokenIds(ids) => Ok(tokenizer.wrap(ids)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(lengths: &[usize]) -> Vec<Input> {
        lengths.iter().map(|&length| Input::Text("a".repeat(length))).collect()
    }

    proptest! {
        #[test]
        fn parts_keep_every_input_in_its_order(
            lengths in prop::collection::vec(0_usize..50, 1..60),
            part_bytes in 1_u64..200,
        ) {
            let parts = split(texts(&lengths), part_bytes);
            let total = |part: &Vec<Input>| part.iter().map(Input::bytes).sum::<u64>();
            let sizes = |part: &Vec<Input>| part.iter().map(Input::bytes).collect::<Vec<_>>();
            let together: Vec<u64> = parts.iter().flat_map(sizes).collect();
            let expected: Vec<u64> = lengths.iter().map(|&length| length as u64).collect();
            prop_assert_eq!(together, expected);
            prop_assert!(parts.iter().all(|part| total(part) < part_bytes + 50));
        }
    }

    #[test]
    fn equal_texts_are_shared_evenly() {
        let parts = split(texts(&[10; 8]), 40);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    }
}
