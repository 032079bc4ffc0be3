//! Clients that send one request after the other, simulated on lanes whose runs take what they take
//! on so many cores; on two cores beside a session over both, and beside one a core.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;

use super::*;
use crate::batch::cost::Fit;
use crate::batch::{Bucket, Priority};

/// Threads that wait for each other take so much longer while the server has other work: the
/// prediction does not know.
const DISTURBED: f64 = 1.25;

/// From an answer to the client's next request.
const THINK: Duration = Duration::from_micros(300);

/// The same of a client of single texts that is beside bulk clients.
const PAUSE: Duration = Duration::from_millis(50);

/// Tokens of the texts: 43 on average.
const LENGTHS: Range<usize> = 8..79;

/// Tokens of the first text of a bulk request, which takes 60 ms.
const LONG_TEXT: usize = 400;

/// What a small encoder takes on one core: a short text alone takes 12 ms. See decision 0044.
const FIXED_US: f64 = 5500.0;
const TOKEN_US: f64 = 136.0;

/// How a run becomes shorter with more cores. What no further core shortens is `serial_us`; each
/// further thread adds `meeting_us`, since all wait for the last one at each operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    pub(super) serial_us: f64,
    pub(super) meeting_us: f64,
}

/// Meets what two cores of a server take for a short text alone, 8 ms, and for large batches.
pub(super) const MEASURED: Speed = Speed { serial_us: 3020.0, meeting_us: 240.0 };

impl Speed {
    pub(super) fn cost(&self, width: usize) -> CostModel {
        let cores = width as f64;
        let parallel_us = (FIXED_US - self.serial_us) / cores;
        CostModel {
            floor_us: 0.0,
            fixed_us: self.serial_us + parallel_us + self.meeting_us * (cores - 1.0),
            per_token_us: TOKEN_US / cores,
            per_token_length_us: 0.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival { client: usize },
    End { worker: usize },
}

/// A client's request under way.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Moment,
    /// Items that have no rows yet.
    left: usize,
}

pub(super) struct ClosedLoop {
    speed: Speed,
    lanes: Vec<Lane>,
    state: SchedulerState<usize>,
    now: Moment,
    happenings: BinaryHeap<Reverse<(Moment, Happening)>>,
    /// Clients of the items that each worker runs.
    running: Vec<Vec<usize>>,
    sent: Vec<Sent>,
    texts_each: usize,
    /// The last clients; each sends requests of so many bulk texts.
    bulk_clients: usize,
    bulk_texts_each: usize,
    random: Rng,
    /// Texts that are answered before are not counted.
    count_from: Moment,
    texts: usize,
    bulk_texts: usize,
    waits: Vec<Duration>,
}

/// What clients see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Of bulk requests.
    pub(super) bulk_per_s: f64,
    pub(super) texts_per_s: f64,
    /// Of a request, from its sending to its last row.
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl ClosedLoop {
    pub(super) fn new(speed: Speed, lanes: Vec<Lane>, clients: usize, texts_each: usize) -> Self {
        let config = StateConfig { capacity: 100_000, lanes: lanes.clone() };
        let shapes = Shapes::on_cpu(512, MaxBatchTokens::nearest(256));
        let idle = Sent { at: Moment::START, left: 0 };
        let mut new = Self {
            speed,
            state: SchedulerState::new(config, shapes),
            now: Moment::START,
            happenings: BinaryHeap::new(),
            running: vec![Vec::new(); lanes.len()],
            lanes,
            sent: vec![idle; clients],
            texts_each,
            bulk_clients: 0,
            bulk_texts_each: 0,
            random: Rng::with_seed(5),
            count_from: Moment::START,
            texts: 0,
            bulk_texts: 0,
            waits: Vec::new(),
        };
        for worker in 0..new.lanes.len() {
            let model = speed.cost(new.lanes[worker].width);
            new.state.set_cost(worker, Fit { model, median_error: 0.0 });
            new.state.open_worker(worker);
            new.ask(worker);
        }
        for client in 0..clients {
            let first = Moment::START + THINK * client as u32;
            new.happenings.push(Reverse((first, Happening::Arrival { client })));
        }
        new
    }

    /// The same with a promise, and with so many bulk clients among them, of so many texts.
    pub(super) fn beside_bulk(
        mut self,
        (bulk_clients, texts_each): (usize, usize),
        promise: Option<Duration>,
    ) -> Self {
        (self.bulk_clients, self.bulk_texts_each) = (bulk_clients, texts_each);
        if let Some(p99) = promise {
            self.state.set_promise(p99);
        }
        self
    }

    fn is_bulk(&self, client: usize) -> bool {
        client + self.bulk_clients >= self.sent.len()
    }

    /// What clients see in `span`, behind a quarter of it in which nothing is counted.
    pub(super) fn run(mut self, span: Duration) -> Seen {
        self.count_from = Moment::START + span / 4;
        let end = self.count_from + span;
        while self.now <= end {
            self.step();
        }
        self.waits.sort_unstable();
        let quantile_ms = |part: f64| {
            let place = (self.waits.len() as f64 * part) as usize;
            self.waits.get(place).map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e3)
        };
        let texts_per_s = self.texts as f64 / span.as_secs_f64();
        let bulk_per_s = self.bulk_texts as f64 / span.as_secs_f64();
        Seen { bulk_per_s, texts_per_s, p50_ms: quantile_ms(0.5), p99_ms: quantile_ms(0.99) }
    }

    fn step(&mut self) {
        let Reverse((when, happening)) = self.happenings.pop().expect("clients never stop");
        self.now = when;
        match happening {
            Happening::Arrival { client } => self.submit(client),
            Happening::End { worker } => self.end(worker),
        }
    }

    fn submit(&mut self, client: usize) {
        let (count, priority) = match self.is_bulk(client) {
            true => (self.bulk_texts_each, Priority::Bulk),
            false => (self.texts_each, Priority::Interactive),
        };
        self.sent[client] = Sent { at: self.now, left: count };
        let mut tokens: Vec<usize> = (0..count).map(|_| self.random.usize(LENGTHS)).collect();
        if priority == Priority::Bulk {
            tokens[0] = LONG_TEXT;
        }
        let contents = vec![client; count];
        let deadline = self.now + Duration::from_secs(1000);
        let new = NewRequest { priority, ..NewRequest::of(&tokens, deadline) };
        self.state.submit(self.now, new, &contents).expect("there is room");
        self.wake();
    }

    fn ask(&mut self, worker: usize) {
        if let Some(run) = self.state.ask_for_work(self.now, worker) {
            self.running[worker] = run.items.into_iter().map(|(_, client)| client).collect();
            let end = self.now + self.time(worker, run.bucket);
            self.happenings.push(Reverse((end, Happening::End { worker })));
        }
        self.wake();
    }

    fn wake(&mut self) {
        for worker in self.state.take_effects().woken {
            self.ask(worker);
        }
    }

    fn end(&mut self, worker: usize) {
        self.state.complete_batch(self.now, worker, &[], false);
        let counts = self.now >= self.count_from;
        for client in std::mem::take(&mut self.running[worker]) {
            self.sent[client].left -= 1;
            let is_bulk = self.is_bulk(client);
            self.texts += usize::from(counts && !is_bulk);
            self.bulk_texts += usize::from(counts && is_bulk);
            if self.sent[client].left == 0 {
                if counts && !is_bulk {
                    self.waits.push(self.now.since(self.sent[client].at));
                }
                let next = Happening::Arrival { client };
                let think = if self.bulk_clients > 0 && !is_bulk { PAUSE } else { THINK };
                self.happenings.push(Reverse((self.now + think, next)));
            }
        }
        self.ask(worker);
    }

    fn time(&self, worker: usize, bucket: Bucket) -> Duration {
        let width = self.lanes[worker].width;
        let is_disturbed = width > 1 && self.sent.len() > 1;
        let factor = if is_disturbed { DISTURBED } else { 1.0 };
        self.speed.cost(width).predict(bucket).mul_f64(factor)
    }
}

#[test]
fn lanes_on_two_cores_get_nearly_the_better_of_both_ways() {
    let alone = [((1, 1), 0.98)];
    let few = [(2, 1), (3, 1), (1, 8), (1, 256)].map(|load| (load, 0.9));
    let many = [(16, 1), (64, 1), (4, 32), (2, 256)].map(|load| (load, 0.97));
    for ((clients, texts_each), part) in alone.into_iter().chain(few).chain(many) {
        let [together, apart, lanes] = [&[2][..], &[1], &[1, 2]].map(|widths| {
            let lanes = Lane::tree(&[2], widths);
            let clients = ClosedLoop::new(MEASURED, lanes, clients, texts_each);
            clients.run(Duration::from_secs(20)).texts_per_s
        });
        let shown = format!("{clients} x {texts_each}: {together} {apart} {lanes}");
        assert!(lanes > together.max(apart) * part, "{shown}");
    }
}
