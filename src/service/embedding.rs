//! The way of one request: check, tokenize, run, assemble.

use std::sync::Arc;

use super::assembly::assemble;
use super::chunking::{Chunking, Cutter, RunPart, TextsToRun};
use super::compute::Wanted;
use super::door::Permit;
use super::{
    AnswerBytes, EmbedError, EmbedOptions, EmbedReply, EmbedRequest, EmbeddingService, Input,
    InputType, Lexical, Milestones, Occurrence, OverLong, Refusal, ResidentModel,
};
use super::{looked_up, tokenizing};
use crate::scheduler::{Reservation, RunError, RunSpan, Ticket};
use model::package::manifest::{Manifest, ModelKind, PromptName};
use model::tokenize::{Keep, Offsets, Span, TokenizeOptions, Tokenized};
use scheduling::batch::Priority;
use settings::TokenInput;
use vectors::ItemRows;

/// Of a token id, or a number of a row.
const FLOAT_BYTES: u64 = size_of::<f32>() as u64;

/// Of a word in JSON that need not be in its text. Few are longer than half of it.
const WORD_BYTES: u64 = 48;

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
        let manifest = resident.package.manifest();
        let lexical = looked_up::source(manifest, &resident.tokenizer, &request.options)?;
        let request = self.decode(request, permit).await?;
        let room = self.admit_items(&resident, &request, permit)?;
        let kept = if answer.has_texts { permit.hold_inputs(&request.inputs)? } else { 0 };
        let (options, inputs) = (request.options, request.inputs.len());
        // What the number of texts alone tells: a refusal now costs no tokenizing.
        let least = held_bytes(&resident, &options, inputs, &TextsToRun::default(), answer);
        permit.hold_more(least)?;
        let reading = TokenizeOptions { prompt, keep: Keep::ModelLimit, offsets: options.offsets };
        let texts = self.texts_to_run(&resident, request, reading, permit).await?;
        let tokenized = self.clock.now();
        let held = kept + held_bytes(&resident, &options, texts.answered(), &texts, answer);
        permit.hold(held)?;
        permit.end_tokenizing(held);
        let (rows, span, cache_use) = match lexical {
            Lexical::Table => (looked_up::rows(&resident.tokenizer, &texts), None, None),
            Lexical::Head | Lexical::Model => {
                let has_table = resident.tokenizer.question_table().is_some();
                let asked = texts.run.split_last().filter(|_| {
                    // The query of a ranking is the last text.
                    has_table && options.input_type == InputType::Ranking
                });
                let run = asked.map_or(&texts.run[..], |(_, documents)| documents);
                let ticket = self.submit(&resident, &options, run, room)?;
                let cache_use = ticket.cache_use;
                let (mut rows, span) = rows(ticket, &texts).await?;
                rows.extend(asked.map(|(query, _)| looked_up::row(&resident.tokenizer, query)));
                (rows, span, cache_use)
            }
        };
        let mut reply = assemble(resident.package.manifest(), &options, &texts, rows);
        let selected = self.clock.now();
        // Rows of the cache waited for no batch. A batch may have begun before this request came,
        // for others with the same text.
        let ran = span.map_or(tokenized, |span| span.ended).clamp(tokenized, selected);
        let started = span.map_or(ran, |span| span.started).clamp(tokenized, ran);
        reply.milestones = Milestones { tokenized, started, ran, selected };
        reply.cache_use = cache_use;
        if let Some(metrics) = &self.metrics {
            metrics.truncated(texts.truncated());
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

    /// Token ids of every input, or of its chunks.
    async fn texts_to_run(
        &self,
        resident: &Arc<ResidentModel>,
        EmbedRequest { mut inputs, options, chunking }: EmbedRequest,
        reading: TokenizeOptions,
        permit: &mut Permit,
    ) -> Result<TextsToRun, EmbedError> {
        let manifest = resident.package.manifest();
        let Some(chunking) = chunking else {
            let query = (options.input_type == InputType::Ranking).then(|| inputs.pop()).flatten();
            let mut texts = tokenizing::tokenize(self, resident, inputs, reading, permit).await?;
            if let Some(query) = query {
                let prompt = own_prompt(manifest, PromptName::Query);
                let reading = TokenizeOptions { prompt, ..reading };
                let query = vec![query];
                let query = tokenizing::tokenize(self, resident, query, reading, permit).await?;
                check_query(&query, options.over_long, manifest)?;
                texts = with_query(resident, texts, query, permit)?;
            }
            check_lengths(&texts, options.over_long, manifest)?;
            return Ok(TextsToRun::whole(texts));
        };
        let (cutter, inputs) = cutter(manifest, inputs, chunking, reading, &options);
        tokenizing::cut(resident, &self.compute, inputs, &Arc::new(cutter), permit).await
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
        let of_room = room.as_ref().and_then(|room| room.priority(tokenized.len()));
        let priority = of_room.unwrap_or_else(by_size);
        let ids = |item: &Tokenized| match options.token_vectors {
            true => item.ids.clone().with_token_vectors(),
            false => item.ids.clone(),
        };
        let items = tokenized.iter().map(ids).collect();
        let items = resident.scheduler.look_up(items, options.vectors);
        Ok(resident.scheduler.queue(items, Some(priority), options.deadline, room)?)
    }

    /// Refuses what can be refused without tokenizing; gives the prompt of the texts.
    pub(super) fn check(
        &self,
        manifest: &Manifest,
        request: &EmbedRequest,
    ) -> Result<Option<PromptName>, EmbedError> {
        let is_single = request.options.input_type != InputType::Ranking;
        if manifest.kind == ModelKind::CrossEncoder && is_single {
            return Err(EmbedError::VectorsNotAvailable);
        }
        if request.options.vectors.sparse() && manifest.sparse.is_none() {
            return Err(EmbedError::SparseNotAvailable);
        }
        if manifest.kind == ModelKind::Sparse {
            check_words(request)?;
        }
        if request.options.token_vectors && manifest.token_vector_size.is_none() {
            return Err(EmbedError::TokenVectorsNotAvailable);
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
        if is_ids && request.chunking.is_some() {
            return Err(EmbedError::ChunksWithoutText);
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

/// Refuses what a model cannot do that weighs words of whole texts.
fn check_words(request: &EmbedRequest) -> Result<(), EmbedError> {
    let EmbedOptions { vectors, offsets, lexical, .. } = request.options;
    if vectors.dense() {
        return Err(EmbedError::DenseNotAvailable);
    }
    if offsets == Offsets::Find && lexical != Lexical::Table {
        return Err(EmbedError::OffsetsOfWords);
    }
    match &request.chunking {
        Some(chunking) if chunking.late => Err(EmbedError::LateChunksOfWords),
        _ => Ok(()),
    }
}

/// What runs for documents and a query: all of them, or each document with the query. A long query
/// comes once and is in every pair, so there must be memory for the pairs first.
fn with_query(
    resident: &ResidentModel,
    documents: Vec<Tokenized>,
    query: Vec<Tokenized>,
    permit: &mut Permit,
) -> Result<Vec<Tokenized>, EmbedError> {
    if resident.package.manifest().kind != ModelKind::CrossEncoder {
        return Ok(documents.into_iter().chain(query).collect());
    }
    let pairs = || documents.iter().flat_map(|document| query.iter().map(move |q| (q, document)));
    let tokens: usize = pairs().map(|(query, other)| query.ids.len() + other.ids.len()).sum();
    permit.hold_more(FLOAT_BYTES * tokens as u64)?;
    Ok(pairs().map(|(query, document)| resident.tokenizer.pair(query, document)).collect())
}

/// What cuts the inputs of a request, and what is cut.
pub(super) fn cutter(
    manifest: &Manifest,
    inputs: Vec<Input>,
    mut chunking: Chunking,
    reading: TokenizeOptions,
    options: &EmbedOptions,
) -> (Cutter, Vec<Input>) {
    let inputs = chunking.texts(inputs);
    let EmbedOptions { vectors, over_long, .. } = *options;
    let limit = manifest.max_input_tokens;
    (Cutter { chunking, reading, vectors, over_long, limit }, inputs)
}

/// The most bytes that a request takes from when its texts are tokenized until its answer is
/// written: ids and places, rows, vectors, and the answer of so many `items`. It is the least as
/// long as the texts are not known.
fn held_bytes(
    resident: &ResidentModel,
    options: &EmbedOptions,
    items: usize,
    texts: &TextsToRun,
    answer: AnswerBytes,
) -> u64 {
    let manifest = resident.package.manifest();
    let hidden_size = manifest.hidden_size;
    let row_bytes = FLOAT_BYTES * hidden_size as u64;
    let dense = match options.vectors.dense() {
        true => row_bytes + answer.number * options.dimensions.unwrap_or(hidden_size) as u64,
        false => 0,
    };
    let of_token = manifest.token_vector_size.filter(|_| options.token_vectors).unwrap_or_default();
    let token_bytes = FLOAT_BYTES * of_token as u64;
    let top_k = options.selection.top_k.unwrap_or(usize::MAX);
    let words = manifest.words().map(|words| words.min(top_k));
    let piece = |&id: &u32| resident.tokenizer.piece(id).map_or(0, |piece| json_bytes(&piece));
    // What is answered of some tokens.
    let of_tokens = |ids: &[u32]| {
        let mut bytes = answer.token_number * (of_token * ids.len()) as u64;
        if options.vectors.sparse() {
            let most = words.unwrap_or_default().max(ids.len().min(top_k));
            bytes += (2 * FLOAT_BYTES + answer.weight) * most as u64;
        }
        if options.vectors.sparse() && answer.has_pieces {
            bytes += ids.iter().map(piece).sum::<u64>();
            bytes += WORD_BYTES * words.unwrap_or_default() as u64;
        }
        if options.offsets == Offsets::Find {
            let place = size_of::<Span>() + size_of::<Occurrence>();
            bytes += (place as u64 + answer.place) * ids.len() as u64;
        }
        bytes
    };
    let weights = if options.vectors.sparse() { FLOAT_BYTES } else { 0 };
    let each_token = FLOAT_BYTES + weights + token_bytes;
    // A row has all of its words, however few of them are answered.
    let of_words = 2 * FLOAT_BYTES * manifest.words().unwrap_or_default() as u64;
    let ran = |text: &Tokenized| of_words + each_token * text.ids.len() as u64;
    let (chunk, answered): (u64, u64) = match &texts.parts {
        None => (0, texts.run.iter().map(|text| of_tokens(&text.ids)).sum()),
        Some(parts) => {
            // Its rows are copied out of those of its text.
            let of = |part: &RunPart| {
                let ids = part.tokens_of(&texts.run[part.text]);
                of_tokens(ids) + token_bytes * ids.len() as u64
            };
            let copied = if options.vectors.dense() { row_bytes } else { 0 };
            (answer.chunk + copied, parts.iter().map(of).sum())
        }
    };
    let tokens = if options.token_vectors { answer.tokens } else { 0 };
    let each = ITEM_BYTES + answer.item + chunk + dense + tokens;
    answer.frame + each * items as u64 + answered + texts.run.iter().map(ran).sum::<u64>()
}

/// Bytes of a text within a string of JSON.
pub(crate) fn json_bytes(text: &str) -> u64 {
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

fn check_query(
    query: &[Tokenized],
    over_long: OverLong,
    manifest: &Manifest,
) -> Result<(), EmbedError> {
    check_lengths(query, over_long, manifest).map_err(|error| match error {
        EmbedError::ContextLengthExceeded { tokens, limit, .. } => {
            EmbedError::QueryTooLong { tokens, limit }
        }
        error => error,
    })
}

/// The prompt's name for what a text is used for. A model without any prompt takes every input
/// type, so that clients need not know which models have prompts. Many models were trained with a
/// prompt for queries alone: passages have none then.
///
/// # Errors
/// `NoPrompt` when the model has prompts, and none for this use.
pub(crate) fn prompt(
    manifest: &Manifest,
    input_type: InputType,
) -> Result<Option<PromptName>, EmbedError> {
    let query = own_prompt(manifest, PromptName::Query);
    let name = match input_type {
        InputType::Default => return Ok(manifest.default_prompt),
        InputType::Passage | InputType::Ranking => {
            return Ok(own_prompt(manifest, PromptName::Passage));
        }
        InputType::Query => query,
        InputType::Other => None,
    };
    match name {
        None if !manifest.prompts.are_none() => {
            Err(EmbedError::NoPrompt { asked: input_type, has_query: query.is_some() })
        }
        name => Ok(name),
    }
}

/// Whether a request that asks for this use asks for a prompt, and the model has none at all.
pub(crate) fn ignores(manifest: &Manifest, asked: InputType) -> bool {
    let asks = !matches!(asked, InputType::Default | InputType::Ranking);
    let is_looked_up = manifest.has_question_table() && asked == InputType::Query;
    asks && manifest.prompts.are_none() && !is_looked_up
}

/// A prompt, if the model has it.
fn own_prompt(manifest: &Manifest, name: PromptName) -> Option<PromptName> {
    manifest.prompts.text(name).map(|_| name)
}

async fn rows(
    mut ticket: Ticket,
    texts: &TextsToRun,
) -> Result<(Vec<ItemRows>, Option<RunSpan>), EmbedError> {
    let rows = (&mut ticket).await.map_err(|error| match error {
        RunError::Expired => EmbedError::DeadlineExceeded,
        RunError::EngineFailed(reason) => EmbedError::EngineFailed(reason),
        RunError::NonFinite { item } => EmbedError::NonFinite { index: texts.input_of(item) },
        RunError::NoWorker => EmbedError::Refused(Refusal::NoWorker),
    })?;
    Ok((rows, ticket.ran))
}
