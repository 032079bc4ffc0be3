//! `duovec plan-capacity`: how many servers a load needs, and what happens when one fails or the
//! load doubles, by simulation.

use std::io::Read;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};

use crate::batch::Priority;
use crate::capacity::fleet::{Fleet, FleetFigures, Goal, Scenario, Unreachable};
use crate::capacity::load::{Lengths, Load, RandomLoad};
use crate::capacity::simulation::Spread;
use crate::config::Config;

mod measured;
mod report;
mod trace;

use measured::MeasuredServer;
use report::Report;

/// Standard input as a file's name.
const STANDARD_INPUT: &str = "-";

const SPREADS: [(&str, Spread); 2] =
    [("least-queue", Spread::LeastQueue), ("random", Spread::Random)];
const PRIORITIES: [(&str, Priority); 2] =
    [("interactive", Priority::Interactive), ("bulk", Priority::Bulk)];

/// What can be typed besides the settings.
pub(super) fn command() -> Command {
    Command::new("plan-capacity")
        .about("Says how many servers a load needs, by simulating them")
        .args(load_arguments())
        .group(
            ArgGroup::new("load").args(["requests-per-s", "texts-per-s", "trace"]).required(true),
        )
        .args(goal_arguments())
        .after_help(
            "The simulation has the server's own scheduler; only the runs of the model are \
             replaced by the times that a server measured. Settings that are not given are those \
             of the measured server, or the defaults.",
        )
}

fn value(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn word<T>(name: &'static str, help: &'static str, words: &[(&'static str, T)]) -> Arg {
    let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    value(name, "WORD", help).value_parser(PossibleValuesParser::new(words))
}

fn load_arguments() -> [Arg; 8] {
    let file = "an answer of /health, or what `duovec bench --json` prints: how long runs take; - \
                is standard input";
    [
        value("server", "FILE", file).required(true),
        value("requests-per-s", "N", "requests a second, at random times").value_parser(positive),
        value("texts-per-s", "N", "the same in texts a second").value_parser(positive),
        value(
            "trace",
            "FILE",
            "JSON lines with `time` in seconds, `tokens` or `texts`, `priority`",
        ),
        value("texts", "N", "texts of a request")
            .value_parser(clap::value_parser!(u64).range(1..))
            .default_value("1")
            .conflicts_with("trace"),
        value("tokens", "LIST", "tokens of a text; several with weights, such as 12:5,43:3,200:1")
            .value_parser(lengths)
            .required_unless_present("trace"),
        word("priority", "of all requests [default: by their size]", &PRIORITIES)
            .conflicts_with("trace"),
        value("seconds", "S", "how long a load at random times lasts")
            .value_parser(positive)
            .default_value("60"),
    ]
}

fn goal_arguments() -> [Arg; 8] {
    [
        value("servers", "N", "so many servers, instead of searching the fewest")
            .value_parser(clap::value_parser!(u64).range(1..=10_000_000)),
        value("goal-p50-ms", "MS", "half of the answers take this long at most")
            .value_parser(positive),
        value("goal-p99-ms", "MS", "99 of 100 answers take this long at most")
            .value_parser(positive),
        value("goal-in-time", "PART", "part of the requests that are answered in their time")
            .value_parser(part)
            .default_value("0.999"),
        word("spread", "which server gets the next request", &SPREADS).default_value("least-queue"),
        value("overhead-ms", "MS", "what an answer takes besides queue and model: network, proxy")
            .value_parser(zero_or_more)
            .default_value("0"),
        value("seed", "N", "the same seed gives the same figures")
            .value_parser(clap::value_parser!(u64))
            .default_value("1"),
        Arg::new("json").long("json").action(ArgAction::SetTrue).help("print one JSON object"),
    ]
}

/// Simulates and prints.
pub(super) fn plan_capacity(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
    let fleet = fleet(config, typed)?;
    let goal = Goal {
        p50_ms: number(typed, "goal-p50-ms"),
        p99_ms: number(typed, "goal-p99-ms"),
        in_time: number(typed, "goal-in-time").expect("it has a default"),
    };
    let (servers, alone, steady) = match typed.get_one::<u64>("servers") {
        Some(&servers) => {
            let servers = usize::try_from(servers)?;
            (servers, fleet.alone(), fleet.predict(servers, Scenario::Steady))
        }
        None => {
            let found = fleet.fewest_servers(&goal);
            let found = found.map_err(|reason| anyhow::anyhow!(sentence(reason, &goal)))?;
            (found.servers, found.alone, found.steady)
        }
    };
    let report = Report {
        servers,
        goal,
        alone,
        steady,
        one_server_fails: fleet.predict(servers, Scenario::OneFails),
        load_doubles: fleet.predict(servers, Scenario::LoadTimes(2.0)),
        fleet: &fleet,
    };
    let mut out = io::stdout().lock();
    let printed = if typed.get_flag("json") {
        report.write_json(&mut out)
    } else {
        report.write_table(&mut out)
    };
    printed.context("cannot print the figures")
}

/// The servers and their load, as they are typed.
fn fleet(config: &Config, typed: &ArgMatches) -> anyhow::Result<Fleet> {
    let server = typed.get_one::<String>("server").expect("clap asks for it");
    let model = MeasuredServer::read(server)?.model(config, server)?;
    let load = load(config, typed, model.max_length())?;
    Ok(Fleet {
        model,
        load,
        spread: choice(typed, "spread", &SPREADS).expect("it has a default"),
        timeout: Duration::from_millis(config.http.request_timeout.get()),
        overhead: Duration::from_secs_f64(number(typed, "overhead-ms").unwrap_or(0.0) / 1e3),
        seed: *typed.get_one("seed").expect("it has a default"),
    })
}

/// Why no number of servers meets the goal, and what to change.
fn sentence(reason: Unreachable, goal: &Goal) -> String {
    let Unreachable::Alone(alone) = reason else {
        return "no number of servers up to ten million meets the goal; allow more time, or \
                measure a faster server"
            .to_owned();
    };
    let FleetFigures { p50_ms, p99_ms, in_time, .. } = alone;
    let missed =
        |seen: Option<f64>, most: Option<f64>| seen.zip(most).filter(|(seen, most)| seen > most);
    let cure = "allow more time, send fewer texts in a request, or measure a faster server";
    if let Some((seen, most)) = missed(p50_ms, goal.p50_ms) {
        return format!(
            "--goal-p50-ms {most}: no number of servers meets it, because half of these requests \
             take up to {seen:.1} ms on a server that does nothing else; {cure}"
        );
    }
    if let Some((seen, most)) = missed(p99_ms, goal.p99_ms) {
        return format!(
            "--goal-p99-ms {most}: no number of servers meets it, because 99 % of these requests \
             take up to {seen:.1} ms on a server that does nothing else; {cure}"
        );
    }
    format!(
        "--goal-in-time {}: no number of servers meets it, because only {:.4} of these requests \
         are answered within --request-timeout-ms by a server that does nothing else; {cure}",
        goal.in_time, in_time
    )
}

fn load(config: &Config, typed: &ArgMatches, length_max: usize) -> anyhow::Result<Load> {
    let lengths = typed.get_one::<Lengths>("tokens").map(|lengths| lengths.cut(length_max));
    let seed = *typed.get_one("seed").expect("it has a default");
    let items_max = config.http.max_items.as_usize();
    if let Some(path) = typed.get_one::<String>("trace") {
        let reader = trace::TraceReader { path, lengths, length_max, items_max, seed };
        return reader.read().map(Load::Trace);
    }
    let texts = usize::try_from(*typed.get_one::<u64>("texts").expect("it has a default"))?;
    if texts > items_max {
        bail!("--texts {texts}: the server refuses requests of more than --max-items {items_max}");
    }
    let per_text = number(typed, "texts-per-s").map(|rate| rate / texts as f64);
    let requests_per_s = number(typed, "requests-per-s").or(per_text);
    Ok(Load::Random(RandomLoad {
        requests_per_s: requests_per_s.expect("clap asks for one of them"),
        texts,
        lengths: lengths.expect("clap asks for it"),
        priority: choice(typed, "priority", &PRIORITIES),
        span: Duration::from_secs_f64(number(typed, "seconds").expect("it has a default")),
    }))
}

/// The whole of a file, or of standard input.
fn read(path: &str) -> anyhow::Result<String> {
    if path == STANDARD_INPUT {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    fs::read_to_string(Path::new(path)).with_context(|| format!("cannot read {path}"))
}

fn number(typed: &ArgMatches, name: &str) -> Option<f64> {
    typed.get_one::<f64>(name).copied()
}

fn choice<T: Copy>(typed: &ArgMatches, name: &str, words: &[(&str, T)]) -> Option<T> {
    let word = typed.get_one::<String>(name)?;
    words.iter().find(|(known, _)| known == word).map(|(_, value)| *value)
}

/// The longest time or highest rate that is understood.
const NUMBER_MAX: f64 = 1e9;

fn positive(text: &str) -> Result<f64, String> {
    zero_or_more(text)
        .ok()
        .filter(|&number| number > 0.0)
        .ok_or_else(|| "write a number above zero, at most 1e9".to_owned())
}

fn zero_or_more(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=NUMBER_MAX).contains(number));
    number.ok_or_else(|| "write a number from zero to 1e9".to_owned())
}

fn part(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "write a number from 0 to 1, such as 0.999".to_owned())
}

/// `43`, or `12:5,43:3,200:1`.
fn lengths(text: &str) -> Result<Lengths, String> {
    let one = |entry: &str| -> Option<(usize, f64)> {
        let (tokens, weight) = entry.trim().split_once(':').unwrap_or((entry.trim(), "1"));
        let tokens = tokens.parse().ok().filter(|&tokens: &usize| tokens > 0)?;
        Some((tokens, weight.parse().ok()?))
    };
    let entries: Option<Vec<(usize, f64)>> = text.split(',').map(one).collect();
    entries.and_then(Lengths::new).ok_or_else(|| {
        "write the tokens of a text, or several numbers with weights, such as 12:5,43:3,200:1"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_one_number_or_several_with_weights() {
        assert_eq!(lengths("43"), Ok(Lengths::new(vec![(43, 1.0)]).expect("it weighs something")));
        let several = Lengths::new(vec![(12, 5.0), (43, 1.0), (200, 0.5)]);
        assert_eq!(lengths("12:5, 43,200:0.5").ok(), several);
        for text in ["", "0", "a", "12:", "12:x", "12:-1", "12:0", "12,,43", "12:nan", "12:inf"] {
            assert!(lengths(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(positive("0").is_err() && positive("1e10").is_err() && positive("nan").is_err());
        assert!(part("1.1").is_err() && part("-0.1").is_err() && part("x").is_err());
        assert_eq!((positive("0.5"), zero_or_more("0"), part("1")), (Ok(0.5), Ok(0.0), Ok(1.0)));
    }
}
