//! What the server runs with: resolved, validated, immutable.
#![allow(missing_docs, reason = "the table of settings describes each")]

use std::fmt;

mod choices;
mod cores;
#[warn(missing_docs)]
pub mod limits;
mod numbers;
pub mod raw;
mod read;
pub mod secret;
mod setting;
mod table;
mod variables;

pub use cores::{cores, node_cores};
pub use table::*;

use numbers::MaxInflightBytes;
use raw::{Problem, RawConfig};

/// Everything that is wrong, at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub Vec<Problem>);

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&lines.join("\n"))
    }
}

impl Config {
    /// Resolves what was typed.
    ///
    /// # Errors
    /// Every problem of every setting, not only the first.
    pub fn resolve(raw: &RawConfig) -> Result<Self, ConfigError> {
        let mut config = Self { warnings: raw.warnings().to_vec(), ..Self::default() };
        let mut problems = raw.problems().to_vec();
        for setting in SETTINGS {
            let typed = raw.value(setting.name);
            // A wrong value counts as the default until the problems are reported.
            if typed.is_given()
                && let Err(found) = (setting.update)(&mut config, typed)
            {
                problems.extend(found.into_iter().map(|text| raw.problem(setting.name, text)));
            }
        }
        // A mode alone makes no socket.
        let _ = config.http.unix_socket.take_if(|socket| socket.path.as_os_str().is_empty());
        let found = config.contradictions().into_iter();
        problems.extend(found.map(|(name, text)| raw.problem(name, text)));
        if problems.is_empty() { Ok(config) } else { Err(ConfigError(problems)) }
    }

    /// Settings that do not go together: the name of one of them, and what is wrong.
    fn contradictions(&self) -> Vec<(&'static str, String)> {
        let Self { http, door, queue, model_aliases, .. } = self;
        let mut found = Vec::new();
        if queue.capacity.get() < http.max_items.get() {
            let (capacity, items) = (queue.capacity, http.max_items);
            let problem = format!(
                "{capacity} is less than max-items {items}: then a request of the largest allowed \
                 size would always be refused"
            );
            found.push(("queue-capacity", problem));
        }
        let largest = door.max_inflight_bytes.largest_request();
        if http.max_body_bytes.get() >= largest {
            let (inflight, body) = (door.max_inflight_bytes, http.max_body_bytes);
            let problem = format!(
                "{inflight} leaves {largest} bytes for one request with its answer, and \
                 max-body-bytes allows {body}: then a request of the largest allowed size would \
                 always be refused"
            );
            found.push(("max-inflight-bytes", problem));
        }
        if (1..LEAST_CACHE_BYTES).contains(&queue.cache_bytes.get()) {
            let bytes = queue.cache_bytes;
            let problem = format!(
                "{bytes} bytes may not hold the vectors of one text: give {LEAST_CACHE_BYTES} or \
                 more, or 0 for no cache"
            );
            found.push(("cache-bytes", problem));
        }
        if http.request_timeout.get() > http.max_request_timeout.get() {
            let (longest, usual) = (http.max_request_timeout, http.request_timeout);
            let problem = format!(
                "{longest} is less than request-timeout-ms {usual}: set it to the longest time \
                 that any request may have"
            );
            found.push(("max-request-timeout-ms", problem));
        }
        if http.speaks(Dialect::Nim) && !http.speaks(Dialect::OpenAi) {
            let problem = "nim is words on the routes of openai: add openai, or leave nim out";
            found.push(("dialects", problem.to_owned()));
        }
        let ends = |alias: &&String| PROMPT_ENDS.iter().any(|end| alias.ends_with(end));
        if let Some(alias) = model_aliases.iter().find(ends).filter(|_| http.speaks(Dialect::Nim)) {
            let problem = format!(
                "'{alias}' has an end that asks for a prompt of the model, as in the dialect nim: \
                 give the name without it, which is then known with -query and with -passage too"
            );
            found.push(("model-aliases", problem));
        }
        if http.metrics_need_key && http.api_keys.is_empty() && http.api_key_file.is_none() {
            let problem = "there is no key, so everybody would read /metrics: give keys with \
                           --api-key-file or DUOVEC_API_KEYS, or leave this setting out";
            found.push(("metrics-need-key", problem.to_owned()));
        }
        if let Some(TlsFiles { cert, key }) = &http.tls {
            let (cert, key) = (!cert.as_os_str().is_empty(), !key.as_os_str().is_empty());
            if cert != key {
                let problem = "give both --tls-cert and --tls-key, or none for plain HTTP";
                found.push((if cert { "tls-cert" } else { "tls-key" }, problem.to_owned()));
            }
        }
        found
    }
}

/// What clients of NIM put behind a model's name for its prompts: for queries, and for passages.
pub const PROMPT_ENDS: [&str; 2] = ["-query", "-passage"];

/// A cache has room for the vectors of any text: a large model's longest text takes 37 KB.
const LEAST_CACHE_BYTES: u64 = 65_536;

/// Part of [`MaxInflightBytes`] that only small requests may use, so that large ones never turn a
/// single text away.
const INFLIGHT_RESERVE: u64 = 8;

impl MaxInflightBytes {
    /// Bytes that requests above [`SMALL_REQUEST_BYTES`](crate::limits::SMALL_REQUEST_BYTES) may
    /// hold together.
    pub const fn largest_request(self) -> u64 {
        self.get() - self.get() / INFLIGHT_RESERVE
    }
}

#[cfg(test)]
mod tests;
