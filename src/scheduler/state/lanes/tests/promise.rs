//! A promised time of single texts beside bulk requests that never end, simulated on lanes.

use super::closed_loop::{ClosedLoop, MEASURED, Seen};
use super::*;

/// Two clients of single texts beside four of bulk requests.
fn run(cores: usize, promised_ms: Option<u64>) -> Seen {
    let clients = ClosedLoop::new(MEASURED, Lane::tree(&[cores], &[1, 2]), 6, 1);
    let promise = promised_ms.map(Duration::from_millis);
    clients.beside_bulk(4, promise).run(Duration::from_secs(60))
}

#[test]
fn single_texts_keep_the_promise_and_bulk_gets_what_it_leaves() {
    for cores in [2, 4] {
        let free = run(cores, None);
        println!("{cores} cores, no promise: {free:?}");
        let mut before = 0.0;
        for promised_ms in [30, 40, 60, 100] {
            let seen = run(cores, Some(promised_ms));
            println!("{cores} cores, {promised_ms} ms: {seen:?}");
            assert!(seen.p99_ms <= promised_ms as f64, "{seen:?}");
            assert!(seen.bulk_per_s >= before * 0.98, "{seen:?}");
            assert!(seen.bulk_per_s > 0.3 * free.bulk_per_s, "{seen:?}");
            before = seen.bulk_per_s;
        }
        assert!(free.p99_ms > 40.0 && before > 0.97 * free.bulk_per_s, "{free:?} {before}");
    }
}
