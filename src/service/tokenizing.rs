//! Tokenizing a request: a short one where it arrives, a long one spread over the cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::try_join_all;

use super::{EmbedError, Input, Resident};
use crate::config::cores;
use crate::package::manifest::PromptName;
use crate::tokenize::{TextTokenizer, TokenizeError, Tokenized};

/// Texts up to this many bytes are tokenized where they arrive, about 2 ms; handing them to another
/// thread would cost more than it spares the other connections.
const INLINE_BYTES: usize = 16 * 1024;

/// Says to the threads that work for a request whether somebody still waits for it.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Token ids of every input, in their order. Dropping the future ends the work behind the text that
/// is being tokenized.
pub(super) async fn tokenize(
    resident: &Arc<Resident>,
    inputs: Vec<Input>,
    prompt: Option<PromptName>,
) -> Result<Vec<Tokenized>, EmbedError> {
    let failed = |error: TokenizeError| EmbedError::EngineFailed(error.to_string());
    let bytes: usize = inputs.iter().map(input_bytes).sum();
    if bytes <= INLINE_BYTES {
        let tokenizer = &resident.tokenizer;
        return inputs
            .iter()
            .map(|input| one(tokenizer, input, prompt))
            .collect::<Result<_, _>>()
            .map_err(failed);
    }
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let parts = split(inputs, INLINE_BYTES.max(bytes.div_ceil(cores())));
    let parts = parts.into_iter().map(|part| {
        let (resident, wanted) = (Arc::clone(resident), Arc::clone(&wanted.0));
        tokio::task::spawn_blocking(move || {
            let still = part.iter().take_while(|_| wanted.load(Ordering::Relaxed));
            still
                .map(|input| one(&resident.tokenizer, input, prompt))
                .collect::<Result<Vec<_>, _>>()
        })
    });
    let parts = try_join_all(parts).await;
    let parts = parts.map_err(|error| EmbedError::EngineFailed(format!("tokenizing: {error}")))?;
    let mut tokenized = Vec::new();
    for part in parts {
        tokenized.extend(part.map_err(failed)?);
    }
    Ok(tokenized)
}

/// Parts of neighbours, each of about `part_bytes`, in their order.
fn split(inputs: Vec<Input>, part_bytes: usize) -> Vec<Vec<Input>> {
    let mut parts = vec![Vec::new()];
    let mut filled = 0;
    for input in inputs {
        let bytes = input_bytes(&input);
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

const fn input_bytes(input: &Input) -> usize {
    match input {
        Input::Text(text) => text.len(),
        Input::TokenIds(_) => 0,
    }
}

fn one(
    tokenizer: &TextTokenizer,
    input: &Input,
    prompt: Option<PromptName>,
) -> Result<Tokenized, TokenizeError> {
    match input {
        Input::Text(text) => tokenizer.tokenize(text, prompt),
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
            part_bytes in 1_usize..200,
        ) {
            let parts = split(texts(&lengths), part_bytes);
            let sizes = |part: &Vec<Input>| part.iter().map(input_bytes).collect::<Vec<_>>();
            let together: Vec<usize> = parts.iter().flat_map(sizes).collect();
            prop_assert_eq!(together, lengths);
            let total = |part: &Vec<Input>| part.iter().map(input_bytes).sum::<usize>();
            prop_assert!(parts.iter().all(|part| total(part) < part_bytes + 50));
        }
    }

    #[test]
    fn equal_texts_are_shared_evenly() {
        let parts = split(texts(&[10; 8]), 40);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    }
}
