//! Token ids of OpenAI's tokenizers become texts before anything else is done with them.

use super::door::Permit;
use super::tokenizing::{PART_BYTES, split};
use super::{EmbedError, EmbedOptions, EmbedRequest, EmbeddingService, Input};
use crate::config::TokenInput;
use crate::limits::MaxItemBytes;
use crate::tokenize::OpenAiEncoding;

impl EmbeddingService {
    /// What the token ids of a request are: the request's word, else the server's.
    pub(super) fn token_input(&self, options: &EmbedOptions) -> TokenInput {
        options.token_input.unwrap_or(self.options.token_input)
    }

    /// Makes texts of token ids that are not the model's. It is done on the threads for such work:
    /// the first request may have to read the vocabulary, and a few ids may be a long text.
    ///
    /// # Errors
    /// When an id is unknown or an item stands for more than an item may have.
    pub(super) async fn decode(
        &self,
        request: EmbedRequest,
        permit: &mut Permit,
    ) -> Result<EmbedRequest, EmbedError> {
        // Items are either all texts or all lists of ids.
        let Some(Input::TokenIds(_)) = request.inputs.first() else { return Ok(request) };
        let Some(encoding) = OpenAiEncoding::of(self.token_input(&request.options)) else {
            return Ok(request);
        };
        let EmbedRequest { inputs, options } = request;
        let limit = self.options.max_item_bytes;
        let mut texts = Vec::with_capacity(inputs.len());
        // Both are in memory meanwhile, and ids may stand for far more bytes than they have.
        let mut bytes: u64 = inputs.iter().map(Input::bytes).sum();
        for part in split(inputs, PART_BYTES) {
            let first = texts.len();
            let work = self.compute.run(move |_| decode_part(encoding, &part, first, limit));
            let part = work.await.map_err(EmbedError::EngineFailed)??;
            bytes += part.iter().map(Input::bytes).sum::<u64>();
            permit.hold(bytes)?;
            texts.extend(part);
        }
        Ok(EmbedRequest { inputs: texts, options })
    }
}

/// The texts of items of which the first is item `first` of the request.
fn decode_part(
    encoding: OpenAiEncoding,
    part: &[Input],
    first: usize,
    limit: MaxItemBytes,
) -> Result<Vec<Input>, EmbedError> {
    let text = |(index, input): (usize, &Input)| {
        let index = first + index;
        let ids = match input {
            Input::Text(text) => return Ok(Input::Text(text.clone())),
            Input::TokenIds(ids) => ids,
        };
        let unknown = |position: usize| {
            let id = ids[position];
            EmbedError::TokenIdUnknown { index, position, id, encoding }
        };
        let text = encoding.decode(ids).map_err(unknown)?;
        if text.len() as u64 > limit.get() {
            return Err(EmbedError::DecodedItemTooLarge { index, limit: limit.get() });
        }
        Ok(Input::Text(text))
    };
    part.iter().enumerate().map(text).collect()
}
