//! Tokenizing a request: a short one where it arrives, a long one on the threads for such work.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;

use super::chunking::{Cutter, TextsToRun};
use super::compute::{ComputePool, Wanted};
use super::door::{INLINE_BYTES, Permit};
use super::{EmbedError, EmbeddingService, Input, Refusal, ResidentModel};
use clock::Clock;
use model::tokenize::{TextTokenizer, TokenizeError, TokenizeOptions, Tokenized};

/// What a long request gives the threads at once, some 10 ms: requests of others come in between.
pub(super) const PART_BYTES: u64 = 256 * 1024;

/// How much the newest part counts in the measured speed.
const NEWEST_WEIGHT: f64 = 0.1;

/// How fast long texts become ids, which is slower while the engine keeps the cores busy.
pub(super) struct Pace {
    clock: Arc<dyn Clock>,
    /// Of one thread; 0 until something was measured.
    bytes_per_s: AtomicU64,
    threads: usize,
}

impl Pace {
    pub(super) const fn new(clock: Arc<dyn Clock>, threads: usize) -> Self {
        Self { clock, bytes_per_s: AtomicU64::new(0), threads }
    }

    /// Time until `bytes` of texts are tokenized, by all threads; zero as long as nobody knows.
    pub(super) fn time_of(&self, bytes: u64) -> Duration {
        let rate = self.bytes_per_s.load(Ordering::Relaxed) as f64 * self.threads as f64;
        if rate > 0.0 { Duration::from_secs_f64(bytes as f64 / rate) } else { Duration::ZERO }
    }

    /// Does `work`, which tokenizes `part`; measures it when it succeeds and there are texts.
    fn measure<T, E>(&self, part: &[Input], work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let start = self.clock.now();
        let done = work()?;
        let bytes = Input::text_bytes(part);
        if bytes == 0 {
            return Ok(done);
        }
        let took = self.clock.now().since(start).as_secs_f64();
        let seen = bytes as f64 / took.max(1e-6);
        let known = self.bytes_per_s.load(Ordering::Relaxed) as f64;
        let next = if known > 0.0 { known + NEWEST_WEIGHT * (seen - known) } else { seen };
        self.bytes_per_s.store(next as u64, Ordering::Relaxed);
        Ok(done)
    }
}

/// Token ids of every input, in their order. `permit` holds those of long texts as they come.
/// Dropping the future ends the work, within a text too.
pub(super) async fn tokenize(
    service: &EmbeddingService,
    resident: &Arc<ResidentModel>,
    inputs: Vec<Input>,
    options: TokenizeOptions,
    permit: &mut Permit,
) -> Result<Vec<Tokenized>, EmbedError> {
    let (compute, pace) = (&service.compute, &service.pace);
    let bytes: u64 = inputs.iter().map(Input::bytes).sum();
    if bytes <= INLINE_BYTES {
        let tokenizer = &resident.tokenizer;
        let one = |input: &Input| tokenize_one(tokenizer, input, options, &|_| true);
        return inputs.iter().map(one).collect();
    }
    // The thread that received the body frees it: what another thread frees, the allocator would
    // keep for this one alone.
    let _body = inputs.iter().find_map(|input| match input {
        Input::Text(text) if !text.is_empty() => Some(text.clone()),
        Input::Text(_) | Input::TokenIds(_) => None,
    });
    let held = Arc::new(Mutex::new(permit.of_work()));
    let parts = stream::iter(split(inputs, PART_BYTES)).map(|part| {
        let (resident, pace) = (Arc::clone(resident), Arc::clone(pace));
        let held = Arc::clone(&held);
        let work = compute.run(move |wanted| {
            let all = |working: &Working<'_>| {
                let (mut texts, mut held) = (Vec::with_capacity(part.len()), 0);
                for input in &part {
                    let may_hold = |more| working.may_hold(held + more);
                    check_wanted(may_hold(0))?;
                    texts.push(tokenize_one(&resident.tokenizer, input, options, &may_hold)?);
                    held += held_bytes(&texts[texts.len() - 1..]);
                }
                check_wanted(working.may_hold(held))?;
                Ok(texts)
            };
            Working::run(wanted, &held, |working| pace.measure(&part, || all(working)))
        });
        async { work.await.map_err(EmbedError::EngineFailed)? }
    });
    let (mut texts, mut parts) = (Vec::new(), parts.buffered(compute.threads()));
    while let Some(part) = parts.next().await {
        texts.extend(part?);
    }
    permit.take_over(&mut held.lock());
    Ok(texts)
}

/// A piece of the work on a request, beside others.
struct Working<'a> {
    wanted: &'a Wanted,
    /// What all pieces hold.
    permit: &'a Mutex<Permit>,
    own_bytes: Cell<u64>,
    refusal: Cell<Option<Refusal>>,
}

impl<'a> Working<'a> {
    /// Does `work`, which asks now and then whether it may hold what it holds.
    ///
    /// # Errors
    /// That of the work; the refusal where there was no memory for it.
    fn run<T>(
        wanted: &'a Wanted,
        permit: &'a Mutex<Permit>,
        work: impl FnOnce(&Self) -> Result<T, EmbedError>,
    ) -> Result<T, EmbedError> {
        let (own_bytes, refusal) = (Cell::new(0), Cell::new(None));
        let working = Self { wanted, permit, own_bytes, refusal };
        let done = work(&working);
        working.refusal.get().map_or(done, |refusal| Err(refusal.into()))
    }

    /// Whether the work goes on: somebody waits for it, and it may hold so many bytes.
    fn may_hold(&self, bytes: usize) -> bool {
        let (mut permit, bytes) = (self.permit.lock(), bytes as u64);
        let of_others = permit.bytes() - self.own_bytes.get();
        match permit.hold(of_others + bytes) {
            Ok(()) => self.own_bytes.set(bytes),
            Err(refusal) => self.refusal.set(Some(refusal)),
        }
        self.refusal.get().is_none() && self.wanted.get()
    }
}

/// Bytes in memory of what runs for texts: ids, and places as far as somebody asked.
pub(super) fn held_bytes(texts: &[Tokenized]) -> usize {
    let of = |text: &Tokenized| size_of_val(&text.ids[..]) + size_of_val(&text.spans[..]);
    texts.iter().map(of).sum()
}

/// What runs for texts that are cut, in their order. `permit` holds that of long texts as it comes.
/// Each is one piece of work: a text may be no larger than an item.
pub(super) async fn cut(
    resident: &Arc<ResidentModel>,
    compute: &ComputePool,
    inputs: Vec<Input>,
    cutter: &Arc<Cutter>,
    permit: &mut Permit,
) -> Result<TextsToRun, EmbedError> {
    let bytes: u64 = inputs.iter().map(Input::bytes).sum();
    let (mut texts, most) = (TextsToRun::default(), cutter.most());
    if bytes <= INLINE_BYTES {
        for (index, input) in inputs.iter().enumerate() {
            texts.add(cutter.cut(&resident.tokenizer, (index, input), &|_| true)?, most)?;
        }
        return Ok(texts);
    }
    // As in `tokenize`.
    let _body = inputs.first().cloned();
    let held = Arc::new(Mutex::new(permit.of_work()));
    let works = stream::iter(inputs.into_iter().enumerate()).map(|(index, input)| {
        let (resident, cutter) = (Arc::clone(resident), Arc::clone(cutter));
        let held = Arc::clone(&held);
        let work = compute.run(move |wanted| {
            Working::run(wanted, &held, |working| {
                let may_hold = |bytes| working.may_hold(bytes);
                let texts = cutter.cut(&resident.tokenizer, (index, &input), &may_hold)?;
                check_wanted(may_hold(held_bytes(&texts.run)))?;
                Ok(texts)
            })
        });
        async { work.await.map_err(EmbedError::EngineFailed)? }
    });
    let mut works = works.buffered(compute.threads());
    while let Some(next) = works.next().await {
        texts.add(next?, most)?;
    }
    permit.take_over(&mut held.lock());
    Ok(texts)
}

/// Parts of neighbours, each of about `part_bytes`, in their order.
pub(super) fn split(inputs: Vec<Input>, part_bytes: u64) -> Vec<Vec<Input>> {
    let mut parts = vec![Vec::new()];
    let mut filled = 0;
    for input in inputs {
        let bytes = input.bytes();
        // An input begins the next part when less than half of it fits into this one.
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

pub(super) fn tokenize_one(
    tokenizer: &TextTokenizer,
    input: &Input,
    options: TokenizeOptions,
    wanted: &dyn Fn(usize) -> bool,
) -> Result<Tokenized, EmbedError> {
    match input {
        Input::Text(text) => tokenize_text(tokenizer, text, options, wanted),
        Input::TokenIds(ids) => Ok(tokenizer.wrap(ids, options.keep)),
    }
}

pub(super) fn tokenize_text(
    tokenizer: &TextTokenizer,
    text: &str,
    options: TokenizeOptions,
    wanted: &dyn Fn(usize) -> bool,
) -> Result<Tokenized, EmbedError> {
    tokenizer.tokenize_with(text, options, wanted).map_err(|error| match error {
        TokenizeError::Unwanted => UNWANTED,
        other => EmbedError::EngineFailed(other.to_string()),
    })
}

/// Nobody reads this answer, or a refusal takes its place.
const UNWANTED: EmbedError = EmbedError::DeadlineExceeded;

/// Ends work that may not go on.
pub(super) fn check_wanted(may_go_on: bool) -> Result<(), EmbedError> {
    if may_go_on { Ok(()) } else { Err(UNWANTED) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::ManualClock;
    use proptest::prelude::*;

    fn texts(lengths: &[usize]) -> Vec<Input> {
        lengths.iter().map(|&length| Input::Text("a".repeat(length).into())).collect()
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
    fn the_time_of_texts_follows_from_those_before() {
        let clock = Arc::new(ManualClock::default());
        let pace = Pace::new(Arc::clone(&clock) as Arc<dyn Clock>, 2);
        assert_eq!(pace.time_of(1_000_000), Duration::ZERO, "nobody knows yet");
        let measure = |part: &[Input], millis, ok: bool| {
            pace.measure(part, || {
                clock.advance(Duration::from_millis(millis));
                ok.then_some(()).ok_or(())
            })
        };
        let run = |bytes, millis, ok| measure(&texts(&[bytes]), millis, ok);
        assert_eq!(run(1_000_000, 100, true), Ok(()));
        // 10 MB/s on each of two threads.
        assert_eq!(pace.time_of(20_000_000), Duration::from_secs(1));
        assert_eq!(run(1_000_000, 1, false), Err(()));
        assert_eq!(pace.time_of(20_000_000), Duration::from_secs(1), "it did not succeed");
        assert_eq!(measure(&[Input::TokenIds(vec![7; 250_000])], 1, true), Ok(()));
        assert_eq!(pace.time_of(20_000_000), Duration::from_secs(1), "ids are only copied");
        assert_eq!(run(1_000_000, 1000, true), Ok(()));
        assert!(pace.time_of(20_000_000) > Duration::from_secs(1));
    }

    #[test]
    fn equal_texts_are_shared_evenly() {
        let parts = split(texts(&[10; 8]), 40);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    }
}
