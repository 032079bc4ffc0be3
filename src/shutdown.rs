//! Signals that ask the process to end, signals that must not end it, and the end itself.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// A second signal within this time is a repetition of the first: GNU `timeout` signals its child,
/// and then the whole group with the child in it.
const REPEATED: Duration = Duration::from_millis(500);

/// Ends the process with this code, and without the exit handlers of libraries: a thread that loads
/// a model, builds a plan or is stuck may still be in an engine's library, whose handlers would
/// take away what it uses.
#[expect(unsafe_code, reason = "only a function in C does it")]
pub fn end(code: u8) -> ! {
    let _ = io::stdout().flush();
    // SAFETY: it runs nothing of this process.
    unsafe { libc::_exit(code.into()) }
}

/// Lets a file that may not grow any more fail to be written, as a full disk does. By default the
/// system ends the process.
#[expect(unsafe_code, reason = "only a function in C does it")]
pub(crate) fn outlive_full_files() {
    // SAFETY: it changes what one signal does, which no other code relies on.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The signals that ask for a drain: SIGTERM from supervisors, SIGINT from terminals, and SIGHUP
/// from a terminal that was closed.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    on_terminal: bool,
}

impl Signals {
    /// Catches these signals from now on, and signals that must not end the process.
    ///
    /// # Errors
    /// If the operating system refuses the handlers.
    pub(crate) fn catch() -> io::Result<Self> {
        // By default these signals would end the process in the middle of its requests.
        for meaningless in
            [SignalKind::user_defined1(), SignalKind::user_defined2(), SignalKind::alarm()]
        {
            let _ = signal(meaningless)?;
        }
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            on_terminal: io::stderr().is_terminal(),
        })
    }

    /// Resolves with the name of the next signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => {
                    if self.on_terminal {
                        return "SIGHUP";
                    }
                    tracing::info!(
                        "SIGHUP changes nothing: keys and certificates are read again when their \
                         files change, other settings at a start"
                    );
                }
            }
        }
    }

    /// Resolves with the next signal that does not repeat the signal that came just now.
    pub(crate) async fn another(&mut self) -> &'static str {
        let repetitions = async {
            loop {
                self.next().await;
            }
        };
        let _ = timeout(REPEATED, repetitions).await;
        self.next().await
    }
}
