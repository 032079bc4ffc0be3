//! What a worker is given to run, and what it hands back.

use std::sync::Arc;

use super::WantedRows;
use super::ticket::{ItemRows, Pending, RunError};
use crate::batch::plan::Sequence;
use crate::batch::{Bucket, TokenIds};
use crate::clock::Moment;
use crate::dense::is_finite;
use crate::engine::BatchOutput;

/// One item of a request, while it waits and while it runs.
#[derive(Debug)]
pub struct JobItem {
    pub ids: TokenIds,
    pub(super) sequence: Sequence,
    pub(super) rows: WantedRows,
    pub(super) slot: usize,
    pub(super) pending: Arc<Pending>,
}

/// What a worker is to run.
#[derive(Debug)]
pub struct Job {
    pub bucket: Bucket,
    /// In the order of the batch's rows.
    pub items: Vec<JobItem>,
    pub(super) started: Moment,
}

/// What an item of a job gave.
pub type RowsOrError = Result<ItemRows, RunError>;

impl JobItem {
    /// This item's rows of a run, row `row` of its batch. All of them must be finite.
    pub fn rows(&self, output: &BatchOutput, row: usize) -> RowsOrError {
        let (dense, weights) = (output.dense_row(row), output.weights_row(row, self.ids.len()));
        if !is_finite(dense) || !is_finite(weights) {
            return Err(RunError::NonFinite { item: self.slot });
        }
        Ok(copy_rows(dense, weights, self.rows))
    }
}

fn copy_rows(dense: &[f32], weights: &[f32], wanted: WantedRows) -> ItemRows {
    let (with_dense, with_weights) = match wanted {
        WantedRows::Dense => (true, false),
        WantedRows::Weights => (false, true),
        WantedRows::Both => (true, true),
    };
    ItemRows {
        dense: if with_dense { dense.to_vec() } else { Vec::new() },
        weights: if with_weights { weights.to_vec() } else { Vec::new() },
    }
}
