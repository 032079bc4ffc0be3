//! The command line: what can be typed, and the one place where a failure is printed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use thiserror::Error;

use crate::corpus::CorpusError;
use settings::raw::RawConfig;
use settings::{Config, ConfigError, SETTINGS, Setting, Takes};

mod adopt;
mod batch;
mod bench;
mod build_engine;
mod check;
mod drain;
mod embed;
mod load;
mod offline;
mod progress_bar;
mod resolved;
mod serve;

/// Exit code of a wrong command line or configuration; anything else that fails gives 1.
const EXIT_USAGE: u8 = 2;
/// Exit code of a run to the end that had to leave some of its rows or requests out.
const EXIT_INCOMPLETE: u8 = 3;

/// The output is whole, but for what could not be embedded.
#[derive(Debug, Error)]
#[error("{0}")]
struct Incomplete(String);

/// Runs what was typed; prints the reason of a failure on standard error.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // A closed standard output is no reason to fail.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE));
        }
    };
    let outcome = match matches.subcommand() {
        Some(("serve", typed)) => resolve(typed, None).and_then(|config| serve::serve(&config)),
        Some(("check", typed)) => {
            let package = typed.get_one::<String>("PACKAGE").cloned();
            if typed.contains_id("config") {
                resolved::print(&gather(typed, package))
            } else {
                resolve(typed, package).and_then(|config| check::check(&config))
            }
        }
        Some(("bench", typed)) => {
            let package = typed.get_one::<String>("PACKAGE").cloned();
            resolve(typed, package).and_then(|config| bench::bench(&config, typed))
        }
        Some(("embed", typed)) => {
            resolve(typed, None).and_then(|config| embed::embed(&config, typed))
        }
        Some(("batch", typed)) => {
            resolve(typed, None).and_then(|config| batch::batch(&config, typed))
        }
        Some(("adopt", typed)) => {
            resolve(typed, None).and_then(|config| adopt::adopt(&config, typed))
        }
        Some(("build-engine", typed)) => {
            resolve(typed, None).and_then(|config| build_engine::build_engine(&config, typed))
        }
        _ => unreachable!("clap asks for a subcommand"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A full disk must not change the exit code; `eprintln` would panic.
            let _ = writeln!(io::stderr(), "duovec: {error:#}");
            ExitCode::from(if is_wrong_use(&error) {
                EXIT_USAGE
            } else if error.is::<Incomplete>() {
                EXIT_INCOMPLETE
            } else {
                1
            })
        }
    }
}

fn is_wrong_use(error: &anyhow::Error) -> bool {
    error.is::<ConfigError>() || matches!(error.downcast_ref(), Some(CorpusError::Options(_)))
}

/// The whole command line.
pub(crate) fn command() -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("TOML file with any of these settings [variable: DUOVEC_CONFIG]");
    let serve = Command::new("serve")
        .about("Loads a package and answers over HTTP until SIGTERM")
        .arg(config.clone())
        .args(SETTINGS.iter().map(flag))
        .after_help(
            "Each flag is also a variable (--max-items: DUOVEC_MAX_ITEMS) and a key of the file \
             (max_items). A flag beats a variable, a variable the file. A list is a list in the \
             file, and has commas in a variable. API keys that no process list shows: \
             --api-key-file, DUOVEC_API_KEYS or api_keys.",
        );
    let print = config.clone().value_name("FILE").num_args(0..=1).help(
        "Only print the settings that serve would run with, and where each comes from; any flag \
         of serve may stand beside it",
    );
    let only_printed = |setting: &Setting| flag(setting).hide(true).requires("config");
    let check = Command::new("check")
        .about("Verifies a package: digests, tokenizer, graph, and the canary's golden numbers")
        .arg(Arg::new("PACKAGE").help("directory of the package [default: the setting]"))
        .arg(print)
        .args(SETTINGS.iter().map(|setting| {
            let checked = setting.commands.contains(&settings::Command::Check);
            if checked { flag(setting) } else { only_printed(setting) }
        }));
    let bench = bench::command().arg(config.clone()).args(flags(settings::Command::Bench));
    let offline =
        |command: Command| command.arg(config.clone()).args(flags(settings::Command::Offline));
    let (embed, batch) = (offline(embed::command()), offline(batch::command()));
    let adopt = offline(adopt::command());
    let build = build_engine::command().arg(config).args(flags(settings::Command::BuildEngine));
    Command::new("duovec")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Dense and sparse vectors of a text in one pass of one resident model")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve)
        .subcommand(check)
        .subcommand(bench)
        .subcommand(embed)
        .subcommand(batch)
        .subcommand(adopt)
        .subcommand(build)
}

fn flags(command: settings::Command) -> impl Iterator<Item = Arg> {
    SETTINGS.iter().filter(move |setting| setting.commands.contains(&command)).map(flag)
}

fn flag(setting: &Setting) -> Arg {
    let default = match setting.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    Arg::new(setting.name)
        .long(setting.flag)
        .value_name(setting.value)
        .action(match setting.takes {
            Takes::One | Takes::ListInOneFlag => ArgAction::Set,
            Takes::ListOfFlags => ArgAction::Append,
        })
        .allow_hyphen_values(true)
        .help(format!("{}{default}", setting.help))
}

fn resolve(typed: &ArgMatches, package: Option<String>) -> anyhow::Result<Config> {
    Ok(Config::resolve(&gather(typed, package))?)
}

fn gather(typed: &ArgMatches, package: Option<String>) -> RawConfig {
    let mut flags: BTreeMap<String, Vec<String>> = SETTINGS
        .iter()
        .filter_map(|setting| {
            let values = typed.try_get_many::<String>(setting.name).ok().flatten()?;
            Some((setting.name.to_owned(), values.cloned().collect()))
        })
        .collect();
    flags.extend(package.map(|directory| ("package".to_owned(), vec![directory])));
    let file = typed.get_one::<PathBuf>("config").cloned();
    RawConfig::from_process(flags, file)
}
