//! Log lines on standard error: a sentence and its fields, as text or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use settings::{Config, LogFormat};

/// Starts logging, and logs the warnings of the configuration. A second call in one process keeps
/// the format and the level of the first.
pub(crate) fn init(Config { log: config, warnings, .. }: &Config) {
    // The level was checked when the configuration was resolved.
    let mut filter: Targets = config.level.parse().unwrap_or_default();
    // Lines about the insides of these libraries do not help an operator who did not ask for them.
    // Clients can make `h2` write warnings as often as they like, by sending wrong frames.
    let chatty = [
        ("actix_server", LevelFilter::WARN),
        ("openvino_finder", LevelFilter::WARN),
        ("h2", LevelFilter::ERROR),
    ];
    for (target, level) in chatty {
        if !config.level.contains(target) {
            filter = filter.with_target(target, level);
        }
    }
    let lines = fmt::layer()
        .with_writer(io::stderr)
        // Reporting a failed write would panic, since the report cannot be written either.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    let lines = match config.format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}
