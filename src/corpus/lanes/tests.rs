//! Lanes on the fake engine, with faults.

use std::collections::HashMap;

use super::*;
use crate::batch::plan::bucket_ladder;
use crate::clock::RealClock;
use crate::engine::fake::{FakeEngine, FakeScript, ScriptedFault, expected_dense};
use crate::limits::{MaxBatchRows, MaxBatchTokens};

const HIDDEN: usize = 8;

fn lanes(workers: usize, script: FakeScript) -> Vec<Lane> {
    let engine: Arc<dyn Engine> = Arc::new(FakeEngine::with_script(HIDDEN, script));
    let buckets = bucket_ladder(64, MaxBatchTokens::DEFAULT, MaxBatchRows::DEFAULT);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let config = crate::config::Config::default();
    let options = LaneOptions { workers, watchdog: config.watchdog, vectors: Vectors::Both };
    Lane::open(&engine, &buckets, &clock, &options).expect("they open")
}

fn texts(lengths: &[u32]) -> Vec<TokenIds> {
    lengths.iter().map(|&length| TokenIds::new(&(0..length).collect::<Vec<_>>())).collect()
}

fn script(faults: &[(u64, ScriptedFault)]) -> FakeScript {
    FakeScript {
        faults: faults.iter().cloned().collect::<HashMap<_, _>>(),
        ..FakeScript::default()
    }
}

fn assert_all(rows: &[RowsOrReason], items: &[TokenIds]) {
    assert_eq!(rows.len(), items.len());
    for (rows, ids) in rows.iter().zip(items) {
        let rows = rows.as_ref().expect("it ran");
        assert_eq!(rows.dense, expected_dense(ids, HIDDEN));
        assert_eq!(rows.weights.len(), ids.len());
    }
}

/// Else the scheduler would plan batches of its own, by what it has measured.
#[test]
fn items_of_different_lengths_run_as_one_batch() {
    let mut lanes = lanes(2, FakeScript::default());
    for lane in &mut lanes {
        for items in [texts(&[3]), texts(&[3, 9, 30, 31, 64]), texts(&[5; 8]), texts(&[8, 9])] {
            let before = lane.scheduler.snapshot().counts.batches;
            assert_all(&lane.run(&items).expect("it runs"), &items);
            assert_eq!(lane.scheduler.snapshot().counts.batches, before + 1);
        }
    }
    close(lanes);
}

#[test]
fn a_text_that_cannot_be_run_does_not_take_its_neighbours_with_it() {
    // The batch fails, and the second of its texts alone.
    let faults = [(0, ScriptedFault::NotFinite), (2, ScriptedFault::NotFinite)];
    let mut lanes = lanes(1, script(&faults));
    let items = texts(&[4, 5, 6]);
    let rows = lanes[0].run(&items).expect("it goes on");
    assert_eq!(rows[1], Err("the model returned NaN or infinity".to_owned()));
    assert!(rows[0].is_ok() && rows[2].is_ok());
    close(lanes);
}

#[test]
fn a_lost_worker_is_replaced_and_the_batch_is_run_again() {
    let mut lanes = lanes(1, script(&[(0, ScriptedFault::Panic)]));
    let items = texts(&[4, 5, 6]);
    assert_all(&lanes[0].run(&items).expect("it goes on"), &items);
    close(lanes);
}

#[test]
fn an_engine_that_runs_nothing_ends_the_run() {
    let fault = |run| (run, ScriptedFault::Fail(EngineError::Transient("broken".to_owned())));
    let mut lanes = lanes(1, script(&(0..1000).map(fault).collect::<Vec<_>>()));
    let items = texts(&[4; 8]);
    let error = (0..200).find_map(|_| lanes[0].run(&items).err()).expect("it gives up");
    assert!(error.to_string().contains("broken"), "{error}");
    close(lanes);
}
