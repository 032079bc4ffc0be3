//! `duovec adopt`: whether an index that another server filled is still valid with a package.
//!
//! Both embed the same probes. Where the vectors differ, settings are tried until they agree.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{ArgAction, ArgMatches, Command, value_parser};

use super::load::{Measuring, load, need_vectors, package};
use super::{Incomplete, value};
use clock::{Clock, RealClock};
use settings::Config;

mod here;
mod probes;
mod report;
mod search;
mod server;

use here::Here;
use probes::Probe;
use report::Report;
use search::Search;
use server::{Server, TheirAnswer};

/// Other servers compute in half precision, which moves vectors by up to some ten thousandths.
const LEAST_COSINE: &str = "0.999";
/// Attention between all tokens of a longer text may take more memory than there is.
const LONGEST: &str = "8192";
/// How far from one the length of a vector is that was normalized in half precision.
const UNIT_ERROR: f64 = 0.01;

pub(super) fn command() -> Command {
    Command::new("adopt")
        .about("Tells whether an index that another server filled stays valid with a package")
        .arg(
            value(
                "from",
                "URL",
                "the running server, such as http://localhost:8080: text-embeddings-inference, \
                 one that speaks OpenAI's dialect, or another duovec",
            )
            .required(true),
        )
        .arg(value("from-model", "NAME", "which of its models [default: the only one]"))
        .arg(value("from-key-file", "FILE", "file with its API key"))
        .arg(
            value(
                "prompt",
                "TEXT",
                "what it may put in front of texts, to be tried; may be repeated",
            )
            .action(ArgAction::Append),
        )
        .arg(
            value("least-cosine", "COSINE", "vectors agree from this cosine on")
                .value_parser(read_cosine)
                .default_value(LEAST_COSINE),
        )
        .arg(
            value("longest", "TOKENS", "of the longest text; thousands take minutes on a CPU")
                .value_parser(value_parser!(usize))
                .default_value(LONGEST),
        )
        .after_help(
            "Exit codes: 0 when every probe agrees with the settings that are given here; 3 when \
             some differ, and the settings that agree are printed. Each setting is also a \
             variable, as with `duovec serve`.",
        )
}

/// Compares and prints.
///
/// # Errors
/// [`Incomplete`] when probes differ.
pub(super) fn adopt(config: &Config, typed: &ArgMatches) -> anyhow::Result<()> {
    let text = |name: &str| typed.get_one::<String>(name).map(String::as_str);
    let &least = typed.get_one::<f64>("least-cosine").expect("it has a default");
    let key = text("from-key-file").map(|file| read_key(&PathBuf::from(file))).transpose()?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let package = package(config)?;
    need_vectors(package.manifest())?;
    // A wrong address is told before the model is loaded, which may take minutes.
    let url = text("from").expect("clap asks for it");
    let server = Server::find(url, text("from-model"), key, package.manifest())?;
    let loaded = load(config, package, Measuring::Skip, &clock, &Arc::default())?;
    let mut here = Here::new(loaded, config)?;
    tracing::info!(url = server.url(), "probes are sent");
    let &longest = typed.get_one::<usize>("longest").expect("it has a default");
    let probes = probes::all(&here, longest);
    let there = ask(&server, &probes)?;
    tracing::info!(probes = probes.len(), "the server has answered");
    let (width, lengths) = measures(&there)?;
    let hidden_size = here.manifest().hidden_size;
    if width > hidden_size {
        bail!(
            "{} has vectors of {width} numbers, the package's have {hidden_size}: it serves \
             another model",
            server.url()
        );
    }
    let prompts: Vec<String> = typed.get_many("prompt").into_iter().flatten().cloned().collect();
    let mut search = Search { here: &mut here, probes: &probes, there: &there, least };
    let own = search.here.own_way();
    let own = search.compare(&own)?;
    let found = match own.all_agree() {
        true => None,
        false => {
            tracing::info!("vectors differ: other settings are tried");
            Some(search.closest(&own.way, &prompts)?)
        }
    };
    let is_unit = lengths.iter().all(|length| (length - 1.0).abs() <= UNIT_ERROR);
    let report = Report {
        here: &here,
        server: &server,
        probes: &probes,
        there: &there,
        least,
        own,
        found,
        width,
        lengths: Some(lengths).filter(|_| !is_unit),
        longest,
    };
    let (text, verdict) = report.write();
    // Whether or not somebody reads it, the exit code tells as well.
    let _ = write!(io::stdout(), "{text}");
    verdict.map_err(|differs| Incomplete(differs).into())
}

fn read_cosine(typed: &str) -> Result<f64, &'static str> {
    let cosine = typed.parse().ok().filter(|cosine| (0.0..=1.0).contains(cosine));
    cosine.ok_or("give a number from 0 to 1")
}

fn read_key(file: &PathBuf) -> anyhow::Result<String> {
    let read = fs::read_to_string(file);
    let read = read.with_context(|| format!("cannot read --from-key-file {}", file.display()))?;
    let key = read.trim();
    if key.lines().count() != 1 {
        bail!("--from-key-file {}: give a file with one key on one line", file.display());
    }
    Ok(key.to_owned())
}

/// The server's vectors; nothing for a text that it refuses.
fn ask(server: &Server, probes: &[Probe]) -> anyhow::Result<Vec<TheirAnswer>> {
    let mut answers = Vec::with_capacity(probes.len());
    for probe in probes {
        let answer = server.embed(&probe.text)?;
        // Plain texts come first: a server that refuses these answers none.
        if let (Err(why), true) = (&answer, probe.kind.is_plain()) {
            bail!("{} refuses a plain text: {why}", server.url());
        }
        answers.push(answer);
    }
    Ok(answers)
}

/// How many numbers the vectors have, and the shortest and the greatest length of them.
fn measures(there: &[TheirAnswer]) -> anyhow::Result<(usize, [f64; 2])> {
    let vectors = || there.iter().flatten();
    let width = vectors().next().map_or(0, Vec::len);
    if width == 0 || vectors().any(|vector| vector.len() != width) {
        bail!("the server's vectors are not all of one size: it serves no model of dense vectors");
    }
    let square = |vector: &Vec<f32>| vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let lengths = || vectors().map(|vector| square(vector).sqrt());
    Ok((width, [lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max)]))
}
