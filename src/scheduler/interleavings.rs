//! Requests, workers and the process's end on threads of their own, in many orders: no wake-up is
//! lost, every ticket resolves, every item ends once.

use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use super::tests::{LATER, buffers, in_row, rows_of, scheduler_of, scheduler_on};
use super::*;
use crate::locks::ordered::in_many_orders;
use scheduling::batch::cost::CostModel;
use scheduling::batch::{TokenIds, Vectors};
use testing::Seeds;

const WORKERS: usize = 2;
const CLIENTS: usize = 2;
/// Of each seed.
const ORDERS: usize = 200;

fn one_of(choices: u32) -> u32 {
    thread_rng().gen_range(0..choices)
}

/// Asks for work until there will be none; some jobs fail, are dropped, or end with the worker.
fn work(scheduler: &Scheduler, worker: usize) {
    scheduler.worker_opened(worker);
    while let Some(job) = scheduler.next_job(worker) {
        match one_of(6) {
            0 => job.fail("scripted"),
            1 => drop(job),
            2 => {
                drop(job);
                scheduler.worker_lost(worker);
                thread::yield_now();
                scheduler.worker_opened(worker);
            }
            _ => {
                let rows = job.items.iter().map(|_| Ok(TextRow::default())).collect();
                job.complete(rows);
            }
        }
    }
    scheduler.worker_lost(worker);
}

/// Sends requests and waits for their answers, or leaves before.
fn request(scheduler: &Scheduler) {
    for _ in 0..2 {
        // Of three texts, so that requests share runs, and repeat texts themselves.
        let text = |_| TokenIds::new(&[0, 7 + one_of(3), 2]);
        let items: Vec<TokenIds> = (0..1 + one_of(3)).map(text).collect();
        let (count, vectors) = (items.len(), Vectors::Both);
        let submission = Submission { items, vectors, priority: None, deadline: LATER };
        let Ok(ticket) = scheduler.submit(submission) else { continue };
        if one_of(4) == 0 {
            thread::yield_now();
            drop(ticket);
        } else if let Ok(rows) = block_on(ticket) {
            assert_eq!(rows.len(), count);
        }
    }
}

fn spawn_all(count: usize, run: impl Fn(usize) + Clone + Send + 'static) -> Vec<JoinHandle<()>> {
    let spawn = |index| {
        let run = run.clone();
        thread::spawn(move || run(index))
    };
    (0..count).map(spawn).collect()
}

/// Workers on all lanes, and clients.
fn start(scheduler: &Scheduler, lanes: usize) -> [Vec<JoinHandle<()>>; 2] {
    let (of_workers, of_clients) = (scheduler.clone(), scheduler.clone());
    let workers = spawn_all(lanes, move |worker| work(&of_workers, worker));
    [workers, spawn_all(CLIENTS, move |_| request(&of_clients))]
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("it does not panic");
    }
}

/// Lets the process end: what has come is answered, and nothing more comes.
fn drain(scheduler: &Scheduler) {
    scheduler.drain();
    block_on(scheduler.drained());
}

/// Runs a test with the threads that it starts in many orders.
fn in_every_order(name: &'static str, test: impl Fn() + Clone + Send + Sync + 'static) {
    for seed in Seeds::new(name, 0..5) {
        in_many_orders(seed, ORDERS, test.clone());
    }
}

fn assert_all_ended(scheduler: &Scheduler) {
    let snapshot = scheduler.snapshot();
    assert_eq!(snapshot.counts.ended(), snapshot.counts.accepted, "{:?}", snapshot.counts);
    assert!(scheduler.0.state.lock().is_empty());
}

#[test]
fn a_drain_answers_everything_in_every_order() {
    in_every_order("a_drain_answers_everything_in_every_order", || {
        let scheduler = scheduler_of(WORKERS);
        let [workers, clients] = start(&scheduler, WORKERS);
        drain(&scheduler);
        join(clients);
        assert_all_ended(&scheduler);
        scheduler.close();
        join(workers);
    });
}

#[test]
fn lanes_that_share_cores_answer_everything_in_every_order() {
    in_every_order("lanes_that_share_cores_answer_everything_in_every_order", || {
        let lanes = Lane::tree(&[WORKERS], &[1, WORKERS]);
        let scheduler = scheduler_on(lanes.clone(), CacheBytes::DEFAULT);
        let [workers, clients] = start(&scheduler, lanes.len());
        // Nobody is told to leave before every answer has come.
        join(clients);
        drain(&scheduler);
        assert_all_ended(&scheduler);
        scheduler.close();
        join(workers);
    });
}

#[test]
fn a_close_answers_everything_in_every_order() {
    in_every_order("a_close_answers_everything_in_every_order", || {
        let scheduler = scheduler_of(WORKERS);
        let [workers, clients] = start(&scheduler, WORKERS);
        scheduler.close();
        join(clients);
        join(workers);
        assert_all_ended(&scheduler);
    });
}

#[test]
fn batches_given_up_and_checks_are_answered_in_every_order() {
    in_every_order("batches_given_up_and_checks_are_answered_in_every_order", || {
        let scheduler = scheduler_of(WORKERS);
        let [workers, clients] = start(&scheduler, WORKERS);
        let model =
            CostModel { floor_us: 0.0, fixed_us: 0.0, per_token_us: 0.0, per_token_length_us: 0.0 };
        scheduler.set_cost(Fit { model, median_error: 0.0 });
        scheduler.give_up_stuck(Duration::ZERO);
        for worker in 0..WORKERS {
            if let Ok(ticket) = scheduler.submit_check(worker, TokenIds::new(&[0, 2]), LATER) {
                let _ = block_on(ticket);
            }
        }
        join(clients);
        drain(&scheduler);
        scheduler.close();
        join(workers);
        assert_all_ended(&scheduler);
    });
}

#[test]
fn requests_of_the_same_text_are_answered_in_every_order() {
    in_every_order("requests_of_the_same_text_are_answered_in_every_order", || {
        let scheduler = scheduler_on(Lane::apart(WORKERS), CacheBytes::nearest(1 << 20));
        let of_workers = scheduler.clone();
        let workers = spawn_all(WORKERS, move |worker| {
            of_workers.worker_opened(worker);
            while let Some(job) = of_workers.next_job(worker) {
                let row = TextRow::of(&buffers().output(), in_row(0), &job.items[0].ids);
                job.complete(vec![Ok(row)]);
            }
            of_workers.worker_lost(worker);
        });
        while scheduler.snapshot().workers.live == 0 {
            thread::yield_now();
        }
        let of_clients = scheduler.clone();
        let clients = spawn_all(3, move |client| {
            let (items, vectors) = (vec![TokenIds::new(&[0, 7, 2])], Vectors::Both);
            let submission = Submission { items, vectors, priority: None, deadline: LATER };
            let ticket = of_clients.submit(submission).expect("there is room");
            // The first one leaves, which takes nothing from the others.
            if client > 0 {
                assert_eq!(block_on(ticket), Ok(vec![rows_of(0.0, Vectors::Both)]));
            }
        });
        join(clients);
        scheduler.close();
        join(workers);
        assert_all_ended(&scheduler);
        let counts = scheduler.snapshot().counts;
        assert!(counts.replied + counts.cancelled == counts.accepted, "{counts:?}");
    });
}
