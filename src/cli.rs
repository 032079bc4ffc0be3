//! The command line: what can be typed, and the one place where a failure is printed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use thiserror::Error;

use crate::corpus::CorpusError;
use crate::shutdown::outlive_full_files;
use crate::telemetry;
use settings::raw::RawConfig;
use settings::{Config, ConfigError, SETTINGS, Setting, Takes};

mod adopt;
mod batch;
mod bench;
mod build_engine;
mod check;
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

/// Runs what was typed; prints the reason of a failure on standard error. Returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    outlive_full_files();
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let error = with_a_cure(with_the_command_of_a_clone(error));
            // A closed standard output is no reason to fail.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE);
        }
    };
    let (name, typed) = matches.subcommand().expect("clap asks for a subcommand");
    match obey(name, typed) {
        Ok(()) => 0,
        Err(error) => {
            // A full disk must not change the exit code; `eprintln` would panic.
            let _ = writeln!(io::stderr(), "duovec: {error:#}");
            if is_wrong_use(&error) {
                EXIT_USAGE
            } else if error.is::<Incomplete>() {
                EXIT_INCOMPLETE
            } else {
                1
            }
        }
    }
}

/// A refusal of `--model` or `pull`, which only the wheel's `duovec` takes, names the script that
/// does the same in a clone. clap's own advice is the flag or command of the most similar name.
fn with_the_command_of_a_clone(mut error: clap::Error) -> clap::Error {
    let says =
        |kind, word| matches!(error.get(kind), Some(ContextValue::String(typed)) if typed == word);
    if !says(ContextKind::InvalidArg, "--model") && !says(ContextKind::InvalidSubcommand, "pull") {
        return error;
    }
    let tip = "in a clone, `scripts/export_onnx.py --model NAME --precision fp32` makes a model's \
               package and prints its folder, which --package takes; `scripts/serve.sh --model \
               NAME` also serves it";
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::TrailingArg);
    error.remove(ContextKind::Usage);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// A refusal of a flag of `serve` alone says whose it is. clap's own advice is a flag of a similar
/// name, or the flag that is missing.
fn with_a_cure(mut error: clap::Error) -> clap::Error {
    let is_flag =
        |typed: &str| SETTINGS.iter().any(|one| typed.strip_prefix("--") == Some(one.flag));
    let tip = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(typed))) if is_flag(typed) => {
            format!("{typed} is a setting of `duovec serve`, which this command does not take")
        }
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing)))
            if missing.iter().any(|one| one.starts_with("--config")) =>
        {
            "with --config, check prints the settings of `duovec serve`, whose flags it then \
             takes; without it, check verifies a package"
                .to_owned()
        }
        _ => return error,
    };
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

fn obey(name: &str, typed: &ArgMatches) -> anyhow::Result<()> {
    let raw = gather(typed);
    let config = Config::resolve(&raw).inspect_err(|_| {
        // A log, which has them otherwise, is not set up.
        for warning in raw.warnings() {
            let _ = writeln!(io::stderr(), "duovec: warning: {warning}");
        }
    })?;
    if name == "check" && typed.contains_id("config") {
        return resolved::print(&raw, &config);
    }
    telemetry::init(&config);
    match name {
        "serve" => serve::serve(&config),
        "check" => check::check(&config),
        "bench" => bench::bench(&config, typed),
        "embed" => embed::embed(&config, typed),
        "batch" => batch::batch(&config, typed),
        "adopt" => adopt::adopt(&config, typed),
        "build-engine" => build_engine::build_engine(&config, typed),
        other => unreachable!("clap knows no command {other}"),
    }
}

fn is_wrong_use(error: &anyhow::Error) -> bool {
    error.is::<ConfigError>() || matches!(error.downcast_ref(), Some(CorpusError::Options(_)))
}

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
        .arg(package_argument())
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

fn value(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// The package without its flag.
fn package_argument() -> Arg {
    let help = "directory of the package, in place of --package [default: the setting]";
    Arg::new("PACKAGE").conflicts_with("package").help(help)
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
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

/// What was typed; some commands take the package without its flag.
fn gather(typed: &ArgMatches) -> RawConfig {
    let mut flags: BTreeMap<String, Vec<String>> = SETTINGS
        .iter()
        .filter_map(|setting| {
            let values = typed.try_get_many::<String>(setting.name).ok().flatten()?;
            Some((setting.name.to_owned(), values.cloned().collect()))
        })
        .collect();
    let package = typed.try_get_one::<String>("PACKAGE").ok().flatten();
    flags.extend(package.map(|directory| ("package".to_owned(), vec![directory.clone()])));
    let file = typed.get_one::<PathBuf>("config").cloned();
    RawConfig::from_process(flags, file)
}
