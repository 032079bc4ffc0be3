//! Which requests are taken: those that will be answered in time, by the cost model.
//!
//! A request is asked twice at most, each time before it costs anything: by its head before its
//! body is read, and by its items. Short texts are items at once. Long ones are asked before they
//! are tokenized, with the tokens that they are likely to have; then their room is reserved, and
//! their items are not asked again, unless they are chunks: those are more than the texts. Who has
//! room is accepted, so it is answered in a drain too.
//!
//! The wait of a request is what workers still run, then what waits before it, and what room is
//! reserved for. A request may find a wait of most of its time; the rest covers the model's error
//! and later requests, which go before the later items of this one. A refused request is told when
//! there will be room for it behind those that were refused before.
//!
//! An example: one worker, whose batch has 16.4 ms left; 42 bulk items of 100 tokens wait, each
//! 10.39 ms of a full batch of 53.2 ms. A request comes with 20 more of them and 600 ms of time.
//!
//! | | ms |
//! |---|---|
//! | the running batch has left | 16.4 |
//! | 42 items wait | 436.4 |
//! | half a batch, for later items that fill up earlier batches | 26.6 |
//! | **its wait** | 479.4 |
//! | its own items, 20 of 10.39 | 207.8 |
//! | its wait is over three quarters of its time by | 29.4 |
//! | its end is over its deadline by | 87.2 |
//!
//! It is refused and told to come back in 87.2 ms. It will keep the worker for 207.8 ms, and half
//! of the time to come is for those that come back, so the next one is told 87.2 + 415.6 ms.

use std::time::Duration;

use super::lanes::Width;
use super::{Digest, QueuePhase, Refusal, RowSource, SchedulerState};
use crate::batch::{Priority, Vectors};
use clock::Moment;
use settings::limits::{BULK_SHARE, RETRY_AFTER_MAX, TURNS_PART};

/// Over this time the load of interactive items is averaged.
const LOAD_SPAN: Duration = Duration::from_secs(5);

/// Part of the workers' time that is promised to those that come back; others go on arriving.
const RETRIES_PART: f64 = 0.5;

/// An eighth of the queue is kept for small requests: those of at most an eighth of what is kept.
const KEPT_PART: usize = 8;

/// Part of the workers' time for requests that seem to need more than their time.
const DOUBT_PART: f64 = 0.05;

/// A request that asks to be taken.
#[derive(Debug, Clone, Copy)]
pub struct NewRequest<'a> {
    /// Of each item.
    pub tokens: &'a [usize],
    /// Of each item; empty when its items share no run.
    pub digests: &'a [Digest],
    /// Which rows its items want.
    pub vectors: Vectors,
    /// Of all its items.
    pub priority: Priority,
    /// Items that wait at this moment are not run any more.
    pub deadline: Moment,
    /// What it got when it was asked before its texts were tokenized.
    pub reserved: Option<Reserved>,
}

impl<'a> NewRequest<'a> {
    /// A request that names nothing but its texts: their number decides its priority.
    pub fn of(tokens: &'a [usize], deadline: Moment) -> Self {
        let (digests, vectors, reserved) = (&[][..], Vectors::Both, None);
        let priority = Priority::of(tokens.len(), tokens.iter().sum());
        Self { tokens, digests, vectors, priority, deadline, reserved }
    }
}

/// A request of which only its head is known, or its texts without their ids.
#[derive(Debug, Clone, Copy)]
pub struct Announced<'a> {
    /// As its head names it, or as its size suggests.
    pub priority: Priority,
    /// Of each text, about. Of a head they are a guess, which decides only what others who say bulk
    /// are promised.
    pub tokens: &'a [usize],
    /// When its answer must be ready.
    pub deadline: Moment,
    /// Time until its texts are tokenized. The workers run what waits meanwhile.
    pub tokenizing: Duration,
    /// Whether its texts are there. Room is reserved for them: what did not come holds nobody up.
    pub has_come: bool,
}

/// Room for a request whose texts are being tokenized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// The request's.
    pub priority: Priority,
    /// Places in the queue.
    items: usize,
    /// Nanoseconds of the workers' time, for all of them together and without a correction.
    ns: u64,
}

impl Reserved {
    /// Whether it is room for so many items.
    pub const fn is_for(self, items: usize) -> bool {
        items <= self.items
    }
}

/// What the decisions remember.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// When those of each priority that were refused will have been served, if they come back when
    /// told to.
    retries: [Moment; 2],
    /// Of all rooms that are reserved: places, and nanoseconds of each priority.
    pub(super) reserved_items: usize,
    pub(super) reserved_ns: [u64; 2],
    /// When a request came first whose time seemed too short.
    first_doubt: Option<Moment>,
    /// From when on such a request is tried; `None` before the first try.
    next_try: Option<Moment>,
    /// Time that interactive items take on the narrowest lanes, where they run beside bulk;
    /// decaying.
    interactive_us: f64,
    /// When it was last brought up to date.
    updated: Moment,
}

impl Admission {
    /// A batch begins whose interactive items take `us` on one of the narrowest lanes.
    pub(crate) fn spend(&mut self, now: Moment, us: f64) {
        self.interactive_us = self.interactive_us(now) + us;
        self.updated = now;
    }

    fn interactive_us(&self, now: Moment) -> f64 {
        let spans = now.since(self.updated).as_secs_f64() / LOAD_SPAN.as_secs_f64();
        self.interactive_us * (-spans).exp()
    }
}

impl<T: Clone> SchedulerState<T> {
    /// Time that a new item would wait before it runs, were it the last of the queue.
    pub fn predicted_wait(&self, now: Moment) -> Duration {
        if self.is_idle() {
            return Duration::ZERO;
        }
        let backlog_us = self.backlog_us(Priority::Interactive) + self.backlog_us(Priority::Bulk);
        micros(self.running_us(now) + self.checks_us() + backlog_us)
    }

    /// Refuses a request that does not fit or would be late, unless room was reserved for all of
    /// it. One that adds no run holds nobody up, so it need only fit.
    pub(super) fn admit(
        &mut self,
        now: Moment,
        new: NewRequest<'_>,
        sources: &[RowSource],
    ) -> Result<(), Refusal> {
        self.can_run(new.reserved.is_some())?;
        let runs = new.tokens.iter().zip(sources);
        let runs = runs.filter(|(_, source)| **source == RowSource::NewRun);
        let runs: Vec<usize> = runs.map(|(tokens, _)| *tokens).collect();
        let rest = self.check_time(now, &runs, new.deadline.since(now))?;
        if !new.reserved.is_some_and(|reserved| reserved.is_for(new.tokens.len())) {
            let (priority, deadline) = (new.priority, new.deadline);
            let tokens = if rest.is_some() { &[] } else { &runs[..] };
            let (tokenizing, has_come) = (Duration::ZERO, true);
            let asked = Announced { priority, tokens, deadline, tokenizing, has_come };
            self.decide(now, asked, new.tokens.len())?;
        }
        if let Some(rest) = rest {
            self.admission.next_try = Some(now + rest);
        }
        Ok(())
    }

    /// Refuses what the engine cannot do in `time` however idle it is. Now and then it is tried all
    /// the same, or a run or a start that was disturbed would refuse it for ever, since what is not
    /// run is not measured anew; gives the rest that follows such a try.
    fn check_time(
        &mut self,
        now: Moment,
        runs: &[usize],
        time: Duration,
    ) -> Result<Option<Duration>, Refusal> {
        let needed = self.least_time(runs).filter(|&needed| needed > time && !time.is_zero());
        let (Some(needed), Some(&longest)) = (needed, runs.iter().max()) else { return Ok(None) };
        // What waits at the deadline expires: each worker runs one batch more at most.
        let batch_us = self.waiting.full_us().max(self.waiting.single_us(longest));
        let most = time + micros(batch_us * self.cost().correction());
        let rest = needed.min(most).div_f64(DOUBT_PART);
        let first = *self.admission.first_doubt.get_or_insert(now);
        // Before the first try each waits for its own rest only: nothing was spent yet.
        if now < self.admission.next_try.unwrap_or(first + rest) {
            return Err(Refusal::TooShort { needed });
        }
        Ok(Some(rest))
    }

    /// Refuses what `submit` would refuse, before the items are known. Gives the room that is
    /// reserved for a request whose texts have come.
    ///
    /// # Errors
    /// The refusal of the request. It counts as one.
    pub fn announce(
        &mut self,
        now: Moment,
        new: Announced<'_>,
    ) -> Result<Option<Reserved>, Refusal> {
        self.expire(now);
        self.reserve(now, new).inspect_err(|_| self.counts.refused += 1)
    }

    fn reserve(&mut self, now: Moment, new: Announced<'_>) -> Result<Option<Reserved>, Refusal> {
        // What seems to need more than its time is asked again as items, and told what it needs.
        let fits = |needed| needed <= new.deadline.since(now);
        let has_come = new.has_come && self.least_time(new.tokens).is_none_or(fits);
        let items = if has_come { new.tokens.len() } else { 1 };
        self.can_run(false)?;
        self.decide(now, Announced { has_come, ..new }, items)?;
        if !has_come {
            return Ok(None);
        }
        let us: f64 = new.tokens.iter().map(|&tokens| self.waiting.item_us(tokens)).sum();
        let (priority, ns) = (new.priority, (us * 1e3) as u64);
        self.admission.reserved_items += items;
        self.admission.reserved_ns[priority as usize] += ns;
        Ok(Some(Reserved { priority, items, ns }))
    }

    /// The request's items come now, or they never will.
    pub fn release(&mut self, reserved: Reserved) {
        self.admission.reserved_items -= reserved.items;
        self.admission.reserved_ns[reserved.priority as usize] -= reserved.ns;
    }

    /// Refuses a request for whose items there are no places, or that would be late. `asked` has
    /// the tokens of those that add a run.
    fn decide(&mut self, now: Moment, asked: Announced<'_>, items: usize) -> Result<(), Refusal> {
        let Announced { priority, tokens, deadline, tokenizing, has_come } = asked;
        // Heads that do not say bulk may be either, and of any length: nothing is promised to them.
        let is_guess = !has_come && priority == Priority::Interactive;
        let own = if is_guess { Duration::ZERO } else { self.own_time(tokens) };
        let time = deadline.since(now);
        let all = self.items.len() + self.admission.reserved_items;
        let over = (all + items).saturating_sub(self.places(items, all));
        if over > 0 {
            // The wait until so many have ended, as a part of the wait until all have.
            let part = over as f64 / all.max(over) as f64;
            let room_in = self.predicted_wait(now).mul_f64(part);
            return Err(Refusal::Full {
                retry_after: self.retry_after(now, priority, room_in, own),
            });
        }
        let wait = self.wait_of(now, priority).max(tokenizing);
        let end = if has_come { wait + own } else { wait };
        let late = wait.saturating_sub(longest_wait(time)).max(end.saturating_sub(time));
        if tokens.is_empty() || wait.is_zero() || time.is_zero() || late.is_zero() {
            return Ok(());
        }
        // One that is late with nothing before it is taken by an idle worker only.
        let room_in = late.min(wait);
        Err(Refusal::Late { retry_after: self.retry_after(now, priority, room_in, own) })
    }

    /// Places of the queue for a request of so many items, where `all` are taken or reserved: the
    /// last eighth is for requests of few.
    fn places(&self, items: usize, all: usize) -> usize {
        let kept = self.capacity / KEPT_PART;
        let is_small = items <= (kept / KEPT_PART).max(1);
        self.capacity - if is_small { 0 } else { kept.min(all) }
    }

    /// Fails fast: without a live worker nobody knows when there will be one, so a request is sent
    /// elsewhere at once. What was taken before waits for a replacement.
    fn can_run(&self, has_room: bool) -> Result<(), Refusal> {
        let lives = self.workers.iter().any(|worker| worker.live);
        match self.phase {
            QueuePhase::Draining if !has_room => Err(Refusal::Draining),
            QueuePhase::Open | QueuePhase::Draining if lives => Ok(()),
            QueuePhase::Open | QueuePhase::Draining | QueuePhase::Closed => Err(Refusal::NoWorker),
        }
    }

    /// Turns of a request's items: when each would run were the workers the request's own. So a
    /// large request lets others in between, and those cannot hold it up beyond its time.
    pub(super) fn turns(
        &self,
        now: Moment,
        new: NewRequest<'_>,
        sources: &[RowSource],
    ) -> Vec<Moment> {
        let last = now + new.deadline.since(now).mul_f64(TURNS_PART);
        let (mut before_us, workers) = (0.0, self.narrow_lanes());
        let mut turn = |(&tokens, source): (&usize, &RowSource)| {
            let turn = now + micros(before_us);
            if *source == RowSource::NewRun {
                before_us += self.waiting.item_us(tokens) * self.cost().correction() / workers;
            }
            turn.min(last)
        };
        new.tokens.iter().zip(sources).map(&mut turn).collect()
    }

    /// Time that a new item of a priority would wait before it runs.
    pub(super) fn wait_of(&self, now: Moment, priority: Priority) -> Duration {
        let (interactive_us, bulk_us) =
            (self.backlog_us(Priority::Interactive), self.backlog_us(Priority::Bulk));
        let before_us = match priority {
            Priority::Interactive if bulk_us > 0.0 => interactive_us / (1.0 - BULK_SHARE),
            Priority::Interactive => interactive_us,
            Priority::Bulk => (interactive_us + bulk_us).max(bulk_us / self.bulk_share(now)),
        };
        if self.is_idle() {
            return micros(before_us);
        }
        // Later items that fill up the batches of earlier ones run before it too: at most as much
        // again, and a batch; half of that as a rule.
        let filled_us = before_us.min(self.full_us());
        micros(self.running_us(now) + self.checks_us() + before_us + 0.5 * filled_us)
    }

    /// Part of the workers' time that interactive items leave to bulk items, of late.
    fn bulk_share(&self, now: Moment) -> f64 {
        let whole_us = LOAD_SPAN.as_secs_f64() * 1e6 * self.narrow_lanes();
        (1.0 - self.admission.interactive_us(now) / whole_us).max(BULK_SHARE)
    }

    /// A worker can start at once, and no item waits.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.can_start()
    }

    /// Time of what waits and of what room is reserved for, for all workers together.
    fn backlog_us(&self, priority: Priority) -> f64 {
        let reserved_us = self.admission.reserved_ns[priority as usize] as f64 / 1e3;
        let all_us = self.waiting.backlog_us(priority) + reserved_us;
        all_us * self.cost().correction() / self.narrow_lanes()
    }

    /// Time of a full batch, for all workers together.
    fn full_us(&self) -> f64 {
        self.waiting.full_us() * self.cost().correction() / self.narrow_lanes()
    }

    /// Time until the cores have run what they run, on average.
    fn running_us(&self, now: Moment) -> f64 {
        let core_us = |worker| self.left_us(now, worker) * self.lanes.width(worker) as f64;
        let all_us: f64 = (0..self.workers.len()).map(core_us).sum();
        all_us / (self.narrow_lanes() * self.lanes.width(0) as f64)
    }

    /// Time of a request on workers of its own.
    pub(super) fn own_time(&self, tokens: &[usize]) -> Duration {
        micros(self.own_us(tokens) * self.cost().correction())
    }

    /// The same on a machine that does nothing else; `None` before anything was measured. What
    /// disturbs the workers of late is left out: it may be over before the request runs. What was
    /// slower when it was measured than it is of late counts as it is of late.
    pub fn least_time(&self, tokens: &[usize]) -> Option<Duration> {
        let single = |&tokens: &usize| self.waiting.shapes().row(tokens);
        let longest = single(tokens.iter().max()?);
        let narrow_us = match self.cost().is_unmeasured(longest) {
            true => self.cost().least_us(longest),
            false => self.own_us(tokens) * self.cost().correction().min(1.0),
        };
        // On wider lanes each text may be alone.
        let wider_us = |Width { lanes, cost, .. }: &Width| {
            let all_us: f64 = tokens.iter().map(|item| cost.least_us(single(item))).sum();
            (all_us / *lanes as f64).max(cost.least_us(longest))
        };
        let wider = self.lanes.widths[1..].iter().filter(|wider| wider.cost.error().is_some());
        let least_us = wider.map(wider_us).fold(narrow_us, f64::min);
        self.cost().error().map(|_| micros(least_us))
    }

    fn own_us(&self, tokens: &[usize]) -> f64 {
        let Some(longest) = tokens.iter().copied().max() else { return 0.0 };
        let all_us: f64 = tokens.iter().map(|&tokens| self.waiting.item_us(tokens)).sum();
        (all_us / self.narrow_lanes()).max(self.waiting.single_us(longest))
    }

    /// When a request that finds room in `room_in`, and then takes `own`, should come back: behind
    /// those of its priority that were told so before. Nobody is told more than the longest time,
    /// so no more of it is promised either.
    fn retry_after(
        &mut self,
        now: Moment,
        priority: Priority,
        room_in: Duration,
        own: Duration,
    ) -> Duration {
        let latest = now + RETRY_AFTER_MAX;
        let retries = &mut self.admission.retries[priority as usize];
        let room = (now + room_in).max(*retries).min(latest);
        *retries = (room + own.div_f64(RETRIES_PART)).min(latest);
        room.since(now)
    }
}

/// The longest wait of a request with so much time.
fn longest_wait(time: Duration) -> Duration {
    time.mul_f64(1.0 - TURNS_PART)
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3) as u64)
}
