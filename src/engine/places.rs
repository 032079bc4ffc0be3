//! Which of an engine's devices the next session is opened on.

use parking_lot::Mutex;

/// Open sessions of each device, in the devices' order.
#[derive(Debug)]
pub(super) struct Places(Mutex<Vec<usize>>);

impl Places {
    /// No session is open yet.
    pub(super) fn new(devices: usize) -> Self {
        Self(Mutex::new(vec![0; devices]))
    }

    /// Counts a session on the device with the fewest sessions, and returns the device's place. One
    /// lock guards choice and count, since all workers open their sessions at the same time.
    pub(super) fn enter_emptiest(&self) -> usize {
        let mut sessions = self.0.lock();
        let place = (0..sessions.len()).min_by_key(|&place| sessions[place]).unwrap_or(0);
        sessions[place] += 1;
        place
    }

    /// Counts a session on the device at `place`.
    pub(super) fn enter(&self, place: usize) {
        self.0.lock()[place] += 1;
    }

    /// A session on the device at `place` has ended.
    pub(super) fn leave(&self, place: usize) {
        self.0.lock()[place] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn the_device_with_the_fewest_sessions_is_next() {
        let places = Places::new(3);
        places.enter(0);
        let entered: Vec<usize> = (0..4).map(|_| places.enter_emptiest()).collect();
        assert_eq!(entered, [1, 2, 0, 1]);
        places.leave(2);
        assert_eq!(places.enter_emptiest(), 2);
    }

    #[test]
    fn sessions_that_are_opened_side_by_side_are_on_different_devices() {
        const ROUNDS: usize = 10_000;
        let (places, arrived) = (Places::new(2), AtomicUsize::new(0));
        // Spins, since threads that a barrier wakes go on one after the other.
        let meet = |all: usize| {
            arrived.fetch_add(1, Ordering::AcqRel);
            let mut looks = 0;
            while arrived.load(Ordering::Acquire) < all {
                looks += 1;
                if looks % 1000 == 0 { thread::yield_now() } else { hint::spin_loop() }
            }
        };
        let open = || {
            let round = |round: usize| {
                meet(4 * round + 2);
                let place = places.enter_emptiest();
                meet(4 * round + 4);
                places.leave(place);
                place
            };
            (0..ROUNDS).map(round).collect::<Vec<_>>()
        };
        let (mine, theirs) = thread::scope(|scope| {
            let other = scope.spawn(open);
            (open(), other.join().expect("it does not panic"))
        });
        let together = mine.iter().zip(&theirs).filter(|(mine, theirs)| mine == theirs).count();
        assert_eq!(together, 0, "of {ROUNDS} pairs of sessions, so many share a device");
    }
}
