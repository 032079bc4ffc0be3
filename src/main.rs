//! The command `duovec`.

use std::ffi::c_long;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Buffers go from the connections' threads to the workers' and back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long freed memory may stay with an idle process.
const KEEP_FREED: Duration = Duration::from_secs(10);

/// How long the allocator keeps what was freed while it works. Its own second lets bodies and
/// answers of one second lie beside those of the next, so that memory exceeds its bound.
const KEEP_FREED_BUSY_MS: c_long = 100;

/// mimalloc's number of `purge_delay`; the crate has a name for its neighbour only.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;

fn main() -> ExitCode {
    set_up_allocator();
    let purge = thread::Builder::new().name("purge".into());
    if let Err(error) = purge.spawn(give_back_freed_memory) {
        eprintln!("duovec: no thread can be started: {error}");
        return ExitCode::FAILURE;
    }
    duovec::run(std::env::args_os())
}

/// Must come before other threads begin.
#[expect(unsafe_code, reason = "only a function in C does it")]
fn set_up_allocator() {
    // SAFETY: no other thread runs that could read the options meanwhile.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, KEEP_FREED_BUSY_MS);
    }
}

/// The allocator gives freed memory back while it works; an idle process has it work here.
#[expect(unsafe_code, reason = "only a function in C does it")]
fn give_back_freed_memory() {
    loop {
        thread::sleep(KEEP_FREED);
        // SAFETY: any thread may call it at any time; it frees nothing that is in use.
        unsafe {
            libmimalloc_sys::mi_collect(true);
        }
    }
}
