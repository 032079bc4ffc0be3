//! Which of an engine's devices the next session is opened on.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// In the place of a count: the device is lost.
const LOST: usize = usize::MAX;

/// Open sessions of each device, in the devices' order.
#[derive(Debug)]
pub(super) struct Places {
    sessions: Vec<AtomicUsize>,
    /// Held by whoever changes a count. Every run reads counts, without it.
    changes: Mutex<()>,
}

impl Places {
    pub(super) fn new(devices: usize) -> Self {
        let sessions = (0..devices).map(|_| AtomicUsize::new(0)).collect();
        Self { sessions, changes: Mutex::new(()) }
    }

    /// The count of each device that is not lost, with the device's place.
    fn counts(&self) -> impl Iterator<Item = (usize, usize)> {
        let counts = self.sessions.iter().map(|count| count.load(Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count != LOST)
    }

    fn change(&self, place: usize, changed: impl Fn(usize) -> usize) {
        let _alone = self.changes.lock();
        if self.is_open(place) {
            let count = self.sessions[place].load(Ordering::Relaxed);
            self.sessions[place].store(changed(count), Ordering::Relaxed);
        }
    }

    /// Counts a session on the device with the fewest sessions, and returns the device's place;
    /// `None` if all devices are lost. One lock guards choice and count, since all workers open
    /// their sessions at the same time.
    pub(super) fn enter_emptiest(&self) -> Option<usize> {
        let _alone = self.changes.lock();
        let (place, count) = self.counts().min_by_key(|(_, count)| *count)?;
        self.sessions[place].store(count + 1, Ordering::Relaxed);
        Some(place)
    }

    pub(super) fn enter(&self, place: usize) {
        self.change(place, |count| count + 1);
    }

    pub(super) fn leave(&self, place: usize) {
        self.change(place, |count| count - 1);
    }

    pub(super) fn close(&self, place: usize) {
        self.change(place, |_| LOST);
    }

    /// Whether the device at `place` is not lost.
    pub(super) fn is_open(&self, place: usize) -> bool {
        self.sessions[place].load(Ordering::Relaxed) != LOST
    }

    /// Sessions on all devices that are not lost.
    pub(super) fn sessions(&self) -> usize {
        self.counts().map(|(_, count)| count).sum()
    }

    /// Devices that are not lost.
    pub(super) fn open(&self) -> usize {
        self.counts().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint;
    use std::thread;

    #[test]
    fn the_device_with_the_fewest_sessions_is_next() {
        let places = Places::new(3);
        places.enter(0);
        let entered: Vec<_> = (0..4).map(|_| places.enter_emptiest()).collect();
        assert_eq!(entered, [1, 2, 0, 1].map(Some));
        assert_eq!(places.sessions(), 5);
        places.leave(2);
        assert_eq!(places.enter_emptiest(), Some(2));
    }

    #[test]
    fn a_lost_device_gets_no_session() {
        let places = Places::new(2);
        places.enter(0);
        places.close(0);
        // The session that was open there ends.
        places.leave(0);
        assert_eq!([places.enter_emptiest(), places.enter_emptiest()], [Some(1), Some(1)]);
        assert_eq!((places.is_open(0), places.open(), places.sessions()), (false, 1, 2));
        places.close(1);
        assert_eq!((places.enter_emptiest(), places.open()), (None, 0));
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
                let place = places.enter_emptiest().expect("none is lost");
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
