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

    /// Counts a session on the device with the fewest; gives its place among the devices.
    pub(super) fn enter_emptiest(&self) -> usize {
        let place = self.emptiest();
        self.enter(place);
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

    fn emptiest(&self) -> usize {
        let sessions = self.0.lock();
        (0..sessions.len()).min_by_key(|&place| sessions[place]).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_with_the_fewest_sessions_is_next() {
        let places = Places::new(3);
        places.enter(0);
        let entered: Vec<usize> = (0..4).map(|_| places.enter_emptiest()).collect();
        assert_eq!(entered, [1, 2, 0, 1]);
        places.leave(2);
        assert_eq!(places.enter_emptiest(), 2);
    }
}
