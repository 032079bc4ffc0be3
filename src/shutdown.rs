//! When the process is asked to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for a drain: SIGTERM from supervisors, SIGINT from terminals.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// When the operating system refuses the handlers.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Resolves with the name of the next signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
