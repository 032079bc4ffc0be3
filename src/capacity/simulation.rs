//! The event loop: requests come to servers, runs end, a server fails. It has no clock; time jumps
//! from one event to the next.

use std::time::Duration;

use fastrand::Rng;

use crate::batch::Priority;
use crate::clock::Moment;

/// What a server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Of each of its texts; at least one.
    pub tokens: Vec<usize>,
    /// `None` lets its size decide.
    pub priority: Option<Priority>,
    /// When its answer must be ready.
    pub deadline: Moment,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of its texts ran.
    Answered,
    /// A text still waited at the deadline.
    Expired,
    /// It was not taken; it may come back after a time, if the server knows one.
    Refused(Option<Duration>),
}

/// What a server has computed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkDone {
    /// Tokens of the texts that ran.
    pub real_tokens: u64,
    /// Tokens of their batches, padding included.
    pub padded_tokens: u64,
    /// Time in which all workers could have run and did.
    pub busy: Duration,
    /// The longest run.
    pub longest: Duration,
}

/// One server of the simulation. Requests are numbers that the clients choose.
pub trait Serve {
    /// Takes a request, or refuses it.
    ///
    /// # Errors
    /// When it may come back, if that is known.
    fn submit(
        &mut self,
        now: Moment,
        number: usize,
        request: &Request,
    ) -> Result<(), Option<Duration>>;

    /// When the next run ends.
    fn next_end(&self) -> Option<Moment>;

    /// Ends the runs that are due; gives the requests that are answered with them.
    fn finish(&mut self, now: Moment) -> Vec<usize>;

    /// Starts what can be started; gives the requests that expired.
    fn start(&mut self, now: Moment) -> Vec<usize>;

    /// Requests that were taken and have not ended.
    fn outstanding(&self) -> usize;

    /// The server is gone; gives the requests that it had.
    fn fail(&mut self) -> Vec<usize>;

    /// What it has computed so far.
    fn work(&self) -> WorkDone;
}

/// Who sends the requests, and is told how they end.
pub trait Clients {
    /// When the next request is sent; not before the time of the last event.
    fn next_arrival(&self) -> Option<Moment>;

    /// Sends that request.
    fn send(&mut self) -> usize;

    /// The request of this number.
    fn request(&self, number: usize) -> &Request;

    /// It has ended.
    fn end(&mut self, now: Moment, number: usize, outcome: Outcome);
}

/// Which server gets the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// The one with the fewest requests; in turn where several have as few.
    LeastQueue,
    /// Any.
    Random,
}

/// Servers, and what spreads requests over them.
#[derive(Debug)]
pub struct Simulation<S> {
    servers: Vec<S>,
    lives: Vec<bool>,
    spread: Spread,
    /// The first server ends at this moment.
    failure: Option<Moment>,
    /// Where the last request went.
    last: usize,
    random: Rng,
}

impl<S: Serve> Simulation<S> {
    /// All servers work.
    pub fn new(servers: Vec<S>, spread: Spread, seed: u64) -> Self {
        let (lives, random) = (vec![true; servers.len()], Rng::with_seed(seed));
        Self { servers, lives, spread, failure: None, last: 0, random }
    }

    /// The first server ends at this moment. What it had is sent to the others at once, as a proxy
    /// does that repeats requests.
    #[must_use]
    pub fn with_failure(self, at: Moment) -> Self {
        Self { failure: Some(at), ..self }
    }

    /// The servers.
    pub fn servers(&self) -> &[S] {
        &self.servers
    }

    /// How many servers work.
    pub(super) fn living(&self) -> usize {
        self.lives.iter().filter(|lives| **lives).count()
    }

    /// Runs until nothing is left to do, or the next event would be after `until`.
    pub fn run(&mut self, clients: &mut impl Clients, until: Moment) {
        while let Some(now) = self.next_event(clients).filter(|&now| now <= until) {
            for server in &mut self.servers {
                if server.next_end().is_some_and(|end| end <= now) {
                    for number in server.finish(now) {
                        clients.end(now, number, Outcome::Answered);
                    }
                }
            }
            if self.failure.is_some_and(|at| at <= now) {
                self.failure = None;
                self.lives[0] = false;
                for number in self.servers[0].fail() {
                    self.submit(now, number, clients);
                }
            }
            while clients.next_arrival().is_some_and(|at| at <= now) {
                let number = clients.send();
                self.submit(now, number, clients);
            }
            for server in &mut self.servers {
                for number in server.start(now) {
                    clients.end(now, number, Outcome::Expired);
                }
            }
        }
    }

    fn next_event(&self, clients: &impl Clients) -> Option<Moment> {
        let ends = self.servers.iter().filter_map(S::next_end);
        ends.chain(clients.next_arrival()).chain(self.failure).min()
    }

    fn submit(&mut self, now: Moment, number: usize, clients: &mut impl Clients) {
        let refused = match self.choose() {
            None => Some(None),
            Some(place) => {
                self.last = place;
                self.servers[place].submit(now, number, clients.request(number)).err()
            }
        };
        if let Some(retry_after) = refused {
            clients.end(now, number, Outcome::Refused(retry_after));
        }
    }

    /// A server that works, if any does.
    fn choose(&mut self) -> Option<usize> {
        let count = self.servers.len();
        let in_turn = (1..=count).map(|step| (self.last + step) % count);
        let mut living = in_turn.filter(|&place| self.lives[place]);
        match self.spread {
            // The first of the least is the next one in turn.
            Spread::LeastQueue => living.min_by_key(|&place| self.servers[place].outstanding()),
            Spread::Random => {
                let living: Vec<usize> = living.by_ref().collect();
                (!living.is_empty()).then(|| living[self.random.usize(..living.len())])
            }
        }
    }
}
