//! Simulated load on the scheduler's state machine, beside arrival order; run with `--nocapture`
//! for the figures.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use clock::Moment;
use fastrand::Rng;
use scheduling::Refusal;
use scheduling::batch::cost::{CostModel, Fit};
use scheduling::batch::plan::Shapes;
use scheduling::state::{Lane, NewRequest, Run, SchedulerState, StateConfig};
use settings::limits::{BULK_SHARE, MaxBatchTokens};

fn shapes() -> Shapes {
    Shapes::on_cpu(512, MaxBatchTokens::DEFAULT)
}

/// Lengths of short texts with a tail, as in a multilingual corpus: 46 tokens on average.
fn text(random: &mut Rng) -> usize {
    let tail = -(1.0 - random.f64()).ln();
    ((8.0 + 38.0 * tail) as usize).min(512)
}

fn texts(random: &mut Rng, count: usize) -> Vec<usize> {
    (0..count).map(|_| text(random)).collect()
}

/// A text of a request: the request's number and the text's tokens.
type Text = (usize, usize);

/// The scheduler's state with one worker, whose runs take as long as a cost model says.
struct Server {
    state: SchedulerState<Text>,
    /// How long runs take, as a multiple of what the scheduler expects.
    slowness: f64,
    /// The end and the texts of the run.
    running: Option<(Moment, Vec<Text>)>,
    /// The worker has not been told yet that there is nothing to do.
    asks: bool,
    /// How many texts of each accepted request have not run yet.
    left: HashMap<usize, usize>,
    work: WorkDone,
}

/// What a server has computed.
#[derive(Default)]
struct WorkDone {
    /// Tokens of the texts that ran.
    real_tokens: usize,
    /// Tokens of their batches, padding included.
    padded_tokens: usize,
    longest: Duration,
}

impl Server {
    fn new(slowness: f64) -> Self {
        let config = StateConfig { capacity: 1_000_000, lanes: Lane::apart(1) };
        let mut state = SchedulerState::new(config, shapes());
        state.set_cost(0, Fit { model: CostModel::default(), median_error: 0.0 });
        state.open_worker(0);
        let (left, work) = (HashMap::new(), WorkDone::default());
        Self { state, slowness, running: None, asks: true, left, work }
    }

    /// Accepts a request, or says after which time it may come back.
    fn submit(&mut self, now: Moment, number: usize, asked: &Asked) -> Result<(), Duration> {
        let contents: Vec<Text> = asked.tokens.iter().map(|&tokens| (number, tokens)).collect();
        let new = NewRequest::of(&asked.tokens, asked.sent + asked.timeout);
        self.state.submit(now, new, &contents).map_err(|refusal| match refusal {
            Refusal::Full { retry_after } | Refusal::Late { retry_after } => retry_after,
            other => panic!("{other}"),
        })?;
        self.left.insert(number, asked.tokens.len());
        Ok(())
    }

    /// Ends the run; gives the requests whose last text it had.
    fn finish(&mut self, now: Moment) -> Vec<usize> {
        let (_, texts) = self.running.take().expect("a run ends");
        self.state.complete_batch(now, 0, &[], false);
        self.asks = true;
        let mut answered = Vec::new();
        for (number, tokens) in texts {
            self.work.real_tokens += tokens;
            let Some(left) = self.left.get_mut(&number) else { continue };
            *left -= 1;
            if *left == 0 {
                self.left.remove(&number);
                answered.push(number);
            }
        }
        answered
    }

    /// Starts a run if the worker is idle and something waits; gives the requests that expired.
    fn start(&mut self, now: Moment) -> Vec<usize> {
        let mut effects = self.state.take_effects();
        self.asks |= !effects.woken.is_empty();
        if std::mem::take(&mut self.asks) {
            if let Some(Run { bucket, items, .. }) = self.state.ask_for_work(now, 0) {
                let time = CostModel::default().predict(bucket).mul_f64(self.slowness);
                self.work.padded_tokens += bucket.tokens();
                self.work.longest = self.work.longest.max(time);
                let texts = items.into_iter().map(|(_, text)| text).collect();
                self.running = Some((now + time, texts));
            }
            effects.expired.extend(self.state.take_effects().expired);
        }
        // All texts of a request that wait expire together.
        let numbers = effects.expired.into_iter().map(|(_, (number, _))| number);
        numbers.filter(|number| self.left.remove(number).is_some()).collect()
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Answered,
    /// A text still waited at the deadline.
    Expired,
    /// It may come back after this time.
    Refused(Duration),
}

/// A request on its way.
#[derive(Clone)]
struct Asked {
    /// Of each of its texts.
    tokens: Vec<usize>,
    timeout: Duration,
    sent: Moment,
    /// Sends the next request as soon as this one has ended.
    client: Option<usize>,
    /// How often it has been sent.
    tries: usize,
}

/// How a request ended.
struct Ended {
    asked: Asked,
    at: Moment,
    outcome: Outcome,
}

/// The clients of one worker, and what became of their requests.
struct World {
    random: Rng,
    /// Refused requests come back when they are told to, so often.
    tries: usize,
    arrivals: BinaryHeap<Reverse<(Moment, usize)>>,
    requests: Vec<Asked>,
    ended: Vec<Ended>,
    work: WorkDone,
}

impl World {
    fn new() -> Self {
        Self {
            random: Rng::with_seed(11),
            tries: 1,
            arrivals: BinaryHeap::new(),
            requests: Vec::new(),
            ended: Vec::new(),
            work: WorkDone::default(),
        }
    }

    fn plan(&mut self, asked: Asked) {
        self.arrivals.push(Reverse((asked.sent, self.requests.len())));
        self.requests.push(asked);
    }

    /// A request that nobody has sent before.
    fn plan_new(&mut self, at: Moment, items: usize, timeout: Duration, client: Option<usize>) {
        let tokens = texts(&mut self.random, items);
        self.plan(Asked { tokens, timeout, sent: at, client, tries: 1 });
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
            self.plan_new(at, items, timeout, None);
        }
    }

    /// A client that sends `items` texts, waits for the answer, and so on.
    fn closed_loop(&mut self, client: usize, items: usize, timeout: Duration) {
        self.plan_new(Moment::START, items, timeout, Some(client));
    }

    /// Runs until `end`; what would end later has not ended.
    fn run(&mut self, slowness: f64, end: Moment) {
        let mut server = Server::new(slowness);
        loop {
            let run_ends = server.running.as_ref().map(|&(ends, _)| ends);
            let Some(now) = run_ends.into_iter().chain(self.next_arrival()).min() else { break };
            if now > end {
                break;
            }
            if run_ends == Some(now) {
                for number in server.finish(now) {
                    self.end(now, number, Outcome::Answered);
                }
            }
            while self.next_arrival().is_some_and(|at| at <= now) {
                let Reverse((_, number)) = self.arrivals.pop().expect("one is due");
                if let Err(after) = server.submit(now, number, &self.requests[number]) {
                    self.end(now, number, Outcome::Refused(after));
                }
            }
            for number in server.start(now) {
                self.end(now, number, Outcome::Expired);
            }
        }
        self.work = server.work;
    }

    fn next_arrival(&self) -> Option<Moment> {
        self.arrivals.peek().map(|&Reverse((at, _))| at)
    }

    /// What the client of a request does when the request has ended.
    fn end(&mut self, now: Moment, number: usize, outcome: Outcome) {
        let asked = self.requests[number].clone();
        if let Outcome::Refused(after) = outcome
            && asked.tries < self.tries
        {
            // As the header tells it: whole seconds.
            let after = after.as_secs_f64().ceil().max(1.0);
            let sent = now + Duration::from_secs(after as u64);
            self.plan(Asked { sent, tries: asked.tries + 1, ..asked });
            return;
        }
        if asked.client.is_some() {
            self.plan_new(now, asked.tokens.len(), asked.timeout, asked.client);
        }
        self.ended.push(Ended { asked, at: now, outcome });
    }

    /// Real tokens of the padded ones.
    fn filled(&self) -> f64 {
        self.work.real_tokens as f64 / self.work.padded_tokens as f64
    }

    /// Tokens of requests that were answered in time.
    fn good_tokens(&self) -> usize {
        let good = self.ended.iter().filter(|ended| is_good(ended));
        good.flat_map(|ended| &ended.asked.tokens).sum()
    }

    /// Sorted times from sending to answer, in milliseconds, of requests of so many texts.
    fn latencies_ms(&self, items: usize) -> Vec<f64> {
        let answered = self.ended.iter().filter(|ended| {
            ended.outcome == Outcome::Answered && ended.asked.tokens.len() == items
        });
        let mut all: Vec<f64> =
            answered.map(|ended| ended.at.since(ended.asked.sent).as_secs_f64() * 1e3).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }
}

fn is_good(ended: &Ended) -> bool {
    ended.outcome == Outcome::Answered && ended.at.since(ended.asked.sent) <= ended.asked.timeout
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
fn mixed_load() -> World {
    let mut world = World::new();
    for client in 0..6 {
        world.closed_loop(client, if client < 4 { 32 } else { 256 }, HOUR);
    }
    world.open_loop(20.0, 1, HOUR, after(120.0));
    world.run(1.0, after(120.0));
    let tokens = world.good_tokens() as f64;
    println!("mixed: {:.0} tokens/s, {:.3} real per run token", tokens / 120.0, world.filled());
    for items in [1, 32, 256] {
        let all = world.latencies_ms(items);
        let [p50, p99] = [0.5, 0.99].map(|part| quantile(&all, part));
        println!(
            "  {:5} requests of {items:3} texts: p50 {p50:6.0} ms, p99 {p99:6.0} ms",
            all.len()
        );
    }
    world
}

#[test]
fn rows_are_nearly_full_under_bulk() {
    let mut world = World::new();
    (0..4).for_each(|client| world.closed_loop(client, 32, HOUR));
    world.run(1.0, after(120.0));
    let (tokens, real) = (world.good_tokens() as f64, world.filled());
    println!("4 x 32: {:.0} tokens/s, {real:.3} real per run token", tokens / 120.0);
    assert!(real >= 0.95, "{real:.3}");
}

#[test]
fn single_texts_beside_bulk_wait_for_a_batch_at_most() {
    let planned = mixed_load();
    assert!(planned.filled() > 0.95);
    let single_ms = planned.latencies_ms(1);
    let batch_ms = planned.work.longest.as_secs_f64() * 1e3;
    let own_ms = CostModel::default().predict_us(shapes().row(512)) / 1e3;
    let p99 = quantile(&single_ms, 0.99);
    assert!(p99 <= 2.0 * (batch_ms + own_ms), "{p99:.0} ms, batches of {batch_ms:.0} ms");
}

/// Tokens a second of one worker that never lacks work.
fn capacity(items: usize, slowness: f64) -> f64 {
    let mut world = World::new();
    (0..256 / items).for_each(|client| world.closed_loop(client, items, HOUR));
    world.run(slowness, after(60.0));
    world.good_tokens() as f64 / 60.0
}

/// Three times the capacity for a minute.
fn overload(items: usize, slowness: f64, timeout: Duration) {
    let capacity = capacity(items, slowness);
    let mut world = World::new();
    world.open_loop(3.0 * capacity / 46.0 / items as f64, items, timeout, after(60.0));
    world.run(slowness, after(60.0));
    let goodput = world.good_tokens() as f64 / 60.0 / capacity;
    let count = |is: fn(Outcome) -> bool| world.ended.iter().filter(|end| is(end.outcome)).count();
    let answered = count(|outcome| outcome == Outcome::Answered);
    let expired = count(|outcome| outcome == Outcome::Expired);
    let refused = count(|outcome| matches!(outcome, Outcome::Refused(_)));
    println!(
        "3 x {capacity:.0} tokens/s, {items} texts, {timeout:?}, slower by {slowness}: goodput \
         {goodput:.3} of capacity, {answered} answered, {expired} expired, {refused} refused"
    );
    assert!(goodput >= 0.9 && expired * 100 <= answered, "{items} texts, {timeout:?}");
    assert!(refused > answered);
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
    let mut world = World::new();
    world.open_loop(1.5 * capacity / 46.0, 1, Duration::from_secs(5), after(120.0));
    (0..4).for_each(|client| world.closed_loop(client, 32, Duration::from_secs(30)));
    world.run(1.0, after(120.0));
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
        let mut world = World::new();
        let rate = 3.0 * capacity(items, 1.0) / 46.0 / items as f64;
        world.tries = 2;
        world.open_loop(rate, items, Duration::from_secs(5), after(15.0));
        world.run(1.0, after(120.0));
        let back: Vec<&Ended> = world.ended.iter().filter(|end| end.asked.tries == 2).collect();
        let good = back.iter().filter(|ended| is_good(ended)).count();
        println!("{items} texts, 15 s of overload: {good} of {} were taken later", back.len());
        assert!(good as f64 >= back.len() as f64 * 0.8, "{good} of {}", back.len());
    }
}
