//! A stream that ends when its client wears the server's patience out. Actix and the
//! crate `h2` would wait for ever.
//!
//! A write or a flush that cannot go on waits for the client, and one that can ends the wait.
//! Reading is not timed here, but leaves other connections their turn: [`ReadTurn`].

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::turn::ReadTurn;
use crate::http::patience::Patience;
use crate::service::Beside;

/// A stream of which writes that are stuck end the connection.
pub(super) struct TimedStream<T> {
    stream: T,
    patience: Patience,
    turn: ReadTurn,
    /// What the connection takes at least, in bytes.
    least_bytes: u64,
    /// Until the connection's end.
    memory: Beside,
}

impl<T> TimedStream<T> {
    /// `bytes` is what the connection takes in memory, about, without what permits hold.
    pub(super) fn new(stream: T, patience: Patience, bytes: u64) -> Self {
        let memory = patience.count_beside(bytes);
        Self { stream, patience, turn: ReadTurn::default(), least_bytes: bytes, memory }
    }

    /// The connection takes `bytes` besides from now on, unless it took more before.
    pub(super) fn take_besides(&mut self, bytes: u64) {
        self.memory.grow(self.least_bytes + bytes);
    }

    /// The last write or flush could not go on.
    pub(super) const fn is_stuck(&self) -> bool {
        self.patience.is_waiting()
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

    /// Times a write or a flush by its outcome; `bytes` tells how many were written.
    fn time_write<R>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<R>>,
        bytes: impl Fn(&R) -> usize,
    ) -> Poll<io::Result<R>> {
        match &outcome {
            Poll::Pending => {
                return self.patience.poll_end(context).map(|()| {
                    tracing::debug!("a client did not take its answer; its connection is closed");
                    Err(ErrorKind::TimedOut.into())
                });
            }
            Poll::Ready(Ok(done)) => self.patience.moved(bytes(done), 1),
            Poll::Ready(Err(_)) => {}
        }
        outcome
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.turn.poll(context));
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.turn.count(buffer.filled().len() - before);
        outcome
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.time_write(context, outcome, |&written| written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.time_write(context, outcome, |&written| written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.time_write(context, outcome, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.time_write(context, outcome, |()| 0)
    }
}

#[cfg(test)]
mod tests;
