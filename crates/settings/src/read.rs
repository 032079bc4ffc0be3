//! From what was typed to the type of a setting. A problem says what is wrong with the value and
//! what to give; its place is added by whoever reports it.

use std::net::IpAddr;
use std::path::PathBuf;

use tracing_subscriber::filter::{LevelFilter, Targets};

use super::cores;
use super::numbers::{Bounded, HttpThreads};
use super::secret::ApiKey;
use super::setting::{RawValue, Read, Words};

fn wrong<T>(problem: impl Into<String>) -> Read<T> {
    Err(vec![problem.into()])
}

/// A number whose range is told in its unit; its type's default where nothing is typed.
pub(super) fn number<const MIN: u64, const MAX: u64, const DEFAULT: u64>(
    unit: &str,
) -> impl Fn(&RawValue) -> Read<Bounded<MIN, MAX, DEFAULT>> {
    move |typed| {
        if !typed.is_given() {
            return Ok(Bounded::DEFAULT);
        }
        let text = typed.text();
        let Ok(value) = text.parse() else {
            let example = if unit == "bytes" { ", such as 1048576" } else { "" };
            return wrong(format!("'{text}' is not a whole number of {unit}{example}"));
        };
        Bounded::new(value)
            .ok_or_else(|| vec![format!("{value} is outside {MIN} to {MAX} ({unit})")])
    }
}

/// The same, or `None` for `auto`.
pub(super) fn number_or_auto<const MIN: u64, const MAX: u64, const DEFAULT: u64>(
    unit: &str,
) -> impl Fn(&RawValue) -> Read<Option<Bounded<MIN, MAX, DEFAULT>>> {
    let read = number(unit);
    move |typed| if typed.text() == "auto" { Ok(None) } else { read(typed).map(Some) }
}

pub(super) fn http_threads(typed: &RawValue) -> Read<HttpThreads> {
    let one_a_core = || HttpThreads::nearest(cores() as u64);
    Ok(number_or_auto("threads")(typed)?.unwrap_or_else(one_a_core))
}

pub(super) fn word<T: Words>(typed: &RawValue) -> Read<T> {
    one_word(typed.text())
}

fn one_word<T: Words>(text: &str) -> Read<T> {
    let named = T::WORDS.iter().find(|(word, _)| *word == text);
    let unknown = || vec![format!("'{text}' is not one of {}", all_words::<T>())];
    named.map(|(_, value)| *value).ok_or_else(unknown)
}

fn all_words<T: Words>() -> String {
    T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
}

/// The default where nothing, or an empty text, is typed.
pub(super) fn path<T: From<PathBuf> + Default>(typed: &RawValue) -> Read<T> {
    let path = Some(typed.text()).filter(|text| !text.is_empty()).map(PathBuf::from);
    Ok(path.map_or_else(T::default, T::from))
}

/// The same where nothing and an empty text differ: a shell makes an empty text of a variable that
/// is not set, and the server would run without what was asked for.
pub(super) fn path_if_given<T: From<PathBuf> + Default>(typed: &RawValue) -> Read<T> {
    if typed.is_given() && typed.text().is_empty() {
        return wrong("the value is empty; give a path, or leave the setting out");
    }
    path(typed)
}

pub(super) fn package(typed: &RawValue) -> Read<PathBuf> {
    match typed.text() {
        "" => wrong("name the directory of a model package"),
        text => Ok(PathBuf::from(text)),
    }
}

/// The values of a list, none of them empty.
pub(super) fn list(typed: &RawValue) -> Read<Vec<String>> {
    let values: Vec<String> = typed.values.iter().map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return wrong("a value is empty; give it, or leave it out");
    }
    Ok(values)
}

/// Words of a list, each once and at least one. A default is one text, with commas in it.
pub(super) fn words<T: Words + PartialEq>(typed: &RawValue) -> Read<Vec<T>> {
    let (values, quoted) = (list(typed)?, |text: &str| format!("'{text}'"));
    let none = format!("name at least one of {}", all_words::<T>());
    each_once(values.iter().flat_map(|value| value.split(',')), one_word, quoted, &none)
}

/// CUDA's numbers of GPUs.
pub(super) fn devices(typed: &RawValue) -> Read<Vec<usize>> {
    let number = |text: &str| {
        text.parse().or_else(|_| wrong(format!("'{text}' is not the number of a GPU")))
    };
    let (values, named) = (list(typed)?, |text: &str| format!("GPU {text}"));
    each_once(values.iter().map(String::as_str), number, named, "name at least one GPU, such as 0")
}

/// Values of a list, each once and at least one; `none` says so.
fn each_once<'a, T: PartialEq>(
    texts: impl Iterator<Item = &'a str>,
    read: impl Fn(&str) -> Read<T>,
    named: impl Fn(&str) -> String,
    none: &str,
) -> Read<Vec<T>> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for text in texts {
        match read(text) {
            Ok(value) if !found.contains(&value) => found.push(value),
            Ok(_) => problems.push(format!("{} is named twice", named(text))),
            Err(wrong) => problems.extend(wrong),
        }
    }
    if found.is_empty() && problems.is_empty() {
        problems.push(none.to_owned());
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// No key at all opens the server to everyone, so it must not come about by mistake.
pub(super) fn api_keys(typed: &RawValue) -> Read<Vec<ApiKey>> {
    let keys = list(typed)?;
    if typed.is_given() && keys.is_empty() {
        return wrong("the value is empty; give a key, or leave the setting out");
    }
    Ok(keys.into_iter().map(ApiKey::new).collect())
}

/// Origins of web pages, as browsers send them: they are compared byte by byte.
pub(super) fn origins(typed: &RawValue) -> Read<Vec<String>> {
    let origins = list(typed)?;
    let is_wrong = |origin: &&String| {
        let host = origin.split_once("://").map_or("", |(_, host)| host);
        let unfit = |c: char| "/*,".contains(c) || c.is_whitespace() || c.is_uppercase();
        *origin != "*" && (host.is_empty() || host.contains(unfit))
    };
    let problems: Vec<String> = origins
        .iter()
        .filter(is_wrong)
        .map(|o| format!("'{o}' is not an origin; write https://host, https://host:port or *"))
        .collect();
    if problems.is_empty() { Ok(origins) } else { Err(problems) }
}

pub(super) fn host(typed: &RawValue) -> Read<IpAddr> {
    match typed.text() {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        text => text.parse().or_else(|_| {
            wrong(format!(
                "'{text}' is not an IP address; give one of this machine, or 0.0.0.0 for all"
            ))
        }),
    }
}

pub(super) fn port(typed: &RawValue) -> Read<u16> {
    let text = typed.text();
    text.parse().or_else(|_| wrong(format!("'{text}' is not a port, 0 to 65535")))
}

pub(super) fn mode(typed: &RawValue) -> Read<u32> {
    let text = typed.text();
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| vec![format!("'{text}' is not a file mode; give octal digits such as 660")])
}

/// The whole URL that traces are posted to, of which a collector's base is enough; `None` turns
/// traces off.
pub(super) fn trace_endpoint(typed: &RawValue) -> Read<Option<String>> {
    const TRACES_PATH: &str = "/v1/traces";
    let text = typed.text();
    if text.is_empty() {
        return Ok(None);
    }
    let Some(rest) = text.strip_prefix("http://") else {
        return wrong(
            "give a URL that begins with http://; a collector next to the server can speak TLS",
        );
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return wrong(
            "leave user and password out; the collector next to the server can hold them",
        );
    }
    let fit = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte);
    if host.is_empty() || host.starts_with(':') || !rest.bytes().all(fit) {
        return wrong("the URL has no host, or has characters that belong into none");
    }
    let base = text.trim_end_matches('/');
    let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
    Ok(Some(format!("{base}{TRACES_PATH}")))
}

pub(super) fn ratio(typed: &RawValue) -> Read<f64> {
    let text = typed.text();
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| vec![format!("'{text}' is not a number from 0 to 1")])
}

/// A level, or directives of the crate `tracing-subscriber`.
pub(super) fn log_level(typed: &RawValue) -> Read<String> {
    let text = typed.text();
    // A word alone would be taken for a program part whose every line is wanted, and no other.
    let mut words = text.split(',').filter(|directive| !directive.contains('='));
    let is_level = |word: &str| word.trim().parse::<LevelFilter>().is_ok();
    if words.all(is_level) && text.parse::<Targets>().is_ok() {
        return Ok(text.to_owned());
    }
    wrong(format!("'{text}' is not a log level; use error, warn, info, debug, trace or PART=LEVEL"))
}
