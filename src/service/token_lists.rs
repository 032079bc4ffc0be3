//! The tokens of texts, for those who count them, cut texts, or want to see them.

use super::door::{INLINE_BYTES, Permit};
use super::tokenizing::{self, PART_BYTES, split};
use super::{EmbedError, EmbedRequest, EmbeddingService, Input, RequestHead};
use model::tokenize::{Keep, Offsets, Span, TokenizeOptions, Tokenized};

/// Bytes that a token holds until its answer is written: its id and its place.
const HELD_BYTES: u64 = (size_of::<u32>() + size_of::<Span>()) as u64;

impl EmbeddingService {
    /// Lets a request that the model is not run for in by its head: it waits for no worker, and
    /// nothing is expected of the workers.
    ///
    /// # Errors
    /// When the model is not there, or too many bytes are in flight.
    pub(crate) fn admit_to_tokenize(&self, head: &RequestHead) -> Result<Permit, EmbedError> {
        self.available()?;
        Ok(self.door.enter(head.announced_bytes)?)
    }

    /// All tokens of every input, in order, as they would be run but for the model's limit. Of the
    /// options only the prompt and what token ids are count. Dropping the future ends the work.
    pub(crate) async fn tokenize(
        &self,
        request: EmbedRequest,
        permit: &mut Permit,
    ) -> Result<Vec<Tokenized>, EmbedError> {
        let resident = self.available()?;
        let prompt = self.check_inputs(resident.package.manifest(), &request)?;
        let is_text = matches!(request.inputs.first(), Some(Input::Text(_)));
        let EmbedRequest { inputs, .. } = self.decode(request, permit).await?;
        let mut held = permit.hold_inputs(&inputs)?;
        let bytes = inputs.iter().map(Input::bytes).sum();
        if bytes > INLINE_BYTES {
            permit.begin_tokenizing(bytes);
        }
        // The text that ids stand for is not one that the client has.
        let offsets = if is_text { Offsets::Find } else { Offsets::Skip };
        let options = TokenizeOptions { prompt, keep: Keep::All, offsets };
        let mut lists = Vec::with_capacity(inputs.len());
        // A byte may become a token, so that what is held is looked at now and then.
        for part in split(inputs, PART_BYTES) {
            let part = tokenizing::tokenize(self, &resident, part, options, permit).await?;
            let tokens: usize = part.iter().map(|item| item.ids.len()).sum();
            held += tokens as u64 * HELD_BYTES;
            permit.hold(held)?;
            lists.extend(part);
        }
        permit.end_tokenizing(held);
        Ok(lists)
    }
}
