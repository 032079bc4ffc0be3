//! A connection whose client may be slow, but not for ever: the time-outs that actix has not.
//!
//! The stream times its client; it does not read HTTP. It knows that bytes come and go, and the
//! outermost layer of the application ([`Activity`]) tells it when a request begins and ends, and
//! whether the request's body has been read to its end. There are four states:
//!
//! | state | what the client is waited for | for how long | then |
//! |---|---|---|---|
//! | `Idle` | to begin a request | `idle` | the connection is closed as if by the client |
//! | `Head` | to end a head of which a byte has come | `head` | 408, closed |
//! | `Busy` | nothing: a request runs, or its answer is written | see below | |
//! | `Rest` | to end a body that nobody reads | [`LINGER`] | closed |
//!
//! | from | to | when |
//! |---|---|---|
//! | (new) | `Idle` | the connection is opened |
//! | `Idle` | `Head` | a byte comes |
//! | `Idle`, `Head` | `Busy` | a request begins: its head is whole |
//! | `Busy` | `Idle` | all requests have ended and their answers are written |
//! | `Busy` | `Head` | the same, and bytes came after the end of the last one's body |
//! | `Busy` | `Rest` | the same, and the last one's body has not been read to its end |
//!
//! `Idle` is entered only when the body of every request has ended, so a byte that comes in it is
//! the first of a new request; nothing else leads to `Head`. `Rest` leads nowhere: the answer said
//! that it closes. States change when bytes are wanted, so a request that begins and ends between
//! two looks is known by the count of those that began, and the end of a request that was seen to
//! run asks for another look.
//!
//! In `Busy` no more than [`READ_AHEAD_BYTES`] behind the request's body are read until all
//! requests have ended: actix would poll itself without a pause once its buffer of 128 KiB is full.
//! That such a client has left is seen only then.
//!
//! In `Busy` others time the client: the reader of the body, and here whoever writes. An answer of
//! which nothing is taken for `write` ends the connection.
//!
//! The first head may have come half in the read that ended the request before it. It is then taken
//! for silence and has `idle` before its next byte, and `head` from there.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::error::ApiError;

/// How long the rest of a body is read and thrown away after an answer that came before its end. A
/// socket closed at once would take the answer with it.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// Bytes of later requests that are read while one runs; half of what fills actix's buffer.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Between two requests.
    pub(super) idle: Duration,
    /// From the first byte of a head to its last.
    pub(super) head: Duration,
    /// Without taking a byte of what waits for it.
    pub(super) write: Duration,
}

/// The requests of one connection, as the application tells it.
#[derive(Debug, Default)]
pub(super) struct Activity {
    begun: Cell<u64>,
    running: Cell<u64>,
    body_open: Cell<bool>,
    /// Whoever looks at the connection while a request runs. Actix may not look again behind its
    /// answer before bytes come, and then no time would begin.
    reader: RefCell<Option<Waker>>,
}

impl Activity {
    /// A request runs until the result is dropped.
    pub(super) fn begin(self: &Rc<Self>, has_body: bool) -> Running {
        self.begun.set(self.begun.get() + 1);
        self.running.set(self.running.get() + 1);
        self.body_open.set(has_body);
        Running(Rc::clone(self))
    }

    /// The body of the request that began last has been read to its end.
    pub(super) fn body_ended(&self) {
        self.body_open.set(false);
    }

    /// Lets the reader look again.
    fn release(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// The body of the request that began last has more to come.
    pub(super) fn has_open_body(&self) -> bool {
        self.body_open.get()
    }
}

/// A request that is being handled.
#[derive(Debug)]
pub(super) struct Running(Rc<Activity>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        self.0.release();
    }
}

/// What the client of an HTTP/1.1 connection is waited for; the header has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Head,
    Busy,
    Rest,
}

/// A stream that ends when its client exhausts the patience.
pub(super) struct Guarded<T> {
    stream: T,
    patience: Patience,
    times_reads: bool,
    activity: Rc<Activity>,
    phase: Phase,
    /// Of the phase.
    timer: Pin<Box<Sleep>>,
    /// `activity.begun` at the last look.
    begun: u64,
    /// Bytes came behind the body of the request that runs.
    is_early: bool,
    /// How many since no request ran.
    ahead: usize,
    /// There while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<T> Guarded<T> {
    /// For HTTP/1.1.
    pub(super) fn new(stream: T, patience: Patience) -> Self {
        Self {
            stream,
            patience,
            times_reads: true,
            activity: Rc::default(),
            phase: Phase::Idle,
            timer: Box::pin(sleep(patience.idle)),
            begun: 0,
            is_early: false,
            ahead: 0,
            stall: None,
        }
    }

    /// For HTTP/2, which times by itself what it reads.
    pub(super) fn writes_only(stream: T, patience: Patience) -> Self {
        Self { times_reads: false, ..Self::new(stream, patience) }
    }

    /// For the handlers of the connection's requests.
    pub(super) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.ahead) = (phase, 0);
        self.timer.set(sleep(match phase {
            Phase::Idle | Phase::Busy => self.patience.idle,
            Phase::Head => self.patience.head,
            Phase::Rest => LINGER,
        }));
    }

    /// Follows what the application told since the last look.
    fn follow(&mut self) {
        let (begun, running) = (self.activity.begun.get(), self.activity.running.get());
        let has_begun = begun != self.begun;
        if has_begun {
            (self.begun, self.is_early) = (begun, false);
        }
        if running > 0 || self.stall.is_some() {
            self.phase = Phase::Busy;
        } else if has_begun || self.phase == Phase::Busy {
            self.enter(match (self.activity.has_open_body(), self.is_early) {
                (true, _) => Phase::Rest,
                (false, true) => Phase::Head,
                (false, false) => Phase::Idle,
            });
        }
    }

    /// So many bytes came.
    fn came(&mut self, bytes: usize) {
        match self.phase {
            Phase::Idle => self.enter(Phase::Head),
            Phase::Busy if !self.activity.has_open_body() => {
                self.is_early = true;
                self.ahead += bytes;
            }
            Phase::Busy | Phase::Head | Phase::Rest => {}
        }
    }

    /// Ready when the phase has lasted too long.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.phase {
            Phase::Busy => Poll::Pending,
            Phase::Idle | Phase::Head | Phase::Rest => self.timer.as_mut().poll(context),
        }
    }
}

impl<T: AsyncWrite + Unpin> Guarded<T> {
    /// Nothing can be written; an error when that lasts too long.
    fn poll_stall<R>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        let write = self.patience.write;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(write)));
        stall.as_mut().poll(context).map(|()| {
            tracing::debug!("a client did not take its answer; its connection is closed");
            Err(ErrorKind::TimedOut.into())
        })
    }

    /// Watches what a write or a flush came to.
    fn watched<R>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if outcome.is_pending() {
            return self.poll_stall(context);
        }
        if self.stall.take().is_some() {
            self.activity.release();
        }
        outcome
    }

    /// What a connection reads whose time is over.
    fn end(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.phase == Phase::Idle {
            // As if the client had closed it: it then ends in good order.
            return Ok(());
        }
        if self.phase == Phase::Head {
            tracing::debug!("the head of a request did not come in time");
            let answer = ApiError::head_timeout().to_bare_answer();
            // As much as can be said at once; nothing waits for a slow client.
            let mut stream = Pin::new(&mut self.stream);
            let _ = stream.as_mut().poll_write(context, &answer);
            let _ = stream.poll_flush(context);
        }
        Err(ErrorKind::TimedOut.into())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.times_reads {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let before = buffer.filled().len();
        self.follow();
        if self.phase == Phase::Busy {
            self.activity.reader.replace(Some(context.waker().clone()));
            if self.ahead >= READ_AHEAD_BYTES {
                return Poll::Pending;
            }
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let has_ended = read.is_ready() && buffer.filled().len() == before;
        if has_ended {
            return read;
        }
        if read.is_ready() {
            self.came(buffer.filled().len() - before);
        }
        // Whether or not there are bytes: a client that never pauses is timed as well.
        if self.poll_late(context).is_ready() { Poll::Ready(self.end(context)) } else { read }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watched(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(context, outcome)
    }
}

#[cfg(test)]
mod tests;
