//! Clients that send one request after the other, simulated on two cores that run a batch with both
//! of them, with one each, or in whichever way the machine says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::batch::cost::{CostModel, Fit};
use crate::batch::plan::Shapes;
use crate::batch::{Bucket, Priority, Vectors};
use crate::limits::MaxBatchTokens;
use crate::scheduler::state::{Event, StateConfig};

mod wrong_costs;

/// What a small encoder takes on two cores: a short text alone takes 8 ms with both and 12 ms with
/// one, and the rates of large batches are nearly equal.
const BOTH_CORES: CostModel =
    CostModel { floor_us: 0.0, fixed_us: 4500.0, per_token_us: 68.0, per_token_length_us: 0.0 };
const ONE_CORE: CostModel =
    CostModel { floor_us: 0.0, fixed_us: 5500.0, per_token_us: 136.0, per_token_length_us: 0.0 };

/// Threads that wait for each other take so much longer while the server has other work: the
/// prediction does not know.
const DISTURBED: f64 = 1.25;

/// From an answer to the client's next request.
const THINK: Duration = Duration::from_micros(300);
const TEXT_TOKENS: usize = 43;
const SPAN: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cores {
    Together,
    Apart,
    AsSaid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival { client: usize },
    End { worker: usize },
}

struct ClosedLoop {
    cores: Cores,
    state: SchedulerState<usize>,
    now: Moment,
    happenings: BinaryHeap<Reverse<(Moment, Happening)>>,
    /// Clients of the items that each worker runs.
    running: Vec<Vec<usize>>,
    /// Items of each client's request that have no rows yet.
    left: Vec<usize>,
    texts_each: usize,
    answered: usize,
    /// Texts that are answered before are not counted.
    count_from: Moment,
    /// How much longer the threads of one session take while there are several clients.
    disturbed: f64,
    /// The same with a single client.
    disturbed_alone: f64,
    /// How much longer one core takes while there are several clients.
    apart_under_load: f64,
}

impl ClosedLoop {
    fn new(cores: Cores, clients: usize, texts_each: usize) -> Self {
        let (workers, cost) = match cores {
            Cores::Together => (1, BOTH_CORES),
            Cores::Apart | Cores::AsSaid => (2, ONE_CORE),
        };
        let wide = cores == Cores::AsSaid;
        let config = StateConfig { capacity: 100_000, workers, wide };
        let tokens = MaxBatchTokens::nearest(256);
        let mut state = SchedulerState::new(config, Shapes::on_cpu(512, tokens));
        state.set_cost(Fit { model: cost, median_error: 0.0 });
        set_wide_cost(&mut state, BOTH_CORES);
        let all = workers + usize::from(wide);
        let mut new = Self {
            cores,
            state,
            now: Moment::START,
            happenings: BinaryHeap::new(),
            running: vec![Vec::new(); all],
            left: vec![0; clients],
            texts_each,
            answered: 0,
            count_from: Moment::START,
            disturbed: DISTURBED,
            disturbed_alone: 1.0,
            apart_under_load: 1.0,
        };
        for worker in 0..all {
            new.state.handle(new.now, &Event::WorkerOpened { worker });
            new.ask(worker);
        }
        for client in 0..clients {
            let first = Moment::START + THINK * client as u32;
            new.happenings.push(Reverse((first, Happening::Arrival { client })));
        }
        new
    }

    /// Texts a second.
    fn rate(mut self) -> f64 {
        let end = Moment::START + SPAN;
        while self.now <= end {
            self.step();
        }
        self.answered as f64 / end.since(self.count_from).as_secs_f64()
    }

    fn run_until(&mut self, is_reached: impl Fn(&SchedulerState<usize>) -> bool) {
        while !is_reached(&self.state) {
            self.step();
        }
    }

    fn step(&mut self) {
        let Reverse((when, happening)) = self.happenings.pop().expect("clients never stop");
        self.now = when;
        match happening {
            Happening::Arrival { client } => self.submit(client),
            Happening::End { worker } => self.end(worker),
        }
    }

    fn wide_batches(&self) -> u64 {
        self.state.wide.as_ref().map_or(0, |wide| wide.batches)
    }

    fn submit(&mut self, client: usize) {
        self.left[client] = self.texts_each;
        let (tokens, contents) =
            (vec![TEXT_TOKENS; self.texts_each], vec![client; self.texts_each]);
        let deadline = self.now + Duration::from_secs(1000);
        let event = Event::Submit {
            tokens: &tokens,
            contents: &contents,
            digests: &[],
            vectors: Vectors::Both,
            priority: Some(Priority::Interactive),
            deadline,
            reserved: None,
        };
        let actions = self.state.handle(self.now, &event);
        self.carry_out(actions);
    }

    fn ask(&mut self, worker: usize) {
        let actions = self.state.handle(self.now, &Event::AskForWork { worker });
        self.carry_out(actions);
    }

    fn end(&mut self, worker: usize) {
        self.state.handle(self.now, &Event::BatchDone { worker, failed: &[] });
        for client in std::mem::take(&mut self.running[worker]) {
            self.left[client] -= 1;
            self.answered += usize::from(self.now >= self.count_from);
            if self.left[client] == 0 {
                let next = Happening::Arrival { client };
                self.happenings.push(Reverse((self.now + THINK, next)));
            }
        }
        self.ask(worker);
    }

    fn carry_out(&mut self, actions: Vec<Action<usize>>) {
        for action in actions {
            match action {
                Action::Wake { worker } => self.ask(worker),
                Action::Run { worker, bucket, items, .. } => {
                    self.running[worker] = items.into_iter().map(|(_, client)| client).collect();
                    let end = self.now + self.time(worker, bucket);
                    self.happenings.push(Reverse((end, Happening::End { worker })));
                }
                Action::Accept { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn time(&self, worker: usize, bucket: Bucket) -> Duration {
        let wide = match self.cores {
            Cores::Together => true,
            Cores::Apart => false,
            Cores::AsSaid => worker == 2,
        };
        let is_loaded = self.left.len() > 1;
        match (wide, is_loaded) {
            (true, true) => BOTH_CORES.predict(bucket).mul_f64(self.disturbed),
            (true, false) => BOTH_CORES.predict(bucket).mul_f64(self.disturbed_alone),
            (false, true) => ONE_CORE.predict(bucket).mul_f64(self.apart_under_load),
            (false, false) => ONE_CORE.predict(bucket),
        }
    }
}

fn set_wide_cost(state: &mut SchedulerState<usize>, model: CostModel) {
    if let Some(wide) = &mut state.wide {
        wide.cost.set(Fit { model, median_error: 0.0 });
    }
}

fn rates(clients: usize, texts_each: usize) -> [f64; 3] {
    [Cores::Together, Cores::Apart, Cores::AsSaid]
        .map(|cores| ClosedLoop::new(cores, clients, texts_each).rate())
}

#[test]
fn a_client_that_is_alone_gets_all_cores() {
    let [together, apart, as_said] = rates(1, 1);
    assert!(together > apart * 1.3, "{together} {apart}");
    assert!(as_said > together * 0.98, "{together} {as_said}");
}

#[test]
fn many_clients_get_what_cores_apart_give() {
    for (clients, texts_each) in [(16, 1), (64, 1), (4, 32), (2, 256)] {
        let [together, apart, as_said] = rates(clients, texts_each);
        assert!(apart > together, "{clients} x {texts_each}: {together} {apart}");
        assert!(as_said > apart * 0.97, "{clients} x {texts_each}: {apart} {as_said}");
    }
}

#[test]
fn few_clients_get_nearly_the_better_of_both() {
    for (clients, texts_each) in [(2, 1), (3, 1), (1, 8), (1, 256)] {
        let [together, apart, as_said] = rates(clients, texts_each);
        let better = together.max(apart);
        assert!(as_said > better * 0.9, "{clients} x {texts_each}: {together} {apart} {as_said}");
    }
}

#[test]
fn a_wide_worker_that_was_measured_beside_a_load_is_found_out() {
    let [together, ..] = rates(1, 1);
    let mut simulation = ClosedLoop::new(Cores::AsSaid, 1, 1);
    set_wide_cost(&mut simulation.state, CostModel { fixed_us: 60_000.0, ..BOTH_CORES });
    let as_said = simulation.rate();
    assert!(as_said > together * 0.9, "{together} {as_said}");
}

/// A state with a wide worker of known cost; all three workers found nothing to do.
fn state() -> SchedulerState<usize> {
    ClosedLoop::new(Cores::AsSaid, 0, 1).state
}

fn submit(state: &mut SchedulerState<usize>, texts: usize) -> Vec<Action<usize>> {
    let (tokens, contents) = (vec![TEXT_TOKENS; texts], vec![0; texts]);
    let deadline = Moment::from_nanos(u64::MAX);
    let (tokens, contents, digests) = (&tokens[..], &contents[..], &[][..]);
    let (vectors, priority) = (Vectors::Both, None);
    let event =
        Event::Submit { tokens, contents, digests, vectors, priority, deadline, reserved: None };
    state.handle(Moment::START, &event)
}

fn woken(actions: &[Action<usize>]) -> Vec<usize> {
    let worker = |action: &Action<usize>| match action {
        Action::Wake { worker } => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(worker).collect()
}

#[test]
fn no_worker_starts_beside_the_wide_one() {
    let mut state = state();
    assert_eq!(woken(&submit(&mut state, 1)), [2]);
    let ask = |state: &mut SchedulerState<usize>, worker| {
        state.handle(Moment::START, &Event::AskForWork { worker })
    };
    assert!(matches!(ask(&mut state, 2)[..], [Action::Run { worker: 2, .. }]));
    for _ in 0..2 {
        assert_eq!(woken(&submit(&mut state, 1)), Vec::<usize>::new());
    }
    assert_eq!(ask(&mut state, 0), []);
    // Requests follow each other, so the wide one leaves what waits to the others.
    state.handle(Moment::START, &Event::BatchFailed { worker: 2 });
    assert_eq!(woken(&ask(&mut state, 2)), [0]);
    assert!(matches!(ask(&mut state, 0)[..], [Action::Run { worker: 0, .. }, ..]));
}

#[test]
fn a_lost_wide_worker_leaves_its_work_to_the_others() {
    let mut state = state();
    assert_eq!(woken(&submit(&mut state, 1)), [2]);
    let actions = state.handle(Moment::START, &Event::WorkerLost { worker: 2 });
    assert_eq!(woken(&actions), [0]);
}

#[test]
fn the_wide_worker_serves_alone_when_the_others_are_lost() {
    let mut state = state();
    for worker in [0, 1] {
        state.handle(Moment::START, &Event::WorkerLost { worker });
    }
    assert_eq!(woken(&submit(&mut state, 100)), [2]);
}

#[test]
fn a_check_of_the_wide_worker_does_not_wait_for_its_turn_among_texts() {
    let mut state = state();
    let check = Event::Check { worker: 2, tokens: 5, content: &0, deadline: Moment::from_nanos(9) };
    let mut ran = 0;
    for _ in 0..2 {
        submit(&mut state, 100);
        state.handle(Moment::START, &Event::AskForWork { worker: 0 });
        state.handle(Moment::START, &check);
        let actions = state.handle(Moment::START, &Event::AskForWork { worker: 2 });
        ran += actions.iter().filter(|action| matches!(action, Action::Run { .. })).count();
        state.handle(Moment::START, &Event::BatchDone { worker: 2, failed: &[] });
    }
    assert_eq!(ran, 2);
}
