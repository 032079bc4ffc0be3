//! A request's claim on its rows: a future that cancels what still waits when it is dropped.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use thiserror::Error;
use tokio::sync::oneshot;

use crate::locks::Mutex;
use crate::scheduler::Scheduler;
use clock::Moment;
use scheduling::batch::plan::Sequence;
use vectors::ItemRows;

/// Where the rows of a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheUse {
    /// All of them were kept from earlier runs.
    Hit,
    /// Some of them were.
    Partial,
    /// None was.
    Miss,
}

impl CacheUse {
    /// `found` of `items` items were kept.
    pub(super) const fn of(found: usize, items: usize) -> Self {
        match found {
            0 => Self::Miss,
            _ if found < items => Self::Partial,
            _ => Self::Hit,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Partial => "partial",
            Self::Miss => "miss",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunSpan {
    pub(crate) started: Moment,
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
    /// No worker took the item in time.
    #[error("the deadline passed before the item ran")]
    Expired,
    /// Its batch gave nothing; the text is for the log.
    #[error("the engine failed: {0}")]
    EngineFailed(String),
    /// Only the request with this item fails, not those it shared a batch with.
    #[error("item {item} has a row that is not finite")]
    NonFinite {
        /// Its place in the request.
        item: usize,
    },
    /// Its worker is lost, or the scheduler is closed.
    #[error("no worker can run the model")]
    NoWorker,
}

/// What all items of a request write to. Its items own it, not its ticket: with the last of them
/// the channel to the ticket closes, so that a ticket never waits for nobody.
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
    answer: Option<oneshot::Sender<Result<RequestRows, RunError>>>,
}

#[derive(Debug)]
pub(super) struct RequestRows {
    rows: Vec<ItemRows>,
    ran: Option<RunSpan>,
}

impl Pending {
    pub(super) fn new(items: usize) -> (Arc<Self>, RowsReceiver) {
        let (answer, receiver) = oneshot::channel();
        let state = PendingState {
            rows: vec![ItemRows::default(); items],
            left: items,
            ran: None,
            answer: Some(answer),
        };
        (Arc::new(Self { state: Mutex::new(state) }), receiver)
    }

    /// The rows of one item, whose batch ran for `span` unless they were kept; the last one answers
    /// the request.
    pub(super) fn finish(&self, slot: usize, rows: ItemRows, span: Option<RunSpan>) {
        let mut state = self.state.lock();
        let ran = match (state.ran, span) {
            (Some(others), Some(span)) => Some(others.with(span)),
            (others, span) => others.or(span),
        };
        state.ran = ran;
        state.rows[slot] = rows;
        state.left -= 1;
        if state.left == 0 {
            let rows = std::mem::take(&mut state.rows);
            if let Some(answer) = state.answer.take() {
                drop(state);
                // The client may have gone.
                let _ = answer.send(Ok(RequestRows { rows, ran }));
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

pub(super) type RowsReceiver = oneshot::Receiver<Result<RequestRows, RunError>>;

/// The rows of a request to come, in the order of its items.
#[derive(Debug)]
pub struct Ticket {
    scheduler: Scheduler,
    /// What is to be cancelled when nobody waits any more; empty once every item has rows.
    items: Range<Sequence>,
    answer: RowsReceiver,
    /// From the start of the first batch with an item of the request to the end of the last; known
    /// when the rows are there, `None` when all of them were kept.
    pub(crate) ran: Option<RunSpan>,
    /// Where the rows came from; `None` when none are kept.
    pub(crate) cache_use: Option<CacheUse>,
}

impl Ticket {
    pub(super) const fn new(
        scheduler: Scheduler,
        items: Range<Sequence>,
        answer: RowsReceiver,
        cache_use: Option<CacheUse>,
    ) -> Self {
        Self { scheduler, items, answer, ran: None, cache_use }
    }
}

impl Future for Ticket {
    type Output = Result<Vec<ItemRows>, RunError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        answer.map(|answer| {
            let RequestRows { rows, ran } = answer.unwrap_or(Err(RunError::NoWorker))?;
            (self.ran, self.items) = (ran, 0..0);
            Ok(rows)
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            // Nobody listens any more, so its items need not wake anyone.
            self.answer.close();
            self.scheduler.cancel(self.items.clone());
        }
    }
}
