//! Simulated load on the scheduler's state machine, beside arrival order; run with `--nocapture`
//! for the figures.

use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use duovec::batch::cost::CostModel;
use duovec::batch::plan::{BucketTable, WaitingItem, WaitingItems, bucket_ladder};
use duovec::batch::{Bucket, Priority, Vectors, smallest_for};
use duovec::clock::Moment;
use duovec::limits::{BULK_SHARE, MaxAgeMs, MaxBatchRows, MaxBatchTokens};
use duovec::scheduler::Refusal;
use duovec::scheduler::state::{Action, Event, SchedulerState, StateConfig};
use fastrand::Rng;

const MAX_AGE: Duration = Duration::from_millis(MaxAgeMs::DEFAULT.get());

fn ladder() -> Vec<Bucket> {
    bucket_ladder(512, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT)
}

/// Lengths of short texts with a tail, as in a multilingual corpus: 46 tokens on average.
fn text(random: &mut Rng) -> usize {
    let tail = -(1.0 - random.f64()).ln();
    ((8.0 + 38.0 * tail) as usize).min(512)
}

fn texts(random: &mut Rng, count: usize) -> Vec<usize> {
    (0..count).map(|_| text(random)).collect()
}

/// Request and tokens of an item.
type Item = (usize, usize);

/// Chooses batches of one worker.
trait Scheduling {
    /// The request's items wait from now on, or it should come back after a time.
    fn submit(&mut self, now: Moment, request: usize, asked: &Asked) -> Result<(), Duration>;
    /// The next batch; requests that are given up.
    fn start(&mut self, now: Moment) -> (Option<(Bucket, Vec<Item>)>, Vec<usize>);
    /// The batch has run.
    fn done(&mut self, now: Moment);
}

/// The state machine.
struct Planned {
    state: SchedulerState<Item>,
    expired: Vec<usize>,
}

impl Planned {
    fn new() -> Self {
        let config = StateConfig { capacity: 1_000_000, max_age: MAX_AGE, workers: 1, wide: false };
        let mut state = SchedulerState::new(config, BucketTable::new(&ladder()));
        state.handle(Moment::START, &Event::WorkerOpened { worker: 0 });
        Self { state, expired: Vec::new() }
    }
}

impl Scheduling for Planned {
    fn submit(&mut self, now: Moment, request: usize, asked: &Asked) -> Result<(), Duration> {
        let (tokens, priority) = (&asked.tokens[..], asked.priority);
        let contents: Vec<Item> = tokens.iter().map(|&tokens| (request, tokens)).collect();
        let (contents, deadline) = (&contents[..], now + asked.timeout);
        let mut answer = Ok(());
        let (digests, vectors) = (&[][..], Vectors::Both);
        let event = Event::Submit { tokens, contents, digests, vectors, priority, deadline };
        for action in self.state.handle(now, &event) {
            match action {
                Action::Refuse(Refusal::Full { retry_after } | Refusal::Late { retry_after }) => {
                    answer = Err(retry_after);
                }
                Action::Expire { content, .. } => self.expired.push(content.0),
                _ => {}
            }
        }
        answer
    }

    fn start(&mut self, now: Moment) -> (Option<(Bucket, Vec<Item>)>, Vec<usize>) {
        let mut batch = None;
        for action in self.state.handle(now, &Event::AskForWork { worker: 0 }) {
            match action {
                Action::Run { bucket, items, .. } => {
                    let items = items.into_iter().map(|(_, content)| content);
                    batch = Some((bucket, items.collect()));
                }
                Action::Expire { content, .. } => self.expired.push(content.0),
                _ => {}
            }
        }
        (batch, std::mem::take(&mut self.expired))
    }

    fn done(&mut self, now: Moment) {
        self.state.handle(now, &Event::BatchDone { worker: 0, failed: &[] });
    }
}

/// Items in the order of their arrival, as many as the budget allows, padded to the longest.
#[derive(Default)]
struct ArrivalOrder(VecDeque<Item>);

impl Scheduling for ArrivalOrder {
    fn submit(&mut self, _: Moment, request: usize, asked: &Asked) -> Result<(), Duration> {
        self.0.extend(asked.tokens.iter().map(|&tokens| (request, tokens)));
        Ok(())
    }

    fn start(&mut self, _: Moment) -> (Option<(Bucket, Vec<Item>)>, Vec<usize>) {
        let ladder = ladder();
        let holds = |longest: usize, rows: usize| {
            let longer = ladder.iter().filter(|bucket| bucket.length >= longest);
            let length = longer.map(|bucket| bucket.length).min()?;
            let same = ladder.iter().filter(|bucket| bucket.length == length);
            same.copied().find(|bucket| bucket.rows >= rows)
        };
        let (mut longest, mut items, mut bucket) = (0, Vec::new(), None);
        while let Some(&(request, tokens)) = self.0.front() {
            longest = longest.max(tokens);
            let Some(larger) = holds(longest, items.len() + 1) else { break };
            bucket = Some(larger);
            items.push((request, tokens));
            self.0.pop_front();
        }
        (bucket.map(|bucket| (bucket, items)), Vec::new())
    }

    fn done(&mut self, _: Moment) {}
}

/// A request on its way.
#[derive(Clone)]
struct Asked {
    tokens: Vec<usize>,
    priority: Option<Priority>,
    timeout: Duration,
    /// Sends the next request as soon as this one has ended.
    client: Option<usize>,
    /// How often it has been sent.
    tries: usize,
}

/// How a request ended.
struct Ended {
    asked: Asked,
    at: Moment,
    sent: Moment,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Answered,
    Expired,
    Refused,
}

/// One worker, its clients, and what became of the requests.
struct World<S> {
    scheduling: S,
    random: Rng,
    /// Measured over predicted time.
    slowness: f64,
    /// Refused requests come back when they are told to, so often.
    tries: usize,
    arrivals: BinaryHeap<std::cmp::Reverse<(Moment, usize)>>,
    requests: Vec<(Asked, Moment, usize)>,
    ended: Vec<Ended>,
    real: usize,
    padded: usize,
    longest_batch: Duration,
}

impl<S: Scheduling> World<S> {
    fn new(scheduling: S) -> Self {
        Self {
            scheduling,
            random: Rng::with_seed(11),
            slowness: 1.0,
            tries: 1,
            arrivals: BinaryHeap::new(),
            requests: Vec::new(),
            ended: Vec::new(),
            real: 0,
            padded: 0,
            longest_batch: Duration::ZERO,
        }
    }

    fn send(&mut self, at: Moment, asked: Asked) {
        self.arrivals.push(std::cmp::Reverse((at, self.requests.len())));
        let items = asked.tokens.len();
        self.requests.push((asked, at, items));
    }

    /// Requests of `items` texts at random times, `rate` a second, until `end`.
    fn open_loop(&mut self, rate: f64, items: usize, timeout: Duration, end: Moment) {
        let mut at = Moment::START;
        loop {
            let gap = -(1.0 - self.random.f64()).ln() / rate;
            at = at + Duration::from_secs_f64(gap);
            if at >= end {
                return;
            }
            let tokens = texts(&mut self.random, items);
            let (priority, client) = (None, None);
            self.send(at, Asked { tokens, priority, timeout, client, tries: 1 });
        }
    }

    /// A client that sends `items` texts, waits for the answer, and so on.
    fn closed_loop(&mut self, client: usize, items: usize, timeout: Duration) {
        let tokens = texts(&mut self.random, items);
        let (priority, client) = (None, Some(client));
        self.send(Moment::START, Asked { tokens, priority, timeout, client, tries: 1 });
    }

    fn end(&mut self, now: Moment, request: usize, outcome: Outcome) {
        let (asked, sent, left) = &mut self.requests[request];
        if *left == 0 && outcome != Outcome::Answered {
            return;
        }
        *left = 0;
        let (asked, sent) = (asked.clone(), *sent);
        if asked.client.is_some() {
            let tokens = texts(&mut self.random, asked.tokens.len());
            self.send(now, Asked { tokens, tries: 1, ..asked });
        }
        self.ended.push(Ended { asked, at: now, sent, outcome });
    }

    /// Runs until `end`; what arrives later stays away.
    fn run(&mut self, end: Moment) {
        let mut now = Moment::START;
        let mut running: Option<(Moment, Vec<Item>)> = None;
        while now < end {
            let arrival = self.arrivals.peek().map(|&std::cmp::Reverse((at, _))| at);
            let finish = running.as_ref().map(|(at, _)| *at);
            let Some(next) = [arrival, finish].into_iter().flatten().min() else { break };
            now = now.max(next);
            if finish.is_some_and(|at| at <= now) {
                self.finish(now, running.take().map(|(_, items)| items).unwrap_or_default());
            }
            while let Some(&std::cmp::Reverse((at, request))) = self.arrivals.peek()
                && at <= now
            {
                self.arrivals.pop();
                self.arrive(at, request);
            }
            if running.is_none() {
                let (batch, expired) = self.scheduling.start(now);
                for request in expired {
                    self.end(now, request, Outcome::Expired);
                }
                running = batch.map(|(bucket, items)| {
                    self.real += items.iter().map(|(_, tokens)| tokens).sum::<usize>();
                    (now + self.time_of(bucket), items)
                });
            }
        }
    }

    fn time_of(&mut self, bucket: Bucket) -> Duration {
        self.padded += bucket.tokens();
        let time = CostModel::default().predict(bucket).mul_f64(self.slowness);
        self.longest_batch = self.longest_batch.max(time);
        time
    }

    fn arrive(&mut self, now: Moment, request: usize) {
        let asked = self.requests[request].0.clone();
        let Err(after) = self.scheduling.submit(now, request, &asked) else { return };
        if asked.tries >= self.tries {
            self.end(now, request, Outcome::Refused);
            return;
        }
        // As the header tells it: whole seconds.
        let after = Duration::from_secs(after.as_secs_f64().ceil().max(1.0) as u64);
        let tries = asked.tries + 1;
        self.send(now + after, Asked { tries, ..asked });
    }

    fn finish(&mut self, now: Moment, items: Vec<Item>) {
        self.scheduling.done(now);
        for (request, _) in items {
            let (_, _, left) = &mut self.requests[request];
            if *left > 0 {
                *left -= 1;
                if *left == 0 {
                    self.end(now, request, Outcome::Answered);
                }
            }
        }
    }

    /// Tokens of requests that were answered in time.
    fn good_tokens(&self) -> usize {
        let good = self.ended.iter().filter(|ended| is_good(ended));
        good.flat_map(|ended| &ended.asked.tokens).sum()
    }

    /// Sorted times from sending to answer, in milliseconds, of requests of so many texts.
    fn latencies_ms(&self, items: impl Fn(usize) -> bool) -> Vec<f64> {
        let answered = self
            .ended
            .iter()
            .filter(|ended| ended.outcome == Outcome::Answered && items(ended.asked.tokens.len()));
        let mut all: Vec<f64> =
            answered.map(|ended| ended.at.since(ended.sent).as_secs_f64() * 1e3).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }
}

fn is_good(ended: &Ended) -> bool {
    ended.outcome == Outcome::Answered && ended.at.since(ended.sent) <= ended.asked.timeout
}

/// The value below which a part of the sorted values is.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() as f64 * part) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

const HOUR: Duration = Duration::from_secs(3600);

fn after(seconds: f64) -> Moment {
    Moment::START + Duration::from_secs_f64(seconds)
}

/// Six bulk clients keep the worker busy while single texts arrive at random.
fn mixed_load<S: Scheduling>(name: &str, scheduling: S) -> World<S> {
    let mut world = World::new(scheduling);
    for client in 0..6 {
        world.closed_loop(client, if client < 4 { 32 } else { 256 }, HOUR);
    }
    world.open_loop(20.0, 1, HOUR, after(120.0));
    world.run(after(120.0));
    let tokens = world.good_tokens() as f64;
    let real = world.real as f64 / world.padded as f64;
    println!("{name}: {:.0} tokens/s, {real:.3} real per padded token", tokens / 120.0);
    for items in [1, 32, 256] {
        let all = world.latencies_ms(|count| count == items);
        let [p50, p99] = [0.5, 0.99].map(|part| quantile(&all, part));
        println!(
            "  {:5} requests of {items:3} texts: p50 {p50:6.0} ms, p99 {p99:6.0} ms",
            all.len()
        );
    }
    world
}

#[test]
fn little_is_padded_under_bulk() {
    let mut world = World::new(Planned::new());
    (0..4).for_each(|client| world.closed_loop(client, 32, HOUR));
    world.run(after(120.0));
    let (tokens, real) = (world.good_tokens() as f64, world.real as f64 / world.padded as f64);
    println!("4 x 32: {:.0} tokens/s, {real:.3} real per padded token", tokens / 120.0);
    assert!(real >= 0.89, "{real:.3}");
}

#[test]
fn mixed_load_is_faster_than_in_arrival_order() {
    let arrival = mixed_load("arrival order", ArrivalOrder::default());
    let planned = mixed_load("planner", Planned::new());
    assert!(planned.good_tokens() as f64 > arrival.good_tokens() as f64 * 1.2);
    assert!(planned.real as f64 > planned.padded as f64 * 0.9);
    let single_ms = planned.latencies_ms(|count| count == 1);
    let batch_ms = planned.longest_batch.as_secs_f64() * 1e3;
    let own = smallest_for(&ladder(), 512).expect("it fits the longest bucket");
    let own_ms = CostModel::default().predict_us(own) / 1e3;
    let p99 = quantile(&single_ms, 0.99);
    assert!(p99 <= 2.0 * (batch_ms + own_ms), "{p99:.0} ms, batches of {batch_ms:.0} ms");
}

/// Tokens a second of one worker that never lacks work.
fn capacity(items: usize, slowness: f64) -> f64 {
    let mut world = World::new(Planned::new());
    world.slowness = slowness;
    (0..256 / items).for_each(|client| world.closed_loop(client, items, HOUR));
    world.run(after(60.0));
    world.good_tokens() as f64 / 60.0
}

/// Three times the capacity for a minute.
fn overload(items: usize, slowness: f64, timeout: Duration) -> World<Planned> {
    let capacity = capacity(items, slowness);
    let mut world = World::new(Planned::new());
    world.slowness = slowness;
    world.open_loop(3.0 * capacity / 46.0 / items as f64, items, timeout, after(60.0));
    world.run(after(60.0));
    let goodput = world.good_tokens() as f64 / 60.0 / capacity;
    let count = |outcome| world.ended.iter().filter(|ended| ended.outcome == outcome).count();
    let [answered, expired, refused] =
        [Outcome::Answered, Outcome::Expired, Outcome::Refused].map(count);
    println!(
        "3 x {capacity:.0} tokens/s, {items} texts, {timeout:?}, slower by {slowness}: goodput \
         {goodput:.3} of capacity, {answered} answered, {expired} expired, {refused} refused"
    );
    assert!(goodput >= 0.9 && expired * 100 <= answered, "{items} texts, {timeout:?}");
    assert!(refused > answered);
    world
}

#[test]
fn overload_is_refused_and_what_is_taken_is_answered_in_time() {
    for (items, slowness, timeout_s) in
        [(1, 1.0, 1), (1, 1.0, 10), (32, 1.0, 10), (32, 1.5, 10), (32, 0.5, 10), (256, 1.0, 30)]
    {
        overload(items, slowness, Duration::from_secs(timeout_s));
    }
}

#[test]
fn no_class_is_left_out_when_interactive_requests_alone_are_too_many() {
    let capacity = capacity(1, 1.0);
    let mut world = World::new(Planned::new());
    world.open_loop(1.5 * capacity / 46.0, 1, Duration::from_secs(5), after(120.0));
    (0..4).for_each(|client| world.closed_loop(client, 32, Duration::from_secs(30)));
    world.run(after(120.0));
    let tokens = |items: usize| {
        let good = world.ended.iter().filter(|ended| is_good(ended));
        let same = good.filter(|ended| ended.asked.tokens.len() == items);
        same.flat_map(|ended| &ended.asked.tokens).sum::<usize>() as f64 / 120.0
    };
    let (interactive, bulk) = (tokens(1), tokens(32));
    println!("1.5 x interactive: {interactive:.0} tokens/s beside {bulk:.0} of bulk requests");
    assert!(bulk / (interactive + bulk) > BULK_SHARE * 0.9);
    assert!(interactive + bulk > capacity * 0.9);
}

#[test]
fn who_comes_back_when_told_to_is_mostly_taken() {
    for items in [1, 32] {
        let mut world = World::new(Planned::new());
        let rate = 3.0 * capacity(items, 1.0) / 46.0 / items as f64;
        world.tries = 2;
        world.open_loop(rate, items, Duration::from_secs(5), after(15.0));
        world.run(after(120.0));
        let back: Vec<&Ended> = world.ended.iter().filter(|end| end.asked.tries == 2).collect();
        let good = back.iter().filter(|ended| is_good(ended)).count();
        println!("{items} texts, 15 s of overload: {good} of {} were taken later", back.len());
        assert!(good as f64 >= back.len() as f64 * 0.8, "{good} of {}", back.len());
    }
}

#[test]
fn taking_a_batch_is_cheap_whatever_waits() {
    for (name, age) in [("none over its age", 0), ("all over their age", 20)] {
        let table = BucketTable::new(&ladder());
        let mut waiting = WaitingItems::new(table, &CostModel::default());
        let mut random = Rng::with_seed(1);
        let (mut next, mut taken, rounds) = (0, Duration::ZERO, 2000);
        for _ in 0..rounds {
            while waiting.len() < 8000 {
                let priority = [Priority::Interactive, Priority::Bulk][(next % 2) as usize];
                let (tokens, turn) = (text(&mut random), Moment::START);
                waiting.insert(WaitingItem { sequence: next, tokens, priority, turn });
                next += 1;
            }
            let start = Instant::now();
            let plan = waiting.take(Moment::START + MAX_AGE * age, MAX_AGE);
            taken += start.elapsed();
            assert!(plan.is_some());
        }
        println!("{name}: {:?} for a batch while 8000 items wait", taken / rounds);
    }
}
