//! What the sessions of an engine share: places on its GPUs, and counters for its figures.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use super::ffi::BridgeError;
use super::{KernelFile, fault};
use crate::engine::places::Places;
use crate::engine::{EngineError, LostGpu};
use settings::cores;

/// What sessions tell the engine, and each other.
pub(super) struct Shared {
    pub(super) places: Places,
    /// Those that this process may use, by its affinity and its share of the machine.
    cores: usize,
    /// CUDA's number of each place.
    indexes: Vec<usize>,
    /// GPUs that cannot be used, since the start or since they failed.
    pub(super) lost: Mutex<Vec<LostGpu>>,
    /// Of all sessions: captured graphs, sessions that refused one, and execution contexts with the
    /// nanoseconds that making them took and their bytes on the GPUs.
    pub(super) counters: [AtomicU64; 5],
    /// One for each device; `None` for a library that compiles nothing on the device.
    pub(super) kernels: Vec<Option<KernelFile>>,
}

impl Shared {
    pub(super) fn new(
        indexes: Vec<usize>,
        kernels: Vec<Option<KernelFile>>,
        lost: Vec<LostGpu>,
    ) -> Self {
        for LostGpu { index, reason } in &lost {
            tracing::warn!(device = index, reason, "a GPU cannot be used; the others serve");
        }
        Self {
            places: Places::new(indexes.len()),
            cores: cores(),
            indexes,
            lost: Mutex::new(lost),
            counters: Default::default(),
            kernels,
        }
    }

    /// Whether waiting threads must give up their cores: a thread that waits awake takes a whole
    /// one, and with as many sessions as cores none is left for requests.
    pub(super) fn wait_asleep(&self) -> bool {
        self.places.sessions() >= self.cores
    }

    /// The engine's error for one of the device at `place`. After an error that lasts, no session
    /// is opened there any more.
    pub(super) fn fault(&self, place: usize, error: BridgeError) -> EngineError {
        match error {
            BridgeError::Poisoned(reason) => self.lose(place, reason),
            other => fault(other),
        }
    }

    /// The device at `place` can never be used again by this process.
    pub(super) fn lose(&self, place: usize, reason: String) -> EngineError {
        let index = self.indexes[place];
        // The list's lock first: whoever finds no place left finds all reasons.
        let mut lost = self.lost.lock();
        if self.places.is_open(place) {
            self.places.close(place);
            tracing::error!(device = index, reason, "a GPU is lost for this process");
            lost.push(LostGpu { index, reason: reason.clone() });
        }
        self.error_of_loss(place, reason)
    }

    fn error_of_loss(&self, place: usize, reason: String) -> EngineError {
        match self.places.open() {
            0 => EngineError::ProcessPoisoned(reason),
            _ => EngineError::GpuLost(format!("GPU {}: {reason}", self.indexes[place])),
        }
    }
}

/// A session's place on its device. Dropping it frees the place.
pub(super) struct Lease {
    pub(super) shared: Arc<Shared>,
    pub(super) place: usize,
}

impl Lease {
    /// # Errors
    /// `ProcessPoisoned` if all devices are lost.
    pub(super) fn on_emptiest(shared: &Arc<Shared>) -> Result<Self, EngineError> {
        let place = shared.places.enter_emptiest();
        let lost = || EngineError::ProcessPoisoned("all GPUs are lost".to_owned());
        Ok(Self { place: place.ok_or_else(lost)?, shared: Arc::clone(shared) })
    }

    pub(super) fn at(shared: &Arc<Shared>, place: usize) -> Self {
        shared.places.enter(place);
        Self { place, shared: Arc::clone(shared) }
    }

    /// # Errors
    /// If another session has found that this device is lost: nothing more is asked of it.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        if self.shared.places.is_open(self.place) {
            return Ok(());
        }
        Err(self.shared.error_of_loss(self.place, "the GPU is lost".to_owned()))
    }

    pub(super) fn fault(&self, error: BridgeError) -> EngineError {
        self.shared.fault(self.place, error)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.places.leave(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wait_asleep_where_no_core_is_left_for_requests() {
        let with_cores = |cores| Shared { cores, ..Shared::new(vec![0], vec![None], Vec::new()) };
        for (cores, sessions, asleep) in [(1, 1, true), (2, 1, false), (2, 2, true), (9, 8, false)]
        {
            let shared = Arc::new(with_cores(cores));
            let leases: Vec<_> = (0..sessions).map(|_| Lease::at(&shared, 0)).collect();
            assert_eq!(shared.wait_asleep(), asleep, "{} sessions, {cores} cores", leases.len());
        }
    }
}
