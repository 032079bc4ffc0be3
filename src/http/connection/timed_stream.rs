//! A stream that ends when its client takes nothing of what is written for it. Actix and the crate
//! `h2` would wait for ever.
//!
//! A write or a flush that cannot go on starts the time, and one that can ends it: a client that
//! takes a byte now and then is not cut. Reading is not timed here.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream of which writes that are stuck end the connection.
pub(super) struct TimedStream<T> {
    stream: T,
    /// How long a client may take nothing.
    time: Duration,
    /// Runs while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<T> TimedStream<T> {
    pub(super) fn new(stream: T, time: Duration) -> Self {
        Self { stream, time, stall: None }
    }

    /// The last write or flush could not go on.
    pub(super) fn is_stuck(&self) -> bool {
        self.stall.is_some()
    }
}

impl<T: AsyncWrite + Unpin> TimedStream<T> {
    /// Writes what can be written at once, which nobody waits for; how many bytes.
    pub(super) fn write_now(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> usize {
        let mut stream = Pin::new(&mut self.stream);
        let Poll::Ready(Ok(written)) = stream.as_mut().poll_write(context, bytes) else { return 0 };
        let _ = stream.poll_flush(context);
        written
    }

    /// Nothing can be written; an error when that lasts too long.
    fn poll_stall<R>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        let time = self.time;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(time)));
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
        self.stall = None;
        outcome
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
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
