//! One worker: full rows, short waits beside bulk, and more requests than it can run.

use std::time::Duration;

use super::rig::{Clients, HOUR, Load, Outcome, Pace, Seen, THINK, Worker};
use fastrand::Rng;
use scheduling::batch::cost::CostModel;
use scheduling::batch::plan::Shapes;
use scheduling::state::Lane;
use settings::limits::{BULK_SHARE, MaxBatchTokens};

/// Tokens of a text, on average.
const TOKENS: f64 = 46.0;

/// Lengths of short texts with a tail, as in a multilingual corpus.
fn lengths(random: &mut Rng, texts: usize) -> Vec<usize> {
    let length = |_| ((8.0 - 38.0 * (1.0 - random.f64()).ln()) as usize).min(512);
    (0..texts).map(length).collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn clients(pace: Pace, texts_each: usize, timeout: Duration) -> Clients {
    Clients { pace, texts_each, lengths, priority: None, timeout }
}

/// So many clients that send requests of so many texts one after the other.
fn closed(count: usize, texts_each: usize, timeout: Duration) -> Clients {
    clients(Pace::Closed { clients: count, think: THINK }, texts_each, timeout)
}

/// Requests that come whatever becomes of those before, with so many tokens a second.
fn open(tokens_per_s: f64, texts_each: usize, timeout: Duration, end: Duration) -> Clients {
    let rate = tokens_per_s / TOKENS / texts_each as f64;
    clients(Pace::Open { rate, end }, texts_each, timeout)
}

/// A worker whose runs take `slowness` times what is expected.
fn load(slowness: f64, clients: Vec<Clients>) -> Load {
    let worker = Worker { lane: Lane::apart(1)[0], cost: CostModel::default(), slowness };
    Load::new(vec![worker], MaxBatchTokens::DEFAULT, clients)
}

fn run(slowness: f64, clients: Vec<Clients>, span: Duration) -> Seen {
    load(slowness, clients).run(Duration::ZERO, span)
}

/// Tokens a second of a worker that never lacks work.
fn capacity(texts_each: usize, slowness: f64) -> f64 {
    let clients = closed(256 / texts_each, texts_each, HOUR);
    run(slowness, vec![clients], seconds(60)).tokens_per_s(None)
}

#[test]
fn rows_are_nearly_full_under_bulk() {
    let seen = run(1.0, vec![closed(4, 32, HOUR)], seconds(120));
    let (tokens, real) = (seen.tokens_per_s(None), seen.filled());
    println!("4 x 32: {tokens:.0} tokens/s, {real:.3} real per run token");
    assert!(real >= 0.95, "{real:.3}");
}

#[test]
fn single_texts_beside_bulk_wait_for_a_batch_at_most() {
    let singles = open(20.0 * TOKENS, 1, HOUR, seconds(120));
    let all = vec![singles, closed(4, 32, HOUR), closed(2, 256, HOUR)];
    let seen = run(1.0, all, seconds(120));
    let (tokens, real) = (seen.tokens_per_s(None), seen.filled());
    println!("mixed: {tokens:.0} tokens/s, {real:.3} real per run token");
    for (group, texts) in [1, 32, 256].into_iter().enumerate() {
        let [p50, p99] = [0.5, 0.99].map(|part| seen.quantile_ms(group, part));
        println!("  requests of {texts:3} texts: p50 {p50:6.0} ms, p99 {p99:6.0} ms");
    }
    assert!(real > 0.95, "{real:.3}");
    let longest_row = Shapes::on_cpu(512, MaxBatchTokens::DEFAULT).row(512);
    let own_ms = CostModel::default().predict_us(longest_row) / 1e3;
    let (batch_ms, p99) = (seen.longest_run.as_secs_f64() * 1e3, seen.quantile_ms(0, 0.99));
    assert!(p99 <= 2.0 * (batch_ms + own_ms), "{p99:.0} ms, batches of {batch_ms:.0} ms");
}

/// Three times the capacity for a minute.
fn overload(texts_each: usize, slowness: f64, timeout: Duration) {
    let capacity = capacity(texts_each, slowness);
    let clients = open(3.0 * capacity, texts_each, timeout, seconds(60));
    let seen = run(slowness, vec![clients], seconds(60));
    let goodput = seen.tokens_per_s(None) / capacity;
    let count = |outcome| seen.ended.iter().filter(|ended| ended.outcome == outcome).count();
    let [answered, expired, refused] =
        [Outcome::Answered, Outcome::Expired, Outcome::Refused].map(count);
    println!(
        "3 x {capacity:.0} tokens/s, {texts_each} texts, {timeout:?}, slower by {slowness}: \
         goodput {goodput:.3} of capacity, {answered} answered, {expired} expired, {refused} \
         refused"
    );
    assert!(goodput >= 0.9 && expired * 100 <= answered, "{texts_each} texts, {timeout:?}");
    assert!(refused > answered);
}

#[test]
fn overload_is_refused_and_what_is_taken_is_answered_in_time() {
    for (texts_each, slowness, timeout_s) in
        [(1, 1.0, 1), (1, 1.0, 10), (32, 1.0, 10), (32, 1.5, 10), (32, 0.5, 10), (256, 1.0, 30)]
    {
        overload(texts_each, slowness, seconds(timeout_s));
    }
}

#[test]
fn no_class_is_left_out_when_interactive_requests_alone_are_too_many() {
    let capacity = capacity(1, 1.0);
    let singles = open(1.5 * capacity, 1, seconds(5), seconds(120));
    let seen = run(1.0, vec![singles, closed(4, 32, seconds(30))], seconds(120));
    let [interactive, bulk] = [0, 1].map(|group| seen.tokens_per_s(Some(group)));
    println!("1.5 x interactive: {interactive:.0} tokens/s beside {bulk:.0} of bulk requests");
    assert!(bulk / (interactive + bulk) > BULK_SHARE * 0.9);
    assert!(interactive + bulk > capacity * 0.9);
}

#[test]
fn who_comes_back_when_told_to_is_mostly_taken() {
    for texts_each in [1, 32] {
        let tokens_per_s = 3.0 * capacity(texts_each, 1.0);
        let clients = open(tokens_per_s, texts_each, seconds(5), seconds(15));
        let mut load = load(1.0, vec![clients]);
        load.tries = 2;
        let seen = load.run(Duration::ZERO, seconds(120));
        let back = || seen.ended.iter().filter(|ended| ended.tries == 2);
        let (good, all) = (back().filter(|ended| ended.is_good).count(), back().count());
        println!("{texts_each} texts, 15 s of overload: {good} of {all} were taken later");
        assert!(good as f64 >= all as f64 * 0.8, "{good} of {all}");
    }
}
