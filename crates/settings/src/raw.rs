//! What was typed: flag > environment > file > default. The only reader of the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::setting::{Origin, PREFIX, RawValue};
use super::table::{SETTINGS, Setting, Takes};
use super::variables::{CONFIG_VARIABLE, Unread, is_service_link, unread};

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

/// All settings as they were typed; a setting that was typed nowhere has its default.
#[derive(Debug, Clone)]
pub struct RawConfig {
    values: BTreeMap<&'static str, RawValue>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl RawConfig {
    /// Gathers flags (the setting's name → a value for each flag), the process's environment and
    /// the configuration file, which `config_file` or `DUOVEC_CONFIG` names.
    pub fn from_process(
        flags: BTreeMap<String, Vec<String>>,
        config_file: Option<PathBuf>,
    ) -> Self {
        let environment: BTreeMap<String, OsString> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .collect();
        let variable = || environment.get(CONFIG_VARIABLE).map(PathBuf::from);
        let file = config_file.or_else(variable);
        Self::gather(flags, environment, file.as_deref())
    }

    /// The same with a given environment, of which only the variables that begin like ours count.
    pub fn gather(
        flags: BTreeMap<String, Vec<String>>,
        mut environment: BTreeMap<String, OsString>,
        file: Option<&Path>,
    ) -> Self {
        environment.retain(|name, value| !is_service_link(name, &value.to_string_lossy()));
        let default = |setting: &Setting| {
            let values = one_text(setting, setting.default);
            (setting.name, RawValue { values, origin: Origin::Default })
        };
        let defaults = SETTINGS.iter().map(default);
        let mut raw =
            Self { values: defaults.collect(), problems: Vec::new(), warnings: Vec::new() };
        for setting in SETTINGS {
            let value = environment.get(&setting.default_variable());
            raw.read_variable(setting, value, Origin::Release);
        }
        if let Some(path) = file {
            raw.read_file(path);
        }
        for setting in SETTINGS {
            let value = environment.get(&setting.variable());
            raw.read_variable(setting, value, Origin::Environment);
        }
        for name in environment.into_keys() {
            match unread(&name) {
                Some(Unread::Problem(problem)) => raw.note(name, problem),
                Some(Unread::Warning(warning)) => raw.warnings.push(warning),
                None => {}
            }
        }
        for (name, values) in flags {
            match find(&name) {
                Some(setting) if setting.takes == Takes::ListInOneFlag => {
                    let values = values.iter().flat_map(|text| split(text));
                    raw.set(setting, values.collect(), Origin::Flag);
                }
                Some(setting) => raw.set(setting, values, Origin::Flag),
                None => raw.note(format!("--{name}"), "unknown setting"),
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

    /// The problem with the place that the setting was typed at, in the words of whoever typed it.
    pub(super) fn problem(&self, name: &str, problem: String) -> Problem {
        let setting = find(name).expect("the name is in the table");
        let place = match &self.value(name).origin {
            Origin::Flag => format!("--{}", setting.flag),
            Origin::Environment => setting.variable(),
            Origin::File(path) => format!("{}, {}", path.display(), setting.key()),
            Origin::Release => setting.default_variable(),
            Origin::Default => format!("{name} (default)"),
        };
        Problem { place, problem }
    }

    /// What went wrong while gathering.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What has no effect, and stops no start.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn set(&mut self, setting: &'static Setting, values: Vec<String>, origin: Origin) {
        self.values.insert(setting.name, RawValue { values, origin });
    }

    fn note(&mut self, place: String, problem: impl Into<String>) {
        self.problems.push(Problem { place, problem: problem.into() });
    }

    fn read_variable(
        &mut self,
        setting: &'static Setting,
        value: Option<&OsString>,
        origin: Origin,
    ) {
        match value.map(|value| value.to_str()) {
            None => {}
            Some(Some(text)) => self.set(setting, one_text(setting, text), origin),
            Some(None) => self.note(setting.variable(), "it is not UTF-8"),
        }
    }

    fn read_file(&mut self, path: &Path) {
        if path.as_os_str().is_empty() {
            // The flag takes no empty text.
            let problem = "the value is empty; give a path, or leave it out";
            return self.note(CONFIG_VARIABLE.to_owned(), problem);
        }
        let place = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let problem = format!(
                    "there is no such file; write it, correct --config or {CONFIG_VARIABLE}, or \
                     leave both out"
                );
                return self.note(place, problem);
            }
            Err(error) => return self.note(place, format!("cannot read it: {error}")),
        };
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => return self.note(place, not_toml(&text, &error)),
        };
        for (key, value) in table {
            let setting = SETTINGS.iter().find(|setting| setting.key() == key);
            let Some(setting) = setting else {
                let problem = if value.is_table() {
                    format!("the file has no tables; write the settings without [{key}]")
                } else {
                    unknown(&key)
                };
                self.note(format!("{place}, {key}"), problem);
                continue;
            };
            match typed_values(setting, value) {
                Ok(values) => self.set(setting, values, Origin::File(path.to_owned())),
                Err(problem) => self.note(format!("{place}, {key}"), problem),
            }
        }
    }
}

fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// What is wrong with a key that no setting has; names the key that differs by a slip or two, or
/// that was written like its flag or variable.
fn unknown(key: &str) -> String {
    let typed = key.to_lowercase().replace('-', "_");
    let typed = typed.trim_start_matches('_').trim_start_matches("duovec_");
    let keys = SETTINGS.iter().map(Setting::key);
    let near = keys.map(|known| (strsim::osa_distance(typed, &known), known)).min();
    match near {
        Some((0..=2, known)) => format!("unknown setting; did you mean {known}?"),
        _ => "unknown setting".to_owned(),
    }
}

/// Without the line itself, which may hold a key.
fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("invalid TOML: line {line}: {}", error.message())
}

/// The values of a variable or of a default, which is one text.
fn one_text(setting: &Setting, text: &str) -> Vec<String> {
    match setting.takes {
        Takes::One => vec![text.to_owned()],
        Takes::ListInOneFlag | Takes::ListOfFlags => split(text).collect(),
    }
}

/// What stands between commas, without the blanks.
fn split(text: &str) -> impl Iterator<Item = String> {
    let values = text.split(',').map(str::trim).filter(|value| !value.is_empty());
    values.map(str::to_owned)
}

/// The values of a TOML value; what is wrong with it where it has none.
fn typed_values(setting: &Setting, value: toml::Value) -> Result<Vec<String>, &'static str> {
    use toml::Value;
    match (setting.takes, value) {
        (Takes::One, Value::String(text)) => Ok(vec![text]),
        (Takes::One, Value::Integer(number)) => Ok(vec![number.to_string()]),
        (Takes::One, Value::Float(number)) => Ok(vec![number.to_string()]),
        (Takes::One, Value::Boolean(truth)) => Ok(vec![truth.to_string()]),
        (Takes::One, _) => Err("it must be a string, a number or a boolean"),
        (_, value) => {
            value.try_into().map_err(|_| "it must be a list of strings, such as [\"a\", \"b\"]")
        }
    }
}
