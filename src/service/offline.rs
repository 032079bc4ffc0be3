//! Requests of a file: checked and tokenized without a queue, by whoever runs their items.

use super::chunking::TextsToRun;
use super::embedding::{check_lengths, cutter};
use super::looked_up;
use super::tokenizing::tokenize_one;
use super::{EmbedError, EmbedRequest, EmbeddingService};
use model::package::manifest::Manifest;
use model::tokenize::{Keep, TextTokenizer, TokenizeOptions, Tokenized};

impl EmbeddingService {
    /// Token ids of every input of a request, or of its chunks, in order, on the calling thread.
    pub(crate) fn tokenize_here(
        &self,
        manifest: &Manifest,
        tokenizer: &TextTokenizer,
        request: EmbedRequest,
    ) -> Result<TextsToRun, EmbedError> {
        let prompt = self.check(manifest, &request)?;
        looked_up::source(manifest, tokenizer, &request.options)?;
        let EmbedRequest { inputs, options, chunking } = self.decode_here(request)?;
        let reading = TokenizeOptions { prompt, keep: Keep::ModelLimit, offsets: options.offsets };
        let Some(chunking) = chunking else {
            let one = |input| tokenize_one(tokenizer, input, reading, &|_| true);
            let tokens: Vec<Tokenized> = inputs.iter().map(one).collect::<Result<_, _>>()?;
            check_lengths(&tokens, options.over_long, manifest)?;
            return Ok(TextsToRun::whole(tokens));
        };
        let (cutter, inputs) = cutter(manifest, inputs, chunking, reading, &options);
        let mut texts = TextsToRun::default();
        for input in inputs.iter().enumerate() {
            texts.add(cutter.cut(tokenizer, input, &|_| true)?, cutter.most())?;
        }
        Ok(texts)
    }
}
