//! What a connection of HTTP/1.1 and the handlers of its requests tell each other.
//!
//! The connection is the [`RequestGate`](super::gate::RequestGate), which knows bytes and no
//! handlers. The handlers speak through `unread`, the outermost layer of the application.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Whether the client waits for a word before it sends its body (`Expect: 100-continue`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Continue {
    /// It does not, or it was told, or its answer is on the way.
    #[default]
    Unasked,
    /// It does, and nobody has asked for the body so far.
    Awaited,
    /// It does, and a handler wants the body.
    Due,
}

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    begun: Cell<u64>,
    running: Cell<u64>,
    body_open: Cell<bool>,
    body_broken: Cell<bool>,
    body_wanted: Cell<bool>,
    had_long_head: Cell<bool>,
    go_on: Cell<Continue>,
    /// Who reads from the connection while a request runs. Actix may not read again behind the
    /// answer before bytes come, and then no time would begin.
    reader: AtomicWaker,
    /// Who waits for more of the body.
    body_reader: AtomicWaker,
}

/// For the connection.
impl Activity {
    /// A head is handed to actix, whose request begins next.
    pub(super) fn announce(&self, awaits_continue: bool) {
        self.body_broken.set(false);
        self.body_wanted.set(false);
        self.go_on.set(if awaits_continue { Continue::Awaited } else { Continue::Unasked });
    }

    /// How many requests have begun; `None` while one runs.
    pub(super) fn begun_and_ended(&self) -> Option<u64> {
        (self.running.get() == 0).then_some(self.begun.get())
    }

    /// The body of the request that began last has more to come.
    pub(super) fn has_open_body(&self) -> bool {
        self.body_open.get()
    }

    /// A handler has asked for the body of the request that began last.
    pub(super) fn is_body_wanted(&self) -> bool {
        self.body_wanted.get()
    }

    /// What comes of the body is not well-formed: whoever reads it gets an error.
    pub(super) fn break_body(&self) {
        self.body_broken.set(true);
        self.body_reader.wake();
    }

    /// The connection takes the memory of a long head until its end.
    pub(super) fn long_head_came(&self) {
        self.had_long_head.set(true);
    }

    /// Whether the client must be told now to send its body; true once for each request.
    pub(super) fn take_continue(&self) -> bool {
        let is_due = self.go_on.get() == Continue::Due;
        if is_due {
            self.go_on.set(Continue::Unasked);
        }
        is_due
    }

    /// From now on the end of a request, and a body that is wanted, wake this reader.
    pub(super) fn register_reader(&self, context: &Context<'_>) {
        self.reader.register(context.waker());
    }

    /// Makes the reader read again.
    pub(super) fn wake_reader(&self) {
        self.reader.wake();
    }
}

/// For the handlers.
impl Activity {
    /// A request begins; it ends when the result is dropped.
    pub(super) fn begin(self: &Rc<Self>, has_body: bool) -> RunningRequest {
        self.begun.set(self.begun.get() + 1);
        self.running.set(self.running.get() + 1);
        self.body_open.set(has_body);
        RunningRequest(Rc::clone(self))
    }

    /// The body of the request that began last has been read to its end.
    pub(super) fn body_ended(&self) {
        self.body_open.set(false);
    }

    /// The connection has had a long head.
    pub(super) fn had_long_head(&self) -> bool {
        self.had_long_head.get()
    }

    /// The client has not been told to send the body, so none may come.
    pub(super) fn awaits_continue(&self) -> bool {
        self.go_on.get() == Continue::Awaited
    }

    /// A handler waits for more of the body; ready when what comes of it is not well-formed.
    pub(super) fn poll_broken(&self, context: &Context<'_>) -> Poll<()> {
        if self.body_broken.get() {
            return Poll::Ready(());
        }
        self.body_reader.register(context.waker());
        if !self.body_wanted.replace(true) {
            self.wake_reader();
        }
        if self.awaits_continue() {
            self.go_on.set(Continue::Due);
            self.wake_reader();
        }
        Poll::Pending
    }
}

/// A request that is being handled.
#[derive(Debug)]
pub(super) struct RunningRequest(Rc<Activity>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        // The answer is about to be written: nothing may come before it.
        self.0.go_on.set(Continue::Unasked);
        self.0.wake_reader();
    }
}
