//! The way of one request: check, tokenize, run, assemble.

use super::compute::Wanted;
use super::door::Permit;
use super::occurrences::occurrences;
use super::tokenizing;
use super::{
    AnswerBytes, EmbedError, EmbedOptions, EmbedReply, EmbedRequest, EmbeddedItem,
    EmbeddingService, Input, InputType, Milestones, Occurrence, OverLong, Refusal, ResidentModel,
};
use crate::batch::Priority;
use crate::config::TokenInput;
use crate::dense;
use crate::package::manifest::{Manifest, PromptName};
use crate::scheduler::{ItemRows, Reservation, RunError, RunSpan, Ticket};
use crate::sparse::{self, Selection};
use crate::tokenize::{Keep, Offsets, Span, TokenizeOptions, Tokenized};

/// Of a token id, or a number of a row.
const FLOAT_BYTES: u64 = size_of::<f32>() as u64;

/// What is in memory for an item besides its numbers: it is known to the request, to the scheduler,
/// and to those who write the answer.
const ITEM_BYTES: u64 = 512;

impl EmbeddingService {
    /// Embeds every input of a request, in order. Dropping the future cancels what still waits;
    /// the caller drops it at the deadline. Before the model is run, `permit` holds all that the
    /// request will take, its answer of at most `answer` too.
    ///
    /// # Errors
    /// See [`EmbedError`]; the request has no partial answer.
    pub(crate) async fn embed(
        &self,
        request: EmbedRequest,
        answer: AnswerBytes,
        permit: &mut Permit,
    ) -> Result<EmbedReply, EmbedError> {
        let resident = self.available()?;
        let prompt = self.check(resident.package.manifest(), &request)?;
        let request = self.decode(request, permit).await?;
        let room = self.admit_items(&resident, &request, permit)?;
        let EmbedRequest { inputs, options } = request;
        // What the number of texts alone tells: a refusal now costs no tokenizing.
        permit.hold_more(held_bytes(&resident, &options, inputs.len(), &[], answer))?;
        let reading = TokenizeOptions { prompt, keep: Keep::ModelLimit, offsets: options.offsets };
        let tokens =
            tokenizing::tokenize(&resident, &self.compute, &self.pace, inputs, reading).await?;
        check_lengths(&tokens, options.over_long, resident.package.manifest())?;
        let tokenized = self.clock.now();
        let held = held_bytes(&resident, &options, tokens.len(), &tokens, answer);
        permit.hold(held)?;
        permit.end_tokenizing(held);
        let ticket = self.submit(&resident, &options, &tokens, room)?;
        let cache_use = ticket.cache_use();
        let (rows, span) = rows(ticket).await?;
        let mut reply = assemble(resident.package.manifest(), &options, &tokens, rows);
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
    /// future withdraws it, and `work` is told so while it runs.
    ///
    /// # Errors
    /// When the work panicked; the text is for the log.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Wanted) -> T + Send + 'static,
    ) -> Result<T, String> {
        self.compute.run(work).await
    }

    /// Hands the items to the scheduler, which takes all of them or none.
    fn submit(
        &self,
        resident: &ResidentModel,
        options: &EmbedOptions,
        tokenized: &[Tokenized],
        room: Option<Reservation>,
    ) -> Result<Ticket, EmbedError> {
        let by_size = || {
            let tokens = tokenized.iter().map(|item| item.ids.len()).sum();
            self.priority(options.priority, Priority::of(tokenized.len(), tokens))
        };
        let priority = room.as_ref().and_then(Reservation::priority).unwrap_or_else(by_size);
        let items = tokenized.iter().map(|item| item.ids.clone()).collect();
        let items = resident.scheduler.look_up(items, options.vectors);
        Ok(resident.scheduler.queue(items, Some(priority), options.deadline, room)?)
    }

    /// Refuses what can be refused without tokenizing; gives the prompt of the texts.
    pub(super) fn check(
        &self,
        manifest: &Manifest,
        request: &EmbedRequest,
    ) -> Result<Option<PromptName>, EmbedError> {
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
        self.check_inputs(manifest, request)
    }

    /// Refuses token ids that are of no vocabulary, or of one that nobody named; gives the prompt
    /// of the texts.
    pub(super) fn check_inputs(
        &self,
        manifest: &Manifest,
        request: &EmbedRequest,
    ) -> Result<Option<PromptName>, EmbedError> {
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

/// The most bytes that a request takes from when its texts are tokenized until its answer is
/// written: ids and places, rows, vectors, and the answer. It is the least as long as `tokenized`
/// is not known.
fn held_bytes(
    resident: &ResidentModel,
    options: &EmbedOptions,
    items: usize,
    tokenized: &[Tokenized],
    answer: AnswerBytes,
) -> u64 {
    let hidden_size = resident.package.manifest().hidden_size;
    let dense = match options.vectors.dense() {
        true => {
            let dimensions = options.dimensions.unwrap_or(hidden_size);
            FLOAT_BYTES * hidden_size as u64 + answer.number * dimensions as u64
        }
        false => 0,
    };
    let top_k = options.selection.top_k.unwrap_or(usize::MAX);
    let piece = |&id: &u32| resident.tokenizer.piece(id).map_or(0, |piece| json_bytes(&piece));
    let of = |item: &Tokenized| {
        let tokens = item.ids.len() as u64;
        let mut bytes = FLOAT_BYTES * tokens;
        if options.vectors.sparse() {
            let weights = item.ids.len().min(top_k) as u64;
            bytes += FLOAT_BYTES * tokens + (2 * FLOAT_BYTES + answer.weight) * weights;
        }
        if options.vectors.sparse() && answer.has_pieces {
            bytes += item.ids.iter().map(piece).sum::<u64>();
        }
        if options.offsets == Offsets::Find {
            let place = size_of::<Span>() + size_of::<Occurrence>();
            bytes += (place as u64 + answer.place) * tokens;
        }
        bytes
    };
    let each = ITEM_BYTES + answer.item + dense;
    answer.frame + each * items as u64 + tokenized.iter().map(of).sum::<u64>()
}

/// Bytes of a text within a string of JSON.
fn json_bytes(text: &str) -> u64 {
    let of = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(of).sum()
}

/// Refuses a request whose items may not be cut, for the first one that was.
pub(super) fn check_lengths(
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
    let name = match input_type {
        InputType::Default => return Ok(manifest.default_prompt),
        InputType::Query => Some(PromptName::Query),
        InputType::Passage => Some(PromptName::Passage),
        InputType::Other => None,
    };
    let has = |name| manifest.prompts.text(name).is_some();
    match name {
        Some(name) if has(name) => Ok(Some(name)),
        _ if PromptName::ALL.into_iter().any(has) => Err(EmbedError::NoPrompt(input_type)),
        _ => Ok(None),
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

/// The answer to a request, from the ids and the rows of its inputs.
pub(crate) fn assemble(
    manifest: &Manifest,
    options: &EmbedOptions,
    tokenized: &[Tokenized],
    rows: Vec<ItemRows>,
) -> EmbedReply {
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
