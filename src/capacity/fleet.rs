//! Servers under a load: what it is like for clients, and how many servers a goal needs.

use std::time::Duration;

use serde::Serialize;

use super::load::{Load, Portion};
use super::server::{ServerModel, SimulatedServer};
use super::simulation::{Clients, Outcome, Request, Serve, Simulation, Spread, WorkDone};
use crate::clock::Moment;

/// No fleet has more servers.
pub(crate) const SERVERS_MAX: usize = 10_000_000;

/// The first part of a random load finds empty queues and is not counted.
const WARM_UP_PART: f64 = 0.1;

/// A number of servers is searched to so much of itself: chance decides about less.
const PRECISION: f64 = 1.0 / 256.0;

/// Between requests that find their server idle.
const APART: Duration = Duration::from_secs(600);

/// What clients should see.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Goal {
    /// Half of the answers take this long at most.
    pub p50_ms: Option<f64>,
    /// 99 of 100 answers take this long at most.
    pub p99_ms: Option<f64>,
    /// Part of the requests that are answered before their deadline, at least.
    pub in_time: f64,
}

/// A load on servers of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    /// Each of the servers.
    pub model: ServerModel,
    /// Of all servers together.
    pub load: Load,
    /// Which server gets the next request.
    pub spread: Spread,
    /// Of each request.
    pub timeout: Duration,
    /// What an answer takes besides its time in the queue and on a worker.
    pub overhead: Duration,
    /// The same seed gives the same figures.
    pub seed: u64,
}

/// What happens to the servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scenario {
    /// Nothing.
    Steady,
    /// One ends in the middle; the figures are from then on.
    OneFails,
    /// There are so many times as many requests.
    LoadTimes(f64),
}

/// What clients and the operator see.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct FleetFigures {
    /// Requests that the figures are of.
    pub requests: usize,
    /// From sending to the answer, of half of the answers at most; absent without answers.
    pub p50_ms: Option<f64>,
    /// The same of 99 of 100 answers.
    pub p99_ms: Option<f64>,
    /// The same on average.
    pub mean_ms: Option<f64>,
    /// Part of the requests that are answered before their deadline.
    pub in_time: f64,
    /// Part that is not taken.
    pub refused: f64,
    /// Part that is answered too late, or not at all.
    pub late: f64,
    /// Part of the time of the workers that are there in which they run.
    pub busy: f64,
    /// Tokens of texts among those that are computed.
    pub real_per_padded_token: f64,
    /// How many servers were simulated, each with its part of the load.
    pub simulated_servers: usize,
    /// How long the simulated load lasted.
    pub simulated_s: f64,
}

impl FleetFigures {
    /// Whether clients see what they should.
    pub(crate) fn meet(&self, goal: &Goal) -> bool {
        let within = |seen: Option<f64>, most: Option<f64>| {
            most.is_none_or(|most| seen.is_some_and(|seen| seen <= most))
        };
        within(self.p50_ms, goal.p50_ms)
            && within(self.p99_ms, goal.p99_ms)
            && self.in_time >= goal.in_time
    }
}

/// The fewest servers that meet a goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fewest {
    /// How many.
    pub servers: usize,
    /// What they show.
    pub steady: FleetFigures,
    /// What requests show that find their server idle.
    pub alone: FleetFigures,
}

/// Why there is no number of servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Unreachable {
    /// Requests that are alone on a server do not meet the goal either; so long they take.
    Alone(FleetFigures),
    /// Even `SERVERS_MAX` do not meet it.
    TooMany,
}

impl Fleet {
    /// The fewest servers that meet the goal; for large fleets to within half a percent.
    ///
    /// # Errors
    /// When no number does.
    pub(crate) fn fewest_servers(&self, goal: &Goal) -> Result<Fewest, Unreachable> {
        let alone = self.alone();
        if !alone.meet(goal) {
            return Err(Unreachable::Alone(alone));
        }
        let mut few = self.servers_least() - 1;
        let mut enough = few + 1;
        let mut steady = self.predict(enough, Scenario::Steady);
        while !steady.meet(goal) {
            if enough >= SERVERS_MAX {
                return Err(Unreachable::TooMany);
            }
            few = enough;
            enough = enough.saturating_mul(2).min(SERVERS_MAX);
            steady = self.predict(enough, Scenario::Steady);
        }
        while enough - few > 1.max((enough as f64 * PRECISION) as usize) {
            let middle = few + (enough - few) / 2;
            let seen = self.predict(middle, Scenario::Steady);
            if seen.meet(goal) {
                (enough, steady) = (middle, seen);
            } else {
                few = middle;
            }
        }
        Ok(Fewest { servers: enough, steady, alone })
    }

    /// What so many servers show. There is at least one.
    pub(crate) fn predict(&self, servers: usize, scenario: Scenario) -> FleetFigures {
        let simulated = self.load.simulated_servers(servers);
        // Of servers that stand for others, each has its part of what the lost one had.
        let stands_for_others = simulated < servers;
        let speed = match scenario {
            Scenario::LoadTimes(times) => times,
            Scenario::OneFails if stands_for_others => servers as f64 / (servers - 1) as f64,
            Scenario::OneFails | Scenario::Steady => 1.0,
        };
        let part = simulated as f64 / servers as f64;
        let portion = Portion { part, speed, seed: self.seed, timeout: self.timeout };
        let requests = self.load.requests(portion);
        let last = requests.last().map_or(Moment::START, |(at, _)| *at);
        let span = last.since(Moment::START);
        let is_random = matches!(self.load, Load::Random(_));
        let fails = scenario == Scenario::OneFails && !stands_for_others;
        let counted = match (fails, is_random) {
            (true, _) => Moment::START + span.div_f64(2.0),
            (false, true) => Moment::START + span.mul_f64(WARM_UP_PART),
            (false, false) => Moment::START,
        };
        let all = (0..simulated).map(|_| SimulatedServer::new(&self.model)).collect();
        let mut simulation = Simulation::new(all, self.spread, self.seed);
        if fails {
            simulation = simulation.with_failure(counted);
        }
        self.run(simulation, requests, counted)
    }

    /// What requests show that find their server idle.
    pub(crate) fn alone(&self) -> FleetFigures {
        let portion = Portion { part: 1.0, speed: 1.0, seed: self.seed, timeout: self.timeout };
        let mut requests = self.load.requests(portion);
        for (place, (at, request)) in requests.iter_mut().enumerate() {
            *at = Moment::START + APART.mul_f64(place as f64);
            request.deadline = *at + self.timeout;
        }
        let servers = vec![SimulatedServer::new(&self.model)];
        let simulation = Simulation::new(servers, self.spread, self.seed);
        self.run(simulation, requests, Moment::START)
    }

    /// With fewer servers the work alone would take longer than the time there is.
    fn servers_least(&self) -> usize {
        let sample = self.load.sample(self.seed);
        let of_text = self.model.least_time(&sample).as_secs_f64() / sample.len() as f64;
        let work = of_text * self.load.texts() * self.load.requests_per_s();
        (work.ceil() as usize).clamp(1, SERVERS_MAX)
    }

    /// Runs all requests to their end; those that end from `counted` on give the figures.
    fn run(
        &self,
        mut simulation: Simulation<SimulatedServer>,
        requests: Vec<(Moment, Request)>,
        counted: Moment,
    ) -> FleetFigures {
        let mut clients = Recorder::new(requests);
        if counted > Moment::START {
            simulation.run(&mut clients, counted);
        }
        let before = sum(simulation.servers());
        simulation.run(&mut clients, Moment::START + Duration::MAX);
        let work = sum(simulation.servers());
        let (mut requests, mut in_time, mut refused) = (0, 0, 0);
        let mut taken_ms = Vec::new();
        for ((at, request), ended) in clients.requests.iter().zip(&clients.ended) {
            let Some((when, outcome)) = ended.filter(|(when, _)| *when >= counted) else {
                continue;
            };
            requests += 1;
            match outcome {
                Outcome::Answered => {
                    taken_ms.push((when.since(*at) + self.overhead).as_secs_f64() * 1e3);
                    in_time += usize::from(when <= request.deadline);
                }
                Outcome::Refused(_) => refused += 1,
                Outcome::Expired => {}
            }
        }
        taken_ms.sort_unstable_by(f64::total_cmp);
        let mean_ms = taken_ms.iter().sum::<f64>() / taken_ms.len() as f64;
        let part = |count: usize| count as f64 / requests.max(1) as f64;
        let (real, padded) = (work.real_tokens, work.padded_tokens);
        let busy = (work.busy - before.busy).as_secs_f64();
        let there = clients.last.since(counted).as_secs_f64() * simulation.living() as f64;
        FleetFigures {
            requests,
            p50_ms: quantile(&taken_ms, 0.5),
            p99_ms: quantile(&taken_ms, 0.99),
            mean_ms: (!taken_ms.is_empty()).then_some(mean_ms),
            in_time: part(in_time),
            refused: part(refused),
            late: part(requests - in_time - refused),
            busy: if there > 0.0 { (busy / there).min(1.0) } else { 0.0 },
            real_per_padded_token: if padded > 0 { real as f64 / padded as f64 } else { 1.0 },
            simulated_servers: simulation.servers().len(),
            simulated_s: clients.sent_s(),
        }
    }
}

/// What all servers have computed.
fn sum(servers: &[SimulatedServer]) -> WorkDone {
    servers.iter().map(Serve::work).fold(WorkDone::default(), |sum, work| WorkDone {
        real_tokens: sum.real_tokens + work.real_tokens,
        padded_tokens: sum.padded_tokens + work.padded_tokens,
        busy: sum.busy + work.busy,
        longest: sum.longest.max(work.longest),
    })
}

/// Sends requests at given times and remembers how each ended.
struct Recorder {
    requests: Vec<(Moment, Request)>,
    ended: Vec<Option<(Moment, Outcome)>>,
    sent: usize,
    /// When the last of them ended.
    last: Moment,
}

impl Recorder {
    fn new(requests: Vec<(Moment, Request)>) -> Self {
        let ended = vec![None; requests.len()];
        Self { requests, ended, sent: 0, last: Moment::START }
    }

    fn sent_s(&self) -> f64 {
        self.requests.last().map_or(0.0, |(at, _)| at.since(Moment::START).as_secs_f64())
    }
}

impl Clients for Recorder {
    fn next_arrival(&self) -> Option<Moment> {
        self.requests.get(self.sent).map(|(at, _)| *at)
    }

    fn send(&mut self) -> usize {
        self.sent += 1;
        self.sent - 1
    }

    fn request(&self, number: usize) -> &Request {
        &self.requests[number].1
    }

    fn end(&mut self, now: Moment, number: usize, outcome: Outcome) {
        self.ended[number] = Some((now, outcome));
        self.last = self.last.max(now);
    }
}

/// The smallest of the sorted values that a part of them does not exceed.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied()
}
