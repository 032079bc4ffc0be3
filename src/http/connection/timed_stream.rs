//! The time-outs of HTTP/1.1 that actix lacks: heads of later requests, the rest of bodies that
//! nobody reads, and answers that nobody takes.
//!
//! The stream does not read HTTP. It sees that bytes come and go, and the outermost layer of the
//! application tells it, by [`Activity`], when a request begins and ends and whether the request's
//! body has been read to its end. A connection is in one of four states:
//!
//! | state | what the client must do | within | or else |
//! |---|---|---|---|
//! | `Idle` | begin a request | `idle` | the connection is closed, as if by the client |
//! | `Head` | end a head of which a byte has come | `head` | 408, closed |
//! | `Busy` | nothing: a request runs, or its answer is being written | | |
//! | `Rest` | end a body that nobody reads | [`LINGER`] | closed |
//!
//! | from | to | when |
//! |---|---|---|
//! | (new) | `Idle` | the connection is opened |
//! | `Idle` | `Head` | a byte comes |
//! | `Idle`, `Head` | `Busy` | a request begins: its head is whole |
//! | `Busy` | `Idle` | all requests have ended and their answers are written |
//! | `Busy` | `Head` | the same, and bytes came behind the end of the last one's body |
//! | `Busy` | `Rest` | the same, and the last one's body has not been read to its end |
//!
//! - `Idle` is entered only when the body of every request has ended. A byte that comes in `Idle`
//!   is therefore the first of a new request, and nothing else leads to `Head`: so an idle
//!   connection never gets an answer that it did not ask for.
//! - `Rest` leads nowhere: the answer has said that the connection closes.
//! - The state is brought up to date whenever bytes are wanted. A request that begins and ends
//!   between two reads is noticed by the count of those that began. The end of a request that was
//!   seen to run wakes the reader.
//! - In `Busy` at most [`READ_AHEAD_BYTES`] behind the request's body are read until all requests
//!   have ended: actix would poll itself without a pause once its buffer of 128 KiB is full. Only
//!   then is it seen that such a client has left.
//! - In `Busy` the client is timed elsewhere: by the reader of the body, and here by whoever
//!   writes. An answer of which the client takes nothing for `write` ends the connection.
//! - The start of a head may come with the bytes that end the request before it, where it cannot
//!   be seen. The state is `Idle` then: the next byte has `idle` to come, and from there the head
//!   has `head`.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http::error::ApiError;

/// How long the rest of a body is read and thrown away after an answer that came before its end. A
/// socket closed at once would take the answer with it.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// Bytes of later requests that are read while one runs; half of what fills actix's buffer.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
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
    /// Who reads from the connection while a request runs. Actix may not read again behind the
    /// answer before bytes come, and then no time would begin.
    reader: RefCell<Option<Waker>>,
}

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

    /// Makes the reader read again.
    fn wake_reader(&self) {
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
pub(super) struct RunningRequest(Rc<Activity>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        self.0.wake_reader();
    }
}

/// What the client must do next; this file's header has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Idle,
    Head,
    Busy,
    Rest,
}

/// A stream that ends when its client takes too long.
pub(super) struct TimedStream<T> {
    stream: T,
    timeouts: Timeouts,
    times_reads: bool,
    activity: Rc<Activity>,
    state: ConnectionState,
    /// Of the state.
    timer: Pin<Box<Sleep>>,
    /// `activity.begun` at the last read.
    begun: u64,
    /// Bytes came behind the body of the request that runs.
    is_early: bool,
    /// Bytes that came so, since no request ran.
    ahead: usize,
    /// Runs while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<T> TimedStream<T> {
    /// For HTTP/1.1.
    pub(super) fn new(stream: T, timeouts: Timeouts) -> Self {
        Self {
            stream,
            timeouts,
            times_reads: true,
            activity: Rc::default(),
            state: ConnectionState::Idle,
            timer: Box::pin(sleep(timeouts.idle)),
            begun: 0,
            is_early: false,
            ahead: 0,
            stall: None,
        }
    }

    /// For HTTP/2, which times by itself what it reads.
    pub(super) fn writes_only(stream: T, timeouts: Timeouts) -> Self {
        Self { times_reads: false, ..Self::new(stream, timeouts) }
    }

    /// For the handlers of the connection's requests.
    pub(super) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    fn enter(&mut self, state: ConnectionState) {
        (self.state, self.ahead) = (state, 0);
        self.timer.set(sleep(match state {
            ConnectionState::Idle | ConnectionState::Busy => self.timeouts.idle,
            ConnectionState::Head => self.timeouts.head,
            ConnectionState::Rest => LINGER,
        }));
    }

    /// Brings the state up to date with what the application has told since the last read.
    fn update_state(&mut self) {
        let (begun, running) = (self.activity.begun.get(), self.activity.running.get());
        let has_begun = begun != self.begun;
        if has_begun {
            (self.begun, self.is_early) = (begun, false);
        }
        if running > 0 || self.stall.is_some() {
            self.state = ConnectionState::Busy;
        } else if has_begun || self.state == ConnectionState::Busy {
            self.enter(match (self.activity.has_open_body(), self.is_early) {
                (true, _) => ConnectionState::Rest,
                (false, true) => ConnectionState::Head,
                (false, false) => ConnectionState::Idle,
            });
        }
    }

    /// So many bytes came.
    fn count_read(&mut self, bytes: usize) {
        match self.state {
            ConnectionState::Idle => self.enter(ConnectionState::Head),
            ConnectionState::Busy if !self.activity.has_open_body() => {
                self.is_early = true;
                self.ahead += bytes;
            }
            ConnectionState::Busy | ConnectionState::Head | ConnectionState::Rest => {}
        }
    }

    /// Ready when the state has lasted too long.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.state {
            ConnectionState::Busy => Poll::Pending,
            ConnectionState::Idle | ConnectionState::Head | ConnectionState::Rest => {
                self.timer.as_mut().poll(context)
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> TimedStream<T> {
    /// Nothing can be written; an error when that lasts too long.
    fn poll_stall<R>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        let write = self.timeouts.write;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(write)));
        stall.as_mut().poll(context).map(|()| {
            tracing::debug!("a client did not take its answer; its connection is closed");
            Err(ErrorKind::TimedOut.into())
        })
    }

    /// Times a write or a flush by its outcome.
    fn time_write<R>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if outcome.is_pending() {
            return self.poll_stall(context);
        }
        if self.stall.take().is_some() {
            self.activity.wake_reader();
        }
        outcome
    }

    /// The time of the state is over; what is read then.
    fn time_out(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.state == ConnectionState::Idle {
            // As if the client had closed the connection: it then ends in good order.
            return Ok(());
        }
        if self.state == ConnectionState::Head {
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

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.times_reads {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let before = buffer.filled().len();
        self.update_state();
        if self.state == ConnectionState::Busy {
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
            self.count_read(buffer.filled().len() - before);
        }
        // Whether or not there are bytes: a client that never pauses is timed as well.
        if self.poll_timeout(context).is_ready() {
            Poll::Ready(self.time_out(context))
        } else {
            read
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.time_write(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.time_write(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.time_write(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.time_write(context, outcome)
    }
}

#[cfg(test)]
mod tests;
