//! Token ids become texts: those of OpenAI's tokenizers before anything else is done with them, and
//! those of the model for clients that ask what they stand for.

use std::sync::Arc;

use super::door::Permit;
use super::tokenizing::{PART_BYTES, split};
use super::{EmbedError, EmbedOptions, EmbedRequest, EmbeddingService, Input};
use model::tokenize::{OpenAiEncoding, SpecialPieces};
use settings::TokenInput;

/// Gives the text of an item's ids. It is told the item's place in the request, for errors.
type Decoder = dyn Fn(usize, &[u32]) -> Result<String, EmbedError> + Send + Sync;

impl EmbeddingService {
    /// Which tokenizer the token ids of a request are of: the request says it, else the server's
    /// setting does.
    pub(super) fn token_input(&self, options: &EmbedOptions) -> TokenInput {
        options.token_input.unwrap_or(self.config.token_input)
    }

    /// Makes texts of token ids that are not the model's.
    ///
    /// # Errors
    /// When an id is unknown, or an item's text is larger than an item may be.
    pub(super) async fn decode(
        &self,
        request: EmbedRequest,
        permit: &mut Permit,
    ) -> Result<EmbedRequest, EmbedError> {
        let Some(decoder) = self.decoder(&request) else { return Ok(request) };
        let EmbedRequest { inputs, options, chunking } = request;
        let texts = self.texts(inputs, Arc::new(decoder), permit).await?;
        // The ids are not needed any more.
        permit.hold(texts.iter().map(|text| text.len() as u64).sum())?;
        let inputs = texts.into_iter().map(|text| Input::Text(text.into())).collect();
        Ok(EmbedRequest { inputs, options, chunking })
    }

    /// The same on the calling thread, for a request of a file.
    pub(super) fn decode_here(&self, request: EmbedRequest) -> Result<EmbedRequest, EmbedError> {
        let Some(decoder) = self.decoder(&request) else { return Ok(request) };
        let EmbedRequest { inputs, options, chunking } = request;
        let texts = decode_part(&decoder, inputs, 0, self.config.http.max_item_bytes.get())?;
        let inputs = texts.into_iter().map(|text| Input::Text(text.into())).collect();
        Ok(EmbedRequest { inputs, options, chunking })
    }

    /// What makes texts of a request's token ids; `None` when they are texts, or the model's ids.
    fn decoder(
        &self,
        request: &EmbedRequest,
    ) -> Option<impl Fn(usize, &[u32]) -> Result<String, EmbedError> + use<>> {
        // Items are either all texts or all lists of ids.
        let Some(Input::TokenIds(_)) = request.inputs.first() else { return None };
        let encoding = OpenAiEncoding::of(self.token_input(&request.options))?;
        Some(move |index, ids: &[u32]| {
            encoding.decode(ids).map_err(|position| {
                let id = ids[position];
                EmbedError::TokenIdUnknown { index, position, id, encoding }
            })
        })
    }

    /// The texts that token ids of the model stand for, in their order.
    ///
    /// # Errors
    /// When an id is unknown, or an item's text is larger than an item may be.
    pub(crate) async fn model_texts(
        &self,
        ids: Vec<Input>,
        special: SpecialPieces,
        permit: &mut Permit,
    ) -> Result<Vec<String>, EmbedError> {
        let resident = self.available()?;
        let vocab_size = resident.package.manifest().vocab_size;
        let decoder = move |index, ids: &[u32]| {
            if let Some(position) = ids.iter().position(|&id| id as usize >= vocab_size) {
                let id = ids[position];
                let named = true;
                let fault =
                    EmbedError::TokenIdOutOfRange { index, position, id, vocab_size, named };
                return Err(fault);
            }
            let text = resident.tokenizer.text(ids, special);
            text.map_err(|error| EmbedError::EngineFailed(error.to_string()))
        };
        self.texts(ids, Arc::new(decoder), permit).await
    }

    /// It is done on the threads for such work: the first request may have to read a vocabulary,
    /// and a few ids may be a long text.
    async fn texts(
        &self,
        inputs: Vec<Input>,
        decoder: Arc<Decoder>,
        permit: &mut Permit,
    ) -> Result<Vec<String>, EmbedError> {
        let limit = self.config.http.max_item_bytes.get();
        let mut texts: Vec<String> = Vec::with_capacity(inputs.len());
        // Ids and texts are in memory together, and a text may be far larger than its ids.
        let mut bytes: u64 = inputs.iter().map(Input::bytes).sum();
        for part in split(inputs, PART_BYTES) {
            let (first, decoder) = (texts.len(), Arc::clone(&decoder));
            let work = self.compute.run(move |_| decode_part(&*decoder, part, first, limit));
            let part = work.await.map_err(EmbedError::EngineFailed)??;
            bytes += part.iter().map(|text| text.len() as u64).sum::<u64>();
            permit.hold(bytes)?;
            texts.extend(part);
        }
        Ok(texts)
    }
}

/// The texts of some items of a request; the first of them is item `first` there.
fn decode_part(
    decoder: &Decoder,
    part: Vec<Input>,
    first: usize,
    limit: u64,
) -> Result<Vec<String>, EmbedError> {
    let text = |(index, input)| {
        let ids = match input {
            Input::Text(text) => return Ok(text.into()),
            Input::TokenIds(ids) => ids,
        };
        let index = first + index;
        let text = decoder(index, &ids)?;
        match text.len() as u64 <= limit {
            true => Ok(text),
            false => Err(EmbedError::DecodedItemTooLarge { index, limit }),
        }
    };
    part.into_iter().enumerate().map(text).collect()
}
