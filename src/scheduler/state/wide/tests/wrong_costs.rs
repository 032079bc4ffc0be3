//! Starts that measured one of the ways wrongly, and machines that are not as they were: the
//! choice is corrected while batches run.

use super::*;

/// Time in which a choice is corrected.
const SETTLING: Duration = Duration::from_secs(8);

const LOADS: [(usize, usize); 6] = [(1, 1), (1, 256), (2, 1), (16, 1), (64, 1), (4, 32)];

fn scaled(cost: CostModel, factor: f64) -> CostModel {
    CostModel {
        floor_us: cost.floor_us * factor,
        fixed_us: cost.fixed_us * factor,
        per_token_us: cost.per_token_us * factor,
        per_token_length_us: cost.per_token_length_us * factor,
    }
}

/// Texts a second after the choice is settled, when the start measured the wide worker and the
/// others wrongly by these factors.
fn settled_rate((clients, texts_each): (usize, usize), wide: f64, others: f64) -> f64 {
    let mut simulation = ClosedLoop::new(Cores::AsSaid, clients, texts_each);
    set_wide_cost(&mut simulation.state, scaled(BOTH_CORES, wide));
    simulation.state.set_cost(Fit { model: scaled(ONE_CORE, others), median_error: 0.0 });
    simulation.count_from = Moment::START + SETTLING;
    simulation.rate()
}

#[test]
fn a_way_that_was_measured_wrongly_is_found_out_under_every_load() {
    for load in LOADS {
        let right = settled_rate(load, 1.0, 1.0);
        for factor in [1.0 / 3.0, 3.0] {
            for (wide, others) in [(factor, 1.0), (1.0, factor), (factor, factor)] {
                let rate = settled_rate(load, wide, others);
                assert!(rate > right * 0.97, "{load:?}, {wide} and {others}: {right} {rate}");
            }
        }
    }
}

#[test]
fn a_wrong_choice_is_corrected_within_two_hundred_batches() {
    for (wide, others) in [(3.0, 1.0), (1.0 / 3.0, 1.0), (1.0, 3.0), (1.0, 1.0 / 3.0)] {
        let mut simulation = ClosedLoop::new(Cores::AsSaid, 1, 1);
        set_wide_cost(&mut simulation.state, scaled(BOTH_CORES, wide));
        simulation.state.set_cost(Fit { model: scaled(ONE_CORE, others), median_error: 0.0 });
        simulation.run_until(|state| state.counts().batches == 200);
        let before = simulation.wide_batches();
        simulation.run_until(|state| state.counts().batches == 300);
        let ran = simulation.wide_batches() - before;
        assert!(ran >= 95, "{wide} and {others}: the wide worker ran {ran} of 100 texts alone");
    }
}

#[test]
fn trying_the_other_way_takes_a_fiftieth_of_the_time_at_most() {
    for load in [(1, 1), (16, 1), (64, 1), (4, 32)] {
        let (clients, texts_each) = load;
        let [together, apart, as_said] = rates(clients, texts_each);
        let better = together.max(apart);
        assert!(as_said > better * 0.98, "{load:?}: {together} {apart} {as_said}");
    }
}

#[test]
fn the_other_way_is_tried_again_after_the_machine_has_changed() {
    let mut simulation = ClosedLoop::new(Cores::AsSaid, 1, 1);
    simulation.disturbed_alone = 2.5;
    simulation.run_until(|state| state.counts().batches == 500);
    let before = simulation.wide_batches();
    assert!(before < 100, "it is slower than one core: {before}");
    simulation.disturbed_alone = 1.0;
    simulation.run_until(|state| state.counts().batches == 1500);
    let ran = simulation.wide_batches() - before;
    assert!(ran > 600, "{ran} of 1000 texts alone");
}

#[test]
fn all_cores_take_what_waits_where_cores_apart_disturb_each_other() {
    let under_load = |cores| {
        let mut simulation = ClosedLoop::new(cores, 64, 1);
        simulation.disturbed = 1.0;
        simulation.apart_under_load = 2.0;
        simulation.count_from = Moment::START + SETTLING;
        simulation.rate()
    };
    let [together, apart, as_said] = [Cores::Together, Cores::Apart, Cores::AsSaid].map(under_load);
    assert!(together > apart * 1.5, "{together} {apart}");
    assert!(as_said > together * 0.95, "{together} {as_said}");
}
