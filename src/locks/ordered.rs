//! Locks of tests: shuttle's within `in_many_orders`, parking_lot's elsewhere.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

use shuttle::scheduler::RandomScheduler;
use shuttle::sync as shuttled;

thread_local! {
    /// All threads of a test with many orders are run by one thread of the machine.
    static ORDERED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `test` with its threads in `orders` random orders. It fails when no thread can go on.
pub(crate) fn in_many_orders(seed: u64, orders: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // The schedule of a failure would be printed; the seed is shorter.
    config.failure_persistence = shuttle::FailurePersistence::None;
    let runner = shuttle::Runner::new(RandomScheduler::new_from_seed(seed, orders), config);
    ORDERED.set(true);
    runner.run(test);
    ORDERED.set(false);
}

#[derive(Debug)]
pub(crate) enum Mutex<T> {
    Real(parking_lot::Mutex<T>),
    Ordered(shuttled::Mutex<T>),
}

/// `None` only while its thread waits.
#[derive(Debug)]
pub(crate) enum MutexGuard<'a, T> {
    Real(parking_lot::MutexGuard<'a, T>),
    Ordered(Option<shuttled::MutexGuard<'a, T>>),
}

#[derive(Debug)]
pub(crate) enum Condvar {
    Real(parking_lot::Condvar),
    Ordered(shuttled::Condvar),
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        if ORDERED.get() {
            Self::Ordered(shuttled::Mutex::new(value))
        } else {
            Self::Real(parking_lot::Mutex::new(value))
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self {
            Self::Real(mutex) => MutexGuard::Real(mutex.lock()),
            Self::Ordered(mutex) => MutexGuard::Ordered(Some(unpoisoned(mutex.lock()))),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Real(guard) => guard,
            Self::Ordered(guard) => guard.as_ref().expect("it does not wait"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Real(guard) => guard,
            Self::Ordered(guard) => guard.as_mut().expect("it does not wait"),
        }
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        if ORDERED.get() {
            Self::Ordered(shuttled::Condvar::new())
        } else {
            Self::Real(parking_lot::Condvar::new())
        }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match (self, guard) {
            (Self::Real(condvar), MutexGuard::Real(guard)) => condvar.wait(guard),
            (Self::Ordered(condvar), MutexGuard::Ordered(guard)) => {
                let held = guard.take().expect("it does not wait yet");
                *guard = Some(unpoisoned(condvar.wait(held)));
            }
            _ => unreachable!("a lock and its condition are made in the same place"),
        }
    }

    /// Threads that run in many orders have no clock: they wait until they are woken.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        match (self, guard) {
            (Self::Real(condvar), MutexGuard::Real(guard)) => {
                condvar.wait_for(guard, timeout);
            }
            (_, guard) => self.wait(guard),
        }
    }

    pub(crate) fn notify_one(&self) {
        match self {
            Self::Real(condvar) => {
                condvar.notify_one();
            }
            Self::Ordered(condvar) => condvar.notify_one(),
        }
    }
}

fn unpoisoned<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
