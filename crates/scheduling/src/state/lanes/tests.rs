//! Which lanes there are and which one runs what, step by step. `tests/load` has clients that send
//! one request after the other.

use super::*;
use crate::batch::Priority;
use crate::batch::cost::{CostModel, Fit};
use crate::batch::plan::Shapes;
use crate::state::NewRequest;
use settings::limits::MaxBatchTokens;

mod promise;

const TEXT_TOKENS: usize = 43;

/// Lanes that found nothing to do, on NUMA nodes of so many cores.
fn idle(nodes: &[usize], widths: &[usize]) -> SchedulerState {
    let lanes = Lane::tree(nodes, widths);
    let workers = lanes.len();
    let shapes = Shapes::on_cpu(512, MaxBatchTokens::nearest(256));
    let mut state = SchedulerState::new(1000, lanes, shapes);
    for worker in 0..workers {
        state.open_worker(worker);
        ask(&mut state, worker);
    }
    state
}

/// A request of so many texts; the workers that it wakes.
fn submit(state: &mut SchedulerState, texts: usize) -> Vec<usize> {
    let tokens = vec![TEXT_TOKENS; texts];
    let new = NewRequest::of(&tokens, Moment::from_nanos(u64::MAX));
    state.submit(Moment::START, new, &vec![(); texts]).expect("there is room");
    state.take_effects().woken
}

/// How many texts a worker that asks for work is given.
fn ask(state: &mut SchedulerState, worker: usize) -> usize {
    state.ask_for_work(Moment::START, worker).map_or(0, |run| run.items.len())
}

/// Workers that are woken one after the other ask for work; the lane of each, and its texts.
fn started(state: &mut SchedulerState, mut woken: Vec<usize>) -> Vec<(Lane, usize)> {
    let mut started = Vec::new();
    while let Some(worker) = woken.pop() {
        let texts = ask(state, worker);
        if texts > 0 {
            started.push((state.lanes.all[worker], texts));
        }
        woken.extend(state.take_effects().woken);
    }
    started
}

/// What is started for a request of so many texts.
fn of_request(state: &mut SchedulerState, texts: usize) -> Vec<(Lane, usize)> {
    let woken = submit(state, texts);
    started(state, woken)
}

const fn lane(first: usize, width: usize) -> Lane {
    Lane { first, width }
}

#[test]
fn the_tree_has_each_core_once_in_each_width_and_no_lane_on_two_nodes() {
    let tree = Lane::tree(&[6, 3], &[1, 2, 4]);
    let of = |width| -> Vec<usize> {
        tree.iter().filter(|lane| lane.width == width).map(|lane| lane.first).collect()
    };
    assert_eq!(of(1), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(of(2), [0, 2, 4, 6]);
    assert_eq!(of(4), [0]);
    assert_eq!(tree.len(), 14);
}

#[test]
fn the_example_at_the_head_of_the_module_holds() {
    let widths = [1, 2, 4];
    assert_eq!(of_request(&mut idle(&[4], &widths), 1), [(lane(0, 4), 1)]);
    let mut half = idle(&[4], &widths);
    assert_eq!(of_request(&mut half, 2)[0], (lane(0, 2), 1));
    assert_eq!(of_request(&mut idle(&[4], &widths), 2)[1], (lane(2, 2), 1));
    let mut crowded = idle(&[4], &widths);
    crowded.lanes.crowd = 4.0;
    assert_eq!(of_request(&mut crowded, 1), [(lane(0, 1), 1)]);
    let many = of_request(&mut idle(&[4], &widths), 32);
    assert!(many.iter().all(|(lane, _)| lane.width == 1), "{many:?}");
}

#[test]
fn every_core_gets_its_part_of_a_request() {
    for (cores, texts) in [(2, 2), (4, 8), (16, 16), (64, 32), (64, 64), (48, 40)] {
        let widths = [1, 2, 4, 8];
        let all = of_request(&mut idle(&[cores], &widths), texts);
        assert_eq!(all.iter().map(|(_, texts)| texts).sum::<usize>(), texts);
        let most = all.iter().map(|(_, texts)| *texts).max().expect("something runs");
        let taken: usize = all.iter().map(|(lane, _)| lane.width).sum();
        assert!(most <= texts.div_ceil(cores) && taken * 2 > cores, "{cores}, {texts}: {all:?}");
    }
}

#[test]
fn narrow_lanes_leave_large_parts_of_the_cores_free() {
    let mut state = idle(&[8], &[1, 2, 4]);
    state.lanes.crowd = 8.0;
    let first = of_request(&mut state, 1);
    let second = of_request(&mut state, 1);
    assert_eq!([first, second], [[(lane(0, 1), 1)], [(lane(1, 1), 1)]]);
    state.lanes.crowd = 0.0;
    // Three are there, so each may have two cores; four were left for the next one.
    assert_eq!(of_request(&mut state, 1), [(lane(2, 2), 1)]);
    // Two cores of a pair have become free, and one beside a busy one.
    let mut state = idle(&[4], &[1, 2]);
    state.lanes.crowd = 4.0;
    (0..3).for_each(|core| assert_eq!(of_request(&mut state, 1), [(lane(core, 1), 1)]));
    for worker in [0, 1] {
        state.complete_batch(Moment::START, worker, &[], false);
        assert_eq!(ask(&mut state, worker), 0);
    }
    assert_eq!(of_request(&mut state, 1), [(lane(3, 1), 1)]);
}

#[test]
fn bulk_waits_as_long_beside_singles_whatever_lanes_they_ran_on() {
    let wait = |widths: &[usize]| {
        let mut state = idle(&[4], widths);
        for worker in [0, state.workers.len() - 1] {
            let width = state.lanes.width(worker) as f64;
            let model = CostModel { per_token_us: 8000.0 / width, ..CostModel::default() };
            state.set_cost(worker, Fit { model, median_error: 0.0 });
        }
        for _ in 0..30 {
            let worker = submit(&mut state, 1)[0];
            assert_eq!(state.lanes.width(worker), widths[widths.len() - 1]);
            assert_eq!(ask(&mut state, worker), 1);
            state.fail_batch(worker);
            ask(&mut state, worker);
        }
        submit(&mut state, 100);
        state.wait_of(Moment::START, Priority::Bulk)
    };
    assert_eq!(wait(&[1, 4]), wait(&[1]));
}
