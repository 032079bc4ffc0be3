//! Log lines on standard error: a sentence and its fields, as text or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use settings::{Config, LogFormat};

/// Starts logging, with what is odd in the configuration. A second call in one process keeps the
/// form and the level of the first.
pub(crate) fn init(Config { log: config, warnings, .. }: &Config) {
    // The level was checked when the configuration was resolved.
    let mut filter: Targets = config.level.parse().unwrap_or_default();
    // Lines about their own insides say nothing to an operator who did not ask. Those that `h2`
    // warns with are written by whoever sends the frames for them, as often as he likes.
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
        // Its report of a line that cannot be written would panic when that cannot be written too.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    let lines = match config.format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}
