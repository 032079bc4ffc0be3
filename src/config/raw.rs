//! What was typed: flag > environment > file > default. The only reader of the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::settings::{self, SETTINGS, Setting};

/// Names the configuration file; `--config` comes first.
pub const CONFIG_VARIABLE: &str = "DUOVEC_CONFIG";

/// Where a value was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Flag,
    Environment,
    File(PathBuf),
    Default,
}

/// One thing that is wrong with the configuration, said so that it can be found and mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place: a flag, a variable, or a key of a file.
    pub place: String,
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.problem)
    }
}

/// A value as it was typed.
#[derive(Clone, PartialEq, Eq)]
pub struct RawValue {
    pub text: String,
    pub origin: Origin,
}

/// Without the text, which may be a key.
impl fmt::Debug for RawValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RawValue").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// All settings as they were typed; a setting that was typed nowhere has its default.
#[derive(Debug, Clone)]
pub struct RawConfig {
    values: BTreeMap<&'static str, RawValue>,
    problems: Vec<Problem>,
}

impl RawConfig {
    /// Gathers flags (name without dashes → value), the process's environment and the
    /// configuration file, which `config_file` or `DUOVEC_CONFIG` names.
    pub fn from_process(flags: BTreeMap<String, String>, config_file: Option<PathBuf>) -> Self {
        let environment = |name: &str| std::env::var_os(name);
        let file = config_file.or_else(|| environment(CONFIG_VARIABLE).map(PathBuf::from));
        Self::gather(flags, environment, file.as_deref())
    }

    /// The same with a given environment.
    pub fn gather(
        flags: BTreeMap<String, String>,
        environment: impl Fn(&str) -> Option<OsString>,
        file: Option<&Path>,
    ) -> Self {
        let mut raw = Self { values: BTreeMap::new(), problems: Vec::new() };
        for setting in SETTINGS {
            raw.set(setting, setting.default.to_owned(), Origin::Default);
        }
        if let Some(path) = file {
            raw.read_file(path);
        }
        for setting in SETTINGS {
            raw.read_variable(setting, environment(&setting.variable()));
        }
        for (name, text) in flags {
            match settings::find(&name) {
                Some(setting) => raw.set(setting, text, Origin::Flag),
                None => raw.problem(format!("--{name}"), "there is no such setting"),
            }
        }
        raw
    }

    /// The setting's value.
    ///
    /// # Panics
    /// When the table has no such setting, which is a mistake in this crate.
    pub fn value(&self, name: &str) -> &RawValue {
        self.values.get(name).expect("every setting has at least its default")
    }

    /// The place a setting was typed at, in the words of whoever typed it.
    pub fn place(&self, name: &str) -> String {
        let setting = settings::find(name).expect("the name is in the table");
        match &self.value(name).origin {
            Origin::Flag => format!("--{name}"),
            Origin::Environment => setting.variable(),
            Origin::File(path) => format!("{}, {}", path.display(), setting.key()),
            Origin::Default => format!("{name} (default)"),
        }
    }

    /// What went wrong while gathering.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn set(&mut self, setting: &'static Setting, text: String, origin: Origin) {
        self.values.insert(setting.name, RawValue { text, origin });
    }

    fn problem(&mut self, place: String, problem: impl Into<String>) {
        self.problems.push(Problem { place, problem: problem.into() });
    }

    fn read_variable(&mut self, setting: &'static Setting, value: Option<OsString>) {
        match value.map(OsString::into_string) {
            None => {}
            Some(Ok(text)) => self.set(setting, text, Origin::Environment),
            Some(Err(_)) => self.problem(setting.variable(), "it is not UTF-8"),
        }
    }

    fn read_file(&mut self, path: &Path) {
        let place = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return self.problem(place, format!("cannot read it: {error}")),
        };
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => return self.problem(place, not_toml(&text, &error)),
        };
        for (key, value) in table {
            let setting = SETTINGS.iter().find(|setting| setting.key() == key);
            match (setting, typed(&value)) {
                (Some(setting), Some(text)) => {
                    self.set(setting, text, Origin::File(path.to_owned()));
                }
                (None, _) => self.problem(format!("{place}, {key}"), "there is no such setting"),
                (_, None) => self.problem(
                    format!("{place}, {key}"),
                    "it must be a text, a number, a boolean or a list of texts",
                ),
            }
        }
    }
}

/// Without the line itself, which may hold a key.
fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("it is not TOML: line {line}: {}", error.message())
}

/// A TOML value as it would be typed behind a flag; a list becomes comma-separated.
fn typed(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}
