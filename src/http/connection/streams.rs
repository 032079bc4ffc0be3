//! How many streams each connection of HTTP/2 may have at once.
//!
//! A stream takes some kilobytes of which no permit knows: before its request has one, and after a
//! refusal that its client does not take. So the connections of a server share a number of streams:
//! one that is opened when many are there may have fewer, and is told so. What it opens beyond that
//! is refused by the protocol.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Streams of one connection; the standard asks for at least 100. Clients that want more open
/// another connection.
pub(super) const STREAMS_MAX: usize = 128;

/// Those of a connection that is opened when the others may have [`STREAMS_ALL`].
pub(super) const STREAMS_MIN: usize = 8;

/// Streams of all connections together, without what each may have whatever others do.
const STREAMS_ALL: usize = 8192;

/// A connection gets so much of what is left: 48 get all, and later ones fewer and fewer.
const SHARE: usize = 16;

/// What the connections of a server may have together.
#[derive(Debug, Default)]
pub(in crate::http) struct AllStreams {
    granted: AtomicUsize,
}

/// What one connection may have, until it ends.
pub(super) struct Granted<'a> {
    all: &'a AllStreams,
    pub(super) streams: usize,
}

impl AllStreams {
    /// The part of a connection that is opened.
    pub(super) fn grant(&self) -> Granted<'_> {
        let share =
            |granted| (STREAMS_ALL.saturating_sub(granted) / SHARE).clamp(STREAMS_MIN, STREAMS_MAX);
        let grant = |granted| Some(granted + share(granted));
        let before = self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grant);
        let (Ok(granted) | Err(granted)) = before;
        Granted { all: self, streams: share(granted) }
    }
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        self.all.granted.fetch_sub(self.streams, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_fewer_streams_the_more_there_are() {
        let all = AllStreams::default();
        let granted: Vec<_> = (0..2000).map(|_| all.grant()).collect();
        let streams: Vec<usize> = granted.iter().map(|one| one.streams).collect();
        assert_eq!(streams[..48], [STREAMS_MAX; 48]);
        assert!(streams.is_sorted_by(|a, b| a >= b), "{streams:?}");
        assert_eq!(streams[1999], STREAMS_MIN);
        let sum = streams.iter().sum::<usize>();
        assert!(sum <= STREAMS_ALL + 2000 * STREAMS_MIN, "{sum}");
        drop(granted);
        assert_eq!(all.grant().streams, STREAMS_MAX, "they are given back");
    }
}
