//! A request's claim on its rows: a future that cancels what still waits when it is dropped.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::batch::plan::Sequence;
use crate::clock::Moment;
use crate::scheduler::Scheduler;

/// Rows of one item; those that were not wanted are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ItemRows {
    /// `hidden_size` floats.
    pub dense: Vec<f32>,
    /// One float for each of the item's tokens.
    pub weights: Vec<f32>,
}

/// When batches ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSpan {
    pub started: Moment,
    /// The worker had the rows in its hands.
    pub ended: Moment,
}

impl RunSpan {
    fn with(self, other: Self) -> Self {
        Self { started: self.started.min(other.started), ended: self.ended.max(other.ended) }
    }
}

/// Why a request that was taken gets no rows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    #[error("the deadline passed before the item ran")]
    Expired,
    #[error("the engine failed: {0}")]
    EngineFailed(String),
    /// Only the request with this item fails, not those it shared a batch with.
    #[error("item {item} has a row that is not finite")]
    NonFinite { item: usize },
    #[error("no worker can run the model")]
    NoWorker,
}

/// What all items of a request write to.
#[derive(Debug)]
pub(super) struct Pending {
    state: Mutex<PendingState>,
}

#[derive(Debug)]
struct PendingState {
    rows: Vec<ItemRows>,
    left: usize,
    /// From the start of the first batch that gave rows to the end of the last.
    ran: Option<RunSpan>,
    answer: Option<oneshot::Sender<Result<Vec<ItemRows>, RunError>>>,
}

impl Pending {
    pub(super) fn new(items: usize) -> (Arc<Self>, Answer) {
        let (answer, receiver) = oneshot::channel();
        let state = PendingState {
            rows: vec![ItemRows::default(); items],
            left: items,
            ran: None,
            answer: Some(answer),
        };
        (Arc::new(Self { state: Mutex::new(state) }), receiver)
    }

    /// The rows of one item, whose batch ran for `span`; the last one answers the request.
    pub(super) fn finish(&self, slot: usize, rows: ItemRows, span: RunSpan) {
        let mut state = self.state.lock();
        state.ran = Some(state.ran.map_or(span, |others| others.with(span)));
        state.rows[slot] = rows;
        state.left -= 1;
        if state.left == 0 {
            let rows = std::mem::take(&mut state.rows);
            if let Some(answer) = state.answer.take() {
                drop(state);
                // The client may have gone.
                let _ = answer.send(Ok(rows));
            }
        }
    }

    /// The first failure answers the request.
    pub(super) fn fail(&self, error: RunError) {
        let answer = self.state.lock().answer.take();
        if let Some(answer) = answer {
            let _ = answer.send(Err(error));
        }
    }
}

/// Where the answer arrives.
pub(super) type Answer = oneshot::Receiver<Result<Vec<ItemRows>, RunError>>;

/// The rows of a request to come, in the order of its items.
#[derive(Debug)]
pub struct Ticket {
    scheduler: Scheduler,
    items: Range<Sequence>,
    pending: Arc<Pending>,
    answer: Answer,
    /// Every item has ended, so there is nothing to cancel.
    complete: bool,
}

impl Ticket {
    pub(super) const fn new(
        scheduler: Scheduler,
        items: Range<Sequence>,
        pending: Arc<Pending>,
        answer: Answer,
    ) -> Self {
        Self { scheduler, items, pending, answer, complete: false }
    }

    /// From the start of the first batch with an item of the request to the end of the last; known
    /// when the rows are there.
    pub fn ran(&self) -> Option<RunSpan> {
        self.pending.state.lock().ran
    }
}

impl Future for Ticket {
    type Output = Result<Vec<ItemRows>, RunError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        answer.map(|answer| {
            let answer = answer.unwrap_or(Err(RunError::NoWorker));
            self.complete = answer.is_ok();
            answer
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.complete {
            self.scheduler.cancel(self.items.clone());
        }
    }
}
