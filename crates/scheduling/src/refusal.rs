//! Why a request is not taken: one type from the queue to the answer.

use std::time::Duration;

use thiserror::Error;

/// Why a request is not taken now. Nothing of it has been run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The model is being loaded or warmed up; there is no scheduler yet.
    #[error("the model is being loaded")]
    Loading,
    /// The process is about to exit.
    #[error("the process is shutting down")]
    Draining,
    /// No worker lives, or the named one does not.
    #[error("no worker lives")]
    NoWorker,
    /// There is no room for so many items before this time.
    #[error("the queue has no room before {retry_after:?}")]
    Full {
        /// From now.
        retry_after: Duration,
    },
    /// The answer would not be ready in time; it would be after this time.
    #[error("the answer would not be ready in time; after {retry_after:?} it would")]
    Late {
        /// From now.
        retry_after: Duration,
    },
    /// The engine alone needs more than the request's time, so that a retry cannot help.
    #[error("the engine needs {needed:?} for the input, which is more than the request's time")]
    TooShort {
        /// On workers that run nothing else.
        needed: Duration,
    },
    /// Other requests hold as many bytes as the server may.
    #[error("other requests hold as many bytes as the server may")]
    BytesExceeded,
    /// The request takes more memory than one may, however idle the server is.
    #[error("the request takes more memory than {limit} bytes")]
    NeverFits {
        /// Bytes that one request may hold.
        limit: u64,
    },
}
