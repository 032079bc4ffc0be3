//! One server of the simulation: the scheduler's state machine, and workers whose runs take as long
//! as a cost model says.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::simulation::{Request, Serve, WorkDone};
use crate::batch::cost::{CostModel, Fit};
use crate::batch::plan::{Shapes, WaitingItems};
use crate::batch::{Bucket, Vectors};
use crate::clock::Moment;
use crate::scheduler::Refusal;
use crate::scheduler::state::{Action, Event, SchedulerState, StateConfig};

/// What all servers of a simulation are like.
#[derive(Debug, Clone)]
pub struct ServerModel {
    /// What bounds the queue, and the lane of each worker.
    pub state: StateConfig,
    /// The shapes of batches.
    pub shapes: Shapes,
    /// Of a run on a lane, by the lane's width.
    pub costs: BTreeMap<usize, CostModel>,
    /// How long runs take, as a multiple of what the scheduler expects.
    pub slowness: f64,
}

impl ServerModel {
    /// Time that the server needs for texts of so many tokens at least, on average over many such
    /// texts: each is part of a full batch, and no worker ever waits.
    pub fn least_time(&self, tokens: &[usize]) -> Duration {
        let sum_us = |cost: &CostModel| -> f64 {
            let waiting = WaitingItems::new(self.shapes.clone(), cost);
            tokens.iter().map(|&tokens| waiting.item_us(tokens)).sum()
        };
        let us_on = |(width, cost): (&usize, &CostModel)| {
            let lanes = self.state.lanes.iter().filter(|lane| lane.width == *width);
            sum_us(cost) / lanes.count() as f64
        };
        let least_us = self.costs.iter().map(us_on).fold(f64::INFINITY, f64::min);
        Duration::from_secs_f64(least_us * self.slowness / 1e6)
    }

    /// Cost of a worker's runs.
    fn cost(&self, worker: usize) -> &CostModel {
        &self.costs[&self.state.lanes[worker].width]
    }

    fn cores(&self) -> usize {
        let ends = self.state.lanes.iter().map(|lane| lane.first + lane.width);
        ends.max().unwrap_or(1)
    }

    /// Tokens of the longest text that it runs; longer ones are cut.
    pub fn max_length(&self) -> usize {
        self.shapes.max_length()
    }
}

/// What a worker does.
#[derive(Debug, Clone)]
enum WorkerActivity {
    /// It found nothing to do.
    Idle,
    /// It is going to ask for work.
    Asking,
    Running {
        ends: Moment,
        /// The request of each text.
        requests: Vec<usize>,
    },
}

/// A simulated server.
#[derive(Debug)]
pub struct SimulatedServer {
    state: SchedulerState<usize>,
    model: ServerModel,
    workers: Vec<WorkerActivity>,
    /// How many texts of each request have not run yet.
    left: HashMap<usize, usize>,
    /// Requests that expired since the last start.
    expired: Vec<usize>,
    next_end: Option<Moment>,
    busy: Duration,
    longest: Duration,
}

impl SimulatedServer {
    /// Every worker is there and has nothing to do.
    pub fn new(model: &ServerModel) -> Self {
        let mut state = SchedulerState::new(model.state.clone(), model.shapes.clone());
        let workers = model.state.lanes.len();
        for worker in 0..workers {
            state.set_cost_of(worker, Fit { model: *model.cost(worker), median_error: 0.0 });
            state.handle(Moment::START, &Event::WorkerOpened { worker });
        }
        Self {
            state,
            model: model.clone(),
            workers: vec![WorkerActivity::Asking; workers],
            left: HashMap::new(),
            expired: Vec::new(),
            next_end: None,
            busy: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }

    fn run(&mut self, now: Moment, worker: usize, bucket: Bucket, requests: Vec<usize>) {
        let model = &self.model;
        let time = model.cost(worker).predict(bucket).mul_f64(model.slowness);
        let part = model.state.lanes[worker].width as f64 / model.cores() as f64;
        self.busy += time.mul_f64(part);
        self.longest = self.longest.max(time);
        let ends = now + time;
        self.next_end = Some(self.next_end.map_or(ends, |next| next.min(ends)));
        self.workers[worker] = WorkerActivity::Running { ends, requests };
    }

    /// Does what the state machine says.
    fn carry_out(&mut self, now: Moment, actions: Vec<Action<usize>>) {
        for action in actions {
            match action {
                Action::Run { worker, bucket, items, .. } => {
                    let requests = items.into_iter().map(|(_, request)| request).collect();
                    self.run(now, worker, bucket, requests);
                }
                Action::Expire { content, .. } => {
                    // All of its texts that wait expire together.
                    if self.left.remove(&content).is_some() {
                        self.expired.push(content);
                    }
                }
                Action::Wake { worker } => self.workers[worker] = WorkerActivity::Asking,
                Action::Accept { .. }
                | Action::Refuse(_)
                | Action::Reserve(_)
                | Action::Answer { .. }
                | Action::Abandon { .. }
                | Action::WakeAll => {}
            }
        }
    }
}

impl Serve for SimulatedServer {
    fn submit(
        &mut self,
        now: Moment,
        number: usize,
        request: &Request,
    ) -> Result<(), Option<Duration>> {
        let &Request { ref tokens, priority, deadline } = request;
        let contents = vec![number; tokens.len()];
        // Texts of a simulated load are all different.
        let (contents, digests, vectors) = (&contents[..], &[][..], Vectors::Both);
        // Nor is any tokenized first.
        let reserved = None;
        let event =
            Event::Submit { tokens, contents, digests, vectors, priority, deadline, reserved };
        let actions = self.state.handle(now, &event);
        let refusal = actions.iter().find_map(|action| match action {
            Action::Refuse(refusal) => Some(*refusal),
            _ => None,
        });
        if refusal.is_none() {
            self.left.insert(number, tokens.len());
        }
        self.carry_out(now, actions);
        match refusal {
            None => Ok(()),
            Some(Refusal::Full { retry_after } | Refusal::Late { retry_after }) => {
                Err(Some(retry_after))
            }
            Some(_) => Err(None),
        }
    }

    fn next_end(&self) -> Option<Moment> {
        self.next_end
    }

    fn finish(&mut self, now: Moment) -> Vec<usize> {
        let mut answered = Vec::new();
        for worker in 0..self.workers.len() {
            let WorkerActivity::Running { ends, .. } = self.workers[worker] else { continue };
            if ends > now {
                continue;
            }
            let ran = std::mem::replace(&mut self.workers[worker], WorkerActivity::Asking);
            self.state.handle(now, &Event::BatchDone { worker, failed: &[] });
            let WorkerActivity::Running { requests, .. } = ran else { continue };
            for request in requests {
                let Some(left) = self.left.get_mut(&request) else { continue };
                *left -= 1;
                if *left == 0 {
                    self.left.remove(&request);
                    answered.push(request);
                }
            }
        }
        let ends = self.workers.iter().filter_map(|worker| match worker {
            WorkerActivity::Running { ends, .. } => Some(*ends),
            WorkerActivity::Idle | WorkerActivity::Asking => None,
        });
        self.next_end = ends.min();
        answered
    }

    fn start(&mut self, now: Moment) -> Vec<usize> {
        let asking = |worker: &WorkerActivity| matches!(worker, WorkerActivity::Asking);
        while let Some(worker) = self.workers.iter().position(asking) {
            self.workers[worker] = WorkerActivity::Idle;
            let actions = self.state.handle(now, &Event::AskForWork { worker });
            self.carry_out(now, actions);
        }
        std::mem::take(&mut self.expired)
    }

    fn outstanding(&self) -> usize {
        self.left.len()
    }

    fn fail(&mut self) -> Vec<usize> {
        let mut lost: Vec<usize> = self.left.drain().map(|(request, _)| request).collect();
        lost.sort_unstable();
        self.workers.fill(WorkerActivity::Idle);
        self.next_end = None;
        lost
    }

    fn work(&self) -> WorkDone {
        let counts = self.state.counts();
        WorkDone {
            real_tokens: counts.tokens_real,
            padded_tokens: counts.tokens_padded,
            busy: self.busy,
            longest: self.longest,
        }
    }
}
