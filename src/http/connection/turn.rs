//! How much a connection reads before the others of its thread have their turn.
//!
//! What is read may take far more time than the reading: actix makes a message of each chunk of a
//! body. A client that sends such chunks without a pause always has more to read. Tokio counts
//! reads, of which one may be of one byte or of many, and what the connection's own parts tell each
//! other wakes its task at once, 61 times before the thread looks at other sockets. So a connection
//! pauses, whoever wakes it, until the thread has looked at them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

/// What is read in one turn, but for the end of the last read. In chunks of one byte it takes actix
/// 1.4 ms.
const TURN_BYTES: usize = 32 * 1024;

/// The turn of a connection, or the pause behind it.
#[derive(Default)]
pub(super) struct ReadTurn {
    read_bytes: usize,
    pause: Option<Arc<Pause>>,
}

/// Ends when the thread has looked at its sockets.
#[derive(Default)]
struct Pause {
    is_over: AtomicBool,
    reader: AtomicWaker,
}

impl ReadTurn {
    /// Ready when the connection may read.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.read_bytes < TURN_BYTES {
            return Poll::Ready(());
        }
        let pause = self.pause.get_or_insert_with(Pause::begin);
        pause.reader.register(context.waker());
        if !pause.is_over.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        *self = Self::default();
        Poll::Ready(())
    }

    pub(super) fn count(&mut self, read_bytes: usize) {
        self.read_bytes += read_bytes;
    }
}

impl Pause {
    fn begin() -> Arc<Self> {
        let pause = Arc::<Self>::default();
        let waker = Waker::from(Arc::clone(&pause));
        // Tokio wakes who yields when it has looked at the sockets.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        pause
    }
}

impl Wake for Pause {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        self.reader.wake();
    }
}
