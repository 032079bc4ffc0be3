//! `duovec check --config`: what `serve` would run with, and where each value comes from.
//!
//! The output is a configuration file that gives the same settings; secrets are left out of it.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

use settings::Config;
use settings::Origin;
use settings::raw::RawConfig;
use settings::{SETTINGS, Setting, Takes};

pub(super) fn print(raw: &RawConfig, config: &Config) -> anyhow::Result<()> {
    let warnings = config.warnings.iter().map(|warning| format!("# warning: {warning}"));
    let lines = SETTINGS.iter().map(|setting| line(setting, raw, config));
    let text: String = warnings.chain(lines).map(|line| line + "\n").collect();
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("cannot print the settings"),
    }
}

fn line(setting: &Setting, raw: &RawConfig, config: &Config) -> String {
    let (raw, key, origin) = (raw.value(setting.name), setting.key(), origin(setting, raw));
    let text = raw.text();
    if !raw.is_given() && text.is_empty() {
        // As a line of its own it would be a setting that is given and empty.
        return format!("# {key} is not set ({origin})");
    }
    if setting.secret {
        return format!("# {key} is set and not shown ({origin})");
    }
    // Other settings of `auto` are resolved by the engine.
    let here = match setting.name {
        "http-threads" if text == "auto" => format!("; {} here", config.http.threads),
        _ => String::new(),
    };
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
    let value = match setting.takes {
        Takes::One => number.map_or_else(|| toml::Value::from(text), toml::Value::from),
        Takes::ListInOneFlag | Takes::ListOfFlags => toml::Value::from(raw.values.clone()),
    };
    format!("{key} = {value} # {origin}{here}")
}

fn origin(setting: &Setting, raw: &RawConfig) -> String {
    match &raw.value(setting.name).origin {
        Origin::Flag => format!("flag --{}", setting.flag),
        Origin::Environment => format!("environment {}", setting.variable()),
        Origin::File(path) => format!("file {}", path.display()),
        Origin::Release => "came with this release".to_owned(),
        Origin::Default => "default".to_owned(),
    }
}
