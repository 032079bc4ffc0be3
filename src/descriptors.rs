//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit. Returns the limit; `None` if there is
/// none.
///
/// Systems keep the soft limit at 1024 for the sake of `select`, which this process does not use.
/// Each connection takes a descriptor, so that limit would bound the connections.
pub fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            limit.current
        }
    }
}
