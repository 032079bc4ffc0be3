//! Freed memory goes back to the system soon, also that of an idle process.
//!
//! The allocator, mimalloc, returns memory only while it works, and each thread keeps blocks of its
//! own that other threads freed.

use std::ffi::c_long;
use std::time::Duration;
use std::{io, thread};

/// How long freed memory may stay with an idle process.
const KEEP_FREED: Duration = Duration::from_secs(10);

/// How long the allocator keeps what was freed while it works. Its own second lets bodies and
/// answers of one second lie beside those of the next, so that memory exceeds its bound.
const KEEP_FREED_BUSY_MS: c_long = 100;

/// mimalloc's number of `purge_delay`; the crate has a name for its neighbour only.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;

/// What threads that end leave goes back from now on. Must come before other threads begin.
///
/// # Errors
/// When no thread can be started.
#[expect(unsafe_code, reason = "only a function in C does it")]
pub fn set_up() -> io::Result<()> {
    // SAFETY: no other thread runs that could read the options meanwhile.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, KEEP_FREED_BUSY_MS);
    }
    let gives_back = || {
        loop {
            thread::sleep(KEEP_FREED);
            collect();
        }
    };
    thread::Builder::new().name("purge".into()).spawn(gives_back).map(drop)
}

/// Gives back what the thread that polls it does not use, for ever.
pub(crate) async fn give_back_of_thread() {
    loop {
        tokio::time::sleep(KEEP_FREED).await;
        collect();
    }
}

/// Gives back what this thread and all that have ended do not use, blocks that others freed too.
#[expect(unsafe_code, reason = "only a function in C does it")]
fn collect() {
    // SAFETY: any thread may call it at any time; it frees nothing that is in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
