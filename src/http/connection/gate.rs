//! The reading side of a connection of HTTP/1.1: hands actix one request at a time, and times what
//! the client must do next.
//!
//! Actix keeps one state for a connection, that of the head it read last: when it reads a head
//! before it has written the answer to the one before, it answers in a wrong form. So the gate
//! finds the end of each request and holds back what comes behind it until the answer is written.
//! It also holds back a head that is not whole, and refuses one that actix would refuse, in the
//! form of all refusals. Bytes that belong to a request go through unchanged, but for the words
//! that `head::judge` overwrites.
//!
//! A connection is in one of four states:
//!
//! | state | what comes now | within | or else |
//! |---|---|---|---|
//! | `Idle` | a head's first byte; empty lines are dropped | `idle` | closed, as if by the client |
//! | `Head` | the rest of a head of which a byte has come | `head` | 408, closed |
//! | `Busy` | the rest of the body; what comes behind is held back | | |
//! | `Closing` | nothing that matters: the last answer is written | [`LINGER`] | closed |
//!
//! | from | to | when |
//! |---|---|---|
//! | (new) | `Idle` | the connection is opened |
//! | `Idle` | `Head` | a byte comes that is no empty line's |
//! | `Idle`, `Head` | `Busy` | a head is whole and is handed on |
//! | `Idle`, `Head` | `Closing` | a head is refused: the gate writes the answer |
//! | `Busy` | `Idle` | the answer is written, and the body was read to its end |
//! | `Busy` | `Closing` | the answer is written, and the body was not read to its end |
//! | all | (ended) | the client closes its side: actix is told at once, and drops its request |
//!
//! What is held back is looked at when the state is `Idle` again, as if it had just come. A worked
//! example, in which a client sends three requests at once and then half of a fourth (`A` and `B`
//! are a head and its body, `G` is a head without a body, `x` is no head):
//!
//! | the client has sent | actix has been handed | held back | state |
//! |---|---|---|---|
//! | | | | `Idle` |
//! | `AA` | | `AA` | `Head` |
//! | `AAAABB` | `AAAA` `BB` | | `Busy` |
//! | `AAAABBBB GG x` | `AAAA` `BBBB` | `GG x` | `Busy` |
//! | (the answer to A is written) | `GG` | `x` | `Busy` |
//! | (the answer to G is written) | | | `Closing`, 400 |
//!
//! - Actix polls the stream until nothing comes, and again when it is woken. The end of a request,
//!   and the end of a write that was stuck, wake it: see [`Activity`]. It reads only before it
//!   writes, so a request that has ended when it reads, while no write is stuck, has its answer
//!   written whole.
//! - In `Busy` the socket is read behind the body too, to see that the client leaves; at most
//!   [`READ_AHEAD_BYTES`] and one read of actix are held. A client that sends more is seen to leave
//!   only when its request has ended.
//! - Of a body that no handler asks for, no more is read either: actix would keep 160 KB.
//! - In `Busy` the client is timed elsewhere: by the reader of the body, and by [`TimedStream`].
//! - In `Closing` the client is told that nothing more comes (FIN) and is read until it closes: a
//!   socket closed with bytes unread would take the answer with it.
//! - A head that actix would understand in another way than the gate cannot be ruled out by types.
//!   It is ruled out by strictness (see `head`), and by a test that compares both.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::web::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;
use super::timed_stream::TimedStream;
use crate::http::error::ApiError;
use crate::http::patience::Timeouts;

mod body;
mod head;

use body::Rest;
use head::{HeadVerdict, JudgedHead};

/// How long a client is read after its last answer, until it closes.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// Bytes of later requests that are held while one runs; of its own body, that are handed on before
/// a handler asks for it.
const READ_AHEAD_BYTES: usize = 16 * 1024;

/// What actix has room for from the start. For a longer head it takes more room, which it keeps
/// until the connection's end.
const SHORT_HEAD_BYTES: usize = 8 * 1024;

/// Tells a client to send its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Records that a head was refused, and gives the whole answer.
pub(super) type RefuseHead = Rc<dyn Fn(&ApiError) -> Vec<u8>>;

/// What comes next from the client; this file's header has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Idle,
    Head,
    Busy,
    Closing,
}

/// A stream of which actix reads one request at a time.
pub(super) struct RequestGate<T> {
    stream: TimedStream<T>,
    timeouts: Timeouts,
    refuse_head: RefuseHead,
    activity: Rc<Activity>,
    state: ReadState,
    /// Of the state.
    timer: Pin<Box<Sleep>>,
    /// Bytes that have come and were not handed on.
    held: BytesMut,
    /// So many of them belong to the request that runs.
    ready: usize,
    /// What is to come of that request's body.
    rest: Rest,
    /// Bytes of it that came.
    body_bytes: usize,
    /// Requests that had begun before it.
    begun: u64,
    /// Nothing more is written.
    is_shut: bool,
}

impl<T> RequestGate<T> {
    pub(super) fn new(stream: TimedStream<T>, timeouts: Timeouts, refuse_head: RefuseHead) -> Self {
        let timer = Box::pin(sleep(timeouts.idle));
        Self {
            stream,
            timeouts,
            refuse_head,
            activity: Rc::default(),
            state: ReadState::Idle,
            timer,
            held: BytesMut::new(),
            ready: 0,
            rest: Rest::Bytes(0),
            body_bytes: 0,
            begun: 0,
            is_shut: false,
        }
    }

    /// For the handlers of the connection's requests.
    pub(super) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    fn enter(&mut self, state: ReadState) {
        self.state = state;
        let time = match state {
            ReadState::Idle => self.timeouts.idle,
            ReadState::Head => self.timeouts.head,
            ReadState::Closing => LINGER,
            ReadState::Busy => return,
        };
        self.timer.set(sleep(time));
    }

    /// Counts a head of which so many bytes have come. Actix makes room for up to twice as many.
    fn count_head(&mut self, bytes: usize) {
        if bytes > SHORT_HEAD_BYTES {
            self.stream.take_besides(2 * bytes as u64);
            self.activity.long_head_came();
        }
    }

    /// Leaves `Busy` when the answer is written.
    fn update_state(&mut self) {
        if self.state != ReadState::Busy || self.stream.is_stuck() {
            return;
        }
        let begun = self.activity.begun_and_ended().filter(|begun| *begun != self.begun);
        let Some(begun) = begun else { return };
        self.begun = begun;
        let was_read = self.rest.has_ended() && self.ready == 0 && !self.activity.has_open_body();
        self.enter(if was_read { ReadState::Idle } else { ReadState::Closing });
    }

    /// Lets a request in that begins with `bytes`; how many of them are its own.
    fn let_in(&mut self, head: &JudgedHead, bytes: &[u8]) -> usize {
        self.enter(ReadState::Busy);
        self.count_head(head.length);
        self.activity.announce(head.awaits_continue);
        (self.rest, self.body_bytes) = (head.body, 0);
        head.length + self.advance(&bytes[head.length..])
    }

    /// How many of `bytes` belong to the body of the request that runs.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let own = self.rest.advance(bytes);
        self.body_bytes += own;
        if self.rest == Rest::Broken {
            self.activity.break_body();
        }
        own
    }

    /// Takes what was read behind `start` back from actix.
    fn hold(&mut self, buffer: &mut ReadBuf<'_>, start: usize) {
        self.held.extend_from_slice(&buffer.filled()[start..]);
        buffer.set_filled(start);
    }

    /// Hands on as much of what is held as belongs to the request that runs.
    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = self.ready.min(buffer.remaining());
        buffer.put_slice(&self.held.split_to(length));
        self.ready -= length;
        if self.held.is_empty() {
            // It would keep the room of a head.
            self.held = BytesMut::new();
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> RequestGate<T> {
    /// Reads on until a head is whole. Ready when it is let in, when it is refused, and when the
    /// connection ends.
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.held.is_empty() && self.judge_held(context, buffer) {
            return Poll::Ready(Ok(()));
        }
        loop {
            let start = buffer.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(context, buffer)?;
            if read.is_ready() {
                let has_left = buffer.filled().len() == start;
                if has_left || self.judge_read(context, buffer, start) {
                    return Poll::Ready(Ok(()));
                }
            }
            // Whether or not bytes came: a client that never pauses is timed as well.
            if self.timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(self.time_out(context));
            }
            ready!(read);
        }
    }

    /// Judges what was read behind `start`. A request that came whole is not copied.
    fn judge_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        start: usize,
    ) -> bool {
        let read = &mut buffer.filled_mut()[start..];
        let is_first = self.held.is_empty();
        if is_first && let HeadVerdict::Whole(head) = head::judge(read) {
            let own = self.let_in(&head, read);
            self.hold(buffer, start + own);
            return true;
        }
        // Only the end of a line, or too many bytes, can change what is known of a head. So one
        // that comes byte by byte is not judged for each.
        let is_long = self.held.len() + read.len() > head::HEAD_MAX_BYTES;
        let may_tell = is_first || is_long || memchr::memchr(b'\n', read).is_some();
        self.hold(buffer, start);
        let has_ended = may_tell && self.judge_held(context, buffer);
        if !has_ended {
            self.count_head(self.held.len());
        }
        has_ended
    }

    /// Judges what is held; whether a request was let in or refused.
    fn judge_held(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> bool {
        let mut held = std::mem::take(&mut self.held);
        drop(held.split_to(head::empty_lines(&held)));
        let verdict = head::judge(&mut held);
        if let HeadVerdict::Whole(head) = &verdict {
            self.ready = self.let_in(head, &held);
        }
        self.held = held;
        match verdict {
            HeadVerdict::Whole(_) => self.hand_on(buffer),
            HeadVerdict::Refused(error) => {
                self.stream.write_now(context, &(self.refuse_head)(&error));
                self.enter(ReadState::Closing);
            }
            HeadVerdict::Partial => {
                // Half of an empty line is no head.
                let has_begun = !matches!(&self.held[..], b"" | b"\r");
                if self.state == ReadState::Idle && has_begun {
                    self.enter(ReadState::Head);
                }
                return false;
            }
        }
        true
    }

    /// The time of the state is over; what is read then.
    fn time_out(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.state == ReadState::Idle {
            // As if the client had closed the connection: it then ends in good order.
            return Ok(());
        }
        if self.state == ReadState::Head {
            self.stream.write_now(context, &(self.refuse_head)(&ApiError::head_timeout()));
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Hands on the rest of a request, and holds what comes behind it.
    fn poll_busy(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.activity.register_reader(context);
        if self.activity.take_continue() {
            self.write_continue(context)?;
        }
        if self.ready > 0 {
            self.hand_on(buffer);
            return Poll::Ready(Ok(()));
        }
        loop {
            let (ahead, is_wanted) = match self.rest.goes_on() {
                true => (self.body_bytes, self.activity.is_body_wanted()),
                false => (self.held.len(), false),
            };
            if !is_wanted && ahead >= READ_AHEAD_BYTES {
                return Poll::Pending;
            }
            let start = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[start..];
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let own = self.advance(read);
            self.hold(buffer, start + own);
            if own > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Tells the client to send its body. One that does not take it sends its body after a while.
    fn write_continue(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.stream.write_now(context, CONTINUE) {
            0 => Ok(()),
            written if written == CONTINUE.len() => Ok(()),
            // The answer cannot follow a part of a line.
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Throws away what comes until the client closes.
    fn poll_closing(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.held.clear();
        if !self.is_shut {
            self.is_shut = Pin::new(&mut self.stream).poll_shutdown(context).is_ready();
        }
        loop {
            let start = buffer.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(context, buffer)?;
            if read.is_ready() && buffer.filled().len() == start {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(start);
            if self.timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(self.time_out(context));
            }
            ready!(read);
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for RequestGate<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.update_state();
        if matches!(self.state, ReadState::Idle | ReadState::Head) {
            ready!(self.poll_head(context, buffer))?;
            if self.state != ReadState::Closing {
                return Poll::Ready(Ok(()));
            }
        }
        match self.state {
            ReadState::Busy => self.poll_busy(context, buffer),
            ReadState::Idle | ReadState::Head | ReadState::Closing => {
                self.poll_closing(context, buffer)
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> RequestGate<T> {
    /// What a write came to; the end of one that was stuck makes the next request's turn.
    fn wrote<R>(&mut self, was_stuck: bool, outcome: R) -> R {
        if was_stuck && !self.stream.is_stuck() {
            self.activity.wake_reader();
        }
        outcome
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for RequestGate<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let was_stuck = self.stream.is_stuck();
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(was_stuck, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let was_stuck = self.stream.is_stuck();
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(was_stuck, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let was_stuck = self.stream.is_stuck();
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.wrote(was_stuck, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
