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

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("it does not panic");
    }
}

fn assert_all_ended(scheduler: &Scheduler) {
    let snapshot = scheduler.snapshot();
    assert_eq!(snapshot.counts.ended(), snapshot.counts.accepted, "{:?}", snapshot.counts);
    assert!(scheduler.0.state.lock().is_empty());
}

#[test]
fn a_drain_answers_everything_in_every_order() {
    for seed in Seeds::new("a_drain_answers_everything_in_every_order", 0..5) {
        in_many_orders(seed, ORDERS, || {
            let scheduler = scheduler_of(WORKERS);
            let (of_workers, of_clients) = (scheduler.clone(), scheduler.clone());
            let workers = spawn_all(WORKERS, move |worker| work(&of_workers, worker));
            let clients = spawn_all(CLIENTS, move |_| request(&of_clients));
            scheduler.drain();
            block_on(scheduler.drained());
            join(clients);
            assert_all_ended(&scheduler);
            scheduler.close();
            join(workers);
        });
    }
}

#[test]
fn lanes_that_share_cores_answer_everything_in_every_order() {
    let name = "lanes_that_share_cores_answer_everything_in_every_order";
    for seed in Seeds::new(name, 0..5) {
        in_many_orders(seed, ORDERS, || {
            let lanes = Lane::tree(&[WORKERS], &[1, WORKERS]);
            let scheduler = scheduler_on(lanes.clone(), CacheBytes::DEFAULT);
            let (of_workers, of_clients) = (scheduler.clone(), scheduler.clone());
            let workers = spawn_all(lanes.len(), move |worker| work(&of_workers, worker));
            let clients = spawn_all(CLIENTS, move |_| request(&of_clients));
            // Nobody is told to leave before every answer has come.
            join(clients);
            scheduler.drain();
            block_on(scheduler.drained());
            assert_all_ended(&scheduler);
            scheduler.close();
            join(workers);
        });
    }
}

#[test]
fn a_close_answers_everything_in_every_order() {
    for seed in Seeds::new("a_close_answers_everything_in_every_order", 0..5) {
        in_many_orders(seed, ORDERS, || {
            let scheduler = scheduler_of(WORKERS);
            let (of_workers, of_clients) = (scheduler.clone(), scheduler.clone());
            let workers = spawn_all(WORKERS, move |worker| work(&of_workers, worker));
            let clients = spawn_all(CLIENTS, move |_| request(&of_clients));
            scheduler.close();
            join(clients);
            join(workers);
            assert_all_ended(&scheduler);
        });
    }
}

#[test]
fn batches_given_up_and_checks_are_answered_in_every_order() {
    for seed in Seeds::new("batches_given_up_and_checks_are_answered_in_every_order", 0..5) {
        in_many_orders(seed, ORDERS, || {
            let scheduler = scheduler_of(WORKERS);
            let (of_workers, of_clients) = (scheduler.clone(), scheduler.clone());
            let workers = spawn_all(WORKERS, move |worker| work(&of_workers, worker));
            let clients = spawn_all(CLIENTS, move |_| request(&of_clients));
            let model = CostModel {
                floor_us: 0.0,
                fixed_us: 0.0,
                per_token_us: 0.0,
                per_token_length_us: 0.0,
            };
            scheduler.set_cost(Fit { model, median_error: 0.0 });
            scheduler.give_up_stuck(Duration::ZERO);
            for worker in 0..WORKERS {
                if let Ok(ticket) = scheduler.submit_check(worker, TokenIds::new(&[0, 2]), LATER) {
                    let _ = block_on(ticket);
                }
            }
            join(clients);
            scheduler.drain();
            block_on(scheduler.drained());
            scheduler.close();
            join(workers);
            assert_all_ended(&scheduler);
        });
    }
}

#[test]
fn requests_of_the_same_text_are_answered_in_every_order() {
    for seed in Seeds::new("requests_of_the_same_text_are_answered_in_every_order", 0..5) {
        in_many_orders(seed, ORDERS, || {
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
}
