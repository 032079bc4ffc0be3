//! A connection whose client may be slow, but not for ever.
//!
//! Actix times the first head of a connection and the silence between two requests; the rest is
//! here: a later head that comes in drops, a client that does not take its answer, and HTTP/2
//! connections without requests, which actix keeps as long as pings are answered. Bodies are timed
//! where they are read.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::Protocol;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use super::error::ApiError;

/// While the server drains, an HTTP/2 connection without requests is closed after this time.
const DRAIN_IDLE: Duration = Duration::from_secs(2);

/// Fewer bytes than this are no progress of an answer: pings and acknowledgements.
const PROGRESS_BYTES: u64 = 1024;

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

/// The requests of one connection, as their handlers tell it.
#[derive(Debug, Default)]
pub(super) struct Activity {
    begun: Cell<u64>,
    running: Cell<u64>,
    closed: Cell<bool>,
    closing: Notify,
}

impl Activity {
    /// A request runs until the result is dropped.
    pub(super) fn begin(self: &Rc<Self>) -> Running {
        self.begun.set(self.begun.get() + 1);
        self.running.set(self.running.get() + 1);
        Running(Rc::clone(self))
    }

    /// Resolves when the connection is gone.
    pub(super) async fn closed(&self) {
        while !self.closed.get() {
            self.closing.notified().await;
        }
    }
}

/// A request that is being handled.
#[derive(Debug)]
pub(super) struct Running(Rc<Activity>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

/// What the client of an HTTP/1.1 connection is timed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing: a request runs, or an answer waits to be taken.
    Untimed,
    /// To begin a request.
    Idle,
    /// To end the head that it has begun.
    Head,
}

/// A stream that ends when its client exhausts the patience.
pub(super) struct Guarded<T> {
    stream: T,
    patience: Patience,
    is_http_2: bool,
    activity: Rc<Activity>,
    phase: Phase,
    /// Of the phase; of HTTP/2 the time without requests.
    timer: Pin<Box<Sleep>>,
    /// `activity.begun` when the timer was set.
    begun: u64,
    /// Bytes written, now and when the timer was set.
    written: u64,
    written_before: u64,
    /// There while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
    /// Resolves when the server drains; there only for HTTP/2, which actix does not tell.
    draining: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<T> Guarded<T> {
    /// `draining` resolves when the server drains.
    pub(super) fn new(
        stream: T,
        protocol: Protocol,
        patience: Patience,
        draining: impl Future<Output = ()> + 'static,
    ) -> Self {
        let is_http_2 = matches!(protocol, Protocol::Http2);
        Self {
            stream,
            patience,
            is_http_2,
            activity: Rc::default(),
            phase: Phase::Untimed,
            timer: Box::pin(sleep(patience.idle)),
            begun: 0,
            written: 0,
            written_before: 0,
            stall: None,
            draining: is_http_2.then(|| Box::pin(draining) as Pin<Box<dyn Future<Output = ()>>>),
        }
    }

    /// For the handlers of the connection's requests.
    pub(super) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    fn set_timer(&mut self, time: Duration) {
        self.timer.set(sleep(time));
        self.begun = self.activity.begun.get();
        self.written_before = self.written;
    }

    /// Bytes came.
    fn came(&mut self) {
        if self.phase != Phase::Head && self.activity.running.get() == 0 {
            self.phase = Phase::Head;
            self.set_timer(self.patience.head);
        }
    }

    /// No bytes are there; ready when it took too long.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_http_2 {
            return self.poll_idle_http_2(context);
        }
        if self.activity.running.get() > 0 || self.stall.is_some() {
            self.phase = Phase::Untimed;
            return Poll::Pending;
        }
        if self.phase == Phase::Untimed || self.begun != self.activity.begun.get() {
            // Silence is actix's to time. This is for half a head that came behind a request.
            self.phase = Phase::Idle;
            self.set_timer(self.patience.idle + self.patience.head);
        }
        self.timer.as_mut().poll(context)
    }

    fn poll_idle_http_2(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(draining) = &mut self.draining
            && draining.as_mut().poll(context).is_ready()
        {
            self.draining = None;
            self.patience.idle = DRAIN_IDLE;
            self.set_timer(DRAIN_IDLE);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            let active = self.activity.running.get() > 0
                || self.begun != self.activity.begun.get()
                || self.written - self.written_before >= PROGRESS_BYTES;
            if !active {
                return Poll::Ready(());
            }
            self.set_timer(self.patience.idle);
        }
        Poll::Pending
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
        self.stall = None;
        outcome
    }

    /// What a connection reads whose time is over.
    fn end(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.is_http_2 {
            // As if the client had closed it: HTTP/2 then ends in good order.
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
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(outcome) => {
                if buffer.filled().len() > before {
                    self.came();
                }
                Poll::Ready(outcome)
            }
            Poll::Pending => self.poll_idle(context).map(|()| self.end(context)),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(&outcome);
        self.watched(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.count(&outcome);
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

impl<T> Guarded<T> {
    fn count(&mut self, outcome: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = outcome {
            self.written += *bytes as u64;
        }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.activity.closed.set(true);
        self.activity.closing.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
