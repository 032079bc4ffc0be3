//! Queues whose answer is known without a simulation, and the rules of the search.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fleet::{Fewest, Fleet, FleetFigures, Goal, Scenario, Unreachable};
use super::load::{Lengths, Load, RandomLoad, Traced};
use super::server::ServerModel;
use super::simulation::Spread;
use crate::batch::Bucket;
use crate::batch::cost::CostModel;
use crate::batch::plan::Shapes;
use crate::scheduler::state::{Lane, StateConfig};

const RUN_MS: f64 = 10.0;
/// Of every text; a run has room for one.
const TOKENS: usize = 24;
const ANY: Goal = Goal { p50_ms: None, p99_ms: None, in_time: 0.0 };

/// Every run takes the same time.
const fn fixed(ms: f64) -> CostModel {
    CostModel { floor_us: 0.0, fixed_us: ms * 1e3, per_token_us: 0.0, per_token_length_us: 0.0 }
}

/// One worker that runs one text at a time.
fn model() -> ServerModel {
    ServerModel {
        state: StateConfig { capacity: 8192, lanes: Lane::apart(1) },
        shapes: Shapes::new(vec![Bucket { rows: 1, length: TOKENS }], false),
        costs: BTreeMap::from([(1, fixed(RUN_MS))]),
        slowness: 1.0,
    }
}

fn fleet(load: Load) -> Fleet {
    let timeout = Duration::from_secs(10);
    let overhead = Duration::ZERO;
    Fleet { model: model(), load, spread: Spread::LeastQueue, timeout, overhead, seed: 1 }
}

/// Requests of one text at these times.
fn trace(times_ms: impl IntoIterator<Item = u64>) -> Load {
    let at = |ms| Traced { at: Duration::from_millis(ms), tokens: vec![TOKENS], priority: None };
    Load::Trace(times_ms.into_iter().map(at).collect())
}

/// Requests of one text at random times.
fn random(requests_per_s: f64, seconds: u64) -> Load {
    let lengths = Lengths::new(vec![(TOKENS, 1.0)]).expect("a weight is above zero");
    let span = Duration::from_secs(seconds);
    Load::Random(RandomLoad { requests_per_s, texts: 1, lengths, priority: None, span })
}

fn steady(load: Load, servers: usize) -> FleetFigures {
    fleet(load).predict(servers, Scenario::Steady)
}

fn assert_near(seen: Option<f64>, expected: f64, part: f64) {
    let seen = seen.expect("there are answers");
    assert!((seen / expected - 1.0).abs() <= part, "{seen} is not {expected} ± {part}");
}

/// An exact figure but for the rounding of floats.
fn assert_exact(seen: Option<f64>, expected: f64) {
    assert_near(seen, expected, 1e-9);
}

#[test]
fn requests_that_meet_nobody_take_one_run() {
    let seen = steady(trace((0..100).map(|at| 20 * at)), 1);
    assert_exact(seen.p50_ms, 10.0);
    assert_exact(seen.p99_ms, 10.0);
    assert_eq!((seen.requests, seen.in_time, seen.refused, seen.late), (100, 1.0, 0.0, 0.0));
    // A hundred runs of 10 ms within 1990 ms.
    assert_exact(Some(seen.busy), 1000.0 / 1990.0);
}

#[test]
fn requests_of_one_moment_wait_for_each_other() {
    let one = steady(trace([0, 0, 0]), 1);
    assert_exact(one.p50_ms, 20.0);
    assert_exact(one.p99_ms, 30.0);
    assert_exact(one.mean_ms, 20.0);
    let three = steady(trace([0, 0, 0]), 3);
    assert_exact(three.p99_ms, 10.0);
}

/// The mean wait in a queue with random arrivals, one worker and runs of one length is
/// load · run / (2 · (1 − load)): Pollaczek and Khinchine.
#[test]
fn waits_at_random_arrivals_are_those_of_queueing_theory() {
    for (per_second, wait_ms) in [(20.0, 1.25), (50.0, 5.0), (80.0, 20.0)] {
        let seen = steady(random(per_second, 2000), 1);
        assert_near(seen.mean_ms, RUN_MS + wait_ms, 0.04);
        assert_near(Some(seen.busy), per_second * RUN_MS / 1e3, 0.02);
        assert_eq!(seen.in_time, 1.0);
    }
}

#[test]
fn what_is_more_than_the_capacity_is_refused() {
    // 200 requests a second for a minute; 100 of them can run.
    let load = trace((0..12_000).map(|at| 5 * at));
    let overloaded = Fleet { timeout: Duration::from_secs(1), ..fleet(load) };
    let seen = overloaded.predict(1, Scenario::Steady);
    // Besides 6000 runs in that minute, at most the time of one request is in the queue.
    assert!((0.5..=0.51).contains(&seen.in_time), "{seen:?}");
    assert!((0.49..=0.5).contains(&seen.refused), "{seen:?}");
    assert!(seen.p99_ms.expect("there are answers") <= 1000.0, "{seen:?}");
    assert_near(Some(seen.busy), 1.0, 0.001);
}

#[test]
fn a_full_queue_refuses() {
    let mut small = fleet(trace([0; 10]));
    small.model.state.capacity = 4;
    let seen = small.predict(1, Scenario::Steady);
    assert_exact(Some(seen.refused), 0.6);
    assert_exact(seen.p99_ms, 40.0);
}

#[test]
fn what_a_failing_server_ran_is_run_by_another() {
    // The second request begins on the first server at 45 ms, and again elsewhere at 50 ms.
    let seen = fleet(trace([0, 45, 100])).predict(2, Scenario::OneFails);
    assert_eq!((seen.requests, seen.in_time), (2, 1.0));
    assert_exact(seen.p50_ms, 10.0);
    assert_exact(seen.p99_ms, 15.0);
}

#[test]
fn servers_that_are_left_are_busier() {
    // Two servers run half of the time each; one of them alone runs all the time.
    let fleet = fleet(trace((0..1000).map(|at| 10 * at)));
    assert_near(Some(fleet.predict(2, Scenario::Steady).busy), 0.5, 0.01);
    assert_near(Some(fleet.predict(2, Scenario::OneFails).busy), 1.0, 0.01);
}

#[test]
fn without_any_server_left_all_is_refused() {
    let seen = fleet(trace([0, 60, 100])).predict(1, Scenario::OneFails);
    assert_eq!((seen.requests, seen.refused, seen.p50_ms), (2, 1.0, None));
}

#[test]
fn twice_the_load_comes_in_half_of_the_time() {
    let load = trace((0..100).map(|at| 20 * at));
    let seen = fleet(load).predict(1, Scenario::LoadTimes(2.0));
    // Each request comes when the one before it ends.
    assert_exact(seen.p99_ms, 10.0);
    assert_exact(Some(seen.busy), 1.0);
}

#[test]
fn time_outside_of_the_server_is_added() {
    let away = Fleet { overhead: Duration::from_millis(3), ..fleet(trace([0, 20])) };
    assert_exact(away.predict(1, Scenario::Steady).p50_ms, 13.0);
}

#[test]
fn a_text_that_is_alone_runs_on_the_widest_lane() {
    let mut wide = fleet(trace([0, 100, 200]));
    wide.model.state.lanes = Lane::tree(&[2], &[1, 2]);
    wide.model.costs.insert(2, fixed(6.0));
    assert_exact(wide.predict(1, Scenario::Steady).p99_ms, 6.0);
}

#[test]
fn fewest_servers_meet_the_goal_and_one_fewer_does_not() {
    let fleet = fleet(random(500.0, 20));
    let goal = Goal { p99_ms: Some(25.0), in_time: 0.999, ..ANY };
    let Fewest { servers, steady, .. } = fleet.fewest_servers(&goal).expect("there is a number");
    assert!(steady.meet(&goal), "{steady:?}");
    assert!((6..=8).contains(&servers), "{servers}: five could work all the time");
    assert!(!fleet.predict(servers - 1, Scenario::Steady).meet(&goal));
}

#[test]
fn work_that_takes_all_servers_is_no_goal_met() {
    // For some seconds a queue could hold what is too much.
    let fleet = fleet(random(1050.0, 1));
    let found = fleet.fewest_servers(&Goal { in_time: 0.5, ..ANY }).expect("there is a number");
    assert_eq!(found.servers, 11);
}

#[test]
fn a_goal_below_one_run_is_met_by_no_number_of_servers() {
    let goal = Goal { p50_ms: Some(9.0), ..ANY };
    let Err(Unreachable::Alone(seen)) = fleet(random(50.0, 1)).fewest_servers(&goal) else {
        panic!("a run alone takes 10 ms")
    };
    assert_exact(seen.p50_ms, 10.0);
}

#[test]
fn a_large_fleet_is_simulated_by_its_part() {
    let goal = Goal { p99_ms: Some(20.0), in_time: 0.999, ..ANY };
    let of = |per_second| fleet(random(per_second, 1)).fewest_servers(&goal).expect("a number");
    let (some, many) = (of(100_000.0), of(1_000_000.0));
    let ratio = many.servers as f64 / some.servers as f64;
    assert!((ratio / 10.0 - 1.0).abs() < 0.02, "{some:?} and {many:?}");
    assert!(many.steady.simulated_servers <= 32, "{many:?}");
    assert!(many.servers > 10_000, "each runs a hundred texts a second at most: {many:?}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let with = |seed| Fleet { seed, ..fleet(random(250.0, 1)) }.predict(3, Scenario::OneFails);
    assert_eq!(with(7), with(7));
    assert_ne!(with(7), with(8));
}

#[test]
fn least_queues_wait_less_than_random_ones() {
    let fleet = fleet(random(210.0, 60));
    let random = Fleet { spread: Spread::Random, ..fleet.clone() };
    let [least, random] =
        [fleet, random].map(|fleet| fleet.predict(3, Scenario::Steady).p99_ms.expect("answers"));
    assert!(least * 1.5 < random, "{least} and {random}");
}

#[test]
fn lengths_are_drawn_as_often_as_they_weigh() {
    let lengths = Lengths::new(vec![(8, 3.0), (32, 0.0), (64, 1.0)]).expect("they weigh something");
    let load = RandomLoad {
        requests_per_s: 1.0,
        texts: 1,
        lengths,
        priority: None,
        span: Duration::from_secs(1),
    };
    let sample = Load::Random(load).sample(3);
    let short = sample.iter().filter(|&&tokens| tokens == 8).count() as f64;
    assert_near(Some(short / sample.len() as f64), 0.75, 0.03);
    assert!(!sample.contains(&32));
    assert_eq!(Lengths::new(vec![(8, 0.0)]), None);
    assert_eq!(Lengths::new(vec![(8, -1.0), (9, 2.0)]), None);
}
