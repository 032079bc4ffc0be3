//! The rig: clients that send requests to the real state machine, whose workers take what a cost
//! model says. It is woken and asked as the server does it, and nothing else of it is seen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use clock::Moment;
use fastrand::Rng;
use scheduling::Refusal;
use scheduling::batch::cost::{CostModel, Fit};
use scheduling::batch::plan::Shapes;
use scheduling::batch::{Bucket, Priority};
use scheduling::state::{Effects, Lane, NewRequest, Run, SchedulerState};
use settings::limits::MaxBatchTokens;

/// From an answer to the client's next request.
pub(crate) const THINK: Duration = Duration::from_micros(300);

/// The time of requests that are in no hurry.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A worker of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worker {
    pub(crate) lane: Lane,
    /// What the scheduler expects of its runs.
    pub(crate) cost: CostModel,
    /// How many times as long they take.
    pub(crate) slowness: f64,
}

/// When requests come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// So many clients wait for an answer, and so long before they send the next request.
    Closed { clients: usize, think: Duration },
    /// At random until `end`, so many a second.
    Open { rate: f64, end: Duration },
}

/// Clients that are alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clients {
    pub(crate) pace: Pace,
    pub(crate) texts_each: usize,
    /// The tokens of each text of a request of so many texts.
    pub(crate) lengths: fn(&mut Rng, usize) -> Vec<usize>,
    /// `None` is what the size of a request suggests.
    pub(crate) priority: Option<Priority>,
    pub(crate) timeout: Duration,
}

/// A request on its way.
#[derive(Debug, Clone)]
struct Request {
    /// Which clients sent it.
    group: usize,
    /// Of each of its texts.
    tokens: Vec<usize>,
    sent: Moment,
    /// How often it has been sent.
    tries: usize,
    /// Texts without an answer; none before it is taken, and behind its end.
    left: usize,
}

/// A text of a request: the request's number and the text's tokens.
type Text = (usize, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    /// A text still waited at the deadline.
    Expired,
    Refused,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) group: usize,
    /// Of all its texts.
    pub(crate) tokens: usize,
    pub(crate) tries: usize,
    /// From its sending to its last text.
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) is_good: bool,
}

/// What was seen in a span.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) span: Duration,
    pub(crate) ended: Vec<Ended>,
    /// How many texts of each of the clients ran.
    texts: Vec<usize>,
    /// Tokens of the texts that ran.
    real_tokens: usize,
    /// Tokens of their batches.
    padded_tokens: usize,
    pub(crate) longest_run: Duration,
}

impl Seen {
    pub(crate) fn texts_per_s(&self, group: usize) -> f64 {
        self.texts[group] as f64 / self.span.as_secs_f64()
    }

    /// Of requests of `group`, or of all, that were answered in time.
    pub(crate) fn tokens_per_s(&self, group: Option<usize>) -> f64 {
        let same = |ended: &&Ended| group.is_none_or(|group| ended.group == group);
        let good = self.ended.iter().filter(|ended| ended.is_good).filter(same);
        good.map(|ended| ended.tokens).sum::<usize>() as f64 / self.span.as_secs_f64()
    }

    /// The time below which a part of the answered requests of `group` ends.
    pub(crate) fn quantile_ms(&self, group: usize, part: f64) -> f64 {
        let same = self.ended.iter().filter(|ended| ended.group == group);
        let answered = same.filter(|ended| ended.outcome == Outcome::Answered);
        let mut times: Vec<Duration> = answered.map(|ended| ended.took).collect();
        times.sort_unstable();
        let place = (times.len() as f64 * part) as usize;
        times.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    /// The part of the tokens that ran that is no padding.
    pub(crate) fn filled(&self) -> f64 {
        self.real_tokens as f64 / self.padded_tokens as f64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival { request: usize },
    End { worker: usize },
}

pub(crate) struct Load {
    workers: Vec<Worker>,
    clients: Vec<Clients>,
    /// Refused requests come back when they are told to, so often.
    pub(crate) tries: usize,
    pub(crate) state: SchedulerState<Text>,
    random: Rng,
    now: Moment,
    happenings: BinaryHeap<Reverse<(Moment, Happening)>>,
    requests: Vec<Request>,
    /// What each worker runs.
    running: Vec<Option<(Bucket, Vec<Text>)>>,
    /// What ends before is not counted.
    count_from: Moment,
    seen: Seen,
}

impl Load {
    pub(crate) fn new(
        workers: Vec<Worker>,
        batch_tokens: MaxBatchTokens,
        clients: Vec<Clients>,
    ) -> Self {
        let lanes = workers.iter().map(|worker| worker.lane).collect();
        let shapes = Shapes::on_cpu(512, batch_tokens);
        let seen = Seen {
            span: Duration::ZERO,
            ended: Vec::new(),
            texts: vec![0; clients.len()],
            real_tokens: 0,
            padded_tokens: 0,
            longest_run: Duration::ZERO,
        };
        let mut new = Self {
            tries: 1,
            state: SchedulerState::new(1_000_000, lanes, shapes),
            random: Rng::with_seed(5),
            now: Moment::START,
            happenings: BinaryHeap::new(),
            requests: Vec::new(),
            running: vec![None; workers.len()],
            count_from: Moment::START,
            seen,
            workers,
            clients,
        };
        for worker in 0..new.workers.len() {
            let model = new.workers[worker].cost;
            new.state.set_cost(worker, Fit { model, median_error: 0.0 });
            new.state.open_worker(worker);
            new.ask(worker);
        }
        for group in 0..new.clients.len() {
            match new.clients[group].pace {
                Pace::Closed { clients, .. } => {
                    (0..clients).for_each(|client| new.plan(group, THINK * client as u32));
                }
                Pace::Open { .. } => new.plan_at_random(group),
            }
        }
        new
    }

    /// What is seen in `span`, behind a time in which nothing is counted.
    pub(crate) fn run(mut self, before: Duration, span: Duration) -> Seen {
        self.count_from = Moment::START + before;
        let end = self.count_from + span;
        while let Some(Reverse((when, happening))) = self.happenings.pop() {
            if when > end {
                break;
            }
            self.now = when;
            match happening {
                Happening::Arrival { request } => self.submit(request),
                Happening::End { worker } => self.finish(worker),
            }
        }
        Seen { span, ..self.seen }
    }

    /// A new request comes after this time.
    fn plan(&mut self, group: usize, after: Duration) {
        let Clients { lengths, texts_each, .. } = self.clients[group];
        let tokens = lengths(&mut self.random, texts_each);
        self.send(Request { group, tokens, sent: self.now + after, tries: 1, left: 0 });
    }

    fn plan_at_random(&mut self, group: usize) {
        let Pace::Open { rate, end } = self.clients[group].pace else { return };
        let gap = Duration::from_secs_f64(-(1.0 - self.random.f64()).ln() / rate);
        if self.now + gap < Moment::START + end {
            self.plan(group, gap);
        }
    }

    fn send(&mut self, request: Request) {
        let arrival = Happening::Arrival { request: self.requests.len() };
        self.happenings.push(Reverse((request.sent, arrival)));
        self.requests.push(request);
    }

    fn submit(&mut self, number: usize) {
        let Request { group, ref tokens, tries, .. } = self.requests[number];
        let Clients { priority, timeout, .. } = self.clients[group];
        let contents: Vec<Text> = tokens.iter().map(|&tokens| (number, tokens)).collect();
        let new = NewRequest::of(tokens, self.now + timeout);
        let new = NewRequest { priority: priority.unwrap_or(new.priority), ..new };
        match self.state.submit(self.now, new, &contents) {
            Ok(_) => self.requests[number].left = contents.len(),
            Err(Refusal::Full { retry_after } | Refusal::Late { retry_after })
                if tries < self.tries =>
            {
                // As the header tells it: whole seconds.
                let after = Duration::from_secs(retry_after.as_secs_f64().ceil().max(1.0) as u64);
                let again = self.requests[number].clone();
                self.send(Request { sent: self.now + after, tries: tries + 1, ..again });
            }
            Err(Refusal::Full { .. } | Refusal::Late { .. }) => self.end(number, Outcome::Refused),
            Err(other) => panic!("{other}"),
        }
        self.carry_out();
        if tries == 1 {
            self.plan_at_random(group);
        }
    }

    fn ask(&mut self, worker: usize) {
        if let Some(Run { bucket, items, .. }) = self.state.ask_for_work(self.now, worker) {
            let Worker { cost, slowness, .. } = self.workers[worker];
            let time = cost.predict(bucket).mul_f64(slowness);
            self.seen.longest_run = self.seen.longest_run.max(time);
            let texts = items.into_iter().map(|(_, text)| text).collect();
            self.running[worker] = Some((bucket, texts));
            self.happenings.push(Reverse((self.now + time, Happening::End { worker })));
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let Effects { expired, woken, .. } = self.state.take_effects();
        for (_, (number, _)) in expired {
            // Texts of it that run are no answer.
            if std::mem::take(&mut self.requests[number].left) > 0 {
                self.end(number, Outcome::Expired);
            }
        }
        woken.into_iter().for_each(|worker| self.ask(worker));
    }

    fn finish(&mut self, worker: usize) {
        let (bucket, texts) = self.running[worker].take().expect("a run ends");
        self.state.complete_batch(self.now, worker, &[], false);
        let counts = self.now >= self.count_from;
        self.seen.padded_tokens += if counts { bucket.tokens() } else { 0 };
        for (number, tokens) in texts {
            let Request { group, left, .. } = &mut self.requests[number];
            self.seen.texts[*group] += usize::from(counts);
            self.seen.real_tokens += if counts { tokens } else { 0 };
            let was_left = *left;
            *left = left.saturating_sub(1);
            if was_left == 1 {
                self.end(number, Outcome::Answered);
            }
        }
        self.ask(worker);
    }

    fn end(&mut self, number: usize, outcome: Outcome) {
        let Request { group, ref tokens, sent, tries, .. } = self.requests[number];
        let Clients { pace, timeout, .. } = self.clients[group];
        if self.now >= self.count_from {
            let (tokens, took) = (tokens.iter().sum(), self.now.since(sent));
            let is_good = outcome == Outcome::Answered && took <= timeout;
            self.seen.ended.push(Ended { group, tokens, tries, took, outcome, is_good });
        }
        if let Pace::Closed { think, .. } = pace {
            self.plan(group, think);
        }
    }
}
