//! The way of one request: check, tokenize, run, assemble.

use super::door::Permit;
use super::occurrences::occurrences;
use super::tokenizing;
use super::{
    EmbedError, EmbedOptions, EmbedReply, EmbedRequest, EmbeddedItem, EmbeddingService, Input,
    InputType, Milestones, OverLong, Refusal, ResidentModel,
};
use crate::batch::Priority;
use crate::config::TokenInput;
use crate::dense;
use crate::package::manifest::{Manifest, PromptName};
use crate::scheduler::{ItemRows, RunError, RunSpan, Ticket};
use crate::sparse::{self, Selection};
use crate::tokenize::{Keep, Offsets, TokenizeOptions, Tokenized};

impl EmbeddingService {
    /// Embeds every input of a request, in order. Dropping the future cancels what still waits;
    /// the caller drops it at the deadline.
    ///
    /// # Errors
    /// See [`EmbedError`]; the request has no partial answer.
    pub(crate) async fn embed(
        &self,
        request: EmbedRequest,
        permit: &mut Permit,
    ) -> Result<EmbedReply, EmbedError> {
        let resident = self.available()?;
        let prompt = self.check(&resident, &request)?;
        let request = self.decode(request, permit).await?;
        self.admit_items(&resident, &request, permit)?;
        let EmbedRequest { inputs, options } = request;
        let reading = TokenizeOptions { prompt, keep: Keep::ModelLimit, offsets: options.offsets };
        let tokens =
            tokenizing::tokenize(&resident, &self.compute, &self.pace, inputs, reading).await?;
        check_lengths(&tokens, options.over_long, resident.package.manifest())?;
        let tokenized = self.clock.now();
        let ids: usize = tokens.iter().map(|item| size_of_val(&*item.ids)).sum();
        permit.end_tokenizing(ids as u64);
        let ticket = self.submit(&resident, &options, &tokens)?;
        permit.submitted();
        let cache_use = ticket.cache_use();
        let (rows, span) = rows(ticket).await?;
        let mut reply = assemble(&resident, &options, &tokens, rows);
        let selected = self.clock.now();
        // Rows of the cache waited for no batch. A batch may have begun before this request came,
        // for others with the same text.
        let ran = span.map_or(tokenized, |span| span.ended).clamp(tokenized, selected);
        let started = span.map_or(ran, |span| span.started).clamp(tokenized, ran);
        reply.milestones = Milestones { tokenized, started, ran, selected };
        reply.cache_use = cache_use;
        if let Some(metrics) = &self.metrics {
            metrics.truncated(tokens.iter().filter(|item| item.is_truncated()).count());
        }
        Ok(reply)
    }

    /// Does `work`, which keeps a core busy, on the threads that are there for it. Dropping the
    /// future withdraws it.
    ///
    /// # Errors
    /// When the work panicked; the text is for the log.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.compute.run(|_| work()).await
    }

    /// Hands the items to the scheduler, which takes all of them or none.
    fn submit(
        &self,
        resident: &ResidentModel,
        options: &EmbedOptions,
        tokenized: &[Tokenized],
    ) -> Result<Ticket, EmbedError> {
        let tokens: Vec<usize> = tokenized.iter().map(|item| item.ids.len()).collect();
        let by_size = Priority::of(tokens.len(), tokens.iter().sum());
        let priority = Some(self.priority(options.priority, by_size));
        let items = tokenized.iter().map(|item| item.ids.clone()).collect();
        let items = resident.scheduler.look_up(items, options.vectors);
        let left = options.deadline.since(self.clock.now());
        // Even an idle server would be too slow, so a retry cannot help.
        let needed = resident.scheduler.least_time(items.tokens());
        if let Some(needed) = needed.filter(|&time| time > left) {
            return Err(EmbedError::TimeTooShort { needed });
        }
        Ok(resident.scheduler.queue(items, priority, options.deadline)?)
    }

    /// Refuses what can be refused without tokenizing; gives the prompt of the texts.
    fn check(
        &self,
        resident: &ResidentModel,
        request: &EmbedRequest,
    ) -> Result<Option<PromptName>, EmbedError> {
        let manifest = resident.package.manifest();
        if request.options.vectors.sparse() && manifest.sparse.is_none() {
            return Err(EmbedError::SparseNotAvailable);
        }
        if let Some(requested) = request.options.dimensions {
            let allowed = manifest.dimensions();
            if !allowed.contains(&requested) {
                return Err(EmbedError::InvalidDimensions { requested, allowed });
            }
        }
        let is_ids = matches!(request.inputs.first(), Some(Input::TokenIds(_)));
        if is_ids && request.options.offsets == Offsets::Find {
            return Err(EmbedError::OffsetsWithoutText);
        }
        self.check_inputs(resident, request)
    }

    /// Refuses token ids that are of no vocabulary, or of one that nobody named; gives the prompt
    /// of the texts.
    pub(super) fn check_inputs(
        &self,
        resident: &ResidentModel,
        request: &EmbedRequest,
    ) -> Result<Option<PromptName>, EmbedError> {
        let manifest = resident.package.manifest();
        for (index, input) in request.inputs.iter().enumerate() {
            let Input::TokenIds(ids) = input else { continue };
            match self.token_input(&request.options) {
                TokenInput::Reject => return Err(EmbedError::TokenInputRejected),
                TokenInput::Model => {}
                // They are looked up when they are decoded.
                TokenInput::Cl100kBase | TokenInput::O200kBase => continue,
            }
            let vocab_size = manifest.vocab_size;
            if let Some(position) = ids.iter().position(|&id| id as usize >= vocab_size) {
                let id = ids[position];
                let named = request.options.token_input.is_some();
                let fault =
                    EmbedError::TokenIdOutOfRange { index, position, id, vocab_size, named };
                return Err(fault);
            }
        }
        prompt(manifest, request.options.input_type)
    }
}

/// Refuses a request whose items may not be cut, for the first one that was.
fn check_lengths(
    tokenized: &[Tokenized],
    over_long: OverLong,
    manifest: &Manifest,
) -> Result<(), EmbedError> {
    match (over_long, tokenized.iter().position(Tokenized::is_truncated)) {
        (OverLong::Refuse, Some(index)) => {
            let (tokens, limit) = (tokenized[index].full_count, manifest.max_input_tokens);
            Err(EmbedError::ContextLengthExceeded { index, tokens, limit })
        }
        _ => Ok(()),
    }
}

/// The prompt's name for what a text is used for. A model without any prompt takes every input
/// type, so that clients need not know which models have prompts.
///
/// # Errors
/// `NoPrompt` when the model has prompts, and none for this use.
pub(crate) fn prompt(
    manifest: &Manifest,
    input_type: InputType,
) -> Result<Option<PromptName>, EmbedError> {
    let prompts = &manifest.prompts;
    let (name, text) = match input_type {
        InputType::Default => return Ok(manifest.default_prompt),
        InputType::Query => (PromptName::Query, &prompts.query),
        InputType::Passage => (PromptName::Passage, &prompts.passage),
    };
    match (text, &prompts.query, &prompts.passage) {
        (Some(_), _, _) => Ok(Some(name)),
        (None, None, None) => Ok(None),
        _ => Err(EmbedError::NoPrompt(input_type)),
    }
}

async fn rows(mut ticket: Ticket) -> Result<(Vec<ItemRows>, Option<RunSpan>), EmbedError> {
    let rows = (&mut ticket).await.map_err(|error| match error {
        RunError::Expired => EmbedError::DeadlineExceeded,
        RunError::EngineFailed(reason) => EmbedError::EngineFailed(reason),
        RunError::NonFinite { item } => EmbedError::NonFinite { index: item },
        RunError::NoWorker => EmbedError::Refused(Refusal::NoWorker),
    })?;
    Ok((rows, ticket.ran()))
}

fn assemble(
    resident: &ResidentModel,
    options: &EmbedOptions,
    tokenized: &[Tokenized],
    rows: Vec<ItemRows>,
) -> EmbedReply {
    let manifest = resident.package.manifest();
    let dimensions = options.dimensions.unwrap_or(manifest.hidden_size);
    let item = |(item, rows): (&Tokenized, ItemRows)| {
        let weights = (options.offsets == Offsets::Find).then(|| rows.weights.clone());
        let embedded = embedded_item(manifest, item, rows, dimensions, options.selection);
        let places = |weights: Vec<f32>| occurrences(item, &weights, &embedded.sparse);
        let occurrences = weights.map(places);
        EmbeddedItem { occurrences, ..embedded }
    };
    let items: Vec<EmbeddedItem> = tokenized.iter().zip(rows).map(item).collect();
    let prompt_tokens = items.iter().map(|item| item.tokens as u64).sum();
    EmbedReply { items, prompt_tokens, milestones: Milestones::default(), cache_use: None }
}

/// The vectors of one text, from its rows of a batch.
pub(crate) fn embedded_item(
    manifest: &Manifest,
    item: &Tokenized,
    rows: ItemRows,
    dimensions: usize,
    selection: Selection,
) -> EmbeddedItem {
    let dropped = manifest.sparse.as_ref().map_or(&[][..], |head| &head.dropped_token_ids);
    let (ids, weights) = text_positions(item, &rows.weights);
    EmbeddedItem {
        dense: dense::cut(rows.dense, dimensions),
        sparse: sparse::select(ids, weights, dropped, selection),
        occurrences: None,
        tokens: item.ids.len(),
        truncated_from: item.is_truncated().then_some(item.full_count),
    }
}

/// Ids and weights of the text alone: the prompt is ours, not the client's, and every text would
/// share its words.
fn text_positions<'a>(item: &'a Tokenized, weights: &'a [f32]) -> (&'a [u32], &'a [f32]) {
    if item.prompt_tokens == 0 {
        return (&item.ids, weights);
    }
    let start = 1 + item.prompt_tokens;
    (&item.ids[start..], weights.get(start..).unwrap_or_default())
}
