//! The deep check: the package's canary through one worker, compared with its golden numbers.

use std::time::Duration;

use crate::health::{CheckFailure, WorkerCheck};
use crate::scheduler::{RunError, Scheduler};
use clock::Clock;
use model::package::canary::{self, Comparison};
use model::package::manifest::Manifest;
use scheduling::Refusal;
use vectors::ItemRows;
use vectors::dense::is_finite;

/// Runs the canary on one worker, ahead of all waiting items, and compares the result with the
/// golden numbers.
pub(crate) async fn check(
    worker: usize,
    scheduler: &Scheduler,
    manifest: &Manifest,
    clock: &dyn Clock,
    timeout: Duration,
) -> WorkerCheck {
    let start = clock.now();
    let outcome = run(worker, scheduler, manifest, clock, timeout).await;
    let latency = clock.now().since(start);
    let (comparison, failure) = match outcome {
        Ok(rows) => judge(manifest, &rows),
        Err(failure) => (None, Some(failure)),
    };
    WorkerCheck {
        worker,
        latency,
        dense_cosine: comparison.map(|seen| seen.dense_cosine),
        sparse_ok: comparison.filter(|_| manifest.sparse.is_some()).map(|seen| seen.sparse_ok),
        failure,
    }
}

async fn run(
    worker: usize,
    scheduler: &Scheduler,
    manifest: &Manifest,
    clock: &dyn Clock,
    timeout: Duration,
) -> Result<ItemRows, CheckFailure> {
    let ids = canary::token_ids(manifest);
    let ticket = scheduler.submit_check(worker, ids, clock.now() + timeout).map_err(|refusal| {
        failure(
            "queue",
            match refusal {
                Refusal::Full { .. }
                | Refusal::Late { .. }
                | Refusal::TooShort { .. }
                | Refusal::BytesExceeded
                | Refusal::NeverFits { .. } => "the worker has too many checks waiting",
                Refusal::Draining => "the server is draining",
                Refusal::NoWorker | Refusal::Loading => "the worker has no session",
            },
        )
    })?;
    let late = |_| failure("run", &format!("no answer within {} ms", timeout.as_millis()));
    let rows = tokio::time::timeout(timeout, ticket).await.map_err(late)?;
    let rows = rows.map_err(|error| match error {
        RunError::Expired => {
            let ms = timeout.as_millis();
            failure("queue", &format!("the worker did not take the check within {ms} ms"))
        }
        RunError::EngineFailed(reason) => failure("run", &reason),
        RunError::NonFinite { .. } => failure("finite", "a row is not finite"),
        RunError::NoWorker => failure("run", "the worker is gone"),
    })?;
    rows.into_iter().next().ok_or_else(|| failure("run", "the worker gave no row"))
}

fn judge(manifest: &Manifest, rows: &ItemRows) -> (Option<Comparison>, Option<CheckFailure>) {
    let ItemRows { dense, weights, token_vectors, .. } = rows;
    if ![dense, weights, token_vectors].into_iter().all(|row| is_finite(row)) {
        return (None, Some(failure("finite", "a row is not finite")));
    }
    let seen = canary::compare(manifest, rows);
    let tolerances = manifest.canary.tolerances;
    let wrong = if !seen.dense_ok {
        let least = tolerances.dense_cosine_min;
        Some(failure("dense", &format!("cosine {:.6} is below {least}", seen.dense_cosine)))
    } else if !seen.sparse_ok {
        let most = tolerances.sparse_max_abs;
        Some(failure(
            "sparse",
            &format!("a weight is off by {:.4}, above {most}", seen.sparse_error),
        ))
    } else {
        None
    };
    (Some(seen), wrong)
}

fn failure(stage: &'static str, reason: &str) -> CheckFailure {
    CheckFailure { stage, reason: reason.to_owned() }
}
