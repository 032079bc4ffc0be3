//! A bounded pool for the work on a request that keeps a core busy: parsing, tokenizing, writing.
//!
//! Its threads are of low priority for the operating system: they take what the engine's threads
//! leave, so a flood of long texts slows down other requests as little as possible. Work that
//! nobody waits for any more is not begun, and can see within itself that it is not wanted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

/// Added to the niceness of the process (0 to 19): such a thread gets about a tenth of a core that
/// another thread wants as well.
const NICENESS: i32 = 10;

/// Threads without work end after this time: what they freed goes back only then.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Threads of low priority, as many as there are cores.
#[derive(Debug)]
pub(super) struct ComputePool {
    /// `None` only while it is dropped. It has no driver and runs no future of its own.
    runtime: Option<Runtime>,
    threads: usize,
}

/// Tells work whether somebody waits for its result.
#[derive(Debug, Clone)]
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// False when the future of the work was dropped.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Withdraws the work when it is dropped.
struct Waiting<W> {
    wanted: Wanted,
    /// Empty once it has begun.
    work: Arc<Mutex<Option<W>>>,
}

impl<W> Drop for Waiting<W> {
    fn drop(&mut self) {
        self.wanted.0.store(false, Ordering::Relaxed);
        // Work that has not begun never begins, and what it holds is free at once.
        let withdrawn = self.work.lock().take();
        drop(withdrawn);
    }
}

impl ComputePool {
    pub(super) fn new(threads: usize) -> Self {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(threads)
            .thread_keep_alive(KEEP_ALIVE)
            .thread_name("duovec-compute")
            .on_thread_start(|| {
                // Where the system refuses, the threads have the priority of all others.
                let _ = rustix::process::nice(NICENESS);
            })
            .build()
            .expect("a runtime without drivers asks nothing of the operating system");
        Self { runtime: Some(runtime), threads }
    }

    /// How much can be done at the same time.
    pub(super) const fn threads(&self) -> usize {
        self.threads
    }

    /// Does `work` behind what waits already. Dropping the future withdraws it.
    ///
    /// # Errors
    /// When the work panicked; the text is for the log.
    pub(super) fn run<T, W>(&self, work: W) -> impl Future<Output = Result<T, String>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&Wanted) -> T + Send + 'static,
    {
        let runtime = self.runtime.as_ref().expect("it is there until the pool is dropped");
        let wanted = Wanted(Arc::new(AtomicBool::new(true)));
        let work = Arc::new(Mutex::new(Some(work)));
        let waiting = Waiting { wanted: wanted.clone(), work: Arc::clone(&work) };
        let task = runtime.spawn_blocking(move || {
            let work = work.lock().take();
            work.map(|work| work(&wanted))
        });
        async move {
            let done = task.await;
            drop(waiting);
            let done = done.map_err(|error| error.to_string())?;
            Ok(done.expect("only this future's end withdraws the work"))
        }
    }
}

impl Drop for ComputePool {
    fn drop(&mut self) {
        // Waiting for threads is not allowed on the thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn work_gives_its_result_and_a_panic_is_an_error() {
        let pool = ComputePool::new(1);
        assert_eq!(pool.run(|_| 7).await, Ok(7));
        let error = pool.run(|_| panic!("broken")).await.map(|(): ()| ()).expect_err("it panics");
        assert!(error.contains("broken"), "{error}");
        assert_eq!(pool.run(|_| 8).await, Ok(8), "the thread goes on");
    }

    #[tokio::test]
    async fn no_more_work_runs_at_once_than_there_are_threads() {
        let pool = ComputePool::new(2);
        let both = Arc::new(Barrier::new(3));
        let (begun, order) = channel();
        let works: Vec<_> = (0..4)
            .map(|index| {
                let (both, begun) = (Arc::clone(&both), begun.clone());
                pool.run(move |_| {
                    begun.send(index).expect("the test listens");
                    if index < 2 {
                        both.wait();
                    }
                })
            })
            .collect();
        let mut first = [order.recv().expect("it begins"), order.recv().expect("it begins")];
        first.sort_unstable();
        assert_eq!(first, [0, 1]);
        assert!(order.try_recv().is_err(), "the others wait for a thread");
        both.wait();
        for work in works {
            work.await.expect("no work panics");
        }
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_not_begun_and_sees_it_when_it_runs() {
        let pool = ComputePool::new(1);
        let (begun, beginning) = channel();
        let (ended, end) = channel();
        let running = pool.run(move |wanted| {
            begun.send(()).expect("the test listens");
            while wanted.get() {
                std::thread::yield_now();
            }
            ended.send(()).expect("the test listens");
        });
        let (done, never) = channel();
        let waiting = pool.run(move |_| done.send(()).expect("the test listens"));
        beginning.recv().expect("the first begins");
        drop(waiting);
        drop(running);
        end.recv().expect("it saw that it is not wanted");
        pool.run(|_| ()).await.expect("the thread is free");
        assert!(never.try_recv().is_err(), "the second was never begun");
    }

    #[tokio::test]
    async fn work_that_is_withdrawn_lets_go_of_what_it_holds_at_once() {
        let pool = ComputePool::new(1);
        let (begun, beginning) = channel();
        let (end, ended) = channel::<()>();
        let running = pool.run(move |_| {
            begun.send(()).expect("the test listens");
            ended.recv().expect("the test says when");
        });
        beginning.recv().expect("the first begins");
        let held = Arc::new(());
        let holds = Arc::clone(&held);
        let waiting = pool.run(move |_| drop(holds));
        assert_eq!(Arc::strong_count(&held), 2, "it waits behind the first");
        drop(waiting);
        assert_eq!(Arc::strong_count(&held), 1);
        end.send(()).expect("the first waits");
        running.await.expect("it does not panic");
    }
}
