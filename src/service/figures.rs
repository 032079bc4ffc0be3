//! The device's figures: one thread asks for them, everyone else reads what it was told last.
//!
//! A call into a driver may never return. Only the thread made here waits then; health, metrics
//! and the watchdog go on, and the figures grow old.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::engine::{Engine, GpuFigures};
use clock::{Clock, Moment};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// A scrape gives every value its own time, so values from this age on are left out of it.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// What the device said at one moment.
pub(super) struct Sample {
    pub(super) figures: Vec<(String, u64)>,
    gpus: Vec<GpuFigures>,
    asked: Moment,
}

impl Sample {
    /// Time since the device was asked.
    pub(super) fn age(&self, now: Moment) -> Duration {
        now.since(self.asked)
    }

    /// The GPUs; none when the device has not answered for some seconds.
    pub(super) fn fresh_gpus(&self, now: Moment) -> &[GpuFigures] {
        if self.age(now) < STALE_AFTER { &self.gpus } else { &[] }
    }
}

/// The latest sample. Dropping it ends the thread that takes samples, unless the thread still waits
/// for the device.
pub(super) struct Figures {
    latest: Arc<ArcSwap<Sample>>,
    _stop: Sender<()>,
}

impl Figures {
    /// Takes the first sample on the calling thread, which has just loaded the model, so that a
    /// server that is ready has figures; a thread of its own takes the others.
    pub(super) fn start(engine: &Arc<dyn Engine>, clock: Arc<dyn Clock>) -> Self {
        Self::every(SAMPLE_EVERY, engine, clock)
    }

    fn every(pause: Duration, engine: &Arc<dyn Engine>, clock: Arc<dyn Clock>) -> Self {
        let latest = Arc::new(ArcSwap::from_pointee(sample(&**engine, &*clock)));
        let (stop, stopped) = channel();
        let (written, weak) = (Arc::clone(&latest), Arc::downgrade(engine));
        let thread = thread::Builder::new().name("duovec-figures".to_owned());
        if let Err(error) = thread.spawn(move || keep(pause, &stopped, &weak, &*clock, &written)) {
            tracing::warn!(%error, "no thread for the device's figures; they stay as they are");
        }
        Self { latest, _stop: stop }
    }

    /// What the device said last.
    pub(super) fn latest(&self) -> Arc<Sample> {
        self.latest.load_full()
    }
}

/// Takes samples until the other end of `stopped` is dropped. The engine is held only during a
/// sample, so that its owners decide which thread drops it.
fn keep(
    pause: Duration,
    stopped: &Receiver<()>,
    engine: &Weak<dyn Engine>,
    clock: &dyn Clock,
    latest: &ArcSwap<Sample>,
) {
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let Some(engine) = engine.upgrade() else { return };
        latest.store(Arc::new(sample(&*engine, clock)));
    }
}

fn sample(engine: &dyn Engine, clock: &dyn Clock) -> Sample {
    let asked = clock.now();
    Sample { figures: engine.figures(), gpus: engine.gpus(), asked }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fake::FakeEngine;
    use crate::engine::{EngineError, EngineInfo, Session};
    use clock::ManualClock;
    use parking_lot::Mutex;
    use scheduling::batch::Bucket;

    /// An engine whose device answers only when the test says so.
    struct Slow {
        fake: FakeEngine,
        asked: Sender<()>,
        answers: Mutex<Receiver<()>>,
    }

    impl Engine for Slow {
        fn info(&self) -> &EngineInfo {
            self.fake.info()
        }

        fn open_session(&self, buckets: &[Bucket]) -> Result<Box<dyn Session>, EngineError> {
            self.fake.open_session(buckets)
        }

        fn gpus(&self) -> Vec<GpuFigures> {
            let _ = self.asked.send(());
            let _ = self.answers.lock().recv();
            vec![GpuFigures { index: 0, name: "a".to_owned(), free_bytes: 1, total_bytes: 2 }]
        }
    }

    #[test]
    fn figures_of_a_silent_device_grow_old_and_leave_the_scrape() {
        let (asked, was_asked) = channel();
        let (answer, answers) = channel();
        let fake = FakeEngine::new(4);
        let engine: Arc<dyn Engine> = Arc::new(Slow { fake, asked, answers: Mutex::new(answers) });
        let clock = Arc::new(ManualClock::default());
        let ask_again = || was_asked.recv().expect("the engine lives");
        answer.send(()).expect("the engine lives");
        let shared = Arc::clone(&clock);
        let figures = Figures::every(Duration::from_millis(1), &engine, shared);
        ask_again();
        // The thread asks, and the device does not answer.
        ask_again();
        for (advance, age, gpus) in [(0, 0, 1), (4999, 4999, 1), (1, 5000, 0)] {
            clock.advance(Duration::from_millis(advance));
            let (sample, now) = (figures.latest(), clock.now());
            assert_eq!(sample.age(now), Duration::from_millis(age));
            assert_eq!(sample.fresh_gpus(now).len(), gpus, "after {age} ms");
        }
        // Asked before the clock went on, so its answer is as old; the next one is new.
        answer.send(()).expect("the engine lives");
        ask_again();
        answer.send(()).expect("the engine lives");
        ask_again();
        assert_eq!(figures.latest().age(clock.now()), Duration::ZERO);
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        let fake = FakeEngine::new(4);
        let engine: Arc<dyn Engine> = Arc::new(fake);
        let clock = Arc::new(ManualClock::default());
        let watched = Arc::downgrade(&clock);
        drop(Figures::start(&engine, clock));
        // The thread held the clock's last owner; the test's time limit ends this.
        while watched.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
