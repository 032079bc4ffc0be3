//! Freed memory goes back to the system soon, also that of an idle process.
//!
//! The allocator, mimalloc, returns memory only while it works, and each thread keeps blocks of its
//! own that other threads freed. Engines have glibc's, which keeps what lies between blocks in use.

use std::ffi::c_long;
use std::time::Duration;
use std::{io, mem, thread};

use rustix::thread::disable_transparent_huge_pages;
use rustix::time::{ClockId, clock_gettime};

/// How long freed memory may stay with an idle process.
pub(crate) const KEEP_FREED: Duration = Duration::from_secs(10);

/// How long the allocator keeps what was freed while it works. Its own second lets bodies and
/// answers of one second lie beside those of the next, so that memory exceeds its bound.
const KEEP_FREED_BUSY_MS: c_long = 100;

/// mimalloc's number of `purge_delay`; the crate has a name for its neighbour only.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;

/// A process is idle that uses less than one part in so many of a core.
const IDLE: u32 = 100;

/// Sets the allocator's options, unless the environment does, and starts the thread that gives
/// memory back. Must come before other threads begin.
///
/// # Errors
/// When no thread can be started.
#[expect(unsafe_code, reason = "only a function in C does it")]
pub fn set_up() -> io::Result<()> {
    // SAFETY: no other thread runs that could read the options meanwhile.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, KEEP_FREED_BUSY_MS);
    }
    thread::Builder::new().name("purge".into()).spawn(give_back).map(drop)
}

/// The process gets no huge pages from now on, and keeps those that it has. What was loaded is read
/// faster in them. What comes and goes leaves gaps that the system would fill again.
pub(crate) fn make_no_more_huge_pages() {
    // A system that refuses takes some tens of megabytes more.
    let _ = disable_transparent_huge_pages(true);
}

/// Gives back what threads that ended have left, and what the engines of an idle process have.
fn give_back() {
    let mut used = processor_time();
    loop {
        thread::sleep(KEEP_FREED);
        let before = mem::replace(&mut used, processor_time());
        collect();
        if used - before < KEEP_FREED / IDLE {
            trim();
        }
    }
}

/// Of all threads since the start.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or_default())
}

/// Gives back what the thread that polls it does not use, for ever.
pub(crate) async fn give_back_of_thread() {
    loop {
        tokio::time::sleep(KEEP_FREED).await;
        collect();
    }
}

/// Gives back what engines have freed. Locks their allocator for some milliseconds.
#[expect(unsafe_code, reason = "only a function in C does it")]
fn trim() {
    // SAFETY: any thread may call it at any time; it frees nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives back what this thread and all that have ended do not use, blocks that others freed too.
#[expect(unsafe_code, reason = "only a function in C does it")]
pub(crate) fn collect() {
    // SAFETY: any thread may call it at any time; it frees nothing that is in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, process::Command};

    /// The options are those of a process, so the test runs itself in another one.
    #[test]
    #[expect(unsafe_code, reason = "only a function in C does it")]
    fn the_environment_says_how_long_freed_memory_is_kept() {
        const VARIABLE: &str = "MIMALLOC_PURGE_DELAY";
        if let Ok(asked) = env::var(VARIABLE) {
            set_up().expect("a thread can be started");
            // SAFETY: it only reads.
            let kept_ms = unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
            return assert_eq!(kept_ms.to_string(), asked);
        }
        let name = "allocator::tests::the_environment_says_how_long_freed_memory_is_kept";
        let mut again = Command::new(env::current_exe().expect("it runs"));
        let ended = again.args(["--exact", name]).env(VARIABLE, "7").output();
        assert!(ended.expect("it starts").status.success());
    }
}
