//! Panics outside of a session's run: no request may be left without an answer.

use super::*;

/// Panics once when a thread of this name asks for the time.
#[derive(Debug, Default)]
struct Trap {
    clock: RealClock,
    armed_for: Mutex<Option<&'static str>>,
}

impl Trap {
    fn arm(&self, thread: &'static str) {
        *self.armed_for.lock() = Some(thread);
    }
}

impl Clock for Trap {
    fn now(&self) -> Moment {
        let mut armed_for = self.armed_for.lock();
        let current = thread::current();
        if armed_for.is_some_and(|name| current.name() == Some(name)) {
            *armed_for = None;
            panic!("the clock panics");
        }
        self.clock.now()
    }
}

#[tokio::test]
async fn a_panic_after_a_run_answers_its_batch_and_replaces_the_worker() {
    let (gate, clock) = (Gate::closed(), Arc::new(Trap::default()));
    let watchdog = WatchdogConfig::default();
    let rig = Rig::timed(Arc::clone(&clock) as _, 1, 100, gated(&gate), watchdog);
    rig.pool.wait_ready().expect("the workers open");
    let ticket = rig.submit(&[ids(1, 9)]).expect("room");
    gate.wait_for_runs(1);
    clock.arm("duovec-worker-0");
    gate.open();
    assert_eq!(within(ticket).await, Err(RunError::NoWorker));
    rig.run(&[ids(2, 9)]).await.expect("a replacement runs it");
    let counts = rig.scheduler.snapshot().counts;
    assert_eq!((counts.failed, counts.replied), (1, 1));
}

#[tokio::test]
async fn a_run_that_leaves_no_rows_answers_its_batch() {
    let rig = Rig::new(1, 100, faults([(0, Fault::NoRows)]));
    assert_eq!(rig.run(&[ids(1, 9)]).await, Err(RunError::NoWorker));
    rig.run(&[ids(2, 9)]).await.expect("a replacement runs it");
}
