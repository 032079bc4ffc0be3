//! What was simulated, as a table or as JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use super::SPREADS;
use crate::capacity::fleet::{Fleet, FleetFigures, Goal};

/// A number of servers, and what clients see of them.
pub(super) struct Report<'a> {
    pub servers: usize,
    pub goal: Goal,
    /// Requests that find their server idle.
    pub alone: FleetFigures,
    pub steady: FleetFigures,
    pub one_server_fails: FleetFigures,
    pub load_doubles: FleetFigures,
    pub fleet: &'a Fleet,
}

/// Figures, and whether they meet the goal.
#[derive(Serialize)]
struct Judged<'a> {
    goal_met: bool,
    #[serde(flatten)]
    figures: &'a FleetFigures,
}

impl Report<'_> {
    /// One object.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let Fleet { model, load, spread, timeout, overhead, seed } = self.fleet;
        let requests_per_s = load.requests_per_s();
        let spread = SPREADS.iter().find(|(_, known)| known == spread).map(|(word, _)| word);
        let lanes = model.costs.iter().map(|(width, cost)| {
            let same = model.state.lanes.iter().filter(|lane| lane.width == *width);
            json!({
                "width": width,
                "lanes": same.count(),
                "floor_us": cost.floor_us,
                "fixed_us": cost.fixed_us,
                "per_token_us": cost.per_token_us,
                "per_token_length_us": cost.per_token_length_us,
            })
        });
        let judged = |figures| Judged { goal_met: self.is_met(figures), figures };
        let report = json!({
            "servers": self.servers,
            "requests_per_s": requests_per_s,
            "texts_per_s": requests_per_s * load.texts(),
            "spread": spread,
            "request_timeout_ms": timeout.as_secs_f64() * 1e3,
            "overhead_ms": overhead.as_secs_f64() * 1e3,
            "seed": seed,
            "goal": self.goal,
            "server": {
                "workers": model.state.lanes.len(),
                "lanes": lanes.collect::<Vec<_>>(),
            },
            "alone": judged(&self.alone),
            "steady": judged(&self.steady),
            "one_server_fails": judged(&self.one_server_fails),
            "load_doubles": judged(&self.load_doubles),
        });
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)
    }

    /// A line for each thing that may happen.
    pub(super) fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let Fleet { load, seed, .. } = self.fleet;
        let requests_per_s = load.requests_per_s();
        let texts_per_s = requests_per_s * load.texts();
        let servers = self.servers;
        let noun = if servers == 1 { "server" } else { "servers" };
        let verdict = if self.is_met(&self.steady) { "met" } else { "missed" };
        writeln!(
            out,
            "{servers} {noun} for {requests_per_s:.0} requests/s ({texts_per_s:.0} texts/s)\n\
             the goal of {} is {verdict}\n",
            goal(&self.goal)
        )?;
        writeln!(
            out,
            "                       p50 ms   p99 ms   in time   refused      late   busy   goal"
        )?;
        for (name, figures) in [
            ("alone on a server", &self.alone),
            ("as planned", &self.steady),
            ("one server fails", &self.one_server_fails),
            ("the load doubles", &self.load_doubles),
        ] {
            writeln!(
                out,
                "{name:<19} {:>9} {:>8} {:>7.2} % {:>7.2} % {:>7.2} % {:>4.0} % {:>6}",
                shown_ms(figures.p50_ms),
                shown_ms(figures.p99_ms),
                figures.in_time * 100.0,
                figures.refused * 100.0,
                figures.late * 100.0,
                figures.busy * 100.0,
                if self.is_met(figures) { "met" } else { "missed" }
            )?;
        }
        let FleetFigures { simulated_servers, simulated_s, requests, .. } = self.steady;
        writeln!(
            out,
            "\nsimulated: {simulated_servers} of {servers} {noun}, {simulated_s:.1} s, {requests} \
             requests, seed {seed}"
        )
    }

    fn is_met(&self, figures: &FleetFigures) -> bool {
        figures.meet(&self.goal)
    }
}

fn shown_ms(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

/// "p99 of at most 50 ms and 99.9 % in time".
fn goal(goal: &Goal) -> String {
    let most =
        |name: &str, value: Option<f64>| value.map(|value| format!("{name} of at most {value} ms"));
    let in_time = format!("{} % in time", goal.in_time * 100.0);
    let parts = [most("p50", goal.p50_ms), most("p99", goal.p99_ms), Some(in_time)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}
