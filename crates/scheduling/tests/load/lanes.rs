//! Lanes beside a session a core, one over all cores, and both of these: from 2 to 64 cores, and
//! from one client to saturation.

use std::time::Duration;

use super::rig::{Clients, HOUR, Load, Pace, Seen, THINK, Worker};
use fastrand::Rng;
use scheduling::batch::cost::CostModel;
use scheduling::batch::{Bucket, Priority};
use scheduling::state::Lane;
use settings::limits::{MaxBatchTokens, WIDTH_GAIN_MIN};

/// Threads that wait for each other take so much longer while the server has other work: the
/// prediction does not know.
const DISTURBED: f64 = 1.25;

/// What a small encoder takes on one core: a short text alone takes 12 ms. See decision 0044.
const FIXED_US: f64 = 5500.0;
const TOKEN_US: f64 = 136.0;

/// How a run becomes shorter with more cores. What no further core shortens is `serial_us`; each
/// further thread adds `meeting_us`, since all wait for the last one at each operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    serial_us: f64,
    meeting_us: f64,
}

/// Meets what two cores of a server take for a short text alone, 8 ms, and for large batches.
pub(crate) const MEASURED: Speed = Speed { serial_us: 3020.0, meeting_us: 240.0 };

impl Speed {
    fn cost(self, width: usize) -> CostModel {
        let cores = width as f64;
        let parallel_us = (FIXED_US - self.serial_us) / cores;
        CostModel {
            floor_us: 0.0,
            fixed_us: self.serial_us + parallel_us + self.meeting_us * (cores - 1.0),
            per_token_us: TOKEN_US / cores,
            per_token_length_us: 0.0,
        }
    }

    /// The widths that a start would hold.
    fn paying_widths(self, cores: usize) -> Vec<usize> {
        let alone = |width| self.cost(width).predict_us(Bucket { rows: 1, length: 48 });
        let wider = (1..).map(|power| 1 << power).take_while(|&width: &usize| width <= cores);
        let paying = wider.take_while(|&width| alone(width / 2) >= WIDTH_GAIN_MIN * alone(width));
        [1].into_iter().chain(paying).collect()
    }
}

/// Texts of 43 tokens on average.
pub(crate) fn short(random: &mut Rng, texts: usize) -> Vec<usize> {
    (0..texts).map(|_| random.usize(8..79)).collect()
}

/// Clients of lanes of these widths, which send one request after the other.
pub(crate) fn load(speed: Speed, cores: usize, widths: &[usize], clients: Vec<Clients>) -> Load {
    let one_at_a_time =
        matches!(clients[..], [Clients { pace: Pace::Closed { clients: 1, .. }, .. }]);
    let worker = |lane: Lane| {
        let is_disturbed = lane.width > 1 && !one_at_a_time;
        let slowness = if is_disturbed { DISTURBED } else { 1.0 };
        Worker { lane, cost: speed.cost(lane.width), slowness }
    };
    let workers = Lane::tree(&[cores], widths).into_iter().map(worker).collect();
    Load::new(workers, MaxBatchTokens::nearest(256), clients)
}

/// What so many clients see that send requests of so many texts, with each way of sharing the
/// cores.
fn run<const WAYS: usize>(
    speed: Speed,
    cores: usize,
    (clients, texts_each): (usize, usize),
    ways: [&[usize]; WAYS],
    span: Duration,
) -> [Seen; WAYS] {
    let pace = Pace::Closed { clients, think: THINK };
    let priority = Some(Priority::Interactive);
    let clients = Clients { pace, texts_each, lengths: short, priority, timeout: HOUR };
    ways.map(|widths| load(speed, cores, widths, vec![clients]).run(span / 4, span))
}

#[test]
fn lanes_on_two_cores_get_nearly_the_better_of_both_ways() {
    let alone = [((1, 1), 0.98)];
    let few = [(2, 1), (3, 1), (1, 8), (1, 256)].map(|load| (load, 0.9));
    let many = [(16, 1), (64, 1), (4, 32), (2, 256)].map(|load| (load, 0.97));
    for (load, part) in alone.into_iter().chain(few).chain(many) {
        let seen = run(MEASURED, 2, load, [&[2], &[1], &[1, 2]], Duration::from_secs(20));
        let [together, apart, lanes] = seen.map(|seen| seen.texts_per_s(0));
        assert!(lanes > together.max(apart) * part, "{load:?}: {together} {apart} {lanes}");
    }
}

const CORES: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// What clients see with lanes of all widths that pay, a session a core, one over all cores, and
/// both of these.
fn with_each_way(speed: Speed, cores: usize, load: (usize, usize)) -> [Seen; 4] {
    // Each core runs about as much whatever their number.
    let span = Duration::from_secs(1).max(Duration::from_secs(20) / cores as u32);
    let paying = speed.paying_widths(cores);
    run(speed, cores, load, [&paying, &[1], &[cores], &[1, cores]], span)
}

/// Clients and texts of each of their requests.
fn loads(cores: usize) -> Vec<(usize, usize)> {
    let singles = [1, 2, cores / 4, cores / 2, cores, 4 * cores].map(|clients| (clients, 1));
    let bulk = [1, 4, cores].map(|clients| (clients, 32));
    let mut loads: Vec<(usize, usize)> = singles.into_iter().chain(bulk).collect();
    loads.retain(|&(clients, _)| clients > 0);
    loads.sort_unstable_by_key(|&(clients, texts)| (texts, clients));
    loads.dedup();
    loads
}

#[test]
fn lanes_are_as_good_as_the_best_way_at_every_number_of_cores() {
    let mut better = [false; 3];
    for cores in CORES {
        for (clients, texts) in loads(cores) {
            let all = with_each_way(MEASURED, cores, (clients, texts));
            let shown = |seen: &Seen| {
                let [p50, p99] = [0.5, 0.99].map(|part| seen.quantile_ms(0, part));
                format!("{:.0} ({p50:.1}, {p99:.1})", seen.texts_per_s(0))
            };
            let figures = all.each_ref().map(shown).join(" | ");
            println!("| {cores} | {clients} × {texts} | {figures} |");
            let [lanes, others @ ..] = all.map(|seen| seen.texts_per_s(0));
            for (better, other) in better.iter_mut().zip(others) {
                let shown = format!("{cores} cores, {clients} × {texts}: {lanes} {others:?}");
                assert!(lanes >= other * 0.95, "{shown}");
                *better |= lanes > other * 1.05;
            }
        }
    }
    assert_eq!(better, [true; 3], "better than each somewhere");
}

/// Were no time lost where threads meet, each wider lane would pay a little more. A lone text is
/// all that would gain by those that are left out.
#[test]
fn what_is_lost_by_widths_that_are_left_out_is_a_fifth_at_most() {
    let speed = Speed { serial_us: 3500.0, meeting_us: 0.0 };
    for cores in CORES {
        let seen = with_each_way(speed, cores, (1, 1));
        let [lanes, others @ ..] = seen.map(|seen| seen.texts_per_s(0));
        let best = others.into_iter().fold(0.0, f64::max);
        println!("{cores} cores: {lanes:.0}, {best:.0}");
        assert!(lanes >= best * 0.8, "{cores} cores: {lanes} {best}");
    }
}
