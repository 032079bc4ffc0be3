//! The tokens of texts, for those who count them, cut texts, or want to see them.

use super::door::{INLINE_BYTES, Permit};
use super::tokenizing;
use super::{EmbedError, EmbedRequest, EmbeddingService, Input, RequestHead};
use model::tokenize::{Keep, Offsets, TokenizeOptions, Tokenized};

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
        let texts = permit.hold_inputs(&inputs)?;
        if inputs.iter().map(Input::bytes).sum::<u64>() > INLINE_BYTES {
            permit.begin_tokenizing(&inputs);
        }
        // The text that ids stand for is not one that the client has.
        let offsets = if is_text { Offsets::Find } else { Offsets::Skip };
        let options = TokenizeOptions { prompt, keep: Keep::All, offsets };
        let lists = tokenizing::tokenize(self, &resident, inputs, options, permit).await?;
        let held = texts + tokenizing::held_bytes(&lists) as u64;
        permit.hold(held)?;
        permit.end_tokenizing(held);
        Ok(lists)
    }
}
