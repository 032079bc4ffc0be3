//! A promised time of single texts beside bulk requests that never end.

use std::time::Duration;

use super::lanes::{MEASURED, load, short};
use super::rig::{Clients, HOUR, Pace, Seen, THINK};
use fastrand::Rng;
use scheduling::batch::Priority;

/// Single texts of a client come so long behind the answer to the one before.
const PAUSE: Duration = Duration::from_millis(50);

/// Short texts behind one that takes 60 ms.
fn with_a_long_one(random: &mut Rng, texts: usize) -> Vec<usize> {
    [400].into_iter().chain(short(random, texts - 1)).collect()
}

/// So many clients of single texts beside so many of bulk requests, which are the second group.
fn run(
    cores: usize,
    singles: usize,
    (bulk_clients, texts_each): (usize, usize),
    promised_ms: Option<u64>,
) -> Seen {
    let pace = |clients, think| Pace::Closed { clients, think };
    let single = Clients {
        pace: pace(singles, PAUSE),
        texts_each: 1,
        lengths: short,
        priority: Some(Priority::Interactive),
        timeout: HOUR,
    };
    let bulk = Clients {
        pace: pace(bulk_clients, THINK),
        texts_each,
        lengths: with_a_long_one,
        priority: Some(Priority::Bulk),
        ..single
    };
    let mut load = load(MEASURED, cores, &[1, 2], vec![single, bulk]);
    if let Some(promised_ms) = promised_ms {
        load.state.set_promise(Duration::from_millis(promised_ms));
    }
    let seen = load.run(Duration::from_secs(15), Duration::from_secs(60));
    let p99_ms = seen.quantile_ms(0, 0.99);
    println!("{cores} cores, {promised_ms:?} ms: {p99_ms:.0} ms, {:.0} of bulk", bulk_per_s(&seen));
    seen
}

fn bulk_per_s(seen: &Seen) -> f64 {
    seen.texts_per_s(1)
}

#[test]
fn single_texts_keep_the_promise_and_bulk_gets_what_it_leaves() {
    for cores in [2, 4] {
        let free = run(cores, 2, (4, 64), None);
        let mut before = 0.0;
        for promised_ms in [30, 40, 60, 100] {
            let seen = run(cores, 2, (4, 64), Some(promised_ms));
            let (p99_ms, bulk) = (seen.quantile_ms(0, 0.99), bulk_per_s(&seen));
            assert!(p99_ms <= promised_ms as f64, "{p99_ms} of {promised_ms} ms");
            assert!(bulk >= before * 0.98, "{bulk} {before}");
            assert!(bulk > 0.3 * bulk_per_s(&free), "{bulk}");
            before = bulk;
        }
        assert!(free.quantile_ms(0, 0.99) > 40.0 && before > 0.97 * bulk_per_s(&free), "{before}");
    }
}

#[test]
fn a_promise_costs_nothing_while_no_single_text_comes() {
    let [with, without] = [Some(20), None].map(|promise| bulk_per_s(&run(2, 0, (4, 64), promise)));
    assert_eq!(with, without);
}

#[test]
fn one_client_of_long_texts_leaves_single_texts_a_core() {
    let seen = run(2, 1, (1, 1), Some(20));
    assert!(seen.quantile_ms(0, 0.99) <= 20.0 && bulk_per_s(&seen) > 10.0);
}
