//! Log lines on standard error: a sentence and its fields, as text or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::config::{LogConfig, LogFormat};

/// Starts logging. A second call in one process changes nothing.
pub(crate) fn init(config: &LogConfig) {
    // The level was checked when the configuration was resolved.
    let mut filter: Targets = config.level.parse().unwrap_or_default();
    for chatty in ["actix_server", "openvino_finder"] {
        // Lines about their own insides say nothing to an operator who did not ask.
        if !config.level.contains(chatty) {
            filter = filter.with_target(chatty, LevelFilter::WARN);
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
}
