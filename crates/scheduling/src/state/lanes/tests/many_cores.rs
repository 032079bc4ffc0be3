//! From 2 to 64 cores and from one client to saturation: lanes beside a session a core, one over
//! all cores, and both of these. `--nocapture` prints the table that decision 0044 quotes.

use super::closed_loop::{ClosedLoop, MEASURED, Seen, Speed};
use super::*;
use crate::batch::Bucket;
use settings::limits::WIDTH_GAIN_MIN;

const CORES: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// Ways of sharing the cores besides lanes of all widths that pay, by the widths of the lanes.
const OTHERS: [&str; 3] = ["N x 1", "1 x N", "N x 1 and 1 x N"];

/// What clients see when they send requests of so many texts each: with lanes, and with `OTHERS`.
fn run(cores: usize, speed: Speed, (clients, texts_each): (usize, usize)) -> [Seen; 4] {
    let widths = paying_widths(cores, &speed);
    // Each core runs about as much whatever their number.
    let span = Duration::from_secs(1).max(Duration::from_secs(20) / cores as u32);
    [&widths[..], &[1], &[cores], &[1, cores]].map(|widths| {
        let lanes = Lane::tree(&[cores], widths);
        ClosedLoop::new(speed, lanes, clients, texts_each).run(span)
    })
}

/// The widths that a start would hold.
fn paying_widths(cores: usize, speed: &Speed) -> Vec<usize> {
    let alone = |width: usize| speed.cost(width).predict_us(Bucket { rows: 1, length: 48 });
    let wider = (1..).map(|power| 1 << power).take_while(|&width: &usize| width <= cores);
    let paying = wider.take_while(|&width| alone(width / 2) >= WIDTH_GAIN_MIN * alone(width));
    [1].into_iter().chain(paying).collect()
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
        for load in loads(cores) {
            let all = run(cores, MEASURED, load);
            let (clients, texts) = load;
            let shown = |seen: &Seen| {
                let Seen { texts_per_s, p50_ms, p99_ms, .. } = seen;
                format!("{texts_per_s:.0} ({p50_ms:.1}, {p99_ms:.1})")
            };
            let figures = all.each_ref().map(shown).join(" | ");
            println!("| {cores} | {clients} × {texts} | {figures} |");
            let [lanes, others @ ..] = all.map(|seen| seen.texts_per_s);
            for (place, other) in others.into_iter().enumerate() {
                let name = OTHERS[place];
                assert!(lanes >= other * 0.95, "{cores} cores, {load:?}: {lanes} {other} {name}");
                better[place] |= lanes > other * 1.05;
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
        let [lanes, others @ ..] = run(cores, speed, (1, 1)).map(|seen| seen.texts_per_s);
        let best = others.into_iter().fold(0.0, f64::max);
        println!("{cores} cores: {lanes:.0}, {best:.0}");
        assert!(lanes >= best * 0.8, "{cores} cores: {lanes} {best}");
    }
}
